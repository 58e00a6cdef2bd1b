//! The JSON door: a change of status that arrives as JSON, with columns named in text.

use serde_json::{Map, Value};

use super::{
    DispatchGuard, DispatchPatch, DispatchTransition, Entity, Guard, Patch, Principal,
    PrincipalType, StateReason, Transition, TransitionRefusal, TransitionRequest,
};

/// A request that passed every check that needs no row, of whichever entity.
#[derive(Debug, Clone, PartialEq)]
pub enum Checked {
    /// Of a run.
    Run(Transition),
    /// Of a notice.
    Dispatch(DispatchTransition),
}

impl TransitionRequest {
    /// Reads a request from a JSON object with the field names of ADR-0071 D3.
    ///
    /// # Errors
    /// [`TransitionRefusal::RequestInvalid`] when a field is missing or has the wrong type, or when the actor's type
    /// is none of the five.
    pub fn from_json(value: &Value) -> Result<TransitionRequest, TransitionRefusal> {
        let fields = object(value, "the request")?;
        let reason = object(member(fields, "reason")?, "reason")?;
        let actor = object(member(fields, "actor")?, "actor")?;
        let kind = text(actor, "type")?;
        let kind = PrincipalType::parse(kind).ok_or_else(|| {
            invalid(format!(
                "actor type {kind:?} is not scheduler, operator, system, webhook or agent"
            ))
        })?;
        let from_state = match fields.get("from_state") {
            None | Some(Value::Null) => None,
            Some(_) => Some(text(fields, "from_state")?.to_owned()),
        };
        Ok(TransitionRequest {
            entity_type: text(fields, "entity_type")?.to_owned(),
            entity_id: text(fields, "entity_id")?.to_owned(),
            from_state,
            to_state: text(fields, "to_state")?.to_owned(),
            reason: StateReason {
                code: text(reason, "code")?.to_owned(),
                summary: reason
                    .get("summary")
                    .map_or(Ok(""), |_| text(reason, "summary"))?
                    .to_owned(),
                evidence_refs: evidence(reason.get("evidence_refs"))?,
                metadata: reason
                    .get("metadata")
                    .map_or(Ok(Map::new()), |value| object(value, "metadata").cloned())?,
            },
            actor: Principal { kind, id: text(actor, "id")?.to_owned() },
            idempotency_key: text(fields, "idempotency_key")?.to_owned(),
        })
    }

    /// As [`TransitionRequest::check`], with guard and patch columns named in text.
    ///
    /// # Errors
    /// The first check that fails, in the contract's order: entity, reason code, guard without a value, guard
    /// columns, patch columns, then the rest.
    pub fn check_columns(
        &self,
        guard: Option<&Map<String, Value>>,
        patch: Option<&Map<String, Value>>,
    ) -> Result<Checked, TransitionRefusal> {
        let (entity, code) = self.entity_and_code()?;
        let none = Map::new();
        let (guard, patch) = (guard.unwrap_or(&none), patch.unwrap_or(&none));
        if let Some((column, _)) = guard.iter().find(|(_, value)| value.is_null()) {
            return Err(TransitionRefusal::GuardNone { column: column.clone() });
        }
        let allowed = || entity.columns().join(", ");
        if let Some(columns) = unknown_columns(guard, entity) {
            return Err(TransitionRefusal::GuardColumn { columns, allowed: allowed() });
        }
        if let Some(columns) = unknown_columns(patch, entity) {
            return Err(TransitionRefusal::PatchColumn { columns, allowed: allowed() });
        }
        match entity {
            Entity::ScheduleRun => {
                self.check_run(code, run_guard(guard)?, run_patch(patch)?).map(Checked::Run)
            }
            Entity::Dispatch => self
                .check_notice(code, dispatch_guard(guard)?, dispatch_patch(patch)?)
                .map(Checked::Dispatch),
        }
    }
}

type Columns = Map<String, Value>;

