-- The queue by what a run waits for: its kind, target, requirement and key, and then its turn. A worker looks at each such
-- class once, however many runs are in it, and reads those of the classes that it can serve. What is long is cut.
-- schedule_id is always NULL in it, and makes SQLite take it.
CREATE INDEX leasehold_ready ON schedule_runs (
  schedule_id,
  substr(action_kind || char(31) || coalesce(execution_target, '') || char(31) || coalesce(required_capabilities, '')
    || char(31) || coalesce(concurrency_key, ''), 1, 600),
  queued_at, id
) WHERE status = 'queued' AND schedule_id IS NULL;
