//! The tables as both engines have them, written by hand; a test compares them with what the migrations make.

diesel::table! {
    use diesel::sql_types::*;
    use crate::db::columns::JsonColumn;

    schedule_runs (id) {
        id -> Text,
        schedule_id -> Nullable<Text>,
        invocation_id -> Nullable<Text>,
        trigger_context -> JsonColumn,
        action_kind -> Text,
        action_args -> JsonColumn,
        status -> Text,
        exit_code -> Nullable<Integer>,
        chain_parent_id -> Nullable<Text>,
        chain_depth -> Integer,
        fired_at -> Double,
        ended_at -> Nullable<Double>,
        error_detail -> Nullable<Text>,
        created_at -> Double,
        updated_at -> Nullable<Double>,
        status_reason_code -> Nullable<Text>,
        status_reason_summary -> Nullable<Text>,
        status_evidence_refs -> Nullable<JsonColumn>,
        queued_at -> Nullable<Double>,
        leased_by -> Nullable<Text>,
        lease_expires_at -> Nullable<Double>,
        concurrency_key -> Nullable<Text>,
        lease_attempts -> Integer,
        required_capabilities -> Nullable<JsonColumn>,
        execution_target -> Nullable<Text>,
        library_ref -> Nullable<Text>,
        library_content_hash -> Nullable<Text>,
    }
}

diesel::table! {
    use diesel::sql_types::*;
    use crate::db::columns::JsonColumn;

    status_transitions (id) {
        id -> Text,
        entity_type -> Text,
        entity_id -> Text,
        previous_status -> Nullable<Text>,
        status -> Text,
        reason_code -> Text,
        reason_summary -> Nullable<Text>,
        evidence_refs -> Nullable<JsonColumn>,
        source -> Text,
        actor -> Nullable<Text>,
        created_at -> Double,
        metadata -> Nullable<JsonColumn>,
    }
}

diesel::table! {
    use diesel::sql_types::*;
    use crate::db::columns::JsonColumn;

    workers (worker_id) {
        worker_id -> Text,
        advertised_capabilities -> JsonColumn,
        execution_targets -> JsonColumn,
        last_heartbeat_at -> Double,
        leased_run_id -> Nullable<Text>,
    }
}

diesel::table! {
    schema_meta (key) {
        key -> Text,
        value -> Text,
    }
}

diesel::table! {
    leasehold_meta (key) {
        key -> Text,
        value -> Text,
    }
}

diesel::table! {
    use diesel::sql_types::*;
    use crate::db::columns::JsonColumn;

    leasehold_runs (run_id) {
        run_id -> Text,
        settings -> Nullable<JsonColumn>,
        stdin -> Nullable<Binary>,
        cancel_requested_at -> Nullable<Double>,
        cancel_source -> Nullable<Text>,
        cancel_actor -> Nullable<Text>,
        lease_expiries -> Integer,
        wake_at -> Nullable<Double>,
        expires_at -> Nullable<Double>,
        failures -> Integer,
    }
}

diesel::table! {
    leasehold_attempts (run_id, epoch) {
        run_id -> Text,
        epoch -> Integer,
        owner -> Text,
        ended_at -> Double,
        ended_by -> Text,
        exit_code -> Nullable<Integer>,
        signal -> Nullable<Integer>,
        core_dumped -> Nullable<Integer>,
        user_seconds -> Nullable<Double>,
        system_seconds -> Nullable<Double>,
        max_rss_kib -> Nullable<BigInt>,
        leftovers -> Nullable<Integer>,
    }
}

diesel::table! {
    leasehold_keys (key) {
        key -> Text,
        payload_hash -> Text,
        run_id -> Text,
        created_at -> Double,
    }
}

diesel::table! {
    leasehold_pauses (scope, value) {
        scope -> Text,
        value -> Text,
        since -> Double,
        source -> Text,
        actor -> Text,
        reason -> Nullable<Text>,
    }
}

diesel::table! {
    use diesel::sql_types::*;
    use crate::db::columns::JsonColumn;

    leasehold_adapters (worker_id) {
        worker_id -> Text,
        kinds -> JsonColumn,
    }
}

diesel::table! {
    leasehold_steps (run_id, step) {
        run_id -> Text,
        step -> Integer,
        name -> Nullable<Text>,
        kind -> Text,
        epoch -> Integer,
        begun_at -> Double,
        ended_at -> Nullable<Double>,
        exit_code -> Nullable<Integer>,
    }
}

diesel::table! {
    use diesel::sql_types::*;
    use crate::db::columns::JsonColumn;

    dispatch_outbox (id) {
        id -> Text,
        kind -> Text,
        deliver_to -> Text,
        payload -> JsonColumn,
        dedup_key -> Nullable<Text>,
        status -> Text,
        attempt -> Integer,
        max_attempts -> Integer,
        next_attempt_at -> Double,
        ack_required -> Integer,
        ack_token -> Nullable<Text>,
        session_id -> Nullable<Text>,
        schedule_run_id -> Nullable<Text>,
        last_error -> Nullable<Text>,
        created_at -> Double,
        expires_at -> Nullable<Double>,
        updated_at -> Nullable<Double>,
    }
}

diesel::table! {
    leasehold_events (number) {
        number -> BigInt,
        stamp -> BigInt,
        created_at -> Double,
        run_id -> Text,
        status -> Nullable<Text>,
        fact_id -> Nullable<Text>,
    }
}

diesel::table! {
    leasehold_transition_keys (run_id, key) {
        run_id -> Text,
        key -> Text,
        content_hash -> Text,
        fact_id -> Text,
        event_id -> Text,
        previous_status -> Text,
        status -> Text,
        created_at -> Double,
    }
}

diesel::table! {
    leasehold_dispatch_keys (dispatch_id, key) {
        dispatch_id -> Text,
        key -> Text,
        content_hash -> Text,
        fact_id -> Text,
        previous_status -> Text,
        status -> Text,
        created_at -> Double,
    }
}

diesel::allow_tables_to_appear_in_same_query!(leasehold_adapters, workers);
