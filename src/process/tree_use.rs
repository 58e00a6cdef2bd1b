//! What the processes below another one take, for people to read.

use std::collections::HashSet;

use super::children::children_of;

/// What a tree of processes takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUse {
    /// How many processes there are, the one above them and zombies not counted.
    pub processes: usize,
    /// The sum of their resident memory, in bytes. Pages that several of them share are counted for each.
    pub resident_bytes: u64,
}

impl TreeUse {
    /// Looks at everything below the process `root`. The tree may change meanwhile, and the number may be another's by
    /// now: nothing is to be decided by the answer.
    pub fn below(root: u32) -> Self {
        let mut sum = Self::default();
        let mut seen = HashSet::new();
        let mut open: Vec<i32> = i32::try_from(root).into_iter().collect();
        while let Some(parent) = open.pop() {
            for child in children_of(parent) {
                if !seen.insert(child) {
                    continue;
                }
                open.push(child);
                let status = std::fs::read_to_string(format!("/proc/{child}/status"));
                // A zombie has no memory, nor has a process that is gone.
                if let Some(bytes) = status.ok().as_deref().and_then(resident_bytes) {
                    sum.processes += 1;
                    sum.resident_bytes += bytes;
                }
            }
        }
        sum
    }
}

/// `VmRSS:` of `/proc/<pid>/status`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn resident_memory_is_in_kibibytes_and_a_zombie_has_none() {
        assert_eq!(resident_bytes("Name:\tsh\nVmRSS:\t    1234 kB\n"), Some(1_263_616));
        assert_eq!(resident_bytes("Name:\tsh\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn a_tree_is_counted_without_its_root() {
        // The shell starts two and says so.
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60 & echo both; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        let mut out = shell.stdout.take().unwrap();
        out.read_exact(&mut said).unwrap();
        let below = TreeUse::below(shell.id());
        let ends: Vec<i32> = children_of(i32::try_from(shell.id()).unwrap());
        assert_eq!(ends.len(), 2);
        for pid in ends {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(below.processes, 2);
        assert!(below.resident_bytes > 0);
    }
}