fn run_guard(columns: &Columns) -> Result<Guard, TransitionRefusal> {
    Ok(Guard {
        leased_by: read(columns, "leased_by", text_of)?,
        lease_expires_at: read(columns, "lease_expires_at", seconds)?,
        lease_attempts: read(columns, "lease_attempts", whole)?,
    })
}

fn run_patch(columns: &Columns) -> Result<Patch, TransitionRefusal> {
    Ok(Patch {
        leased_by: read(columns, "leased_by", nullable(text_of))?,
        lease_expires_at: read(columns, "lease_expires_at", nullable(seconds))?,
        lease_attempts: read(columns, "lease_attempts", whole)?,
    })
}

fn dispatch_guard(columns: &Columns) -> Result<DispatchGuard, TransitionRefusal> {
    Ok(DispatchGuard {
        attempt: read(columns, "attempt", whole)?,
        next_attempt_at: read(columns, "next_attempt_at", seconds)?,
        last_error: read(columns, "last_error", text_of)?,
    })
}

fn dispatch_patch(columns: &Columns) -> Result<DispatchPatch, TransitionRefusal> {
    Ok(DispatchPatch {
        attempt: read(columns, "attempt", whole)?,
        next_attempt_at: read(columns, "next_attempt_at", seconds)?,
        last_error: read(columns, "last_error", nullable(text_of))?,
    })
}

fn read<T>(
    columns: &Columns,
    column: &'static str,
    read: impl Fn(&'static str, &Value) -> Result<T, TransitionRefusal>,
) -> Result<Option<T>, TransitionRefusal> {
    columns.get(column).map(|value| read(column, value)).transpose()
}

fn unknown_columns(map: &Columns, entity: Entity) -> Option<String> {
    let mut unknown: Vec<&str> = map
        .keys()
        .map(String::as_str)
        .filter(|column| !entity.columns().contains(column))
        .collect();
    unknown.sort_unstable();
    (!unknown.is_empty()).then(|| unknown.join(", "))
}

fn nullable<T>(
    read: fn(&'static str, &Value) -> Result<T, TransitionRefusal>,
) -> impl Fn(&'static str, &Value) -> Result<Option<T>, TransitionRefusal> {
    move |column, value| if value.is_null() { Ok(None) } else { read(column, value).map(Some) }
}

fn text_of(column: &'static str, value: &Value) -> Result<String, TransitionRefusal> {
    value.as_str().map(str::to_owned).ok_or_else(|| misfit(column, value, "a string"))
}

fn seconds(column: &'static str, value: &Value) -> Result<f64, TransitionRefusal> {
    value.as_f64().ok_or_else(|| misfit(column, value, "a number of seconds"))
}

/// An integer, also when it is spelled `2.0`.
fn whole(column: &'static str, value: &Value) -> Result<i32, TransitionRefusal> {
    let whole = value.as_f64().filter(|n| n.fract() == 0.0 && n.abs() <= f64::from(i32::MAX));
    whole.map(|n| n as i32).ok_or_else(|| misfit(column, value, "a whole number"))
}

fn misfit(column: &'static str, value: &Value, expected: &'static str) -> TransitionRefusal {
    TransitionRefusal::ColumnValue { column, given: value.to_string(), expected }
}

fn evidence(value: Option<&Value>) -> Result<Vec<Map<String, Value>>, TransitionRefusal> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let items = value.as_array().ok_or_else(|| invalid("evidence_refs is no array".into()))?;
    items.iter().map(|item| object(item, "an evidence reference").cloned()).collect()
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, TransitionRefusal> {
    value.as_object().ok_or_else(|| invalid(format!("{what} is no object")))
}

fn member<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a Value, TransitionRefusal> {
    fields.get(name).ok_or_else(|| invalid(format!("{name} is missing")))
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a str, TransitionRefusal> {
    member(fields, name)?.as_str().ok_or_else(|| invalid(format!("{name} is no string")))
}

fn invalid(problem: String) -> TransitionRefusal {
    TransitionRefusal::RequestInvalid { problem }
}
