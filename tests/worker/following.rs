//! Following the feed of events beside a worker.

use std::time::Duration;

use leasehold::domain::allow::AllowList;
use leasehold::runtime::EventReader;
use leasehold::{Runtime, RuntimeConfig};

use crate::bench::{Bench, command, on_engines, until};
use crate::dying::short_leases;

fn runtime(bench: &Bench) -> Runtime {
    let mut config = RuntimeConfig::new(bench.place.store_url());
    config.queue.allow_commands = AllowList::parse("true,false");
    Runtime::start(config).unwrap()
}

/// The next events, as one text each.
async fn next(events: &mut EventReader, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for _ in 0..count {
        let event = events.next().await.unwrap();
        let from = event.previous_status.unwrap_or_default();
        seen.push(format!("{} {from} > {}", event.run_id, event.status.unwrap()));
    }
    seen
}

#[test]
fn a_handle_follows_what_its_worker_and_others_do_and_misses_nothing() {
    on_engines(|bench| {
        let before = bench.submit(&command("true", &[]));
        let runtime = runtime(bench);
        let handle = runtime.handle();
        let waiting =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
        let path = |id: &str, end: &str| {
            [
                format!("{id}  > queued"),
                format!("{id} queued > running"),
                format!("{id} running > {end}"),
            ]
        };
        waiting.unwrap().block_on(async {
            let mut all = handle.follow(None);
            assert_eq!(next(&mut all, 3).await, path(&before, "completed"));
            // Nothing happens: who stops waiting has taken nothing.
            let newest = handle.newest_event().await.unwrap();
            assert_eq!(newest, all.place());
            let quiet = tokio::time::timeout(Duration::from_millis(120), all.next()).await;
            assert!(quiet.is_err(), "{quiet:?}");
            let mine = handle.submit(&command("false", &[])).await.unwrap();
            assert_eq!(next(&mut all, 3).await, path(&mine, "failed"));
            // Of another process, while nobody looks.
            let theirs = bench.submit(&command("true", &[]));
            bench.until_status(&theirs, "completed");
            assert_eq!(next(&mut all, 3).await, path(&theirs, "completed"));
            // From a place, in pages and one by one.
            let mut late = handle.follow(newest);
            let six = next(&mut late, 6).await;
            assert_eq!(six, [path(&mine, "failed"), path(&theirs, "completed")].concat());
            let page = handle.events(newest, 2).await.unwrap();
            assert_eq!(page.len(), 2);
            let rest = handle.events(Some(page[1].id), 100).await.unwrap();
            assert_eq!(rest.last().map(|event| event.id), all.place());
        });
        runtime.handle().shut_down_now();
        assert_eq!(runtime.join().code(), 0);
    });
}

/// A worker that is killed, its successor and a reader: the feed is one.
#[test]
fn the_feed_goes_on_over_the_death_of_a_worker() {
    on_engines(|bench| {
        // A server may still store a claim of a dead worker, which is then left to its lease.
        let first = short_leases(bench, &["--concurrency", "4"]);
        let ids = bench.submit_all(&vec![command("true", &[]); 60]);
        until(|| match bench.statuses().get("completed") {
            Some(count) if *count > 5 => Ok(()),
            other => Err(format!("{other:?}")),
        });
        first.kill();
        bench.work(&["--until-empty", "--tick", "1s", "--log", "warn"]);
        let runtime = runtime(bench);
        let handle = runtime.handle();
        let waiting = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let facts: usize = ids.iter().map(|id| bench.facts(id).len()).sum();
        let mut statuses = std::collections::BTreeMap::new();
        waiting.block_on(async {
            let mut events = handle.follow(None);
            for _ in 0..facts + ids.len() {
                let event = events.next().await.unwrap();
                let before = statuses.insert(event.run_id, event.status);
                assert_eq!(before.flatten(), event.previous_status);
            }
            assert!(handle.events(events.place(), 1).await.unwrap().is_empty());
        });
        assert_eq!(statuses.len(), ids.len());
        assert!(statuses.values().all(|status| status.as_deref() == Some("completed")));
        handle.shut_down_now();
        assert_eq!(runtime.join().code(), 0);
    });
}
