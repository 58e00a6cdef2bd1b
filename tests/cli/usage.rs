//! Wrong usage, and help.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use leasehold::domain::status::Status;

use crate::places::Engine;
use crate::program::{Bench, run};

#[test]
fn wrong_usage_ends_with_2() {
    let bench = Bench::new(Engine::Sqlite);
    for (words, said) in [
        (&["frobnicate"][..], "unrecognized subcommand"),
        (&["submit"], "<KIND>"),
        (&["submit", "agent", "--nope"], "--nope"),
        (&["submit", "agent", "extra"], "extra"),
        (&["submit", "agent", "--json"], "--json"),
        (&["show"], "<ID>"),
        (&["list", "--limit", "-1"], "--limit"),
        (&["list", "--limit", "many"], "--limit"),
        (&["list", "--limit", "4294967296"], "--limit"),
        (&["list", "--status", "QUEUED"], "--status"),
        (&["list", "a\u{1b}]52;c;eA==\u{7}\u{9b}"], "unexpected argument"),
    ] {
        bench.run(words).wrong_usage(said);
    }
    bench.run(&["submit", "agent", "--", "x"]).refused(2, "only the kind command takes words");
    assert!(bench.is_untouched());
}

#[test]
fn an_unknown_status_names_the_nine() {
    let answer = Bench::new(Engine::Sqlite).run(&["list", "--status", "done"]);
    let nine: Vec<&str> = Status::ALL.into_iter().map(Status::as_str).collect();
    answer.wrong_usage(&nine.join(", "));
}

#[test]
fn words_that_are_no_text_are_named() {
    let bench = Bench::new(Engine::Sqlite);
    let bad = OsStr::from_bytes(b"p=\xff\x1b");
    for words in [
        &[OsStr::new("submit"), OsStr::new("agent"), OsStr::new("--arg"), bad][..],
        &[OsStr::new("submit"), bad],
        &[bad],
    ] {
        let line = run(&mut bench.command(words)).refused(2, "is not valid UTF-8");
        assert!(line.contains("\"p=\u{fffd}\\u{1b}\""), "{line}");
    }
    assert!(bench.is_untouched());
}

#[test]
fn help_and_version_are_answers() {
    let bench = Bench::new(Engine::Sqlite);
    let version = bench.run(&["--version"]).done();
    assert_eq!(version, format!("leasehold {}\n", env!("CARGO_PKG_VERSION")));
    let help = bench.run(&["--help"]).done();
    for verb in ["submit", "list", "show", "history", "cancel", "workers"] {
        assert!(help.contains(verb), "{help}");
        let own = bench.run(&[verb, "--help"]).done();
        for words in ["--store", "LEASEHOLD_STORE", "$XDG_STATE_HOME/leasehold/queue.db"] {
            assert!(own.contains(words), "{own}");
        }
    }
    let submit = bench.run(&["submit", "--help"]).done();
    for words in ["131072 bytes", "[default: host]", "LIONAGI_SCHEDULER_COMMAND_ALLOWLIST", "@FILE"]
    {
        assert!(submit.contains(words), "{submit}");
    }
}
