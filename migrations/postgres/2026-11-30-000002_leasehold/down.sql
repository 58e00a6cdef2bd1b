DROP INDEX leasehold_waiting;
DROP INDEX leasehold_listing;
DROP INDEX leasehold_busy_keys;
DROP INDEX leasehold_leases;
DROP INDEX leasehold_queue;
DROP TABLE leasehold_meta;
