//! Whether the store can be used, and keeps what it is told.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::Queue;
use leasehold::clock::{Clock, SystemClock};
use leasehold::db::StoreUrl;
use leasehold::db::ops::{
    self, CheckEngine, CheckFeed, CheckIntegrity, CheckSchema, EngineFacts, HeldBack, SchemaFacts,
    StoreId,
};
use leasehold::domain::fence::LeaseTimes;
use rustix::fs::{Access, access};

use super::disk;
use super::finding::Finding;
use crate::cli::failure::Failure;
use crate::cli::store::open_for_reading;

/// How long a store may take to be opened.
const PATIENCE: Duration = Duration::from_secs(15);
const OLDEST_SERVER: u32 = 150_000;
const WAL_AND_LOCKS: &str = "SQLite's locks and its write-ahead log";

/// What was found, and the store's id if it could be read.
pub(super) fn check(url: &StoreUrl) -> (Vec<Finding>, Option<String>) {
    let mut findings = Vec::new();
    if let StoreUrl::Sqlite(path) = url {
        findings.extend(File::look(path).map(|file| judge_file(path, &file)));
        findings.push(disk::judge("store-disk", path, WAL_AND_LOCKS, disk::look(path)));
    }
    let mut queue = match open(url) {
        Ok(queue) => queue,
        Err(error) => {
            findings.insert(0, Finding::error("store", &error));
            return (findings, None);
        }
    };
    findings.insert(
        0,
        match queue.read(&CheckSchema) {
            Ok(facts) => judge_schema(&url.to_string(), &facts),
            Err(error) => Finding::error("store", &error.to_string()),
        },
    );
    match queue.read(&CheckEngine) {
        Ok(facts) => findings.extend(judge_engine(&facts)),
        Err(error) => findings.push(Finding::error("engine", &error.to_string())),
    }
    match url {
        StoreUrl::Sqlite(_) => findings.push(match queue.read(&CheckIntegrity) {
            Ok(faults) => judge_integrity(&faults),
            Err(error) => Finding::error("integrity", &error.to_string()),
        }),
        StoreUrl::Postgres(_) => {
            findings.push(offset(&mut queue));
            if queue.is_complete() {
                findings.push(match queue.read(&CheckFeed) {
                    Ok(held) => judge_feed(held.as_ref(), SystemClock.now()),
                    Err(error) => Finding::error("events", &error.to_string()),
                });
            }
        }
    }
    let id = if queue.is_complete() { queue.read(&StoreId).ok() } else { None };
    (findings, id)
}

