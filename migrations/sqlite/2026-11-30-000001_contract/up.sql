-- The tables of ADR-0071. A store of the original has them already, and this step is then only recorded.

CREATE TABLE schedules (
  id TEXT NOT NULL PRIMARY KEY
);

CREATE TABLE invocations (
  id TEXT NOT NULL PRIMARY KEY
);

CREATE TABLE schedule_runs (
  id                    TEXT NOT NULL PRIMARY KEY,
  schedule_id           TEXT REFERENCES schedules(id) ON DELETE CASCADE,
  invocation_id         TEXT REFERENCES invocations(id),
  trigger_context       JSON NOT NULL,
  action_kind           TEXT NOT NULL,
  action_args           JSON NOT NULL,
  status                TEXT NOT NULL DEFAULT 'running'
                        CHECK (status IN ('queued', 'waiting_dependency', 'running', 'retry_wait',
                                          'completed', 'failed', 'timed_out', 'skipped', 'cancelled')),
  exit_code             INTEGER,
  chain_parent_id       TEXT REFERENCES schedule_runs(id),
  chain_depth           INTEGER NOT NULL DEFAULT 0,
  fired_at              REAL NOT NULL,
  ended_at              REAL,
  error_detail          TEXT,
  created_at            REAL NOT NULL,
  updated_at            REAL,
  status_reason_code    TEXT,
  status_reason_summary TEXT,
  status_evidence_refs  JSON,
  queued_at             REAL,
  leased_by             TEXT,
  -- An infinite expiry would never be reaped. (NaN is stored as NULL here.)
  lease_expires_at      REAL CHECK (lease_expires_at BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
  concurrency_key       TEXT,
  lease_attempts        INTEGER NOT NULL DEFAULT 0,
  required_capabilities JSON,
  execution_target      TEXT,
  library_ref           TEXT,
  library_content_hash  TEXT
);

CREATE INDEX idx_schedule_runs_queue ON schedule_runs (status, queued_at)
  WHERE status IN ('queued', 'retry_wait');
CREATE INDEX idx_schedule_runs_concurrency ON schedule_runs (concurrency_key, status)
  WHERE status IN ('queued', 'running', 'retry_wait');

CREATE TABLE status_transitions (
  id              TEXT NOT NULL PRIMARY KEY,
  entity_type     TEXT NOT NULL,
  entity_id       TEXT NOT NULL,
  previous_status TEXT,
  status          TEXT NOT NULL,
  reason_code     TEXT NOT NULL,
  reason_summary  TEXT,
  evidence_refs   JSON,
  source          TEXT NOT NULL,
  actor           TEXT,
  created_at      REAL NOT NULL,
  metadata        JSON
);

CREATE INDEX idx_status_transitions_entity ON status_transitions (entity_type, entity_id, created_at);

CREATE TABLE workers (
  worker_id               TEXT NOT NULL PRIMARY KEY,
  advertised_capabilities JSON NOT NULL DEFAULT '[]',
  execution_targets       JSON NOT NULL DEFAULT '[]',
  last_heartbeat_at       REAL NOT NULL,
  leased_run_id           TEXT REFERENCES schedule_runs(id)
);

CREATE TABLE schema_meta (
  "key" TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
);

-- A terminal run never changes. Other columns stay writable: the original's pruning clears chain_parent_id.
CREATE TRIGGER leasehold_terminal_runs_stay
BEFORE UPDATE OF status, ended_at, exit_code, leased_by, lease_expires_at, lease_attempts ON schedule_runs
WHEN OLD.status IN ('completed', 'failed', 'timed_out', 'skipped', 'cancelled')
BEGIN
  SELECT RAISE(ABORT, 'a terminal run never changes');
END;
