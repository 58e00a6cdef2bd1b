-- One ordered feed of what happens to runs, in the order in which the one writer commits. A number is one more than the
-- greatest that is there. (AUTOINCREMENT would write one more page for each commit.)
CREATE TABLE leasehold_events (
  number     INTEGER NOT NULL PRIMARY KEY,
  -- PostgreSQL's order; there is one writer at a time here.
  stamp      BIGINT NOT NULL DEFAULT 0,
  created_at REAL NOT NULL,
  -- No foreign key: an event outlives its run, as its fact does.
  run_id     TEXT NOT NULL,
  -- The status in which a run began; a change has its fact instead.
  status     TEXT,
  fact_id    TEXT
);

CREATE TRIGGER leasehold_newest_event_stays BEFORE DELETE ON leasehold_events
WHEN OLD.number = (SELECT max(number) FROM leasehold_events)
BEGIN
  SELECT RAISE(ABORT, 'the newest event stays: its number would be given again');
END;

-- Triggers, since the original writes facts and runs too.
CREATE TRIGGER leasehold_events_of_runs AFTER INSERT ON schedule_runs
BEGIN
  INSERT INTO leasehold_events (created_at, run_id, status) VALUES (NEW.created_at, NEW.id, NEW.status);
END;
CREATE TRIGGER leasehold_events_of_changes AFTER INSERT ON status_transitions
WHEN NEW.entity_type = 'schedule_run'
BEGIN
  INSERT INTO leasehold_events (created_at, run_id, fact_id) VALUES (NEW.created_at, NEW.entity_id, NEW.id);
END;

-- Which change of a run an idempotency key stands for. A key is forgotten with its run.
CREATE TABLE leasehold_transition_keys (
  run_id          TEXT NOT NULL REFERENCES schedule_runs(id) ON DELETE CASCADE,
  "key"           TEXT NOT NULL,
  -- Of everything that makes up the request, in a canonical form.
  content_hash    TEXT NOT NULL,
  -- What was answered.
  fact_id         TEXT NOT NULL,
  event_id        TEXT NOT NULL,
  previous_status TEXT NOT NULL,
  status          TEXT NOT NULL,
  created_at      REAL NOT NULL,
  PRIMARY KEY (run_id, "key")
);
