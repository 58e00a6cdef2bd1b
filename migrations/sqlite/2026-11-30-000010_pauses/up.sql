-- What an operator has paused: queued runs of it are not claimed. There is at most a row for the queue and one for each
-- kind and each target.
CREATE TABLE leasehold_pauses (
  scope  TEXT NOT NULL CHECK (scope IN ('queue', 'kind', 'target')),
  -- The kind or the target; empty for the queue.
  value  TEXT NOT NULL,
  since  REAL NOT NULL,
  -- Who has paused it, as in status_transitions.
  source TEXT NOT NULL,
  actor  TEXT NOT NULL,
  reason TEXT,
  PRIMARY KEY (scope, value)
);

-- With kind and target beside its order a page is read past many held runs without fetching their rows: SQLite looks at
-- the columns of the index first.
DROP INDEX leasehold_queue;
CREATE INDEX leasehold_queue ON schedule_runs (schedule_id, queued_at, id, action_kind, execution_target)
  WHERE status = 'queued' AND schedule_id IS NULL;
