//! Whatever a task writes, it never blocks, and what is kept is bounded and text.

use leasehold::process::TAIL_BYTES;

use super::support::*;

#[test]
fn a_flood_on_both_streams_at_once_is_drained_in_bounded_memory() {
    alone("output::a_flood_on_both_streams_at_once_is_drained_in_bounded_memory", || {
        assert_eq!(run(&sh("exit 0")).exit_code(), 0);
        let before = kib_of("VmHWM");
        let size = 50 << 20;
        let ending = run(&sh(&format!(
            "head -c {size} /dev/zero | tr '\\0' e >&2 & \
             head -c {size} /dev/zero | tr '\\0' o; wait; exit 2"
        )));
        let grown = kib_of("VmHWM") - before;
        assert_eq!(ending.exit_code(), 2);
        assert_eq!((ending.stdout.total(), ending.stderr.total()), (size, size));
        assert_eq!(ending.stdout.bytes(), [b'o'; TAIL_BYTES]);
        assert_eq!(ending.stderr.bytes(), [b'e'; TAIL_BYTES]);
        println!("100 MiB drained, {grown} KiB of memory");
        assert!(grown < 4096, "{grown} KiB");
    });
}

#[test]
fn a_flood_leaves_the_thread_to_others() {
    local(async {
        let directory = tempfile::tempdir().unwrap();
        let files = ["out", "err"].map(|name| directory.path().join(name));
        let mut command =
            sh("(echo; echo 1 > $OUT; exec yes) & echo >&2; echo 1 > $ERR; exec yes >&2");
        let [out, err] = files.clone();
        command.env = vec![("OUT".into(), out.into()), ("ERR".into(), err.into())];
        let mut running = leasehold::process::direct::Running::spawn(&command).unwrap();
        for file in &files {
            number_in(file).await;
        }
        let mut slept = Vec::new();
        for _ in 0..100 {
            let begin = std::time::Instant::now();
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            slept.push(begin.elapsed());
        }
        slept.sort();
        println!("a sleep of 1 ms took {:?}, at most {:?}", slept[50], slept[99]);
        // A busy machine can make some of them longer, and a flood that leaves nothing to others each.
        assert!(slept[50] < std::time::Duration::from_millis(500), "{slept:?}");
        assert!(running.stopper().kill());
        let ending = running.wait().await;
        assert_eq!((ending.exit_code(), ending.stopped), (-9, true));
        assert!(ending.stdout.total() > 0 && ending.stderr.total() > 0);
    });
}

#[test]
fn nul_and_bytes_that_are_not_text_become_replacement_characters() {
    let ending = run(&sh(r"printf 'a\0b\377c\303' >&2; printf '\0' ; exit 1"));
    assert_eq!(ending.detail(), "a\u{fffd}b\u{fffd}c\u{fffd}\n[stdout]\n\u{fffd}");
    assert_eq!(ending.stderr.bytes(), b"a\0b\xffc\xc3");
}

#[test]
fn a_character_cut_by_the_window_becomes_a_replacement_character() {
    // 1 + 2 * 1024 bytes: the window of 2048 begins in the middle of the first é but one.
    let ending = run(&sh(r"i=0; while [ $i -lt 1025 ]; do printf '\303\251'; i=$((i+1)); done >&2
          printf x >&2; exit 1"));
    let detail = ending.detail();
    assert!(detail.starts_with("\u{fffd}é") && detail.ends_with("éx"), "{detail:?}");
    assert_eq!(detail.chars().count(), 1 + 1023 + 1);
}

#[test]
fn a_character_written_byte_by_byte_stays_whole() {
    let ending = run(&sh(
        r"printf '\342' >&2; sleep 0.02; printf '\202' >&2; sleep 0.02; printf '\254' >&2; exit 1",
    ));
    assert_eq!(ending.detail(), "€");
}

#[test]
fn output_of_a_task_that_succeeds_is_kept_too() {
    let ending = run(&sh("echo out; echo err >&2"));
    assert_eq!((ending.exit_code(), ending.detail().as_str()), (0, "err\n\n[stdout]\nout\n"));
}
