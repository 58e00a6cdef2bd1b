//! #3: elsewhere, a stop that met an end sent its result into a closed channel and panicked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::db::ops::ListRuns;
use leasehold::domain::ending::{EndedBy, Execution};
use leasehold::domain::task::TaskApplication;
use leasehold::runtime::{Launched, Launcher, Orders, Outside, TaskEnd, TaskStart};
use leasehold::{Runtime, RuntimeConfig};
use tokio::sync::watch;

use crate::bench::{on_sqlite, until};

const TASKS: usize = 32;
const ROUNDS: u32 = 40;

/// Tasks that all end when they are told to; none ends by being stopped.
#[derive(Debug)]
struct AtOnce {
    started: AtomicUsize,
    go: watch::Receiver<bool>,
}

impl Launcher for AtOnce {
    fn launch(&self, _: TaskStart, _: Orders) -> Launched {
        self.started.fetch_add(1, Ordering::SeqCst);
        let mut go = self.go.clone();
        Box::pin(async move {
            go.wait_for(|go| *go).await.unwrap();
            let execution = Execution { exit_code: 7, detail: String::new() };
            Ok(TaskEnd::new(execution, EndedBy::Task))
        })
    }
}

#[test]
fn a_stop_while_many_tasks_end_loses_no_end() {
    on_sqlite(|bench| {
        let app = TaskApplication::new("agent", "host");
        for round in 0..ROUNDS {
            bench.submit_all(&vec![app.clone(); TASKS]);
            let (tell, go) = watch::channel(false);
            let launcher = Arc::new(AtOnce { started: AtomicUsize::new(0), go });
            let mut config = RuntimeConfig::new(bench.place.store_url());
            config.concurrency = TASKS;
            config.limit = TASKS;
            let outside = Outside { launcher: Some(launcher.clone()), ..Outside::default() };
            let runtime = Runtime::start_with(config, outside).unwrap();
            until(|| match launcher.started.load(Ordering::SeqCst) {
                TASKS => Ok(()),
                started => Err(format!("{started} started")),
            });
            let handle = runtime.handle();
            // By turns the end comes first, the stop, or both at once.
            match round % 3 {
                0 => {
                    tell.send(true).unwrap();
                    handle.shut_down(Duration::from_secs(30));
                }
                1 => {
                    handle.shut_down(Duration::from_secs(30));
                    tell.send(true).unwrap();
                }
                _ => std::thread::scope(|scope| {
                    scope.spawn(|| tell.send(true).unwrap());
                    scope.spawn(|| handle.shut_down(Duration::from_secs(30)));
                }),
            }
            assert_eq!(runtime.join().code(), 0);
        }
        let runs = bench.queue().read(&ListRuns { statuses: Vec::new(), limit: u32::MAX }).unwrap();
        assert_eq!(runs.len(), TASKS * ROUNDS as usize);
        assert!(runs.iter().all(|run| run.status == "failed" && run.exit_code == Some(7)));
    });
}
