//! The connection is lost before the commit: nothing is stored of it, so it is done again.

use leasehold::db::StoreError;

use crate::operation::{Deed, Op};
use crate::places::{Engine, engines};
use crate::support::{Answer, Bench, all_done};

fn bench() -> Option<Bench> {
    engines().contains(&Engine::Postgres).then(|| Bench::new(Engine::Postgres))
}

fn five(name: &str, position: usize, deed: &Deed) -> Vec<Op> {
    let deed_of = |i| if i == position { deed.clone() } else { Deed::Write };
    (0..5).map(|i| Op::new(format!("{name}-{position}-{i}"), deed_of(i))).collect()
}

/// Ends every other connection to this test's schema, as a restart of the server would.
fn end_the_others(bench: &mut Bench) {
    let schema = &bench.beside.texts("SELECT current_schema()::text AS value")[0];
    // A backend is told from those of other tests by a lock that it holds for the session.
    let sql = format!(
        "SELECT pg_terminate_backend(pid, 60000)::text AS value FROM pg_locks
         WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
           AND (classid::bigint << 32 | objid::bigint) = hashtextextended('{}', 0)",
        schema.as_ref().unwrap()
    );
    let ended = bench.beside.texts(&sql);
    assert_eq!(ended, [Some("true".to_owned())]);
}

/// Lets [`end_the_others`] find the writer's connection.
fn mark(bench: &mut Bench, name: &str) {
    let sql = "SELECT pg_advisory_lock(hashtextextended(current_schema()::text, 0))";
    bench.store.write(&Op::new(format!("mark-{name}"), Deed::Run(sql.into()))).unwrap();
}

#[test]
fn before_the_batch() {
    let Some(mut bench) = bench() else { return };
    for count in [5, 1] {
        mark(&mut bench, &count.to_string());
        end_the_others(&mut bench);
        let ops = &five(&format!("before-{count}"), 0, &Deed::Write)[..count];
        let answers = bench.run(ops);
        assert!(all_done(&answers), "{count}: {answers:?}");
    }
    mark(&mut bench, "write");
    end_the_others(&mut bench);
    bench.assert_works("after");
}

#[test]
fn once_within_an_operation() {
    let Some(mut bench) = bench() else { return };
    bench.beside.run("CREATE SEQUENCE once");
    // A sequence is not undone with its transaction: only the first run loses the connection.
    let once =
        "SELECT pg_terminate_backend(pg_backend_pid()) FROM nextval('once') AS n WHERE n = 1";
    for position in 0..5 {
        bench.beside.run("ALTER SEQUENCE once RESTART");
        let ops = five("once", position, &Deed::Run(once.into()));
        let answers = bench.run(&ops);
        assert!(all_done(&answers), "at {position}: {answers:?}");
    }
    bench.beside.run("ALTER SEQUENCE once RESTART");
    let answers = bench.run(&[Op::new("alone", Deed::Run(once.into()))]);
    assert!(all_done(&answers), "alone: {answers:?}");
    bench.assert_works("after");
}

#[test]
fn whenever_one_operation_runs() {
    let Some(mut bench) = bench() else { return };
    let unreachable = |answer: &Answer| matches!(answer, Err(StoreError::Unreachable { .. }));
    for deed in [Deed::Disconnect, Deed::HideDisconnect] {
        for position in 0..5 {
            let mut answers = bench.run(&five(&format!("{deed:?}"), position, &deed));
            let its_own = answers.remove(position);
            assert!(unreachable(&its_own), "{deed:?} at {position}: {its_own:?}");
            assert!(all_done(&answers), "{deed:?} at {position}: {answers:?}");
        }
        bench.assert_works(&format!("after-{deed:?}"));
    }
}
