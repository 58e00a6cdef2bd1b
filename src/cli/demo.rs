//! `leasehold demo`.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use leasehold::db::ops::{History, ListRuns};
use leasehold::db::{Run, StoreUrl};
use leasehold::domain::allow::AllowList;
use leasehold::domain::status::Status;
use leasehold::domain::task::TaskApplication;
use leasehold::domain::transition::Principal;
use leasehold::{Config, Handle, Queue, Runtime, RuntimeConfig};
use serde_json::json;

use super::failure::{self, Failure};
use super::{out, text};

/// How often the progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Run a dozen real tasks in a throw-away store and show how they end
///
/// Nothing is kept: the store lies in a temporary directory that is removed at the end.
#[derive(Debug, clap::Args)]
pub(super) struct Demo {}

/// A task of the demo: what it shows, and the script that it runs.
struct Scene {
    shows: &'static str,
    script: &'static str,
    needs: &'static [&'static str],
}

const fn scene(shows: &'static str, script: &'static str, needs: &'static [&'static str]) -> Scene {
    Scene { shows, script, needs }
}

const SCENES: [Scene; 12] = [
    scene("ends well", "echo hello", &[]),
    scene("ends well after a while", "sleep 1", &[]),
    scene(
        "sees its run and epoch",
        "test -n \"$LEASEHOLD_RUN_ID\" && test \"$LEASEHOLD_EPOCH\" = 1",
        &[],
    ),
    scene("prints much, the tail is kept", "seq 1 200000", &[]),
    scene("fails with code 7", "echo 'something is wrong' >&2; exit 7", &[]),
    scene("fails, and prints bytes that are no text", "printf '\\000\\377' >&2; exit 1", &[]),
    scene("is killed by a signal", "kill -9 $$", &[]),
    scene("leaves a process behind, which is ended", "sleep 60 & exit 0", &[]),
    scene("shares an exclusive key (first)", "sleep 0.7", &["gpu-exclusive"]),
    scene("shares an exclusive key (second)", "sleep 0.7", &["gpu-exclusive"]),
    scene("is cancelled while it waits", "echo never", &["not-here"]),
    scene("needs what nobody advertises", "echo never", &["quantum-annealer"]),
];
const CANCELLED: usize = 10;
const TOLD: usize = 4;

impl Demo {
    #[expect(clippy::unused_self, reason = "every verb is run alike")]
    pub(super) fn run(&self) -> Result<(), Failure> {
        let place = Place::new()?;
        let url = StoreUrl::Sqlite(place.0.join("queue.db"));
        let queue = Config { allow_commands: AllowList::parse("sh"), ..Config::default() };
        out::print(&format!("a throw-away store: {url}\n"))?;

        let mut config = RuntimeConfig::new(url.clone());
        config.queue = queue.clone();
        config.advertise.push("gpu-exclusive".into());
        config.concurrency = config.concurrency.max(4);
        config.launch.li.path = std::env::var_os("PATH");

        let mut store = Queue::open(&url.to_string(), queue)?;
        let ids =
            SCENES.iter().map(|scene| submit(&mut store, scene)).collect::<Result<Vec<_>, _>>()?;
        store.cancel_task(&ids[CANCELLED], &Principal::operator("demo"))?;
        out::print(&format!("submitted {} tasks, cancelled one; starting a worker\n", ids.len()))?;

        failure::log_panics();
        let began = Instant::now();
        let runtime = Runtime::start(config)?;
        let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        waiting.block_on(progress(&runtime.handle(), &mut store))?;
        runtime.handle().shut_down(Duration::ZERO);
        runtime.join();

        out::print(&format!(
            "nothing more can run, after {:.1} s\n\n",
            began.elapsed().as_secs_f64()
        ))?;
        out::print(&endings(&mut store, &ids)?)?;
        out::print(&format!("\nthe history of the task that {}:\n\n", SCENES[TOLD].shows))?;
        out::print(&history(&mut store, &ids[TOLD])?)
    }
}

fn submit(store: &mut Queue, scene: &Scene) -> Result<String, Failure> {
    let mut app = TaskApplication::new("command", "host");
    app.args.insert("action_command".into(), json!("sh"));
    app.args.insert("action_command_args".into(), json!(["-c", scene.script]));
    app.required_capabilities = scene.needs.iter().map(|token| (*token).to_owned()).collect();
    Ok(store.submit_task(&app)?)
}

/// Says how far the worker is, until nothing is left that it could do.
async fn progress(handle: &Handle, store: &mut Queue) -> Result<(), Failure> {
    let mut said = String::new();
    loop {
        let left = handle.is_work_left().await?;
        let runs = store.read(&ListRuns { statuses: vec![], limit: 100 })?;
        let count =
            |status: Status| runs.iter().filter(|run| run.status == status.as_str()).count();
        let now = format!(
            "queued {}, running {}, completed {}, failed {}",
            count(Status::Queued),
            count(Status::Running),
            count(Status::Completed),
            count(Status::Failed)
        );
        if now != said {
            out::print(&format!("  {now}\n"))?;
            said = now;
        }
        if !left {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn endings(store: &mut Queue, ids: &[String]) -> Result<String, Failure> {
    let runs = ids.iter().map(|id| store.run(id)).collect::<Result<Vec<_>, _>>()?;
    let rows = runs.into_iter().zip(&SCENES).map(|(run, scene)| {
        let took =
            run.ended_at.map_or(text::NONE.into(), |end| format!("{:.2} s", end - run.created_at));
        [scene.shows.to_owned(), run.status.clone(), exit_of(&run), took, said_by(&run)]
    });
    Ok(text::table(["A TASK THAT", "STATUS", "EXIT", "AFTER", "REASON"], rows))
}

fn exit_of(run: &Run) -> String {
    match run.exit_code {
        None => text::NONE.into(),
        Some(code) if code < 0 => format!("signal {}", -code),
        Some(code) => code.to_string(),
    }
}

fn said_by(run: &Run) -> String {
    let code = run.status_reason_code.as_deref().unwrap_or("waits for a worker that can serve it");
    match &run.error_detail {
        Some(detail) => format!("{code}: {}", detail.trim()),
        None => code.to_owned(),
    }
}

fn history(store: &mut Queue, id: &str) -> Result<String, Failure> {
    let facts = store.read(&History { run_id: id.to_owned() })?;
    let rows = facts.into_iter().map(|fact| {
        let from = fact.previous_status.unwrap_or_default();
        let summary = fact.reason_summary.unwrap_or_default();
        [
            text::time(fact.created_at),
            from,
            fact.status,
            fact.reason_code,
            fact.actor.unwrap_or_default(),
            summary,
        ]
    });
    Ok(text::table(["TIME", "FROM", "TO", "REASON", "ACTOR", "SUMMARY"], rows))
}

/// A directory that is removed with the demo.
struct Place(std::path::PathBuf);

impl Place {
    fn new() -> Result<Place, Failure> {
        let place = std::env::temp_dir().join(format!("leasehold-demo-{}", std::process::id()));
        std::fs::create_dir(&place).map_err(|error| {
            Failure::Refused(format!(
                "cannot make {}: {error}; set TMPDIR to a place of your own",
                place.display()
            ))
        })?;
        Ok(Place(place))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            let _ =
                writeln!(io::stderr(), "leasehold: cannot remove {}: {error}", self.0.display());
        }
    }
}
