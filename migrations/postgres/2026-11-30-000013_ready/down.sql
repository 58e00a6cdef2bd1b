DROP INDEX leasehold_ready;
