//! A place in a document.

use std::fmt::Write;

use super::Misfit;
use super::fit::Verdict;

/// A place, and what is above it.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    above: Option<&'p Place<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Top,
    Item(usize),
    Member(&'p str),
}

impl<'p> Place<'p> {
    pub const TOP: Place<'static> = Place { above: None, step: Step::Top };

    pub fn item(&'p self, index: usize) -> Place<'p> {
        Place { above: Some(self), step: Step::Item(index) }
    }

    pub fn member(&'p self, name: &'p str) -> Place<'p> {
        Place { above: Some(self), step: Step::Member(name) }
    }

    /// As a JSON pointer, and not too long.
    fn shown(&self) -> String {
        let mut steps = Vec::new();
        let mut place = Some(self);
        while let Some(Place { above, step }) = place {
            steps.push(*step);
            place = *above;
        }
        let mut text = String::new();
        for step in steps.into_iter().rev() {
            match step {
                Step::Top => {}
                Step::Item(index) => text += &format!("/{index}"),
                Step::Member(name) => {
                    let _ = write!(text, "/{}", name.chars().take(40).collect::<String>());
                }
            }
            if text.len() > 200 {
                text += "/…";
                break;
            }
        }
        text
    }

    pub fn differs(&self, why: &str) -> Verdict {
        let place = self.shown();
        let subject =
            if place.is_empty() { "it".to_owned() } else { format!("what stands at {place:?}") };
        Err(Misfit::Differs(format!("{subject} {why}")))
    }
}
