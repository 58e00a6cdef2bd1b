-- The tables of ADR-0071. A store of the original has them already, and this step is then only recorded.

CREATE TABLE schedules (
  id TEXT COLLATE "C" NOT NULL PRIMARY KEY
);

CREATE TABLE invocations (
  id TEXT COLLATE "C" NOT NULL PRIMARY KEY
);

CREATE TABLE schedule_runs (
  id                    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  schedule_id           TEXT COLLATE "C" REFERENCES schedules(id) ON DELETE CASCADE,
  invocation_id         TEXT COLLATE "C" REFERENCES invocations(id),
  trigger_context       JSON NOT NULL,
  action_kind           TEXT NOT NULL,
  action_args           JSON NOT NULL,
  status                TEXT NOT NULL DEFAULT 'running'
                        CHECK (status IN ('queued', 'waiting_dependency', 'running', 'retry_wait',
                                          'completed', 'failed', 'timed_out', 'skipped', 'cancelled')),
  exit_code             INTEGER,
  chain_parent_id       TEXT COLLATE "C" REFERENCES schedule_runs(id),
  chain_depth           INTEGER NOT NULL DEFAULT 0,
  fired_at              DOUBLE PRECISION NOT NULL,
  ended_at              DOUBLE PRECISION,
  error_detail          TEXT,
  created_at            DOUBLE PRECISION NOT NULL,
  updated_at            DOUBLE PRECISION,
  status_reason_code    TEXT,
  status_reason_summary TEXT,
  status_evidence_refs  JSON,
  queued_at             DOUBLE PRECISION,
  leased_by             TEXT,
  -- An infinite or NaN expiry would never be reaped: NaN is greater than every number here.
  lease_expires_at      DOUBLE PRECISION CHECK (lease_expires_at BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
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
  id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  entity_type     TEXT NOT NULL,
  entity_id       TEXT COLLATE "C" NOT NULL,
  previous_status TEXT,
  status          TEXT NOT NULL,
  reason_code     TEXT NOT NULL,
  reason_summary  TEXT,
  evidence_refs   JSON,
  source          TEXT NOT NULL,
  actor           TEXT,
  created_at      DOUBLE PRECISION NOT NULL,
  metadata        JSON
);

CREATE INDEX idx_status_transitions_entity ON status_transitions (entity_type, entity_id, created_at);

CREATE TABLE workers (
  worker_id               TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  advertised_capabilities JSON NOT NULL DEFAULT '[]',
  execution_targets       JSON NOT NULL DEFAULT '[]',
  last_heartbeat_at       DOUBLE PRECISION NOT NULL,
  leased_run_id           TEXT COLLATE "C" REFERENCES schedule_runs(id)
);

CREATE TABLE schema_meta (
  "key" TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
);

-- A terminal run never changes. Other columns stay writable: the original's pruning clears chain_parent_id.
CREATE FUNCTION leasehold_refuse_terminal_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a terminal run never changes' USING ERRCODE = 'check_violation';
END
$$;
CREATE TRIGGER leasehold_terminal_runs_stay
BEFORE UPDATE OF status, ended_at, exit_code, leased_by, lease_expires_at, lease_attempts ON schedule_runs
FOR EACH ROW
WHEN (OLD.status IN ('completed', 'failed', 'timed_out', 'skipped', 'cancelled'))
EXECUTE FUNCTION leasehold_refuse_terminal_change();
