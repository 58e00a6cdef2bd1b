//! What a task writes: whole, or its two ends with a line in between, in bounded files and memory.

use std::time::Duration;

use leasehold::process::End;
use leasehold::process::guardian::{BootTime, DEFAULT_LOG_CAP, LogPiece, LogStream, StopReason};

use super::support::*;

/// Numbered lines of 8 bytes.
fn lines(numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers.flat_map(|number| format!("{number:07}\n").into_bytes()).collect()
}

/// The two ends of a capped log, which were checked to be a beginning and an end of `all`.
fn check_capped(log: &[u8], all: &[u8], cap: u64) -> (usize, usize) {
    assert!(log.len() as u64 <= cap, "{} bytes under a cap of {cap}", log.len());
    let mark = log.windows(12).position(|window| window == b"\n[leasehold:").expect("a mark");
    let (head, rest) = log.split_at(mark);
    let end = rest[1..].iter().position(|byte| *byte == b'\n').unwrap() + 2;
    let (line, tail) = rest.split_at(end);
    let cut = all.len() - head.len() - tail.len();
    assert_eq!(text(line), format!("\n[leasehold: {cut} bytes were cut here]\n"));
    assert!(all.starts_with(head) && all.ends_with(tail), "both ends are as they were written");
    (head.len(), tail.len())
}

#[test]
fn what_fits_is_kept_whole() {
    local(async {
        for (count, cap) in [(1, 4096), (240, 4096), (496, 4096), (100_000, DEFAULT_LOG_CAP)] {
            let place = place_with(cap);
            let script =
                format!("i=0; awk 'BEGIN{{for(i=0;i<{count};i++) printf \"%07d\\n\", i}}'");
            let record = run(&place, &script).await;
            let log = std::fs::read(place.dir.path().join("out.log")).unwrap();
            assert_eq!(log, lines(0..count), "{count} lines under {cap}");
            assert_eq!(whole_log(&place.dir, LogStream::Stdout), log);
            assert_eq!((record.stdout.cut, record.stdout.lost), (0, 0));
            assert_eq!(record.stdout.tail.total(), 8 * count);
        }
    });
}

#[test]
fn what_does_not_fit_keeps_its_two_ends() {
    local(async {
        for count in [497, 600, 747, 1000, 5000, 123_456] {
            let cap = 4096;
            let place = place_with(cap);
            let script = format!(
                "awk 'BEGIN{{for(i=0;i<{count};i++) printf \"%07d\\n\", i}}' | dd bs=37 2>/dev/null"
            );
            let record = run(&place, &script).await;
            let all = lines(0..count);
            let log = std::fs::read(place.dir.path().join("out.log")).unwrap();
            let (head, tail) = check_capped(&log, &all, cap);
            assert!(head as u64 >= cap / 2 - 128 && tail as u64 >= cap / 4 - 128, "{head} {tail}");
            assert_eq!(record.stdout.cut, (all.len() - head - tail) as u64);
            assert_eq!(record.stdout.tail.bytes(), &all[all.len() - 2048..]);
            // The reader shows the same.
            let mut expected = all[..head].to_vec();
            expected.extend(format!("<{}>", record.stdout.cut).into_bytes());
            expected.extend(&all[all.len() - tail..]);
            assert_eq!(text(&whole_log(&place.dir, LogStream::Stdout)), text(&expected));
            let files = std::fs::read_dir(place.dir.path()).unwrap().count();
            assert_eq!(files, 6, "no segment is left");
        }
    });
}

#[test]
fn two_hundred_megabytes_before_the_exit() {
    local(async {
        let place = place();
        let script = "head -c 200000000 /dev/zero; echo the end; exit 3";
        let mut guardian = start(&place, &sh(&place, script)).await;
        let pid = guardian_pid(&guardian);
        let (mut most, mut least) = (0, u64::MAX);
        let record = loop {
            tokio::select! {
                end = guardian.exited() => break record(end),
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    if std::path::Path::new(&format!("/proc/{pid}/smaps_rollup")).exists()
                        && is_alive(pid)
                    {
                        let own = own_kib(pid);
                        most = most.max(own);
                        least = least.min(if own > 0 { own } else { least });
                    }
                }
            }
        };
        println!("memory of its own: {least} to {most} KiB");
        assert_eq!(record.end, End::Exited(3));
        assert!(record.stdout.tail.bytes().ends_with(b"\0the end\n"));
        assert_eq!(record.stdout.tail.total(), 200_000_008);
        let log = std::fs::read(place.dir.path().join("out.log")).unwrap();
        assert!(log.len() as u64 <= DEFAULT_LOG_CAP && log.ends_with(b"\0the end\n"));
        assert!(most <= least.saturating_add(64), "it does not grow: {least} to {most} KiB");
    });
}

/// What is the process's own, without the pages that come from its program's file unchanged.
fn own_kib(pid: i32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse().unwrap())
}

