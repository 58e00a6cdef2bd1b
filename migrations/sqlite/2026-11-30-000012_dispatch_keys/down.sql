DROP TABLE leasehold_dispatch_keys;
