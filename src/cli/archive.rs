//! The file into which facts go before they are removed from a store: one JSON object on each line, with the column names
//! of the table.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use leasehold::db::Fact;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Deserialize;

use super::failure::Failure;

/// So much of its end is read for facts that were written before a crash. One transaction's are far less.
const LOOK_BACK: u64 = 64 << 20;

/// An open archive, which nobody else writes to.
#[derive(Debug)]
pub(super) struct Archive {
    file: File,
    /// The facts at its end: should their tasks be there, a crash kept those from being removed.
    there: HashSet<String>,
}

/// All that is read of a line.
#[derive(Deserialize)]
struct Line {
    id: String,
}

impl Archive {
    /// Opens one, or makes it, for its owner alone.
    pub(super) fn open(path: &Path) -> Result<Archive, Failure> {
        let unusable = |error: io::Error| {
            Failure::Refused(format!("the archive {} cannot be used: {error}", path.display()))
        };
        open(path).map_err(unusable)
    }

    /// Appends facts, and returns when they are on the disk.
    pub(super) fn append(&mut self, facts: &[Fact]) -> io::Result<()> {
        let mut text = String::new();
        for fact in facts.iter().filter(|fact| !self.there.contains(&fact.id)) {
            text += &serde_json::to_string(fact)?;
            text.push('\n');
        }
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()
    }
}

fn open(path: &Path) -> io::Result<Archive> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        // Of a pipe nobody waits for the other end.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file; name another one"));
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| io::Error::other("another program has locked it; wait for its end"))?;
    let there = facts_at_the_end(&mut file)?;
    // The name of a file that was just made must be on the disk, too.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.map_or_else(|| PathBuf::from("."), Path::to_owned))?.sync_all()?;
    Ok(Archive { file, there })
}

/// The ids of the facts in the last lines. A line that a crash has cut off is removed: its fact is still in the store.
fn facts_at_the_end(file: &mut File) -> io::Result<HashSet<String>> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(LOOK_BACK);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    // The first line may have begun before.
    let from = match start {
        0 => 0,
        _ => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1),
    };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(from, |end| end + 1);
    let mut there = HashSet::new();
    for line in bytes[from..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let fact: Line = serde_json::from_slice(line).map_err(|_| not_ours())?;
        there.insert(fact.id);
    }
    let cut = &bytes[whole..];
    if !cut.is_empty() {
        if !is_begun(cut) {
            return Err(not_ours());
        }
        file.set_len(start + whole as u64)?;
    }
    Ok(there)
}

fn not_ours() -> io::Error {
    io::Error::other("it holds something else than facts; name another file")
}

/// Whether a line without its end may be one of ours.
fn is_begun(line: &[u8]) -> bool {
    const BEGIN: &[u8] = br#"{"id":""#;
    let common = line.len().min(BEGIN.len());
    line[..common] == BEGIN[..common]
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn fact(id: &str) -> Fact {
        Fact {
            id: id.into(),
            entity_type: "schedule_run".into(),
            entity_id: "r".into(),
            previous_status: None,
            status: "queued".into(),
            reason_code: "c".into(),
            reason_summary: Some("two\nlines".into()),
            evidence_refs: None,
            source: "system".into(),
            actor: None,
            created_at: 1.5,
            metadata: None,
        }
    }

    /// A child that another test starts at this moment has what was open here until it executes its program.
    fn opened(path: &Path) -> io::Result<Archive> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match open(path) {
                Err(error) if error.to_string().contains("locked") && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => return opened,
            }
        }
    }

    fn ids(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().id).collect()
    }

    #[test]
    fn what_stands_at_the_end_is_not_written_again_wherever_a_crash_has_cut_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("facts.jsonl");
        opened(&path).unwrap().append(&[fact("a"), fact("b")]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mut archive = opened(&path).unwrap();
            archive.append(&[fact("a"), fact("b")]).unwrap();
            archive.append(&[fact("c")]).unwrap();
            assert_eq!(ids(&path), ["a", "b", "c"], "cut at {length}");
        }
    }

    #[test]
    fn what_is_no_archive_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        for other in ["dear diary\n", "dear diary", "{\"name\":1}\n", "{\"idle\":true}", "[]\n"] {
            std::fs::write(&path, other).unwrap();
            assert!(opened(&path).unwrap_err().to_string().contains("something else"), "{other:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
        assert!(open(dir.path()).is_err(), "a directory");
        let archive = opened(&dir.path().join("new")).unwrap();
        let second = open(&dir.path().join("new")).unwrap_err();
        assert!(second.to_string().contains("locked"), "{second}");
        drop(archive);
        assert!(opened(&dir.path().join("new")).is_ok());
    }
}
