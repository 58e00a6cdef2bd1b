-- The tasks that were made from another one: `show` names them, and whoever removes a task has to find them.
CREATE INDEX leasehold_children ON schedule_runs (chain_parent_id) WHERE chain_parent_id IS NOT NULL;
