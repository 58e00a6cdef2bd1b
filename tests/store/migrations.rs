//! The steps that make a store: the same on both engines, undone by their other half, and all or nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold::db::Mode;

use crate::kit::{at_once, count, one, open, snapshot, task};
use crate::places::{Engine, Place, Raw, engines, patiently};

/// The steps of an engine, oldest first.
fn steps(engine: Engine) -> Vec<PathBuf> {
    let of = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine.name());
    let mut steps: Vec<PathBuf> =
        fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path()).collect();
    steps.sort();
    steps
}

fn run(raw: &mut Raw, step: &Path, half: &str) {
    raw.run(&fs::read_to_string(step.join(half)).unwrap());
}

/// Everything that a schema has, by kind and name, as SQL text where the engine keeps it.
fn parts(raw: &mut Raw) -> BTreeMap<String, String> {
    let sql = match raw {
        Raw::Sqlite(_) => "SELECT type || ' ' || name || '=' || coalesce(sql, '') AS value FROM sqlite_schema",
        Raw::Postgres(_) => {
            "SELECT 'relation ' || relname || '=' || relkind::text AS value FROM pg_class WHERE relnamespace = current_schema()::regnamespace
             UNION ALL SELECT 'column ' || table_name || '.' || column_name || '=' || data_type || is_nullable || coalesce(column_default, '')
               FROM information_schema.columns WHERE table_schema = current_schema()
             UNION ALL SELECT 'index ' || indexname || '=' || indexdef FROM pg_indexes WHERE schemaname = current_schema()
             UNION ALL SELECT 'function ' || proname || '=' || prosrc FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
             UNION ALL SELECT 'trigger ' || tgname || '=' || pg_get_triggerdef(t.oid) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = tgrelid
               WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal"
        }
    };
    raw.texts(sql)
        .into_iter()
        .flatten()
        .map(|part| part.split_once('=').map(|(name, text)| (name.into(), text.into())).unwrap())
        .collect()
}

#[test]
fn both_engines_have_the_same_steps() {
    let names = |engine| -> Vec<String> {
        let name = |step: &PathBuf| step.file_name().unwrap().to_str().unwrap().to_owned();
        steps(engine).iter().map(name).collect()
    };
    assert_eq!(names(Engine::Sqlite), names(Engine::Postgres));
    for step in steps(Engine::Sqlite).iter().chain(&steps(Engine::Postgres)) {
        assert!(step.join("up.sql").exists() && step.join("down.sql").exists(), "{step:?}");
    }
}

#[test]
fn each_step_is_undone_by_its_other_half_and_can_be_taken_again() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut raw = place.raw();
        let mut before = Vec::new();
        for step in steps(engine) {
            before.push(parts(&mut raw));
            run(&mut raw, &step, "up.sql");
        }
        let all = parts(&mut raw);
        for (step, before) in steps(engine).iter().zip(&before).rev() {
            run(&mut raw, step, "down.sql");
            assert_eq!(&parts(&mut raw), before, "{step:?}");
        }
        for step in steps(engine) {
            run(&mut raw, &step, "up.sql");
        }
        assert_eq!(parts(&mut raw), all, "{engine:?}");
    }
}

/// A store as the original leaves it, in which the last statement of the last step cannot succeed.
#[test]
fn a_step_that_fails_leaves_the_store_as_it_was() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut raw = place.raw();
        run(&mut raw, &steps(engine)[0], "up.sql");
        raw.run("INSERT INTO schema_meta VALUES ('version', '4'), ('lineage', 'lionagi')");
        raw.run("CREATE TABLE leasehold_listing (in_the_way INTEGER)");
        let before = (parts(&mut raw), snapshot(&mut raw));
        let error = open(&place, Mode::Write).expect_err("the name is taken");
        assert!(error.to_string().contains("leasehold_listing"), "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        assert_eq!((parts(&mut raw), snapshot(&mut raw)), before, "{engine:?}");
        raw.run("DROP TABLE leasehold_listing");
        place.queue().submit_task(&task()).unwrap();
    }
}

#[test]
fn of_those_who_open_a_fresh_store_at_once_all_succeed() {
    for engine in engines() {
        for round in 0..20 {
            let place = Place::new(engine);
            let opened = at_once(4, |_| {
                let mut queue = open(&place, Mode::Write)?;
                Ok(patiently(|| queue.submit_task(&task())).unwrap())
            });
            let refused: Vec<String> = opened
                .into_iter()
                .filter_map(|open: Result<String, leasehold::db::StoreError>| {
                    Some(open.err()?.to_string())
                })
                .collect();
            assert!(refused.is_empty(), "{engine:?}, round {round}: {refused:?}");
            let mut raw = place.raw();
            assert_eq!(count(&mut raw, "schedule_runs"), 4);
            assert_eq!(count(&mut raw, "__diesel_schema_migrations"), steps(engine).len());
            let id = one(&mut raw, "SELECT value FROM leasehold_meta WHERE key = 'store_id'");
            assert_eq!(id.len(), 32, "{id}");
        }
    }
}
