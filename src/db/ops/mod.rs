//! What can be done to a store: one operation, one file.

mod adopt;
mod cancel;
mod change;
mod change_mark;
mod checks;
mod claim;
mod claim_page;
mod clock;
mod depart;
mod dispatch;
mod dispatch_keys;
mod ended;
mod events;
mod heartbeat;
mod notice;
mod notices;
mod outstanding;
mod pause;
mod prune;
mod query;
mod ready;
mod reap;
mod remove_events;
mod renew;
mod retry;
mod retry_notice;
mod run_state;
mod settle_notice;
mod steps;
mod submit;
mod submit_tasks;
mod take_notice;
mod transition;
mod transition_keys;
mod verify;
mod wake;
mod why;

pub use adopt::{RunningOf, SeeRun, StoreId, TakeOver};
pub use cancel::{Cancel, Cancelled};
pub use change_mark::ChangeMark;
pub use checks::{
    CheckEngine, CheckFeed, CheckIntegrity, CheckSchema, EngineFacts, HeldBack, SchemaFacts,
};
pub(super) use checks::{JournalMode, SqliteVersion, is_sound_sqlite};
pub use claim::{Claim, ClaimOutcome};
pub use claim_page::{BusyKeys, ClaimPage, PageStart};
pub use clock::Clock;
pub use depart::{AttemptEnd, Depart, Loss, Way};
pub use dispatch::ChangeDispatch;
pub use ended::{Children, EndedPage};
pub use events::{Events, NewestEvent};
pub use heartbeat::{ForgetWorkers, Heartbeat, LastHeartbeat, ListAdapters};
pub use notices::{
    DueNotice, DueNotices, FindNotice, ListNotices, NextNotice, NoticeHistory, NoticeOf,
};
pub use outstanding::Outstanding;
pub use pause::{ListPauses, Paused, Resume, StorePause, WritesUnderWay};
pub use prune::{FactsOf, Prune, Pruned, SettledNotices};
pub use query::{FindRun, History, IsStored, ListRuns, ListWorkers};
pub use ready::{ReadyClasses, ReadyPage};
pub use reap::{Counted, ExpiredLease, ExpiredPage, Reap};
pub use remove_events::RemoveEvents;
pub use renew::Renew;
pub use retry::{Retried, Retry};
pub use retry_notice::{Resent, RetryNotice};
pub use run_state::{Attempts, CancelRequests, FindSettings, StoredSettings};
pub use settle_notice::SettleNotice;
pub use steps::{AdvanceSteps, StepBegins, Steps};
pub use submit::{Submit, Submitted};
pub use submit_tasks::SubmitTasks;
pub use take_notice::{NoticeToSend, TakeNotice, Taken};
pub use transition::{ChangeStatus, Exit, Rejected};
pub use verify::{Verified, Verify};
pub use wake::{Due, DuePage, NextDue, Wake};
pub use why::{Ahead, Beside, Circumstances, FindKey, SeeCircumstances};

/// A number from 0 to 1, drawn when the id of the fact was made: its last digits are random.
fn fraction(fact_id: &str) -> f64 {
    let digits = fact_id.get(fact_id.len().saturating_sub(8)..).unwrap_or_default();
    u32::from_str_radix(digits, 16).map_or(1.0, |number| f64::from(number) / f64::from(u32::MAX))
}
