//! What guardians cost: workers of the real program drain queues of tasks that do nothing, once with guardians and once
//! with direct children, in turn, so that both meet the same machine. The promise is a ratio of at most three.
//!
//! The stores and the state directories lie below the build directory, since a temporary directory may be memory, which
//! has nothing to sync.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use futures_util::future::join_all;
use leasehold::db::StoreUrl;
use leasehold::domain::allow::AllowList;
use leasehold::domain::task::TaskApplication;
use leasehold::{Runtime, RuntimeConfig};

const AT_ONCE: [usize; 3] = [2, 16, 64];

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` says so; anybody else only wants to see that it works.
    let measures = std::env::args().any(|word| word == "--bench");
    let (tasks, rounds) = if measures { (1000, 5) } else { (20, 1) };
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    println!("{:>7}  {:>9}  {:>11}  {:>6}", "at once", "direct/s", "guardians/s", "ratio");
    for at_once in AT_ONCE {
        for _ in 0..rounds {
            let direct = rate(place.path(), "direct", at_once, tasks)?;
            let guarded = rate(place.path(), "guardians", at_once, tasks)?;
            let ratio = direct / guarded;
            println!("{at_once:>7}  {direct:>9.0}  {guarded:>11.0}  {ratio:>6.2}");
        }
    }
    Ok(())
}

/// How many tasks a worker ends in a second.
fn rate(place: &Path, who: &str, at_once: usize, tasks: usize) -> Result<f64, Box<dyn Error>> {
    // Kept to the end: on ext4 a file that is made soon after many were removed is slow to make.
    let dir = tempfile::tempdir_in(place)?.keep();
    let store = dir.join("queue.db");
    fill(&store, tasks)?;
    let began = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["worker", "--until-empty", "--allow-command", "true", "--log", "error"])
        .args(["--supervision", who, "--concurrency", &at_once.to_string()])
        .arg("--state-dir")
        .arg(dir.join("state"))
        .env("LEASEHOLD_STORE", format!("sqlite:{}", store.display()))
        .stdin(Stdio::null())
        .status()?;
    let took = began.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("the worker left with {status}").into());
    }
    Ok(tasks as f64 / took)
}

fn fill(store: &Path, tasks: usize) -> Result<(), Box<dyn Error>> {
    let mut config = RuntimeConfig::new(StoreUrl::Sqlite(store.to_owned()));
    config.own_ticks = false;
    config.mailbox = tasks + 1;
    config.queue.allow_commands = AllowList::parse("true");
    let runtime = Runtime::start(config)?;
    let handle = runtime.handle();
    let mut app = TaskApplication::new("command", "host");
    app.args.insert("action_command".into(), "true".into());
    let waiting = tokio::runtime::Builder::new_current_thread().build()?;
    let submitted = waiting.block_on(join_all((0..tasks).map(|_| handle.submit(&app))));
    handle.shut_down_now();
    runtime.join();
    submitted.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(())
}