/// A server that takes the connection and says nothing would be waited for without end.
fn open(url: &StoreUrl) -> Result<Queue, String> {
    let (sender, receiver) = mpsc::channel();
    let place = url.clone();
    thread::spawn(move || {
        let _ = sender.send(open_for_reading(&place));
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(Ok(queue)) => Ok(queue),
        Ok(Err(Failure::Refused(reason) | Failure::WrongWord(reason))) => Err(reason),
        Ok(Err(Failure::Usage(error))) => Err(error.to_string()),
        Err(_) => Err(format!(
            "{url} has not answered for {} s; check that the server runs and the address is right",
            PATIENCE.as_secs()
        )),
    }
}

fn judge_schema(shown: &str, facts: &SchemaFacts) -> Finding {
    let SchemaFacts { version, applied, pending } = facts;
    let what = format!("{shown} opens: schema {version}, {applied} migrations");
    match pending {
        0 => Finding::ok("store", what),
        _ => Finding::warning(
            "store",
            format!("{what}, {pending} more to come"),
            "nothing to do: the next submit or worker brings the store up to date",
        ),
    }
}

/// What the file system says of the file.
#[derive(Debug, Clone, Copy)]
struct File {
    mode: u32,
    owner: u32,
    /// Who asks.
    user: u32,
    writable: bool,
}

impl File {
    fn look(path: &Path) -> Option<File> {
        let seen = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(File {
            mode: seen.mode() & 0o7777,
            owner: seen.uid(),
            user: rustix::process::geteuid().as_raw(),
            writable: access(path, Access::WRITE_OK).is_ok(),
        })
    }
}

fn judge_file(path: &Path, file: &File) -> Finding {
    const CHECK: &str = "store-file";
    let File { mode, owner, user, writable } = *file;
    let what = format!("mode {mode:04o}, owner {owner}");
    let close = || format!("chmod 600 {}", path.display());
    if !writable {
        let what = format!("{what}: user {user} cannot write it");
        return Finding::problem(CHECK, what, "run as its owner, or give the file to this user");
    }
    if mode & 0o002 != 0 {
        let what = format!("{what}: every user of this machine can change it");
        return Finding::problem(CHECK, what, close());
    }
    if mode & 0o004 != 0 {
        let what = format!("{what}: every user of this machine can read it, arguments included");
        return Finding::warning(CHECK, what, close());
    }
    if owner != user {
        let what = format!("{what}: not the user {user} who asks");
        let todo = "run every verb as the owner: files that another user makes beside it may lock the owner out";
        return Finding::warning(CHECK, what, todo);
    }
    Finding::ok(CHECK, what)
}

fn judge_engine(facts: &EngineFacts) -> Vec<Finding> {
    match facts {
        EngineFacts::Sqlite { version, is_sound, journal_mode } => {
            let library = if *is_sound {
                Finding::ok("sqlite", format!("SQLite {version}"))
            } else {
                let what = format!("SQLite {version} has a fault that loses commits");
                Finding::problem("sqlite", what, "build with SQLite 3.51.3 or later")
            };
            let journal = if journal_mode == "wal" {
                Finding::ok("journal", "written ahead (WAL)")
            } else {
                let todo = "nothing to do: the next submit or worker sets it to wal";
                Finding::warning("journal", format!("the journal mode is {journal_mode}"), todo)
            };
            vec![library, journal]
        }
        EngineFacts::Postgres { version, synchronous_commit, fsync, in_recovery, read_only } => {
            vec![
                judge_server(*version),
                judge_durability(synchronous_commit, fsync),
                judge_writing(*in_recovery, *read_only),
            ]
        }
    }
}

fn judge_server(version: u32) -> Finding {
    let what = format!("PostgreSQL {}.{}", version / 10_000, version % 10_000);
    match version {
        OLDEST_SERVER.. => Finding::ok("server", what),
        _ => Finding::problem("server", what, "use version 15 or later"),
    }
}

fn judge_durability(synchronous_commit: &str, fsync: &str) -> Finding {
    const CHECK: &str = "durability";
    let what = format!("fsync is {fsync}, synchronous_commit is {synchronous_commit}");
    if fsync == "off" {
        let todo = "turn fsync on: a crash of the server's machine can destroy the database";
        return Finding::problem(CHECK, what, todo);
    }
    match synchronous_commit {
        "off" => Finding::problem(
            CHECK,
            format!("{what}: such a store is refused for writing"),
            "turn synchronous_commit on for this database or user",
        ),
        _ => Finding::ok(CHECK, what),
    }
}

fn judge_writing(in_recovery: bool, read_only: bool) -> Finding {
    const CHECK: &str = "writing";
    match (in_recovery, read_only) {
        (true, _) => Finding::problem(
            CHECK,
            "the server follows another one and cannot be written to",
            "name the primary in the address, or promote this one",
        ),
        (false, true) => Finding::problem(
            CHECK,
            "default_transaction_read_only is on",
            "turn it off for this database or user",
        ),
        (false, false) => Finding::ok(CHECK, "the server takes writes"),
    }
}

fn judge_integrity(faults: &[String]) -> Finding {
    match faults.first() {
        None => Finding::ok("integrity", "no damage was found in the file"),
        Some(first) => Finding::problem(
            "integrity",
            format!("the file is damaged: {}{}", first.replace('\n', " "), more(faults.len() - 1)),
            "stop everything that uses it and restore a copy",
        ),
    }
}

fn more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" (and {count} more)") }
}

/// How far a server's clock is from ours.
#[derive(Debug, Clone, Copy)]
struct Offset {
    /// Ours is behind by so much, in seconds.
    seconds: f64,
    /// How far that may be off.
    error: f64,
}

fn offset(queue: &mut Queue) -> Finding {
    let before = SystemClock.now();
    let server = match queue.read(&ops::Clock) {
        Ok(server) => server,
        Err(error) => return Finding::error("clock-offset", &error.to_string()),
    };
    let after = SystemClock.now();
    let seconds = server - f64::midpoint(before, after);
    let seen = Offset { seconds, error: (after - before).abs() / 2.0 };
    judge_offset(seen, LeaseTimes::of(leasehold::Config::default().lease_ttl).margin)
}

