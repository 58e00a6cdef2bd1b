//! How long the directories of runs that have ended are kept.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::RunDir;
use super::run_dir::KEPT;

/// What is kept of runs that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For how long.
    pub age: Duration,
    /// How many bytes of disk in all slots of a store; the oldest go first.
    pub bytes: u64,
}

impl Default for Retention {
    /// A week, and 1 GiB.
    fn default() -> Self {
        Retention { age: Duration::from_secs(7 * 24 * 3600), bytes: 1 << 30 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    path: PathBuf,
    ended: SystemTime,
    bytes: u64,
}

impl Retention {
    /// Removes what was kept in these slots and need not be, and says how many runs that were. One in which a guardian
    /// lives stays. `now` is the time by which their age is judged. Blocks while it does so.
    ///
    /// No lock of a slot is needed: what is kept is over, whoever works there.
    ///
    /// # Errors
    /// A slot cannot be read; nothing was removed. What cannot be removed is tried again the next time.
    pub fn apply(&self, slots: &[PathBuf], now: SystemTime) -> io::Result<usize> {
        let mut all = Vec::new();
        for slot in slots {
            all.extend(list(&slot.join(KEPT))?);
        }
        let removed =
            self.surplus(all, now).into_iter().filter(|kept| RunDir::remove_at(&kept.path).is_ok());
        Ok(removed.count())
    }

    fn surplus(&self, mut all: Vec<Kept>, now: SystemTime) -> Vec<Kept> {
        all.sort_by(|a, b| b.ended.cmp(&a.ended).then_with(|| a.path.cmp(&b.path)));
        let mut total = 0u64;
        all.retain(|kept| {
            total = total.saturating_add(kept.bytes);
            // An end in the future is one of a clock that was set back: its size still counts.
            let age = now.duration_since(kept.ended).unwrap_or_default();
            total > self.bytes || age > self.age
        });
        all
    }
}

fn list(kept: &Path) -> io::Result<Vec<Kept>> {
    let entries = match kept.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // Another worker may be removing it.
        if let Ok(ended) = path.metadata().and_then(|metadata| metadata.modified())
            && let Ok(bytes) = allocated(&path)
        {
            all.push(Kept { path, ended, bytes });
        }
    }
    Ok(all)
}

/// What a directory without directories takes on the disk.
fn allocated(path: &Path) -> io::Result<u64> {
    let mut blocks = path.metadata()?.blocks();
    for entry in path.read_dir()? {
        blocks += entry?.metadata()?.blocks();
    }
    Ok(blocks * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(name: &str, seconds: u64, bytes: u64) -> Kept {
        let ended = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        Kept { path: name.into(), ended, bytes }
    }

    fn surplus(age: u64, bytes: u64, all: &[Kept]) -> Vec<String> {
        let retention = Retention { age: Duration::from_secs(age), bytes };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let surplus = retention.surplus(all.to_vec(), now);
        surplus.into_iter().map(|kept| kept.path.display().to_string()).collect()
    }

    #[test]
    fn the_old_go_and_of_the_rest_the_oldest_until_the_others_fit() {
        let all = [kept("b", 900, 10), kept("a", 800, 10), kept("c", 950, 10), kept("d", 2000, 10)];
        assert_eq!(surplus(1000, 40, &all), [""; 0]);
        assert_eq!(surplus(100, 40, &all), ["a"]);
        assert_eq!(surplus(1000, 39, &all), ["a"]);
        assert_eq!(surplus(1000, 20, &all), ["b", "a"]);
        assert_eq!(surplus(0, 0, &all), ["d", "c", "b", "a"]);
        assert_eq!(surplus(0, 0, &[]), [""; 0]);
    }
}
