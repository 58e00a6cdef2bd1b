//! Which queued runs a pass tries to claim, and in which order (ADR-0071 D4 and D5).
//!
//! A pass hands the queue page by page, oldest first, to a [`ClaimPlan`], which keeps the runs that this worker may serve
//! and says when it has seen enough. The contract's pass reads all there is; a runtime's leaves out what it cannot serve
//! ([`ready`](super::ready)).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::capability::CapabilityClasses;
use super::json_text;
use super::kinds::Kinds;
use super::run::QueuedRun;

/// Rows read per page.
pub const PAGE_ROWS: usize = 50;
/// Rows after which a pass stops reading, so that a deep ineligible head does not hold a tick for ever.
pub const SCAN_ROWS: usize = 5000;
/// Claims a pass attempts unless its caller says otherwise.
pub const DEFAULT_LIMIT: usize = 20;

/// What one worker can serve.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The capabilities it advertises.
    pub capabilities: HashSet<String>,
    /// The execution targets it serves.
    pub targets: HashSet<String>,
    /// What each capability token means.
    pub classes: CapabilityClasses,
    /// The kinds that it has adapters for.
    pub kinds: Kinds,
}

impl Offer {
    /// An offer of `capabilities` for `targets`, whatever the kind; no targets means `host`.
    pub fn new(capabilities: &[String], targets: &[String], classes: CapabilityClasses) -> Offer {
        Offer {
            capabilities: capabilities.iter().cloned().collect(),
            targets: targets_or_host(targets).into_iter().collect(),
            classes,
            kinds: Kinds::Any,
        }
    }

    /// The affinity score of a run of this kind with this requirement and target; nothing when this worker may not
    /// serve it, or when the stored requirement cannot be read: a requirement nobody understands is met by nobody.
    pub fn serves(
        &self,
        kind: &str,
        capabilities: Option<&str>,
        target: Option<&str>,
    ) -> Option<usize> {
        let target = target.unwrap_or_default();
        if !self.kinds.have(kind) || !target.is_empty() && !self.targets.contains(target) {
            return None;
        }
        let required = required_tokens(capabilities)?;
        let served = self.classes.can_serve(&required, &self.capabilities);
        served.then(|| self.classes.affinity_score(&required, &self.capabilities))
    }

    /// The tokens of which this run may be the only one on its host, each once.
    pub fn serialization_tokens(&self, run: &QueuedRun) -> BTreeSet<String> {
        let required = required_tokens(run.required_capabilities.as_deref()).unwrap_or_default();
        self.classes.serialization_tokens(&required)
    }

    fn score(&self, run: &QueuedRun) -> Option<usize> {
        let (capabilities, target) = (&run.required_capabilities, &run.execution_target);
        self.serves(&run.action_kind, capabilities.as_deref(), target.as_deref())
    }
}

/// The targets a worker serves: those given, or `host` when none are.
pub fn targets_or_host(targets: &[String]) -> Vec<String> {
    if targets.is_empty() { vec!["host".into()] } else { targets.to_vec() }
}

/// The tokens in a stored requirement. Absent, empty and `null` mean none; nothing comes back for text that is not a
/// list of strings.
pub fn required_tokens(text: Option<&str>) -> Option<Vec<String>> {
    match text.unwrap_or_default() {
        "" | "[]" => Some(Vec::new()),
        text => match json_text::parse(text).ok()? {
            Value::Null => Some(Vec::new()),
            Value::Array(items) => {
                items.into_iter().map(|item| item.as_str().map(str::to_owned)).collect()
            }
            _ => None,
        },
    }
}

/// Sorts runs as the queue has them: those without a time first, then by time, and by id.
pub fn in_queue_order(runs: &mut [QueuedRun]) {
    let time = |run: &QueuedRun| run.queued_at.unwrap_or(f64::NEG_INFINITY);
    runs.sort_by(|a, b| time(a).total_cmp(&time(b)).then_with(|| a.id.cmp(&b.id)));
}

