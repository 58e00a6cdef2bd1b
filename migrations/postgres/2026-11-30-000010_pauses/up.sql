-- What an operator has paused: queued runs of it are not claimed. There is at most a row for the queue and one for each
-- kind and each target.
CREATE TABLE leasehold_pauses (
  scope  TEXT NOT NULL CHECK (scope IN ('queue', 'kind', 'target')),
  -- The kind or the target; empty for the queue.
  value  TEXT COLLATE "C" NOT NULL,
  since  DOUBLE PRECISION NOT NULL,
  -- Who has paused it, as in status_transitions.
  source TEXT NOT NULL,
  actor  TEXT NOT NULL,
  reason TEXT,
  PRIMARY KEY (scope, value)
);
