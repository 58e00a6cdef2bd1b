DROP INDEX leasehold_children;