/// Collects the candidates of one pass.
#[derive(Debug)]
pub struct ClaimPlan<'a> {
    offer: &'a Offer,
    limit: usize,
    busy: HashSet<String>,
    candidates: Vec<(usize, QueuedRun)>,
    keys: HashSet<String>,
    claimable: usize,
    scanned: usize,
}

impl<'a> ClaimPlan<'a> {
    /// A plan for at most `limit` claims, given the keys of all running runs.
    pub fn new(offer: &'a Offer, limit: usize, busy: HashSet<String>) -> ClaimPlan<'a> {
        ClaimPlan {
            offer,
            limit,
            busy,
            candidates: Vec::new(),
            keys: HashSet::new(),
            claimable: 0,
            scanned: 0,
        }
    }

    /// Whether another page should be read. Both bounds are tested between pages: a page is always taken whole.
    pub fn wants_more(&self) -> bool {
        self.claimable < self.limit && self.scanned < SCAN_ROWS
    }

    /// Takes a page.
    pub fn take_page(&mut self, page: Vec<QueuedRun>) {
        self.scanned += page.len();
        for run in page {
            if let Some(score) = self.offer.score(&run) {
                self.take(score, run);
            }
        }
    }

    /// A run whose key is busy is no candidate, so it never hides a free one behind it. Of several runs with one
    /// key only the first counts towards the limit, since one at the most can be claimed; the others stay, for the
    /// case that the first is lost to somebody else.
    fn take(&mut self, score: usize, run: QueuedRun) {
        match &run.concurrency_key {
            Some(key) if self.busy.contains(key) => return,
            Some(key) => self.claimable += usize::from(self.keys.insert(key.clone())),
            None => self.claimable += 1,
        }
        self.candidates.push((score, run));
    }

    /// The pass itself: most affinity first, and among equals the oldest.
    pub fn into_pass(mut self) -> ClaimPass {
        self.candidates.sort_by_key(|(score, _)| Reverse(*score));
        ClaimPass {
            candidates: self
                .candidates
                .into_iter()
                .map(|(_, run)| run)
                .collect::<Vec<_>>()
                .into_iter(),
            left: self.limit,
            taken: HashSet::new(),
        }
    }
}

/// The order in which candidates are tried. A key claimed in this pass stays blocked to its end, even when its run
/// has ended meanwhile.
#[derive(Debug)]
pub struct ClaimPass {
    candidates: std::vec::IntoIter<QueuedRun>,
    left: usize,
    taken: HashSet<String>,
}

impl ClaimPass {
    /// The next run to try, if the limit of attempts leaves one.
    pub fn next_candidate(&mut self) -> Option<QueuedRun> {
        if self.left == 0 {
            return None;
        }
        let free = |run: &QueuedRun| {
            !run.concurrency_key.as_ref().is_some_and(|key| self.taken.contains(key))
        };
        let next = self.candidates.find(free)?;
        self.left -= 1;
        Some(next)
    }

    /// Tells the pass that the run it gave last cannot be claimed now, since a lock of this machine is somebody else's.
    /// That was no attempt: however many wait for a lock, what is behind them is not hidden.
    pub fn put_off(&mut self) {
        self.left += 1;
    }

