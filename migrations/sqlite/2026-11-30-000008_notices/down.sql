DROP INDEX leasehold_notice_runs;
DROP INDEX leasehold_notices;
DROP INDEX leasehold_notices_due;
DROP TABLE dispatch_outbox;
