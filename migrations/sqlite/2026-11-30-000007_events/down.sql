DROP TABLE leasehold_transition_keys;
DROP TRIGGER leasehold_events_of_changes;
DROP TRIGGER leasehold_events_of_runs;
DROP TRIGGER leasehold_newest_event_stays;
DROP TABLE leasehold_events;
