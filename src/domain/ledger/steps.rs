//! Whether what a store says of the steps of a workflow can be true.

use super::Entry;

/// A step of a workflow, as it was begun last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepEntry {
    /// Its number, from 1.
    pub step: i32,
    /// The attempt in which it was begun.
    pub epoch: i32,
    /// Whether it has an end.
    pub is_over: bool,
    /// How it ended.
    pub exit_code: Option<i32>,
}

/// Steps are begun one after the other, each when all before it have ended well, and in no attempt that was not made. A
/// later attempt begins where the one before it has stopped.
pub(super) fn broken_steps(run: &Entry) -> Option<String> {
    let mut last = StepEntry { step: 0, epoch: 1, is_over: true, exit_code: Some(0) };
    for step in &run.steps {
        let number = step.step;
        if number != last.step.saturating_add(1) {
            return Some(format!("step {number} was begun after step {}", last.step));
        }
        if last.exit_code != Some(0) {
            return Some(format!(
                "step {number} was begun, and step {} has not ended well",
                last.step
            ));
        }
        if !(last.epoch..=run.epoch).contains(&step.epoch) {
            let (epoch, claims) = (step.epoch, run.epoch);
            return Some(format!(
                "step {number} was begun in attempt {epoch}, the one before it in {}, and it was claimed {claims} times",
                last.epoch,
            ));
        }
        if step.is_over != step.exit_code.is_some() {
            return Some(format!("step {number} has an end or an exit code, and not both"));
        }
        last = *step;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Option<i32> = Some(0);

    fn broken(steps: &[(i32, i32, Option<i32>)]) -> Option<String> {
        let steps = steps.iter().map(|(step, epoch, exit_code)| StepEntry {
            step: *step,
            epoch: *epoch,
            is_over: exit_code.is_some(),
            exit_code: *exit_code,
        });
        broken_steps(&Entry { epoch: 3, steps: steps.collect(), ..Entry::default() })
    }

    #[test]
    fn what_really_happens_is_sound() {
        for right in [
            &[][..],
            &[(1, 1, None)],
            &[(1, 1, DONE), (2, 1, Some(7))],
            &[(1, 1, DONE), (2, 3, None)],
            &[(1, 2, DONE), (2, 2, DONE), (3, 3, DONE)],
        ] {
            assert_eq!(broken(right), None, "{right:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_found() {
        for wrong in [
            &[(2, 1, None)][..],
            &[(1, 1, DONE), (3, 1, None)],
            &[(1, 1, None), (2, 1, None)],
            &[(1, 1, Some(7)), (2, 2, None)],
            &[(1, 4, None)],
            &[(1, 0, None)],
            &[(1, 2, DONE), (2, 1, None)],
            &[(0, 1, DONE)],
        ] {
            assert!(broken(wrong).is_some(), "{wrong:?}");
        }
        let halves = [StepEntry { step: 1, epoch: 1, is_over: true, exit_code: None }];
        let run = Entry { epoch: 1, steps: halves.into(), ..Entry::default() };
        assert!(broken_steps(&run).is_some());
    }
}
