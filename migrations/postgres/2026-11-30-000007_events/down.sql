DROP TABLE leasehold_transition_keys;
DROP TRIGGER leasehold_events_of_changes ON status_transitions;
DROP FUNCTION leasehold_add_event_of_change();
DROP TRIGGER leasehold_events_of_runs ON schedule_runs;
DROP FUNCTION leasehold_add_event_of_run();
DROP FUNCTION leasehold_event_offset();
DROP TABLE leasehold_events;
