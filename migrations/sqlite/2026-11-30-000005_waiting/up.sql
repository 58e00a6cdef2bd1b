-- When a run that waits goes back to the queue, and when one that is still queued is skipped. Both are cleared when their
-- time has come, whatever became of the run.
ALTER TABLE leasehold_runs ADD COLUMN wake_at REAL;
ALTER TABLE leasehold_runs ADD COLUMN expires_at REAL;
-- How many of its attempts have failed by themselves.
ALTER TABLE leasehold_runs ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;

CREATE INDEX leasehold_wakes ON leasehold_runs (wake_at, run_id) WHERE wake_at IS NOT NULL;
CREATE INDEX leasehold_expiries ON leasehold_runs (expires_at, run_id) WHERE expires_at IS NOT NULL;
