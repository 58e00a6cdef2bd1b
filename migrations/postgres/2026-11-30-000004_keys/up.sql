-- Which task an idempotency key stands for. A key stays taken for good, so its row outlives the task.
CREATE TABLE leasehold_keys (
  "key"        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  -- Of everything that makes up the task, in a canonical form.
  payload_hash TEXT NOT NULL,
  run_id       TEXT COLLATE "C" NOT NULL,
  created_at   DOUBLE PRECISION NOT NULL
);
