//! What makes two requests for a change the same: an idempotency key of the run or the notice, and the hash of everything else.

use serde_json::{Value, json};

use super::{DispatchTransition, Entity, Transition, TransitionRefusal};
use crate::domain::payload::{IdempotencyKey, canonical_hash};

/// Of the canonical form. Another one makes another hash, and a key would refuse what it has accepted.
const VERSION: u32 = 1;

impl<S, G, P> Transition<S, G, P> {
    /// The key that the change is stored under; absent for one that came without.
    ///
    /// # Errors
    /// [`TransitionRefusal::KeyForm`].
    pub fn key(&self) -> Result<Option<IdempotencyKey>, TransitionRefusal> {
        let key = self.idempotency_key.as_deref().map(IdempotencyKey::parse).transpose();
        key.map_err(|problem| TransitionRefusal::KeyForm { problem })
    }

    fn hash(&self, entity: Entity, to: &str, mut more: Value) -> String {
        let reason = &self.reason;
        more["version"] = VERSION.into();
        more["entity"] = entity.as_str().into();
        more["id"] = self.id.as_str().into();
        more["from"] = self.from.as_deref().into();
        more["to"] = to.into();
        more["reason"] = json!({
            "code": reason.code.as_str(),
            "summary": reason.summary,
            "evidence_refs": reason.evidence_refs,
            "metadata": reason.metadata,
        });
        more["principal"] = json!([self.principal.kind.as_str(), self.principal.id]);
        canonical_hash(more)
    }
}

impl Transition {
    /// The hash of everything that makes up the request but its key: entity, statuses, reason, principal, guard, patch,
    /// and how an execution ended, if that is why. The order of names in evidence and metadata does not matter.
    pub fn content_hash(&self, exit: Option<(i32, Option<&str>)>) -> String {
        let (guard, patch) = (&self.guard, &self.patch);
        let more = json!({
            "guard": [guard.leased_by, guard.lease_expires_at, guard.lease_attempts],
            // A column that is left alone and one that is cleared are two things.
            "patch": [
                patch.leased_by.as_ref().map(|owner| [owner]),
                patch.lease_expires_at.map(|expiry| [expiry]),
                patch.lease_attempts,
            ],
            "exit": exit,
        });
        self.hash(Entity::ScheduleRun, self.to.as_str(), more)
    }
}

impl DispatchTransition {
    /// The hash of everything that makes up the request but its key, as that of a change of a run.
    pub fn content_hash(&self) -> String {
        let (guard, patch) = (&self.guard, &self.patch);
        let more = json!({
            "guard": [guard.attempt, guard.next_attempt_at, guard.last_error],
            "patch": [
                patch.attempt,
                patch.next_attempt_at,
                patch.last_error.as_ref().map(|error| [error]),
            ],
        });
        self.hash(Entity::Dispatch, self.to.as_str(), more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::reason::{Reason, ReasonCode};
    use crate::domain::status::Status;
    use crate::domain::transition::{Guard, Patch, Principal};

    fn transition() -> Transition {
        Transition {
            id: "r".into(),
            from: Some("queued".into()),
            to: Status::Cancelled,
            reason: Reason::new(ReasonCode::CANCELLED_OPERATOR, "no longer needed"),
            principal: Principal::operator("ada"),
            guard: Guard::default(),
            patch: Patch::default(),
            idempotency_key: Some("k".into()),
        }
    }

    #[test]
    fn keys_are_checked_as_those_of_tasks() {
        let with = |key: Option<&str>| Transition {
            idempotency_key: key.map(str::to_owned),
            ..transition()
        };
        assert_eq!(with(None).key(), Ok(None));
        assert_eq!(with(Some("k")).key().unwrap().unwrap().as_str(), "k");
        for key in ["", "two words", "a\n", "\u{200b}", &"x".repeat(256)] {
            let refusal = with(Some(key)).key().unwrap_err();
            assert_eq!(refusal.category(), "idempotency_key", "{key:?}: {refusal}");
        }
    }

    #[test]
    fn everything_that_makes_up_a_request_counts_but_its_key() {
        let plain = transition();
        let other_key = Transition { idempotency_key: Some("k2".into()), ..transition() };
        assert_eq!(plain.content_hash(None), other_key.content_hash(None));
        let changes: [fn(&mut Transition); 13] = [
            |change| change.id = "r2".into(),
            |change| change.from = None,
            |change| change.from = Some("running".into()),
            |change| change.to = Status::Running,
            |change| change.reason.code = ReasonCode::CANCELLED_ORCHESTRATOR,
            |change| change.reason.summary.clear(),
            |change| change.reason.evidence_refs.push(serde_json::Map::new()),
            |change| drop(change.reason.metadata.insert("n".into(), 1.into())),
            |change| change.principal.id = "eve".into(),
            |change| change.principal = Principal::system("ada"),
            |change| change.guard.lease_attempts = Some(1),
            |change| change.patch.leased_by = Some(None),
            |change| change.patch.lease_expires_at = Some(None),
        ];
        let mut hashes: Vec<_> = changes
            .iter()
            .map(|spoil| {
                let mut changed = transition();
                spoil(&mut changed);
                changed.content_hash(None)
            })
            .collect();
        hashes.push(plain.content_hash(None));
        hashes.push(plain.content_hash(Some((0, None))));
        hashes.push(plain.content_hash(Some((1, Some("no")))));
        let count = hashes.len();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }

    #[test]
    fn a_hash_stays_what_it_was_and_the_order_of_names_does_not_matter() {
        // A request may be repeated to a later version.
        let expected = "2df1dd79905a5d368fb82fa86f8ed3598966dd11350a92926b1256cc1ec5cd3d";
        assert_eq!(transition().content_hash(None), expected);
        let with = |metadata: &str| {
            let mut change = transition();
            change.reason.metadata = serde_json::from_str(metadata).unwrap();
            change.content_hash(None)
        };
        assert_eq!(with(r#"{"a": 1, "b": [2]}"#), with(r#"{"b":[2],"a":1}"#));
        assert_ne!(with(r#"{"a": 1}"#), with(r#"{"a": 1.0}"#));
    }
}
