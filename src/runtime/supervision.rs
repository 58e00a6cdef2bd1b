//! Sets up who owns running tasks.

use std::path::PathBuf;
use std::sync::Arc;

use tracing::{info, warn};

use crate::actors::Guards;
use crate::actors::guarded::GuardianLauncher;
use crate::actors::launcher::{ChildLauncher, Launcher};
use crate::config::{InvalidArgument, RuntimeConfig, Supervision};
use crate::db::Store;
use crate::db::ops::StoreId;
use crate::domain::fence::LeaseTimes;
use crate::domain::kinds;
use crate::domain::task::WORKFLOW;
use crate::error::Error;
use crate::execute::{Launching, Workflows};
use crate::ids::IdSource;
use crate::process::cgroup;
use crate::process::guardian::{Facility, GuardianProgram};
use crate::process::slot::{Slot, host_id};

/// What came of it.
pub(super) struct Supervised {
    pub launcher: Arc<dyn Launcher>,
    pub worker_id: String,
    pub guards: Option<Arc<Guards>>,
    /// The kinds that the launcher can run.
    pub kinds: Vec<&'static str>,
}

impl Supervised {
    /// Where this worker keeps its runs, if it keeps them anywhere.
    pub fn slot(&self) -> Option<PathBuf> {
        let slot = self.guards.as_ref()?.slots.first()?;
        Some(slot.path().to_owned())
    }
}

/// Looks whether this kernel has what the supervision needs, before anything is written. Says what is weaker where it lacks
/// something.
///
/// # Errors
/// No task could be started: each one that was claimed would fail.
pub(super) fn check_kernel(supervision: &Supervision) -> Result<(), InvalidArgument> {
    if matches!(supervision, Supervision::Direct) {
        return Ok(());
    }
    for facility in Facility::missing() {
        if facility.is_needed() {
            return Err(InvalidArgument {
                what: "a worker with guardians",
                given: format!("started here, since {}", facility.without()),
                rule: facility.remedy(),
            });
        }
        warn!(missing = facility.name(), "{}; {}", facility.without(), facility.remedy());
    }
    Ok(())
}

/// Takes a slot where there are to be guardians, and names this start of the worker.
pub(super) fn supervise(
    config: &RuntimeConfig,
    store: &mut Store,
    ids: &Arc<dyn IdSource>,
) -> Result<Supervised, Error> {
    let Supervision::Guardians { state_dir, program, log_cap, retention } = &config.supervision
    else {
        // A workflow is run by this program, executed again.
        let workflows = GuardianProgram::this().map(|_| Workflows::new(config.store.clone()));
        let workflow = workflows.as_ref().map(|_| WORKFLOW);
        let launching = Launching { settings: config.launch_settings(), workflows };
        let launcher = Arc::new(ChildLauncher::new(launching, Arc::clone(ids)));
        let worker_id = format!("host:{}", ids.incarnation());
        let kinds = kinds::launched().chain(workflow).collect();
        return Ok(Supervised { launcher, worker_id, guards: None, kinds });
    };
    let unusable = |error: std::io::Error| InvalidArgument {
        what: "the state directory",
        given: format!("{} ({error})", state_dir.display()),
        rule: "give one that is yours, on a local file system",
    };
    let program =
        program.clone().or_else(GuardianProgram::this).ok_or_else(|| InvalidArgument {
            what: "the guardian program",
            given: "this program, whose main does not begin with leasehold::guardian_entry()"
                .into(),
            rule: "call that first, or name an installed leasehold",
        })?;
    let store_id = store.read(&StoreId)?;
    let slot = Slot::take(state_dir, &store_id).map_err(unusable)?;
    let host = host_id(state_dir, || ids.incarnation()).map_err(unusable)?;
    let worker_id = format!("{host}:{}", ids.incarnation());
    slot.enlist(&worker_id).map_err(unusable)?;
    let mut slots = slot.take_orphans().map_err(unusable)?;
    slots.insert(0, slot);
    let paths = slots.iter().map(|slot| slot.path().to_owned()).collect();
    let workflows = Some(Workflows::new(config.store.clone()));
    let launching = Launching { settings: config.launch_settings(), workflows };
    let (ids, cgroup) = (Arc::clone(ids), cgroup::delegated());
    if cgroup.is_none() {
        info!("no cgroup can be made here: a task may fork faster than it is killed");
    }
    let times = LeaseTimes::of(config.queue.lease_ttl);
    let launcher = GuardianLauncher::new(launching, ids, program, paths, *log_cap, cgroup, times);
    let guards = Some(Arc::new(Guards { slots, retention: *retention }));
    let kinds = kinds::launched().chain([WORKFLOW]).collect();
    Ok(Supervised { launcher: Arc::new(launcher), worker_id, guards, kinds })
}
