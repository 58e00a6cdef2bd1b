//! The six statuses of a notice in the outbox, and the edges between them: the policy of the entity `dispatch`.

use std::fmt;

use super::transition::{
    DispatchGuard, DispatchPatch, Principal, PrincipalType, TransitionRefusal,
};

/// Where a notice stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DispatchStatus {
    /// Waits for its next attempt.
    Pending,
    /// Somebody is sending it, until its next attempt is due.
    Delivering,
    /// It was sent. That is its end, unless it asks for an acknowledgement.
    Delivered,
    /// Whoever got it has said so.
    Acked,
    /// It could not be sent.
    DeadLetter,
    /// It was not sent in time.
    Expired,
}

use DispatchStatus::{Acked, DeadLetter, Delivered, Delivering, Expired, Pending};

impl DispatchStatus {
    /// All six.
    pub const ALL: [DispatchStatus; 6] =
        [Pending, Delivering, Delivered, Acked, DeadLetter, Expired];

    /// The word that the `status` column holds.
    pub const fn as_str(self) -> &'static str {
        match self {
            Pending => "pending",
            Delivering => "delivering",
            Delivered => "delivered",
            Acked => "acked",
            DeadLetter => "dead_letter",
            Expired => "expired",
        }
    }

    /// The status with exactly this name.
    ///
    /// ```
    /// use leasehold::domain::dispatch::DispatchStatus;
    /// assert_eq!(DispatchStatus::parse("dead_letter"), Some(DispatchStatus::DeadLetter));
    /// assert_eq!(DispatchStatus::parse("running"), None);
    /// ```
    pub fn parse(name: &str) -> Option<DispatchStatus> {
        DispatchStatus::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// The statuses that an edge leads to from here.
    pub const fn next(self) -> &'static [DispatchStatus] {
        match self {
            Pending => &[Delivering, Expired, Acked],
            Delivering => &[Delivering, Pending, Delivered, Acked, DeadLetter, Expired],
            Delivered => &[Acked],
            DeadLetter | Expired => &[Pending],
            Acked => &[],
        }
    }

    /// Whether there is an edge from here to `to`. Only `delivering` has one to itself: who was sending is dead, and
    /// somebody else sends again.
    pub fn may_become(self, to: DispatchStatus) -> bool {
        self.next().contains(&to)
    }

    /// Whether nobody sends the notice any more, unless an operator says so.
    pub const fn is_settled(self) -> bool {
        !matches!(self, Pending | Delivering)
    }
}

impl fmt::Display for DispatchStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Whether the edge may be taken by this principal, under this guard and with this patch.
///
/// # Errors
/// There is no such edge; or it asks for something that is not there. To send once more what somebody seems to be
/// sending takes a guard on `attempt`, or two could do so at once. To send again what was given up takes an operator,
/// who says from which attempt, when, and what becomes of the error, so that no old count ends it at once.
pub fn check_edge(
    (from, to): (DispatchStatus, DispatchStatus),
    guard: &DispatchGuard,
    patch: &DispatchPatch,
    principal: &Principal,
) -> Result<(), TransitionRefusal> {
    if !from.may_become(to) {
        return Err(TransitionRefusal::undeclared(from, to));
    }
    let missing = |what| Err(TransitionRefusal::edge_unmet(from, to, what));
    match (from, to) {
        (Delivering, Delivering) if guard.attempt.is_none() => missing("a guard on attempt"),
        (DeadLetter | Expired, Pending) if principal.kind != PrincipalType::Operator => {
            missing("an operator")
        }
        (DeadLetter | Expired, Pending) if !patch.is_whole() => {
            missing("a patch of attempt, next_attempt_at and last_error")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: DispatchStatus, to: DispatchStatus) -> Result<(), TransitionRefusal> {
        let guard = DispatchGuard { attempt: Some(1), ..DispatchGuard::default() };
        let patch =
            DispatchPatch { attempt: Some(0), next_attempt_at: Some(1.0), last_error: Some(None) };
        check_edge((from, to), &guard, &patch, &Principal::operator("o"))
    }

    #[test]
    fn the_policy_has_twelve_edges_and_one_of_them_leads_to_itself() {
        let edges: Vec<_> = DispatchStatus::ALL
            .iter()
            .flat_map(|from| DispatchStatus::ALL.map(|to| (*from, to)))
            .filter(|(from, to)| check(*from, *to).is_ok())
            .collect();
        assert_eq!(edges.len(), 12, "{edges:?}");
        let itself: Vec<_> = edges.iter().filter(|(from, to)| from == to).collect();
        assert_eq!(itself, [&(Delivering, Delivering)]);
        assert!(edges.iter().all(|(from, to)| from.may_become(*to)));
    }

    #[test]
    fn edges_ask_for_a_guard_an_operator_and_a_whole_patch() {
        let (guard, patch) = (DispatchGuard::default(), DispatchPatch::default());
        let category = |edge, principal: &Principal, patch: &DispatchPatch| {
            check_edge(edge, &guard, patch, principal).map_err(|refusal| refusal.category())
        };
        let (operator, system) = (Principal::operator("o"), Principal::system("s"));
        let again = (Delivering, Delivering);
        assert_eq!(category(again, &operator, &patch), Err("edge_requirement"));
        let whole =
            DispatchPatch { attempt: Some(0), next_attempt_at: Some(1.0), last_error: Some(None) };
        for from in [DeadLetter, Expired] {
            assert_eq!(category((from, Pending), &system, &whole), Err("edge_requirement"));
            assert_eq!(category((from, Pending), &operator, &patch), Err("edge_requirement"));
            assert_eq!(category((from, Pending), &operator, &whole), Ok(()));
        }
        assert_eq!(category((Acked, Pending), &operator, &whole), Err("undeclared_edge"));
    }

    #[test]
    fn names_round_trip() {
        for status in DispatchStatus::ALL {
            assert_eq!(DispatchStatus::parse(status.as_str()), Some(status));
        }
    }
}
