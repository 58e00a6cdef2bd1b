-- Which change of a notice an idempotency key stands for. A key is forgotten with its notice.
CREATE TABLE leasehold_dispatch_keys (
  dispatch_id     TEXT NOT NULL REFERENCES dispatch_outbox(id) ON DELETE CASCADE,
  "key"           TEXT NOT NULL,
  -- Of everything that makes up the request, in a canonical form.
  content_hash    TEXT NOT NULL,
  -- What was answered.
  fact_id         TEXT NOT NULL,
  previous_status TEXT NOT NULL,
  status          TEXT NOT NULL,
  created_at      REAL NOT NULL,
  PRIMARY KEY (dispatch_id, "key")
);