#[test]
fn a_flood_stays_under_the_cap_and_does_not_keep_the_guardian_busy() {
    local(in_time(async |reach| {
        let place = place_with(1 << 20);
        let script = "(yes err >&2) & exec yes";
        let mut spec = sh(&place, script);
        let begin = BootTime::now();
        spec.fence = begin.saturating_add(Duration::from_secs(3) + reach);
        let mut guardian = start_in_time(&place, &spec).await?;
        let mut most = 0;
        let record = loop {
            tokio::select! {
                end = guardian.exited() => break record(end),
                () = tokio::time::sleep(Duration::from_millis(50)) => {
                    most = most.max(disk_use(&place));
                }
            }
        };
        let late = BootTime::now().saturating_since(spec.fence);
        println!(
            "{} MB in {:?}, at most {} KiB on disk, over {late:?} after the fence",
            record.stdout.tail.total() / 1_000_000,
            BootTime::now().saturating_since(begin),
            most / 1024
        );
        assert!(late < DEADLINE, "the fence is heard: {late:?}");
        // Both outputs, the moment in which the segments are joined, and the small files.
        assert!(most <= (3 << 20) + (64 << 10), "{most}");
        for name in ["out.log", "err.log"] {
            assert!(std::fs::metadata(place.dir.path().join(name)).unwrap().len() <= 1 << 20);
        }
        Some(())
    }));
}

fn disk_use(place: &Place) -> u64 {
    let entries = std::fs::read_dir(place.dir.path()).unwrap().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[test]
fn a_log_can_be_followed_while_it_is_written() {
    local(async {
        const CHUNK: u64 = 8 * 20;
        let place = place_with(8192);
        // Before each chunk of twenty lines it waits for a byte from its reader.
        let pace = place.file("pace");
        let made = std::process::Command::new("mkfifo").arg(&pace).status().unwrap();
        assert!(made.success());
        let mut pace = std::fs::OpenOptions::new().read(true).write(true).open(&pace).unwrap();
        let script = "exec 3<$D/pace; i=0; while [ $i -lt 4000 ]; do
            [ $((i % 20)) -ne 0 ] || read x <&3
            printf '%07d\\n' $i; i=$((i+1)); done";
        let mut guardian = start(&place, &sh(&place, script)).await;
        let (mut reader, mut buffer) = (place.dir.log(LogStream::Stdout), [0; 1000]);
        let (mut seen, mut at, mut asked_for) = (Vec::new(), 0u64, 0);
        loop {
            match reader.read(&mut buffer).unwrap() {
                LogPiece::Bytes(length) => {
                    seen.push((at, buffer[..length].to_vec()));
                    at += length as u64;
                }
                LogPiece::Cut(bytes) => at += bytes,
                LogPiece::Nothing if at == asked_for => {
                    // A slow reader misses some.
                    let (chunks, pause) = if seen.len() % 25 == 24 { (60, 50) } else { (1, 0) };
                    asked_for += chunks * CHUNK;
                    std::io::Write::write_all(&mut pace, &vec![b'\n'; chunks as usize]).unwrap();
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                LogPiece::Nothing => tokio::time::sleep(Duration::from_millis(1)).await,
                LogPiece::End => break,
            }
            assert_eq!(reader.offset(), at);
        }
        guardian.exited().await;
        let all = lines(0..4000);
        assert_eq!(at, all.len() as u64);
        assert!(seen.len() > 20, "it was read while it was written");
        for (at, bytes) in seen {
            let at = usize::try_from(at).unwrap();
            assert_eq!(text(&bytes), text(&all[at..at + bytes.len()]), "at {at}");
        }
    });
}

#[test]
fn without_a_guardian_the_log_is_what_it_has_written() {
    local(async {
        let place = place_with(8192);
        let script = "awk 'BEGIN{for(i=0;i<3000;i++) printf \"%07d\\n\", i}'; touch $D/written
            exec sleep 300";
        let mut guardian = start(&place, &sh(&place, script)).await;
        written(&place.file("written")).await;
        eventually("it has arrived", || {
            whole_log(&place.dir, LogStream::Stdout).ends_with(b"0002999\n").then_some(())
        })
        .await;
        let before = whole_log(&place.dir, LogStream::Stdout);
        signal(guardian_pid(&guardian), rustix::process::Signal::KILL);
        guardian.exited().await;
        assert_eq!(text(&whole_log(&place.dir, LogStream::Stdout)), text(&before));
    });
}

#[test]
fn a_disk_that_is_full_loses_the_log_and_not_the_result() {
    let Some(disk) = SmallDisk::new() else {
        eprintln!("SKIPPED: a small file system cannot be mounted here");
        return;
    };
    local(async {
        let slot = disk.path().join("slot");
        let dir = leasehold::process::guardian::RunDir::create(&slot, "run-1", 7, DEFAULT_LOG_CAP);
        let place = Place { slot: tempfile::tempdir().unwrap(), dir: dir.unwrap() };
        let script = "head -c 6000000 /dev/zero; echo end; exit 5";
        let record = run(&place, script).await;
        assert_eq!(record.end, End::Exited(5));
        assert!(record.stdout.lost > 1_000_000, "{record:?}");
        assert!(record.stdout.tail.bytes().ends_with(b"end\n"));
        assert_eq!(place.dir.exit_record().unwrap(), Some(record));
    });
}

struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "none"])
            .arg(directory.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(directory))
    }

    fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[test]
fn a_stop_does_not_cut_what_was_written_before_it() {
    local(async {
        let place = place();
        let script = "head -c 3000000 /dev/zero; echo whole; touch $D/written; exec sleep 300";
        let mut guardian = start(&place, &sh(&place, script)).await;
        written(&place.file("written")).await;
        guardian.stop(Duration::ZERO, StopReason::Stop).unwrap();
        let record = record(guardian.exited().await);
        assert_eq!(record.stdout.tail.total(), 3_000_006);
        assert!(record.stdout.tail.bytes().ends_with(b"\0whole\n"));
    });
}
