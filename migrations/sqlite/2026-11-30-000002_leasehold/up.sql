-- What this project adds to a store, its own or one of the original.

CREATE TABLE leasehold_meta (
  "key" TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
);

-- Each of these begins with the column that its own condition fixes. The original has indexes that begin with the
-- same column, and SQLite, as long as it has no statistics, would rather use those and sort: ours must be better in
-- every respect.

-- The claim query's own order. The contract's queue index cannot serve it: SQLite does not see that status = 'queued'
-- implies status IN ('queued', 'retry_wait').
CREATE INDEX leasehold_queue ON schedule_runs (schedule_id, queued_at, id)
  WHERE status = 'queued' AND schedule_id IS NULL;
-- The reaper's order.
CREATE INDEX leasehold_leases ON schedule_runs (status, lease_expires_at, id)
  WHERE status = 'running';
-- The keys of running runs, read before a pass and again inside each claim.
CREATE INDEX leasehold_busy_keys ON schedule_runs (status, concurrency_key)
  WHERE status = 'running' AND concurrency_key IS NOT NULL;
-- Listing, oldest first.
CREATE INDEX leasehold_listing ON schedule_runs (created_at, id);
-- Work that waits for something other than a worker.
CREATE INDEX leasehold_waiting ON schedule_runs (id)
  WHERE status IN ('waiting_dependency', 'retry_wait');
