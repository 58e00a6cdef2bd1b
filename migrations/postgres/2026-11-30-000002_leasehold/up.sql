-- What this project adds to a store, its own or one of the original.

CREATE TABLE leasehold_meta (
  "key" TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
);

-- The claim query's own order; the contract's queue index has no id to break ties with.
CREATE INDEX leasehold_queue ON schedule_runs (queued_at, id)
  WHERE status = 'queued' AND schedule_id IS NULL;
-- The reaper's order.
CREATE INDEX leasehold_leases ON schedule_runs (lease_expires_at, id)
  WHERE status = 'running';
-- The keys of running runs, read before a pass and again inside each claim.
CREATE INDEX leasehold_busy_keys ON schedule_runs (concurrency_key)
  WHERE status = 'running' AND concurrency_key IS NOT NULL;
-- Listing, oldest first.
CREATE INDEX leasehold_listing ON schedule_runs (created_at, id);
-- Work that waits for something other than a worker.
CREATE INDEX leasehold_waiting ON schedule_runs (id)
  WHERE status IN ('waiting_dependency', 'retry_wait');
