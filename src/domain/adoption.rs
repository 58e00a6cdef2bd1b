//! What a new daemon does about a run that another one left behind.
//!
//! A run directory (run and epoch) proves that the claim came from this slot. The *old owner* is whoever the row names
//! when it is read, not who spawned the run: a predecessor may have taken over and died before it said so.

use super::ending::EndedBy;
use super::status::Status;

/// A row as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenRun {
    /// Its status.
    pub status: Status,
    /// Who has its lease.
    pub owner: Option<String>,
    /// How often it was claimed.
    pub epoch: i32,
    /// Whether its lease had not run out.
    pub lasts: bool,
}

/// What can be seen of a run's guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenGuardian {
    /// It has ended, and has written down who ended the run.
    Ended(EndedBy),
    /// It answers.
    Answers,
    /// There is no record, and nobody answers.
    Silent,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write the end that the record tells, guarded by this owner and the epoch.
    WriteEnd {
        /// The old owner.
        owner: String,
    },
    /// Take the lease over from this owner; only then move the fence and attach an executor.
    TakeOver {
        /// The old owner.
        from: String,
    },
    /// Stop the task, wait for the record, and look again: it may have ended by itself meanwhile.
    StopAndLookAgain,
    /// Prove that no guardian lives, kill what is left, and give the run back as lost.
    GiveBackAsLost {
        /// The old owner.
        owner: String,
    },
    /// Prove that no guardian lives, kill what is left; the row is nobody's business here any more.
    OnlyClean,
    /// Nothing is left to do: the run has left this epoch. Its directory can go.
    Done,
    /// Touch nothing: the row is not there, so the store may be another one. The fence decides.
    Leave,
}

/// Decides. `row` is absent when there is none; a row that could not be read is [`Step::Leave`] as well.
pub fn next_step(row: Option<&SeenRun>, epoch: i32, guardian: SeenGuardian) -> Step {
    let Some(row) = row else { return Step::Leave };
    let ours = row.status == Status::Running && row.epoch == epoch;
    let owner = row.owner.clone().filter(|_| ours);
    match (guardian, owner) {
        (SeenGuardian::Ended(_), Some(owner)) => Step::WriteEnd { owner },
        (SeenGuardian::Ended(_), None) => Step::Done,
        // The statement itself tests the expiry again.
        (SeenGuardian::Answers, Some(from)) if row.lasts => Step::TakeOver { from },
        (SeenGuardian::Answers, _) => Step::StopAndLookAgain,
        (SeenGuardian::Silent, Some(owner)) => Step::GiveBackAsLost { owner },
        (SeenGuardian::Silent, None) => Step::OnlyClean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: Status, epoch: i32, lasts: bool) -> SeenRun {
        SeenRun { status, owner: Some("h:1".into()), epoch, lasts }
    }

    fn step(row: &SeenRun, guardian: SeenGuardian) -> Step {
        next_step(Some(row), 2, guardian)
    }

    #[test]
    fn a_record_is_written_while_the_row_still_runs_in_its_epoch_however_late() {
        let expired = row(Status::Running, 2, false);
        for ended_by in
            [EndedBy::Task, EndedBy::Cancel, EndedBy::Timeout, EndedBy::Fence, EndedBy::Stop]
        {
            let seen = SeenGuardian::Ended(ended_by);
            assert_eq!(step(&expired, seen), Step::WriteEnd { owner: "h:1".into() });
        }
        let seen = SeenGuardian::Ended(EndedBy::Task);
        assert_eq!(step(&row(Status::Running, 3, true), seen), Step::Done, "another epoch");
        assert_eq!(step(&row(Status::Queued, 2, true), seen), Step::Done);
    }

    #[test]
    fn a_living_guardian_is_taken_over_only_under_a_lease_that_lasts() {
        let answers = SeenGuardian::Answers;
        assert_eq!(
            step(&row(Status::Running, 2, true), answers),
            Step::TakeOver { from: "h:1".into() }
        );
        assert_eq!(step(&row(Status::Running, 2, false), answers), Step::StopAndLookAgain);
        assert_eq!(step(&row(Status::Running, 3, true), answers), Step::StopAndLookAgain);
        assert_eq!(step(&row(Status::Completed, 2, true), answers), Step::StopAndLookAgain);
    }

    #[test]
    fn a_silent_one_is_lost_and_a_missing_row_is_left_alone() {
        let silent = SeenGuardian::Silent;
        assert_eq!(
            step(&row(Status::Running, 2, true), silent),
            Step::GiveBackAsLost { owner: "h:1".into() }
        );
        assert_eq!(step(&row(Status::Failed, 2, true), silent), Step::OnlyClean);
        for guardian in [silent, SeenGuardian::Answers, SeenGuardian::Ended(EndedBy::Task)] {
            assert_eq!(next_step(None, 2, guardian), Step::Leave);
        }
    }
}
