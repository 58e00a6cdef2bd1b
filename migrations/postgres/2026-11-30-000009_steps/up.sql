-- Which kinds of tasks a worker has adapters for. A worker of the original has no row.
CREATE TABLE leasehold_adapters (
  worker_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  kinds     JSON NOT NULL
);

-- How far a workflow has come: one row for each of its steps that was begun, in the epoch in which it was begun last.
CREATE TABLE leasehold_steps (
  run_id    TEXT COLLATE "C" NOT NULL REFERENCES schedule_runs(id) ON DELETE CASCADE,
  step      INTEGER NOT NULL,
  name      TEXT,
  kind      TEXT NOT NULL,
  epoch     INTEGER NOT NULL,
  begun_at  DOUBLE PRECISION NOT NULL,
  ended_at  DOUBLE PRECISION,
  exit_code INTEGER,
  PRIMARY KEY (run_id, step)
);
