DROP TABLE leasehold_keys;
