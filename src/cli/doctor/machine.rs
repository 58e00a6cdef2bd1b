//! What the kernel gives to guardians, the clock, and the program `li`.

use std::fs;
use std::path::Path;

use leasehold::clock::{Clock, SystemClock};
use leasehold::launch::{LiNotFound, LiSearch, find_li};
use leasehold::process::cgroup::delegated;
use leasehold::process::guardian::Facility;
use leasehold::process::is_clock_synchronised;
use rustix::time::{DynamicClockId, clock_gettime_dynamic};

use super::finding::Finding;

/// One finding for each facility.
pub(super) fn facilities() -> Vec<Finding> {
    let missing = Facility::missing();
    Facility::ALL
        .into_iter()
        .map(|facility| judge_facility(facility, missing.contains(&facility)))
        .collect()
}

fn judge_facility(facility: Facility, is_missing: bool) -> Finding {
    match (is_missing, facility.is_needed()) {
        (false, _) => Finding::ok(facility.name(), "the kernel has it"),
        (true, false) => Finding::warning(facility.name(), facility.without(), facility.remedy()),
        (true, true) => Finding::problem(facility.name(), facility.without(), facility.remedy()),
    }
}

pub(super) fn control_group() -> Finding {
    judge_group(delegated().as_deref())
}

/// `below` is the cgroup below which others may be made.
fn judge_group(below: Option<&Path>) -> Finding {
    match below {
        Some(below) => {
            Finding::ok("cgroup", format!("each task gets a cgroup below {}", below.display()))
        }
        None => Finding::warning(
            "cgroup",
            "no cgroup can be made from here, so that a task may fork faster than it is killed",
            "use cgroup v2, and set Delegate=yes in the unit of the worker",
        ),
    }
}

/// The clock as it is seen.
#[derive(Debug, Clone, Copy)]
struct ClockSeen {
    /// Seconds since the epoch.
    now: f64,
    /// Whether there is a clock that counts the sleep of the machine.
    has_boot_time: bool,
    /// Whether it is kept right; nothing when the kernel does not say.
    synchronised: Option<bool>,
    /// Whether other machines judge leases of this store.
    is_shared: bool,
}

pub(super) fn clock(is_shared: bool) -> Finding {
    judge_clock(ClockSeen {
        now: SystemClock.now(),
        has_boot_time: clock_gettime_dynamic(DynamicClockId::Boottime).is_ok(),
        synchronised: is_clock_synchronised().ok(),
        is_shared,
    })
}

fn judge_clock(clock: ClockSeen) -> Finding {
    const CHECK: &str = "clock";
    /// The beginning of 2025, before which this program was not there, and of 2100.
    const PLAUSIBLE: std::ops::Range<f64> = 1_735_689_600.0..4_102_444_800.0;
    if !PLAUSIBLE.contains(&clock.now) {
        let what = format!("the wall clock shows {}", crate::cli::text::time(clock.now));
        return Finding::problem(CHECK, what, "set it: leases are times");
    }
    if !clock.has_boot_time {
        let what = "there is no clock that counts the sleep of the machine (CLOCK_BOOTTIME)";
        return Finding::problem(CHECK, what, "use Linux 2.6.39 or later");
    }
    match (clock.synchronised, clock.is_shared) {
        (Some(true), _) => Finding::ok(CHECK, "the wall clock is synchronised"),
        (Some(false), true) => Finding::warning(
            CHECK,
            "the wall clock is not synchronised, and other machines may judge leases by theirs",
            "run an NTP service such as systemd-timesyncd or chrony",
        ),
        (Some(false), false) => Finding::ok(
            CHECK,
            "the wall clock is not synchronised, which only matters where machines share a store",
        ),
        (None, _) => Finding::ok(CHECK, "whether the wall clock is synchronised is not known"),
    }
}

pub(super) fn privileges() -> Finding {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    judge_privileges(&status)
}

/// `status` as in `/proc/<pid>/status`.
fn judge_privileges(status: &str) -> Finding {
    let line = status.lines().find_map(|line| line.strip_prefix("NoNewPrivs:"));
    let what = match line.map(str::trim) {
        Some("0") => "not set: tasks may use sudo and other setuid programs",
        Some("1") => "set: sudo and other setuid programs give a task no more rights",
        _ => "not known",
    };
    Finding::ok("no-new-privs", what)
}

pub(super) fn li(search: &LiSearch) -> Finding {
    judge_li(find_li(search))
}

fn judge_li(found: Result<Vec<String>, LiNotFound>) -> Finding {
    match found {
        Ok(words) => Finding::ok("li", words.join(" ")),
        Err(error) => {
            let tried = error.attempts.join("; ");
            Finding::warning(
                "li",
                format!("li is not found, so only tasks of kind command can run ({tried})"),
                "install lionagi so that `li` is in an absolute directory of PATH, or set VIRTUAL_ENV",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn only_what_guardians_cannot_do_without_is_a_problem() {
        for facility in Facility::ALL {
            assert_eq!(judge_facility(facility, false).state, State::Ok);
            let missing = judge_facility(facility, true).state;
            assert_eq!(missing == State::Problem, facility != Facility::CloseRange);
            assert_ne!(missing, State::Ok);
        }
    }

    #[test]
    fn without_cgroups_something_is_weaker() {
        assert_eq!(judge_group(Some(Path::new("/sys/fs/cgroup/a.service"))).state, State::Ok);
        assert_eq!(judge_group(None).state, State::Warning);
    }

    #[test]
    fn a_clock_must_be_plausible_and_kept_right_where_others_go_by_it() {
        let good = ClockSeen {
            now: 1_800_000_000.0,
            has_boot_time: true,
            synchronised: Some(true),
            is_shared: true,
        };
        let state = |clock| judge_clock(clock).state;
        assert_eq!(state(good), State::Ok);
        assert_eq!(state(ClockSeen { now: 0.0, ..good }), State::Problem);
        assert_eq!(state(ClockSeen { now: 9e9, ..good }), State::Problem);
        assert_eq!(state(ClockSeen { has_boot_time: false, ..good }), State::Problem);
        let drifting = ClockSeen { synchronised: Some(false), ..good };
        assert_eq!(state(drifting), State::Warning);
        assert_eq!(state(ClockSeen { is_shared: false, ..drifting }), State::Ok);
        assert_eq!(state(ClockSeen { synchronised: None, ..good }), State::Ok);
    }

    #[test]
    fn without_li_most_kinds_cannot_run() {
        assert_eq!(judge_li(Ok(vec!["/bin/li".into()])).state, State::Ok);
        assert_eq!(judge_li(Err(LiNotFound { attempts: vec!["x".into()] })).state, State::Warning);
        let set = judge_privileges("Name:\tx\nNoNewPrivs:\t1\n");
        assert_ne!(set, judge_privileges("NoNewPrivs:\t0\n"));
    }
}
