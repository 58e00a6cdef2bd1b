DROP INDEX leasehold_expiries;
DROP INDEX leasehold_wakes;
ALTER TABLE leasehold_runs DROP COLUMN failures;
ALTER TABLE leasehold_runs DROP COLUMN expires_at;
ALTER TABLE leasehold_runs DROP COLUMN wake_at;
