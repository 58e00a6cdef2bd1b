//! Which store is meant, and what of its address is shown.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::places::Engine;
use crate::program::{Bench, leasehold, run};

fn count(bench: &Bench, words: &[&str]) -> usize {
    bench.json(&[&["list", "--json"], words].concat()).as_array().unwrap().len()
}

#[test]
fn the_flag_goes_before_the_environment_and_that_before_the_default() {
    let bench = Bench::new(Engine::Sqlite);
    let flag = ["--store", "sqlite:flag.db"];
    for _ in 0..3 {
        bench.submit(&[&["agent"], &flag[..]].concat());
    }
    for _ in 0..2 {
        bench.submit(&["agent"]);
    }
    run(bench.command(["submit", "agent"]).env_remove("LEASEHOLD_STORE")).done();
    assert_eq!(count(&bench, &flag), 3);
    assert_eq!(count(&bench, &[]), 2);
    let default = run(bench.command(["list"]).env_remove("LEASEHOLD_STORE")).done();
    assert_eq!(default.lines().count(), 1 + 1);
    // It may stand before the verb as well.
    assert_eq!(bench.run(&["--store", "sqlite:flag.db", "list"]).done().lines().count(), 1 + 3);
}

#[test]
fn without_a_home_a_store_must_be_named() {
    for home in ["", "relative"] {
        let answer = run(leasehold().args(["submit", "agent"]).env("HOME", home));
        answer.refused(1, "set --store, LEASEHOLD_STORE or HOME");
    }
    run(leasehold().arg("list")).refused(1, "set --store, LEASEHOLD_STORE or HOME");
}

#[test]
fn addresses_of_no_known_form_are_refused() {
    let bench = Bench::new(Engine::Sqlite);
    for address in ["", "queue.db", "sqlite:", "sqlite::memory:", "mysql://h/d"] {
        bench.run(&["list", "--store", address]).refused(1, "use sqlite:PATH or postgres://");
    }
    assert_eq!(bench.place.dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn odd_paths_are_paths() {
    let bench = Bench::new(Engine::Sqlite);
    let absolute = format!("/{}/x.db", bench.place.dir.path().display());
    for path in ["a b?c#d%25.db", "-x.db", "\u{1b}[2J.db", "é.db", &absolute] {
        let store = format!("sqlite:{path}");
        bench.submit(&["agent", "--store", &store]);
        assert_eq!(count(&bench, &["--store", &store]), 1);
        assert!(bench.place.dir.path().join(path).exists(), "{path}");
    }
    let path = OsStr::from_bytes(b"sqlite:\xff.db");
    run(bench.command(["submit", "agent"]).env("LEASEHOLD_STORE", path)).done();
    assert!(bench.place.dir.path().join(OsStr::from_bytes(b"\xff.db")).exists());
    let odd = OsStr::from_bytes(b"postgres://app:s3cret\xff@127.0.0.1:1/d");
    let line = run(bench.command(["list"]).env("LEASEHOLD_STORE", odd)).refused(1, "UTF-8");
    assert!(!line.contains("s3cret"), "{line}");
}

#[test]
fn a_password_is_never_shown() {
    let bench = Bench::new(Engine::Sqlite);
    for address in [
        "postgres://app:s3cret@127.0.0.1:1/d",
        "postgresql://app:s3cret@127.0.0.1:1/d?connect_timeout=1",
        "postgres://127.0.0.1:1/d?user=app&password=s3cret",
        "postgres://app:s3cret/x@127.0.0.1:1/d",
        "postgres://app:x/s3cret?y@127.0.0.1:1/d",
        "postgres://app:s3cret",
        "postgres://app:s3cret%zz@127.0.0.1:1/d",
        "postgres://app:s3cret@[::1/d",
        "postgres://app:s3cret@127.0.0.1:1/d?nonsense=s3cret",
        "postgre://app:s3cret@127.0.0.1/d",
        "app:s3cret@127.0.0.1/d",
        "host=127.0.0.1 password=s3cret",
    ] {
        for words in [&["submit", "agent"][..], &["list"], &["cancel", "x"]] {
            let by_flag = bench.run(&[words, &["--store", address]].concat());
            let line = by_flag.refused(1, "");
            assert!(!line.contains("s3cret"), "{line}");
            let by_variable = run(bench.command(words).env("LEASEHOLD_STORE", address));
            assert!(!by_variable.refused(1, "").contains("s3cret"));
        }
        let help = run(bench.command(["list", "--help"]).env("LEASEHOLD_STORE", address)).done();
        assert!(!help.contains("s3cret"), "{help}");
    }
}