    /// Tells the pass that a claim was won. A lost one takes no key.
    pub fn claimed(&mut self, run: &QueuedRun) {
        self.taken.extend(run.concurrency_key.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: usize, capabilities: &str, key: Option<&str>) -> QueuedRun {
        QueuedRun {
            id: format!("r{id:04}"),
            action_kind: "agent".into(),
            action_args: "{}".into(),
            lease_attempts: 0,
            required_capabilities: Some(capabilities.into()),
            execution_target: Some("host".into()),
            concurrency_key: key.map(str::to_owned),
            queued_at: Some(id as f64),
        }
    }

    fn offer(capabilities: &[&str]) -> Offer {
        let capabilities: Vec<_> = capabilities.iter().map(|c| c.to_string()).collect();
        Offer::new(&capabilities, &[], CapabilityClasses::default())
    }

    fn order(mut pass: ClaimPass) -> Vec<String> {
        std::iter::from_fn(|| {
            let run = pass.next_candidate()?;
            pass.claimed(&run);
            Some(run.id)
        })
        .collect()
    }

    #[test]
    fn a_requirement_that_cannot_be_read_is_met_by_nobody() {
        let offer = offer(&["a"]);
        for text in ["not json", "5", "{\"a\":1}", "[1]"] {
            assert_eq!(offer.score(&run(1, text, None)), None, "{text}");
        }
        for text in ["", "[]", "null", "[\"a\"]"] {
            assert_eq!(offer.score(&run(1, text, None)), Some(0), "{text}");
        }
    }

    #[test]
    fn a_kind_without_an_adapter_hides_nothing() {
        let mut offer = offer(&[]);
        offer.kinds = Kinds::of(["agent"]);
        let mut plan = ClaimPlan::new(&offer, 20, HashSet::new());
        let of_kind =
            |id, kind: &str| QueuedRun { action_kind: kind.into(), ..run(id, "[]", None) };
        plan.take_page(vec![of_kind(1, "workflow"), of_kind(2, "other"), of_kind(3, "agent")]);
        assert_eq!(order(plan.into_pass()), ["r0003"]);
    }

    #[test]
    fn twenty_five_runs_on_a_busy_key_do_not_hide_the_free_one() {
        let offer = offer(&["gpu-exclusive"]);
        let mut plan = ClaimPlan::new(&offer, 20, HashSet::from(["k".to_owned()]));
        plan.take_page(
            (0..25).map(|id| run(id, "[]", Some("k"))).chain([run(99, "[]", None)]).collect(),
        );
        assert_eq!(order(plan.into_pass()), ["r0099"]);
    }

    #[test]
    fn runs_that_share_a_key_count_once_towards_the_limit() {
        let offer = offer(&[]);
        let mut plan = ClaimPlan::new(&offer, 2, HashSet::new());
        plan.take_page((0..50).map(|id| run(id, "[]", Some("k"))).collect());
        assert!(plan.wants_more());
        plan.take_page(vec![run(60, "[]", None)]);
        assert_eq!(order(plan.into_pass()), ["r0000", "r0060"]);
    }

    #[test]
    fn runs_that_wait_for_a_lock_do_not_hide_what_is_behind_them() {
        let offer = offer(&["gpu-exclusive"]);
        let mut plan = ClaimPlan::new(&offer, 1, HashSet::new());
        let gpu = |id: usize| run(id, "[\"gpu-exclusive\"]", Some(&format!("k{id}")));
        plan.take_page(
            (0..30).map(gpu).chain([run(99, "[]", None), run(100, "[]", None)]).collect(),
        );
        let mut pass = plan.into_pass();
        for _ in 0..30 {
            let next = pass.next_candidate().unwrap();
            assert_eq!(offer.serialization_tokens(&next).len(), 1);
            pass.put_off();
        }
        assert_eq!(order(pass), ["r0099"], "and the limit holds");
    }

    #[test]
    fn a_token_that_is_named_twice_is_one_lock() {
        let offer = offer(&["gpu-exclusive", "a"]);
        let tokens = |text| offer.serialization_tokens(&run(1, text, None));
        let text = r#"["gpu-exclusive", "a", "gpu-exclusive", "warmed-cache"]"#;
        assert_eq!(tokens(text), BTreeSet::from(["gpu-exclusive".into()]));
        assert!(tokens("[\"a\"]").is_empty() && tokens("no json").is_empty());
    }

    #[test]
    fn the_5000th_row_is_read_and_the_5001st_is_not() {
        let offer = offer(&[]);
        let mut plan = ClaimPlan::new(&offer, 20, HashSet::new());
        let mut read = 0;
        while plan.wants_more() {
            plan.take_page((read..read + 50).map(|id| run(id, "[\"other\"]", None)).collect());
            read += 50;
        }
        assert_eq!(read, 5000);
    }
}
