//! The members of a process group, besides its leader.

use rustix::process::Pid;

/// Whether a process of this group is alive. A zombie is not: nobody can run as one, and who reaps
/// it may take its time. Where this cannot be found out the answer is yes.
#[cfg(target_os = "linux")]
pub(super) fn has_living_members(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    processes
        .flatten()
        .filter(|entry| {
            entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
        })
        .filter_map(|entry| std::fs::read(entry.path().join("stat")).ok())
        .any(|stat| is_living_member(&stat, group))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn has_living_members(group: Pid) -> bool {
    rustix::process::test_kill_process_group(group).is_ok()
}

/// `pid (name) state parent group ...`, where the name may hold anything, a `)` too.
#[cfg(target_os = "linux")]
fn is_living_member(stat: &[u8], group: Pid) -> bool {
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let Ok(rest) = std::str::from_utf8(&stat[end + 1..]) else { return false };
    let mut fields = rest.split_ascii_whitespace();
    let alive = !matches!(fields.next(), None | Some("Z" | "X"));
    alive
        && fields.nth(1).and_then(|field| field.parse().ok()) == Some(group.as_raw_nonzero().get())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_pass_for_the_fields_after_it() {
        let group = rustix::process::getpgrp();
        let id = group.as_raw_nonzero();
        let is_member = |stat: String| is_living_member(stat.as_bytes(), group);
        assert!(is_member(format!("7 (sh) S 1 {id} 9 0 -1")));
        assert!(is_member(format!("7 (a) Z 1 0 (b)) R 1 {id} 9 0")));
        assert!(!is_member(format!("7 (sh) Z 1 {id} 9 0 -1")));
        assert!(!is_member(format!("7 (x) S 1 {id} 9 0) S 1 0 9 0")));
        assert!(!is_member(String::new()));
        assert!(has_living_members(group));
    }
}
