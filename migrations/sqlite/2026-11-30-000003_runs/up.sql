-- What a run starts with, and what was asked of it since. A run that was submitted without settings has no row until
-- something is asked.
CREATE TABLE leasehold_runs (
  run_id              TEXT NOT NULL PRIMARY KEY REFERENCES schedule_runs(id) ON DELETE CASCADE,
  -- Directory, variables, limits, timeout and grace, as one JSON object.
  settings            JSON,
  stdin               BLOB,
  cancel_requested_at REAL,
  cancel_source       TEXT,
  cancel_actor        TEXT,
  lease_expiries      INTEGER NOT NULL DEFAULT 0
);

-- How each attempt ended, as the kernel gave it.
CREATE TABLE leasehold_attempts (
  run_id         TEXT NOT NULL REFERENCES schedule_runs(id) ON DELETE CASCADE,
  epoch          INTEGER NOT NULL,
  owner          TEXT NOT NULL,
  ended_at       REAL NOT NULL,
  ended_by       TEXT NOT NULL,
  exit_code      INTEGER,
  signal         INTEGER,
  core_dumped    INTEGER,
  user_seconds   REAL,
  system_seconds REAL,
  max_rss_kib    BIGINT,
  leftovers      INTEGER,
  PRIMARY KEY (run_id, epoch)
);
