//! What tasks do, and how that reaches their rows.

use std::os::unix::fs::PermissionsExt;

use leasehold::db::Run;
use leasehold::domain::task::TaskApplication;
use rustix::process::Signal;

use crate::bench::{Bench, command, on_engines, sh, until};
use crate::machine;

/// Runs the tasks to their ends with one worker.
fn run_all(bench: &Bench, apps: &[TaskApplication]) -> Vec<Run> {
    let ids = bench.submit_all(apps);
    bench.work(&["--until-empty", "--concurrency", "8"]);
    ids.iter().map(|id| bench.run(id)).collect()
}

fn detail(run: &Run) -> &str {
    run.error_detail.as_deref().unwrap_or_default()
}

#[test]
fn exit_codes_and_signals_are_stored_as_the_kernel_gave_them() {
    on_engines(|bench| {
        let cases = [
            ("exit 0", "completed", 0),
            ("exit 1", "failed", 1),
            ("exit 137", "failed", 137),
            ("exit 255", "failed", 255),
            ("kill -TERM $$", "failed", -15),
            ("kill -KILL $$", "failed", -9),
            ("kill -SEGV $$", "failed", -11),
        ];
        let runs = run_all(bench, &cases.map(|(script, ..)| sh(format!("ulimit -c 0; {script}"))));
        for (run, (script, status, code)) in runs.iter().zip(cases) {
            assert_eq!((run.status.as_str(), run.exit_code), (status, Some(code)), "{script}");
            assert!(run.ended_at.is_some(), "{script}");
        }
    });
}

#[test]
fn a_flood_of_output_is_read_and_its_last_words_are_kept() {
    on_engines(|bench| {
        let flood = "yes 0123456789abcde | head -c 50M; echo the end; exit 3";
        let endless_line = "head -c 50M /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 4";
        let mut worker = bench.worker(&["--concurrency", "2"]).ready();
        let ids = bench.submit_all(&[sh(flood), sh(endless_line)]);
        bench.until_all("failed");
        let memory = machine::resident_kib(worker.pid());
        worker.end_at_once();
        for (id, code) in ids.iter().zip([3, 4]) {
            let run = bench.run(id);
            assert_eq!(run.exit_code, Some(code));
            assert!(detail(&run).ends_with("the end\n"), "{run:?}");
            assert!(detail(&run).len() < 12 * 1024, "{}", detail(&run).len());
        }
        println!("{}: {} KiB after 100 MB of output", bench.engine(), memory);
        assert!(memory < 100 * 1024, "{memory} KiB");
    });
}

