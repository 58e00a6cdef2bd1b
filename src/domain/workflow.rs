//! What a workflow is: steps that run one after another under one lease.
//!
//! The arguments of a task of kind `workflow` are its *plan*, `{"steps": [{"name": "build", "kind": "command",
//! "args": {...}}, ...]}`. A *step* is a task of another kind; it has no lease, retries or settings of its own. A step
//! is *done* if and only if it has ended with exit code 0. Another attempt goes on at the first step that is not.

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use super::task::{PLAY_ALIAS, WORKFLOW, literal};

/// The most steps of a plan.
pub const MOST_STEPS: usize = 1000;
/// The longest name of a step, in characters.
const LONGEST_NAME: usize = 100;

/// One step of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What it is called, if it has a name.
    pub name: Option<String>,
    /// Its kind, any but `workflow`; an alias is resolved.
    pub kind: String,
    /// Its arguments, as a task of that kind has them.
    pub args: Map<String, Value>,
}

/// Why arguments are no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place} {problem}")]
pub struct PlanRefusal {
    place: String,
    problem: String,
}

impl PlanRefusal {
    fn new(place: impl fmt::Display, problem: impl Into<String>) -> PlanRefusal {
        PlanRefusal { place: place.to_string(), problem: problem.into() }
    }
}

/// Reads a plan.
///
/// ```
/// use leasehold::domain::workflow;
/// let args = serde_json::json!({"steps": [{"name": "ask", "kind": "agent", "args": {"action_prompt": "hi"}}]});
/// let steps = workflow::plan(args.as_object().unwrap()).unwrap();
/// assert_eq!((steps[0].name.as_deref(), steps[0].kind.as_str()), (Some("ask"), "agent"));
/// ```
///
/// # Errors
/// The first thing that is wrong with it, and in which step.
pub fn plan(args: &Map<String, Value>) -> Result<Vec<Step>, PlanRefusal> {
    if let Some(key) = args.keys().find(|key| *key != "steps") {
        let key = literal(&Value::from(key.as_str()));
        return Err(PlanRefusal::new(
            "a workflow",
            format!("has steps and nothing else, not {key}"),
        ));
    }
    let rule = r#"give {"steps": [{"kind": ..., "args": {...}}, ...]}"#;
    let steps = match args.get("steps") {
        Some(Value::Array(steps)) if !steps.is_empty() => steps,
        _ => return Err(PlanRefusal::new("a workflow", format!("needs a list of steps: {rule}"))),
    };
    if steps.len() > MOST_STEPS {
        let problem = format!("has {MOST_STEPS} steps at the most, not {}", steps.len());
        return Err(PlanRefusal::new("a workflow", problem));
    }
    steps.iter().enumerate().map(|(index, step)| read_step(index, step)).collect()
}

fn read_step(index: usize, step: &Value) -> Result<Step, PlanRefusal> {
    let number = Place { step: number(index), of: None, name: None };
    let Some(fields) = step.as_object() else {
        return Err(PlanRefusal::new(number, "must be an object with kind and args"));
    };
    let name = match fields.get("name") {
        None => None,
        Some(Value::String(name)) if is_name(name) => Some(name.clone()),
        Some(other) => {
            let problem = format!(
                "has the name {}: give a text of 1 to {LONGEST_NAME} characters, none of them a control character",
                literal(other)
            );
            return Err(PlanRefusal::new(number, problem));
        }
    };
    let place = Place { name: name.as_deref(), ..number };
    let kind = match fields.get("kind") {
        Some(Value::String(kind)) if kind == WORKFLOW => {
            let problem = "is a workflow itself: put its steps into this one";
            return Err(PlanRefusal::new(place, problem));
        }
        Some(Value::String(kind)) if kind == PLAY_ALIAS => "play".to_owned(),
        Some(Value::String(kind)) if !kind.is_empty() => kind.clone(),
        _ => return Err(PlanRefusal::new(place, "needs a kind, such as \"command\"")),
    };
    let args = match fields.get("args") {
        None => Map::new(),
        Some(Value::Object(args)) => args.clone(),
        Some(_) => return Err(PlanRefusal::new(place, "needs args that are an object")),
    };
    match fields.keys().find(|key| !["name", "kind", "args"].contains(&key.as_str())) {
        Some(key) => {
            let key = literal(&Value::from(key.as_str()));
            Err(PlanRefusal::new(
                place,
                format!("has the key {key}: a step has name, kind and args"),
            ))
        }
        None => Ok(Step { name, kind, args }),
    }
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control)
}

/// The number of the step at `index`: they count from 1.
pub fn number(index: usize) -> i32 {
    i32::try_from(index + 1).unwrap_or(i32::MAX)
}

/// Which step, for people: `step 2 of 3 "build"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Its number.
    pub step: i32,
    /// How many there are, if that is known.
    pub of: Option<usize>,
    /// What it is called.
    pub name: Option<&'a str>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}", self.step)?;
        if let Some(of) = self.of {
            write!(f, " of {of}")?;
        }
        self.name.map_or(Ok(()), |name| write!(f, " {name:?}"))
    }
}

/// A step that was begun, as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct BegunStep {
    /// Its number.
    pub step: i32,
    /// The epoch in which it was begun last.
    pub epoch: i32,
    /// When, in seconds since the epoch.
    pub begun_at: f64,
    /// The exit code with which it has ended, `-N` for signal N; absent while it runs, and when its end was not seen.
    pub exit_code: Option<i32>,
}