fn judge_offset(offset: Offset, margin: f64) -> Finding {
    let Offset { seconds, error } = offset;
    let what = format!("the server's clock is {seconds:+.3} s from this one (±{error:.3} s)");
    // What the answer's way may have added is not held against it.
    if seconds.abs() - error > margin {
        let todo = format!(
            "keep both within {margin} s, by NTP: a worker whose clock is off claims nothing"
        );
        return Finding::problem("clock-offset", what, todo);
    }
    Finding::ok("clock-offset", what)
}

/// How long events may be held back before that is worth a word: a migration or a backup of the server takes longer than
/// a transaction of ours.
const HELD: f64 = 10.0;

fn judge_feed(held: Option<&HeldBack>, now: f64) -> Finding {
    const CHECK: &str = "events";
    match held {
        Some(HeldBack { since, by }) if now - since > HELD => Finding::warning(
            CHECK,
            format!("none of the last {:.0} s can be read yet: {by}", now - since),
            "nothing is lost; end that transaction to have them at once",
        ),
        _ => Finding::ok(CHECK, "the feed is up to date"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{State, lines};
    use super::*;

    #[test]
    fn a_file_for_its_owner_alone_is_good() {
        let good = File { mode: 0o600, owner: 7, user: 7, writable: true };
        let judge = |file| judge_file(Path::new("/q.db"), &file).state;
        assert_eq!(judge(good), State::Ok);
        assert_eq!(judge(File { mode: 0o640, ..good }), State::Ok);
        assert_eq!(judge(File { mode: 0o644, ..good }), State::Warning);
        assert_eq!(judge(File { mode: 0o666, ..good }), State::Problem);
        assert_eq!(judge(File { owner: 8, ..good }), State::Warning);
        assert_eq!(judge(File { writable: false, ..good }), State::Problem);
    }

    #[test]
    fn pending_migrations_come_by_themselves_and_are_mentioned() {
        let facts = |pending| SchemaFacts { version: "4".into(), applied: 2, pending };
        assert_eq!(judge_schema("s", &facts(0)).state, State::Ok);
        assert_eq!(judge_schema("s", &facts(1)).state, State::Warning);
    }

    #[test]
    fn a_file_s_engine_must_be_sound_and_write_ahead() {
        let states = |is_sound, mode: &str| {
            let (version, journal_mode) = ("3.51.3".to_owned(), mode.to_owned());
            let facts = EngineFacts::Sqlite { version, is_sound, journal_mode };
            judge_engine(&facts).iter().map(|found| found.state).collect::<Vec<_>>()
        };
        assert_eq!(states(true, "wal"), [State::Ok, State::Ok]);
        assert_eq!(states(false, "delete"), [State::Problem, State::Warning]);
    }

    #[test]
    fn a_server_must_be_new_enough_durable_and_writable() {
        assert_eq!(judge_server(149_999).state, State::Problem);
        assert_eq!(judge_server(150_004).state, State::Ok);
        for (commit, fsync, state) in [
            ("on", "on", State::Ok),
            ("local", "on", State::Ok),
            ("off", "on", State::Problem),
            ("on", "off", State::Problem),
        ] {
            assert_eq!(judge_durability(commit, fsync).state, state, "{commit} {fsync}");
        }
        assert_eq!(judge_writing(false, false).state, State::Ok);
        assert_eq!(judge_writing(true, false).state, State::Problem);
        assert_eq!(judge_writing(false, true).state, State::Problem);
    }

    #[test]
    fn events_that_are_held_back_for_long_are_mentioned() {
        let held = HeldBack { since: 100.0, by: "process 7".into() };
        assert_eq!(judge_feed(None, 200.0).state, State::Ok);
        assert_eq!(judge_feed(Some(&held), 105.0).state, State::Ok);
        let found = judge_feed(Some(&held), 130.0);
        assert_eq!(found.state, State::Warning);
        let line = lines(&[found]);
        assert!(line.contains("30 s") && line.contains("process 7"), "{line}");
    }

    #[test]
    fn damage_is_a_problem() {
        assert_eq!(judge_integrity(&[]).state, State::Ok);
        assert_eq!(judge_integrity(&["page 3".into(), "page 4".into()]).state, State::Problem);
    }

    #[test]
    fn a_clock_is_off_only_by_what_the_way_does_not_explain() {
        let judge = |seconds, error| judge_offset(Offset { seconds, error }, 2.0).state;
        assert_eq!(judge(0.1, 0.0), State::Ok);
        assert_eq!(judge(-2.5, 0.1), State::Problem);
        assert_eq!(judge(2.5, 0.1), State::Problem);
        assert_eq!(judge(2.5, 1.0), State::Ok);
    }
}
