-- Notices that are to be sent. A store of the original has the table, with a foreign key from session_id to its
-- sessions. A store of ours has no such table, and every insert here would fail for the want of it.
CREATE TABLE IF NOT EXISTS dispatch_outbox (
  id TEXT COLLATE "C" NOT NULL,
  kind TEXT NOT NULL,
  deliver_to TEXT NOT NULL,
  payload JSON NOT NULL,
  dedup_key TEXT COLLATE "C",
  status TEXT DEFAULT 'pending' NOT NULL CONSTRAINT ck_dispatch_outbox_status CHECK (status IN ('pending','delivering','delivered','acked','dead_letter','expired')),
  attempt INTEGER DEFAULT 0 NOT NULL,
  max_attempts INTEGER DEFAULT 8 NOT NULL,
  next_attempt_at DOUBLE PRECISION NOT NULL,
  ack_required INTEGER DEFAULT 0 NOT NULL,
  ack_token TEXT,
  session_id TEXT COLLATE "C",
  schedule_run_id TEXT COLLATE "C",
  last_error TEXT,
  created_at DOUBLE PRECISION NOT NULL,
  expires_at DOUBLE PRECISION,
  updated_at DOUBLE PRECISION,
  PRIMARY KEY (id),
  FOREIGN KEY(schedule_run_id) REFERENCES schedule_runs (id)
);
CREATE UNIQUE INDEX IF NOT EXISTS idx_dispatch_outbox_dedup ON dispatch_outbox (dedup_key)
  WHERE dedup_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_dispatch_outbox_due ON dispatch_outbox (status, next_attempt_at)
  WHERE status IN ('pending', 'delivering');

-- Those of ended tasks, which are the only ones that this project sends.
CREATE INDEX leasehold_notices_due ON dispatch_outbox (next_attempt_at, id)
  WHERE kind = 'leasehold.task_ended' AND status IN ('pending', 'delivering');
CREATE INDEX leasehold_notices ON dispatch_outbox (created_at, id)
  WHERE kind = 'leasehold.task_ended';
-- Whoever removes a run looks for its rows here.
CREATE INDEX leasehold_notice_runs ON dispatch_outbox (schedule_run_id)
  WHERE schedule_run_id IS NOT NULL;
