-- What a run starts with, and what was asked of it since. A run that was submitted without settings has no row until
-- something is asked.
CREATE TABLE leasehold_runs (
  run_id              TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES schedule_runs(id) ON DELETE CASCADE,
  -- Directory, variables, limits, timeout and grace, as one JSON object.
  settings            JSON,
  stdin               BYTEA,
  cancel_requested_at DOUBLE PRECISION,
  cancel_source       TEXT,
  cancel_actor        TEXT,
  lease_expiries      INTEGER NOT NULL DEFAULT 0
);

-- How each attempt ended, as the kernel gave it.
CREATE TABLE leasehold_attempts (
  run_id         TEXT COLLATE "C" NOT NULL REFERENCES schedule_runs(id) ON DELETE CASCADE,
  epoch          INTEGER NOT NULL,
  owner          TEXT NOT NULL,
  ended_at       DOUBLE PRECISION NOT NULL,
  ended_by       TEXT NOT NULL,
  exit_code      INTEGER,
  signal         INTEGER,
  core_dumped    INTEGER,
  user_seconds   DOUBLE PRECISION,
  system_seconds DOUBLE PRECISION,
  max_rss_kib    BIGINT,
  leftovers      INTEGER,
  PRIMARY KEY (run_id, epoch)
);
