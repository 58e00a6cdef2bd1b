//! Disks that are full or read-only, and files of somebody else. Each is real, in a mount namespace of the child's own.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use diesel::result::QueryResult;
use leasehold::Error;
use leasehold::db::ops::{ListRuns, Submit};
use leasehold::db::{AnyConn, Mode, Operation, Store, StoreError, StoreUrl};

use crate::children::command;
use crate::kit::{open_url, submit, task};
use crate::places::{Engine, Place};

const ALL: ListRuns = ListRuns { statuses: vec![], limit: 100 };
/// The exit code of a child that may not have what it needs.
const NOT_POSSIBLE: i32 = 77;

/// Runs `part` under a disk of one megabyte that only the child sees.
fn on_a_small_disk(part: &str) {
    let place = Place::new(Engine::Sqlite);
    let mount = format!(
        "mount -t tmpfs -o size=1m tmpfs {dir} || exit {NOT_POSSIBLE}; exec \"$0\" \"$@\"",
        dir = place.dir.path().display()
    );
    run(&["unshare", "-m", "sh", "-c", &mount], part, &place);
}

fn run(before: &[&str], part: &str, place: &Place) {
    let reason = match command(before, part, &place.url).output() {
        Ok(done) if done.status.success() => return,
        Ok(done) if done.status.code() == Some(NOT_POSSIBLE) || is_refusal(&done.stderr) => {
            String::from_utf8_lossy(&done.stderr).trim().to_owned()
        }
        Ok(done) => panic!(
            "{part}:\n{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        ),
        Err(error) => format!("{}: {error}", before[0]),
    };
    // Written past the test harness, which would keep it to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED {part}: {reason}");
}

/// Whether the program that should start the child was not allowed to.
fn is_refusal(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    ["unshare:", "setpriv:"].iter().any(|name| text.starts_with(name))
}

#[test]
fn a_full_disk_is_an_error_until_there_is_room() {
    on_a_small_disk("full disk");
}

#[test]
fn a_store_on_a_read_only_disk_is_read_and_not_written() {
    on_a_small_disk("read-only disk");
}

#[test]
fn a_file_of_somebody_else_is_refused_for_writing() {
    let place = Place::new(Engine::Sqlite);
    place.queue().submit_task(&task()).unwrap();
    use std::os::unix::fs::PermissionsExt;
    let allow =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    allow(place.dir.path(), 0o755);
    allow(&path_of(&place.url), 0o444);
    let before = crate::kit::files(&place);
    run(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], "not the owner", &place);
    assert!(crate::kit::files(&place) == before);
}

fn path_of(url: &str) -> PathBuf {
    PathBuf::from(url.strip_prefix("sqlite:").unwrap())
}

fn store(url: &str) -> Store {
    let url = StoreUrl::parse(url).unwrap();
    Store::open(&url, Mode::Write, &leasehold::clock::SystemClock, &leasehold::ids::RandomIds)
        .unwrap()
}

fn assert_one_line(error: &StoreError) {
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
}

/// A small row and then a large one, in one transaction.
struct SmallAndLarge;

impl Operation for SmallAndLarge {
    type Output = ();

    fn name(&self) -> &'static str {
        "submit two tasks"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<()> {
        submit("small").run(conn)?;
        large("large").run(conn).map(drop)
    }
}

fn large(id: &str) -> Submit {
    let mut submit = submit(id);
    submit.spec.args.insert("text".into(), "x".repeat(100_000).into());
    submit
}

pub fn fills_up(url: &str) {
    let mut store = store(url);
    store.write(&submit("first")).unwrap();
    let path = path_of(url);
    let ballast = path.with_file_name("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}

    for _ in 0..3 {
        let error = store.write(&SmallAndLarge).expect_err("the disk is full");
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.is_retryable());
        assert_one_line(&error);
        let there: Vec<String> = store.read(&ALL).unwrap().into_iter().map(|run| run.id).collect();
        assert_eq!(there, ["first"]);
    }
    let other = format!("sqlite:{}", path.with_file_name("other.db").display());
    let error = open_url(&other, Mode::Write).expect_err("there is no room for another");
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert_one_line(&error);

    fs::remove_file(ballast).unwrap();
    drop(file);
    store.write(&SmallAndLarge).unwrap();
    assert_eq!(store.read(&ALL).unwrap().len(), 3);
    open_url(&other, Mode::Write).unwrap().submit_task(&task()).unwrap();
}

pub fn turns_read_only(url: &str) {
    let path = path_of(url);
    store(url).write(&submit("first")).unwrap();
    let dir = path.parent().unwrap();
    let remount = std::process::Command::new("mount").args(["-o", "remount,ro"]).arg(dir).status();
    assert!(remount.unwrap().success());
    let before = fs::read(&path).unwrap();

    let mut reader = open_url(url, Mode::Read).unwrap();
    assert_eq!(reader.read(&ALL).unwrap().len(), 1);
    for url in [url, &format!("sqlite:{}", path.with_file_name("fresh.db").display())] {
        let error = open_url(url, Mode::Write).expect_err("nothing can be written");
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
        assert_one_line(&error);
    }
    assert_eq!(reader.read(&ALL).unwrap().len(), 1);
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 1, "files were made");
}

/// Neither the file nor its directory can be written, and its owner may begin a log there at any time: SQLite cannot
/// read it safely, and must not pretend to.
pub fn is_not_the_owner(url: &str) {
    let error = open_url(url, Mode::Write).expect_err("the file is not writable");
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    assert_one_line(&error);
    let read = open_url(url, Mode::Read).map_err(Error::from).and_then(|mut q| q.read(&ALL));
    let Err(Error::Store(error)) = read else { panic!("{read:?}") };
    assert!(matches!(error, StoreError::Place { .. }), "{error}");
    assert!(error.to_string().contains("check that the directory"), "{error}");
    assert_one_line(&error);
}
