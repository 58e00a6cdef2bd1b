//! Tasks that are submitted together: which of them are to be stored, and one answer for each.

use std::collections::HashMap;

use super::{Intake, MOST_ATOMIC};
use crate::config::InvalidArgument;
use crate::db::ops::{Submit, Submitted};
use crate::domain::payload;
use crate::domain::submission::Submission;
use crate::error::Error;

/// Tasks in their order: why one is refused, or nothing for one whose operation waits for the store.
pub(crate) struct Batch(Vec<Option<Error>>);

/// The id of a task, or why it has none.
type Answer = Result<String, Error>;

impl Batch {
    /// Checks each task, and makes the operations of those that may be stored, in their order.
    pub fn check(tasks: &[Submission], intake: &Intake<'_>) -> (Batch, Vec<Submit>) {
        let mut submits = Vec::with_capacity(tasks.len());
        let checked = tasks.iter().map(|task| {
            let (settings, stdin) = (task.settings.clone(), task.stdin.clone());
            match intake.accept(&task.app, settings, stdin) {
                Ok(submit) => {
                    submits.push(submit);
                    None
                }
                Err(error) => Some(error),
            }
        });
        (Batch(checked.collect()), submits)
    }

    /// The answers, in the order of the tasks, when `answer` is asked for that of each operation in turn.
    pub fn answers(
        self,
        submits: &[Submit],
        mut answer: impl FnMut(&Submit) -> Answer,
    ) -> Vec<Answer> {
        let mut submits = submits.iter();
        let mut of_next = || submits.next().map(&mut answer);
        self.0.into_iter().filter_map(|refused| refused.map(Err).or_else(&mut of_next)).collect()
    }

    /// The answers, once the store has said what came of each operation.
    pub fn stored(self, submits: &[Submit], submitted: Vec<Submitted>) -> Vec<Answer> {
        let mut submitted = submitted.into_iter();
        self.answers(submits, |submit| {
            // There is one for each.
            Error::or_id(submitted.next().unwrap_or(Submitted::New), submit)
        })
    }
}

/// The operations of tasks that are to be stored together or not at all.
///
/// # Errors
/// [`Error::Argument`] for too many, [`Error::Batch`] with each that is refused.
pub(crate) fn all(tasks: &[Submission], intake: &Intake<'_>) -> Result<Vec<Submit>, Error> {
    let of = tasks.len();
    if of > MOST_ATOMIC {
        let given = format!("{of} tasks");
        let rule = "give at most 10000 that are to be stored together or not at all";
        return Err(InvalidArgument { what: "a batch", given, rule }.into());
    }
    let (Batch(checked), submits) = Batch::check(tasks, intake);
    let (mut refused, mut keys, mut next) = (Vec::new(), HashMap::new(), submits.iter());
    for (place, error) in checked.into_iter().enumerate() {
        let error = error.or_else(|| not_first_of_its_key(&mut keys, place, next.next()?));
        refused.extend(error.map(|error| (place, error)));
    }
    if refused.is_empty() { Ok(submits) } else { Err(Error::Batch { refused, of }) }
}

/// Refuses a task whose key stands for another one of the batch: the id of that one would never be stored.
fn not_first_of_its_key<'a>(
    keys: &mut HashMap<&'a str, (usize, String)>,
    place: usize,
    submit: &'a Submit,
) -> Option<Error> {
    let key = submit.spec.idempotency_key.as_ref()?.as_str();
    let hash = payload::hash(&submit.spec, &submit.settings, submit.stdin.as_deref());
    let (first, of_first) = keys.entry(key).or_insert_with(|| (place, hash.clone()));
    (*of_first != hash).then(|| Error::KeyTwice { key: key.to_owned(), first: *first })
}

/// The ids of tasks that were stored together.
///
/// # Errors
/// [`Error::Batch`] when the key of one stood for another task, so that none is stored.
pub(crate) fn ids(submits: &[Submit], submitted: Vec<Submitted>) -> Result<Vec<String>, Error> {
    let (mut ids, mut refused) = (Vec::with_capacity(submits.len()), Vec::new());
    for (place, (submit, submitted)) in submits.iter().zip(submitted).enumerate() {
        match Error::or_id(submitted, submit) {
            Ok(id) => ids.push(id),
            Err(error) => refused.push((place, error)),
        }
    }
    if refused.is_empty() { Ok(ids) } else { Err(Error::Batch { refused, of: submits.len() }) }
}
