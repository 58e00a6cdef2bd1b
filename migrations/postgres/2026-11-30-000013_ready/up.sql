-- The queue by what a run waits for: its kind, target, requirement and key, and then its turn. A worker looks at each such
-- class once, however many runs are in it, and reads those of the classes that it can serve. What is long is cut, since an
-- index takes no more. Runs without a time come first, as SQLite sorts them.
CREATE INDEX leasehold_ready ON schedule_runs (
  (substr(action_kind || chr(31) || coalesce(execution_target, '') || chr(31) || coalesce(required_capabilities::text, '')
    || chr(31) || coalesce(concurrency_key, ''), 1, 600) COLLATE "C"),
  queued_at NULLS FIRST, id
) WHERE status = 'queued' AND schedule_id IS NULL;
