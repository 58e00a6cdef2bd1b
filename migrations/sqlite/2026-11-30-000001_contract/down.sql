DROP TABLE schema_meta;
DROP TABLE workers;
DROP TABLE status_transitions;
DROP TABLE schedule_runs;
DROP TABLE invocations;
DROP TABLE schedules;