impl BegunStep {
    /// Whether it is not run again.
    pub fn is_done(&self) -> bool {
        self.exit_code == Some(0)
    }
}

/// The index of the step with which an attempt begins; past the last one when all are done.
///
/// ```
/// use leasehold::domain::workflow::{BegunStep, next_step};
/// let begun = |step, exit_code| BegunStep { step, epoch: 1, begun_at: 0.0, exit_code };
/// assert_eq!(next_step(&[]), 0);
/// assert_eq!(next_step(&[begun(1, Some(0)), begun(2, None)]), 1);
/// assert_eq!(next_step(&[begun(1, Some(0)), begun(2, Some(0))]), 2);
/// ```
pub fn next_step(begun: &[BegunStep]) -> usize {
    let is_done =
        |index: usize| begun.iter().any(|step| step.step == number(index) && step.is_done());
    (0..).find(|index| !is_done(*index)).unwrap_or(0)
}

/// How far a workflow has come.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Its steps.
    pub plan: Vec<Step>,
    /// Those that were begun.
    pub begun: Vec<BegunStep>,
}

impl Progress {
    /// The step with which it stands, and what is known of it; nothing when all are done.
    pub fn stands_at(&self) -> Option<(Place<'_>, Option<&BegunStep>)> {
        let index = next_step(&self.begun);
        let step = self.plan.get(index)?;
        let begun = self.begun.iter().find(|begun| begun.step == number(index));
        Some((self.place(number(index), step), begun))
    }

    fn place<'a>(&'a self, number: i32, step: &'a Step) -> Place<'a> {
        Place { step: number, of: Some(self.plan.len()), name: step.name.as_deref() }
    }

    /// Where it stands, in words.
    ///
    /// ```
    /// use leasehold::domain::workflow::{BegunStep, Progress, Step};
    /// let step = Step { name: None, kind: "agent".into(), args: Default::default() };
    /// let begun = |step, exit_code| BegunStep { step, epoch: 2, begun_at: 90.0, exit_code };
    /// let mut progress = Progress { plan: vec![step.clone(), step], begun: vec![] };
    /// assert_eq!(progress.words(100.0), "step 1 of 2 was not begun yet");
    /// progress.begun = vec![begun(1, Some(0)), begun(2, None)];
    /// assert_eq!(progress.words(100.0), "step 2 of 2 was begun 10 s ago in attempt 2");
    /// progress.begun[1].exit_code = Some(7);
    /// assert_eq!(progress.words(100.0), "step 2 of 2 ended with exit code 7 in attempt 2");
    /// progress.begun[1].exit_code = Some(0);
    /// assert_eq!(progress.words(100.0), "all of 2 steps are done");
    /// ```
    pub fn words(&self, now: f64) -> String {
        match self.stands_at() {
            None => format!("all of {} steps are done", self.plan.len()),
            Some((place, None)) => format!("{place} was not begun yet"),
            Some((place, Some(BegunStep { epoch, exit_code: Some(code), .. }))) => {
                format!("{place} ended with exit code {code} in attempt {epoch}")
            }
            Some((place, Some(BegunStep { epoch, begun_at, .. }))) => {
                let ago = (now - begun_at).max(0.0);
                format!("{place} was begun {ago:.0} s ago in attempt {epoch}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(args: Value) -> String {
        plan(args.as_object().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_plan_is_refused_with_its_step() {
        let ok = json!({"kind": "agent"});
        for args in [json!({}), json!({"steps": []}), json!({"steps": {}}), json!({"steps": null})]
        {
            assert!(refused(args).starts_with("a workflow needs a list of steps: give "));
        }
        assert!(refused(json!({"steps": [ok], "extra": 1})).contains("not 'extra'"));
        let many = vec![ok.clone(); MOST_STEPS + 1];
        assert!(refused(json!({ "steps": many })).contains("1000 steps at the most, not 1001"));
        for (step, said) in [
            (json!(5), "step 2 must be an object"),
            (json!({"name": "", "kind": "agent"}), "step 2 has the name ''"),
            (json!({"name": "a\nb", "kind": "agent"}), "step 2 has the name"),
            (json!({"name": "b"}), "step 2 \"b\" needs a kind"),
            (json!({"kind": 5}), "step 2 needs a kind"),
            (json!({"kind": "workflow"}), "step 2 is a workflow itself"),
            (json!({"kind": "agent", "args": []}), "step 2 needs args that are an object"),
            (json!({"kind": "agent", "arg": {}}), "step 2 has the key 'arg'"),
        ] {
            let refusal = refused(json!({"steps": [ok, step]}));
            assert!(refusal.starts_with(said), "{refusal}");
        }
    }

    #[test]
    fn a_plan_reads_in_order_and_resolves_the_alias() {
        let args = json!({"steps": [{"kind": "playbook"}, {"kind": "own", "args": {"a": 1}, "name": "x"}]});
        let steps = plan(args.as_object().unwrap()).unwrap();
        assert_eq!((steps[0].kind.as_str(), steps[0].args.len()), ("play", 0));
        assert_eq!((steps[1].name.as_deref(), &steps[1].args["a"]), (Some("x"), &json!(1)));
    }

    #[test]
    fn places_are_for_people() {
        let place = Place { step: 2, of: Some(3), name: Some("build") };
        assert_eq!(place.to_string(), "step 2 of 3 \"build\"");
        assert_eq!(Place { of: None, name: None, ..place }.to_string(), "step 2");
    }
}
