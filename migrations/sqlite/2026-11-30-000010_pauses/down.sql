DROP INDEX leasehold_queue;
CREATE INDEX leasehold_queue ON schedule_runs (schedule_id, queued_at, id)
  WHERE status = 'queued' AND schedule_id IS NULL;
DROP TABLE leasehold_pauses;