#[test]
fn bytes_that_are_no_text_do_not_keep_a_run_from_ending() {
    on_engines(|bench| {
        let runs = run_all(
            bench,
            &[
                sh(r"printf '\0\377'"),
                sh(r"printf '\0\377'; exit 9"),
                sh(r"printf 'a\0b\303' >&2; exit 9"),
                sh(r#"printf '\033]52;c;x\007\r\n\342\200\256' >&2; exit 9"#),
            ],
        );
        let codes: Vec<_> = runs.iter().map(|run| run.exit_code).collect();
        assert_eq!(codes, [Some(0), Some(9), Some(9), Some(9)]);
        assert_eq!(runs[0].error_detail, None);
        assert_eq!(detail(&runs[1]), "[stdout]\n\u{fffd}\u{fffd}");
        assert_eq!(detail(&runs[2]), "a\u{fffd}b\u{fffd}");
        assert_eq!(
            detail(&runs[3]),
            "\u{1b}]52;c;x\u{7}\r\n\u{202e}",
            "kept as it is, and escaped where it is shown"
        );
    });
}

#[test]
fn what_cannot_be_started_fails_and_says_why() {
    on_engines(|bench| {
        let bin = bench.file("bin");
        std::fs::create_dir_all(bin.join("a-directory")).unwrap();
        std::fs::write(bin.join("cat"), "no program").unwrap();
        std::fs::set_permissions(bin.join("cat"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let apps =
            [command("no-such-program", &[]), command("a-directory", &[]), command("cat", &[])];
        let ids = bench.submit_all(&apps);
        let mut program = bench.program(["worker", "--until-empty"]);
        program.env("PATH", &bin);
        crate::bench::Worker::start(program, bench.log_file()).leaves_with(0);
        for id in ids {
            let run = bench.run(&id);
            println!("{}", detail(&run));
            assert_eq!((run.status.as_str(), run.exit_code), ("failed", Some(1)), "{run:?}");
            assert!(detail(&run).starts_with("SpawnError: "), "{run:?}");
        }
    });
}

#[test]
fn a_command_that_this_worker_does_not_allow_fails() {
    on_engines(|bench| {
        let id = bench.submit(&command("false", &[]));
        let mut program = bench.program(["worker", "--until-empty", "--allow-command", "true"]);
        program.env_remove("LEASEHOLD_ALLOW_COMMANDS");
        crate::bench::Worker::start(program, bench.log_file()).leaves_with(0);
        let run = bench.run(&id);
        assert_eq!(run.status, "failed");
        assert!(detail(&run).starts_with("LaunchError: "), "{run:?}");
    });
}

#[test]
fn a_grandchild_that_holds_the_pipe_delays_the_end_by_two_seconds_at_most() {
    on_engines(|bench| {
        let runs = run_all(bench, &[sh("sleep 600 & echo said; exit 6")]);
        let (run, facts) = (&runs[0], bench.facts(&runs[0].id));
        assert_eq!((run.exit_code, detail(run)), (Some(6), "[stdout]\nsaid\n"));
        let took = facts[1].created_at - facts[0].created_at;
        println!("{}: ended {took:.2} s after its claim", bench.engine());
        assert!(took < 60.0, "{took}");
    });
}

/// #22: an agent program that is given an open standard input waits for more of it.
#[test]
fn standard_input_is_at_its_end() {
    on_engines(|bench| {
        let runs = run_all(bench, &[command("cat", &[]), sh("read x </dev/tty; test $? -ne 0")]);
        assert!(runs.iter().all(|run| run.status == "completed"), "{runs:?}");
    });
}

#[test]
fn a_task_sees_its_run_and_none_of_our_secrets() {
    on_engines(|bench| {
        let id = bench.submit(&sh("env >&2; exit 1"));
        let mut program = bench.program(["worker", "--until-empty"]);
        for name in [
            "LEASEHOLD_TOKEN",
            "LEASEHOLD_SIGNING_SECRET",
            "PGPASSWORD",
            "PGAPPNAME",
            "LIONAGI_STATE_DB_URL",
        ] {
            program.env(name, "hunter2");
        }
        program.env("AGENT_KEY", "kept");
        crate::bench::Worker::start(program, bench.log_file()).leaves_with(0);
        let run = bench.run(&id);
        let seen = detail(&run);
        assert!(seen.contains(&format!("LEASEHOLD_RUN_ID={id}\n")), "{seen}");
        assert!(
            seen.contains("LEASEHOLD_EPOCH=1\n") && seen.contains("AGENT_KEY=kept\n"),
            "{seen}"
        );
        let invocation =
            seen.lines().find_map(|line| line.strip_prefix("LIONAGI_INVOCATION_ID=")).unwrap();
        assert!(invocation.len() == 12 && invocation.chars().all(|c| c.is_ascii_hexdigit()));
        for secret in ["hunter2", "LEASEHOLD_STORE", "PGAPPNAME", "queue.db", "search_path"] {
            assert!(!seen.contains(secret), "{secret}: {seen}");
        }
    });
}

/// #12: elsewhere, a child that closed all descriptors damaged the database that it had inherited with them.
#[test]
fn a_task_inherits_no_descriptor_of_the_store() {
    on_engines(|bench| {
        let worker = bench.worker(&[]).ready();
        bench.submit(&sh("echo $$ >pid; until [ -e go ]; do sleep 0.05; done"));
        let pid = until(|| bench.lines("pid").pop().ok_or("no start".into()));
        // What this program was started with, it has passed on to the worker.
        let inherited = machine::open(std::process::id());
        let all = machine::open(pid.parse().unwrap());
        let of_worker = machine::open(worker.pid());
        let shared: Vec<_> = all
            .intersection(&of_worker)
            // The other ends of its output are with the worker, under the same name.
            .filter(|file| !file.starts_with("pipe:") && !file.starts_with("/dev/"))
            .filter(|file| !inherited.contains(*file))
            .collect();
        assert!(shared.is_empty() && !all.iter().any(|file| file.contains("queue.db")), "{all:?}");
        std::fs::write(bench.file("go"), "").unwrap();

        // As many as a shell can name.
        let close_all = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";
        bench.submit(&sh(close_all));
        bench.until_all("completed");
        if bench.place.engine == crate::places::Engine::Sqlite {
            let check = "SELECT integrity_check AS value FROM pragma_integrity_check";
            assert_eq!(bench.texts(check), ["ok"]);
        }
    });
}

#[test]
fn a_task_has_a_group_of_its_own_that_dies_with_it() {
    on_engines(|bench| {
        let mut worker = bench.worker(&["--drain", "0"]).ready();
        bench.submit(&sh("sh -c 'echo $$ >>pids; exec sleep 600' & echo $$ >>pids; wait"));
        let pids = until(|| {
            let pids: Vec<u32> =
                bench.lines("pids").iter().map(|pid| pid.parse().unwrap()).collect();
            if pids.len() == 2 { Ok(pids) } else { Err(format!("{pids:?}")) }
        });
        worker.signal(Signal::TERM);
        worker.leaves_with(0);
        assert!(!pids.iter().any(|pid| machine::is_alive(*pid)), "a grandchild lives on");
    });
}

/// A task may kill its parent, which is its guardian and not the worker: it is dead as a whole, it is not started for
/// ever, and its worker goes on.
#[test]
fn a_task_that_kills_its_guardian_harms_only_itself() {
    on_engines(|bench| {
        let _worker = bench.worker(&["--concurrency", "1"]).ready();
        let bad = bench.submit(&sh(
            "setsid sleep 600 & echo $! >>pids; echo $$ >>pids; kill -KILL $PPID; exec sleep 600",
        ));
        let run = bench.until_status(&bad, "failed");
        assert_eq!(run.status_reason_code.as_deref(), Some("run.failed.lease_attempts_exhausted"));
        let lost = "running>queued run.queued.guardian_lost";
        let steps = bench.steps(&bad);
        assert_eq!(steps.iter().filter(|step| *step == lost).count(), 2, "{steps:?}");
        let left: Vec<String> = (bench.lines("pids").into_iter())
            .filter(|pid| machine::is_alive(pid.parse().unwrap()))
            .collect();
        assert_eq!(left, [""; 0]);
        let good = bench.submit(&sh("true"));
        bench.until_status(&good, "completed");
    });
}
