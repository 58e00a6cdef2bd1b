//! Adapters of a host's own kinds.
//!
//! A host may have kinds of tasks beside those of ADR-0071. Such a kind is run by a program, as any other task is, or
//! inside the worker's own process by an [`Adapter`], which promises less: see there.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::config::InvalidArgument;
use crate::domain::ending::{ExecuteError, Execution};
use crate::domain::kinds::name_problem;
use crate::domain::run::ClaimedRun;
use crate::domain::settings::RunSettings;

/// Runs tasks of one kind inside the worker's process.
///
/// Each task has a thread and a tokio runtime of its own, so that its future need not be `Send`, and one that blocks keeps
/// nobody else waiting. The lease is renewed meanwhile. At a cancel, a timeout, a shutdown, or when the lease is lost, the
/// token is cancelled; when the task's grace is over after that, the future is dropped.
///
/// That is less than what a process gets:
///
/// * Code that blocks cannot be stopped. It goes on after its future should have been dropped, and may then run beside
///   another attempt. `run.lease_attempts` is the epoch, by which a resource can refuse an older one.
/// * A process that is stopped or hangs does not keep its fence.
/// * When the process dies, so do its tasks. That counts as a lost lease, and the third loss ends a run.
///
/// A panic ends the run with `run.failed.exception` and harms nothing else.
///
/// ```
/// use leasehold::execute::{Adapter, Adapters, AdapterTask};
/// use leasehold::domain::ending::{ExecuteError, Execution};
/// use tokio_util::sync::CancellationToken;
///
/// struct Greet;
///
/// impl Adapter for Greet {
///     async fn run(&self, task: AdapterTask, _: CancellationToken) -> Result<Execution, ExecuteError> {
///         println!("hello {}", task.run.action_args["name"]);
///         Ok(Execution::OK)
///     }
/// }
///
/// let mut adapters = Adapters::default();
/// adapters.in_process("greet", Greet).unwrap();
/// assert!(adapters.in_process("agent", Greet).is_err());
/// ```
pub trait Adapter: Send + Sync + 'static {
    /// Runs a task to its end.
    ///
    /// # Errors
    /// The task could not be run: its run fails, with the exit code 1 and these words.
    fn run(
        &self,
        task: AdapterTask,
        cancelled: CancellationToken,
    ) -> impl Future<Output = Result<Execution, ExecuteError>>;
}

/// A task as an [`Adapter`] gets it.
#[derive(Debug, Clone)]
pub struct AdapterTask {
    /// Its run: the arguments, and the epoch of this attempt.
    pub run: ClaimedRun,
    /// What it was submitted with. Its timeout and grace are seen to; directory and variables are for the adapter to use.
    pub settings: RunSettings,
    /// What it was given to read.
    pub stdin: Option<Vec<u8>>,
}

/// How the kinds of a host's own are run.
#[derive(Clone, Default)]
pub struct Adapters(BTreeMap<String, Way>);

#[derive(Clone)]
enum Way {
    Program(Vec<String>),
    InProcess(Arc<dyn AnyAdapter>),
}

/// An [`Adapter`] of whatever type.
pub(crate) trait AnyAdapter: Send + Sync {
    fn run_any<'a>(&'a self, task: AdapterTask, cancelled: CancellationToken) -> Ending<'a>;
}

type Ending<'a> = Pin<Box<dyn Future<Output = Result<Execution, ExecuteError>> + 'a>>;

impl<A: Adapter> AnyAdapter for A {
    fn run_any<'a>(&'a self, task: AdapterTask, cancelled: CancellationToken) -> Ending<'a> {
        Box::pin(self.run(task, cancelled))
    }
}

impl Adapters {
    /// Has tasks of `kind` run by a program with arguments, which reads the task's own arguments as a JSON object from its
    /// standard input. A name without a slash is looked up in the `PATH` that the task sees.
    ///
    /// # Errors
    /// The kind has an adapter, or its name is none; or there is no program.
    pub fn program<W: Into<String>>(
        &mut self,
        kind: &str,
        argv: impl IntoIterator<Item = W>,
    ) -> Result<(), InvalidArgument> {
        let argv: Vec<String> = argv.into_iter().map(Into::into).collect();
        if argv.first().is_none_or(String::is_empty) || argv.iter().any(|word| word.contains('\0'))
        {
            return Err(InvalidArgument {
                what: "the program of an adapter",
                given: format!("{argv:?}"),
                rule: "give the name or path of a program, without the character U+0000",
            });
        }
        self.add(kind, Way::Program(argv))
    }

    /// Has tasks of `kind` run by `adapter`, inside this process.
    ///
    /// # Errors
    /// The kind has an adapter, or its name is none.
    pub fn in_process(&mut self, kind: &str, adapter: impl Adapter) -> Result<(), InvalidArgument> {
        self.add(kind, Way::InProcess(Arc::new(adapter)))
    }

    fn add(&mut self, kind: &str, way: Way) -> Result<(), InvalidArgument> {
        let taken = self.0.contains_key(kind);
        let taken = taken.then_some("it has an adapter already: give one for each kind");
        if let Some(rule) = taken.or_else(|| name_problem(kind)) {
            let given = format!("{kind:?}");
            return Err(InvalidArgument { what: "the kind of an adapter", given, rule });
        }
        self.0.insert(kind.to_owned(), way);
        Ok(())
    }

    /// The kinds, sorted.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The program of this kind; an error for one that runs inside the worker.
    pub(super) fn program_of(&self, kind: &str) -> Option<Result<&[String], ExecuteError>> {
        self.0.get(kind).map(|way| match way {
            Way::Program(argv) => Ok(argv.as_slice()),
            Way::InProcess(_) => Err(ExecuteError {
                kind: "NoProgram".into(),
                message: format!(
                    "the kind {kind:?} runs inside the worker, and only as a task of its own"
                ),
            }),
        })
    }

    pub(crate) fn in_process_of(&self, kind: &str) -> Option<Arc<dyn AnyAdapter>> {
        match self.0.get(kind)? {
            Way::Program(_) => None,
            Way::InProcess(adapter) => Some(Arc::clone(adapter)),
        }
    }
}

impl fmt::Debug for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = self.0.iter().map(|(kind, way)| match way {
            Way::Program(argv) => (kind, argv.first().map_or("", String::as_str)),
            Way::InProcess(_) => (kind, "in this process"),
        });
        f.debug_map().entries(how).finish()
    }
}
