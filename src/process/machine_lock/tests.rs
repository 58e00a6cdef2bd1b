use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;

fn tokens(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|token| (*token).to_owned()).collect()
}

/// Takes locks that are free. A process that another test is just starting may have a copy of their descriptors, until it
/// executes its program.
fn taken(locks: &LockDir, all: &[&str]) -> Vec<OwnedFd> {
    let began = Instant::now();
    loop {
        match locks.take(&tokens(all)) {
            Ok(held) => return held,
            Err(token) if began.elapsed() > Duration::from_secs(60) => panic!("{token} is busy"),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_lock_is_free_when_the_last_descriptor_is_closed() {
    let dir = TempDir::new().unwrap();
    let locks = LockDir::open(dir.path()).unwrap();
    let held = locks.take(&tokens(&["a", "b"])).unwrap();
    let copy = held[0].try_clone().unwrap();
    assert_eq!(locks.take(&tokens(&["a"])).unwrap_err(), "a");
    assert_eq!(locks.take(&tokens(&["b", "c"])).unwrap_err(), "b");
    taken(&locks, &["c"]);
    drop(held);
    taken(&locks, &["b"]);
    assert_eq!(locks.take(&tokens(&["a"])).unwrap_err(), "a");
    drop(copy);
    taken(&locks, &["a"]);
    assert!(locks.take(&tokens(&[])).unwrap().is_empty());
}

#[test]
fn of_several_locks_all_are_taken_or_none() {
    let dir = TempDir::new().unwrap();
    let locks = LockDir::open(dir.path()).unwrap();
    let last = locks.take(&tokens(&["c"])).unwrap();
    assert_eq!(locks.take(&tokens(&["a", "b", "c"])).unwrap_err(), "c");
    assert_eq!(taken(&locks, &["a", "b"]).len(), 2);
    drop(last);
    assert_eq!(taken(&locks, &["a", "b", "c"]).len(), 3);
}

#[test]
fn odd_tokens_have_locks_too() {
    let dir = TempDir::new().unwrap();
    let locks = LockDir::open(&dir.path().join("locks")).unwrap();
    let long = "é/".repeat(5000);
    let odd = tokens(&["..", ".", "../x", "/etc/passwd", "a b\n", &long, &long[2..]]);
    assert_eq!(locks.take(&odd).unwrap().len(), 7);
    assert_eq!(fs::read_dir(dir.path().join("locks")).unwrap().count(), 7);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn who_took_a_lock_or_was_given_it_is_found() {
    let dir = TempDir::new().unwrap();
    let locks = LockDir::open(dir.path()).unwrap();
    let asleep = |file: OwnedFd| Command::new("sleep").arg("300").stdin(file).spawn().unwrap();
    // It has the file open, and not the lock.
    let mut bystander = asleep(locks.file("gpu").unwrap());
    let held = taken(&locks, &["gpu"]).remove(0);
    let me = i32::try_from(std::process::id()).unwrap();
    let taker = locks.look("gpu", None);
    assert_eq!(taker.holder().map(|holder| holder.pid), Some(me), "{taker}");
    let mut heir = asleep(held.try_clone().unwrap());
    assert_eq!(locks.look("gpu", taker.holder()), taker, "it has it still");
    drop(held);
    // The kernel goes on naming this process.
    let heir_is = Holder { pid: i32::try_from(heir.id()).unwrap(), name: "sleep".into() };
    let expected = LockState::Held(Some(heir_is.clone()));
    let began = Instant::now();
    // Another process may have a copy too, until it executes its program.
    let given = loop {
        let given = locks.look("gpu", taker.holder());
        if given == expected || began.elapsed() > Duration::from_secs(60) {
            break given;
        }
    };
    assert_eq!(given.to_string(), format!("held by process {} (sleep)", heir_is.pid));
    assert_eq!(given, expected);
    for process in [&mut heir, &mut bystander] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    taken(&locks, &["gpu"]);
}

#[test]
fn a_directory_for_all_is_one_for_all_and_any_other_for_its_owner() {
    let dir = TempDir::new().unwrap();
    let (all, own) = (dir.path().join("all"), dir.path().join("a/b"));
    let locks = LockDir::for_all(&all).unwrap();
    assert_eq!(mode(&all), 0o1777);
    locks.take(&tokens(&["gpu"])).unwrap();
    assert_eq!(mode(&locks.path_of("gpu")), 0o644);
    LockDir::open(&own).unwrap();
    assert_eq!(mode(&own), 0o700);
    // What was there before is left as it is.
    fs::set_permissions(&all, fs::Permissions::from_mode(0o1770)).unwrap();
    assert_eq!(LockDir::open(&all).unwrap(), LockDir::for_all(&all).unwrap());
    assert_eq!(mode(&all), 0o1770);
}

#[test]
fn what_is_no_directory_is_refused_and_a_link_where_anybody_could_have_put_it() {
    let dir = TempDir::new().unwrap();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    fs::write(&file, "").unwrap();
    symlink(dir.path(), &link).unwrap();
    assert!(LockDir::open(&file).is_err());
    assert!(LockDir::open(&file.join("below")).is_err());
    assert!(LockDir::for_all(&file).is_err());
    assert!(LockDir::for_all(&link).is_err());
    assert!(LockDir::open(&link).is_ok());
}

#[test]
fn a_lock_whose_file_is_a_link_or_a_pipe_is_nobody_s() {
    let dir = TempDir::new().unwrap();
    let locks = LockDir::open(dir.path()).unwrap();
    let target = dir.path().join("target");
    fs::write(&target, "").unwrap();
    symlink(&target, locks.path_of("link")).unwrap();
    symlink(dir.path().join("nowhere"), locks.path_of("dangling")).unwrap();
    fs::create_dir(locks.path_of("directory")).unwrap();
    let made = Command::new("mkfifo").arg(locks.path_of("pipe")).status().unwrap();
    assert!(made.success());
    for token in ["link", "dangling", "directory", "pipe"] {
        assert_eq!(locks.take(&tokens(&[token])).unwrap_err(), token);
        let state = locks.look(token, None);
        assert!(matches!(state, LockState::Unusable(_)), "{token}: {state}");
    }
    assert!(!dir.path().join("nowhere").exists());
}
