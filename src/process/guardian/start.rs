//! Starts a guardian and its task.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Pid;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::child::Child;
use super::fork_server::ForkServer;
use super::handle::{Guardian, Known};
use super::{BootTime, GuardianProgram, RunDir, RunSpec, Stdin};
use crate::process::boot_time::nanos;
use crate::process::guard::VERB;
use crate::process::guard::layout::TASK_FILE;
use crate::process::guard::spec::{Encoder, Terms};
use crate::process::guard::wire::{FRAME, Message, NO_STDIN, Step, VERSION};
use crate::process::leader::reap_stragglers;
use crate::process::spawn::Prepared;
use crate::process::spawn_error::exhausted;
use crate::process::{SpawnError, SpawnFault, TaskCommand, TempFile};

/// What the variable names of our own dynamic linker begin with: all that a guardian inherits.
const LINKER: &[u8] = b"LD_";

/// How long after its fence a guardian may take to say that it has passed.
const SILENCE: Duration = Duration::from_secs(2);

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The task cannot be started.
    #[error(transparent)]
    Task(#[from] SpawnError),
    /// The fence has passed: the lease has to be renewed first.
    #[error("starting a run: its fence has passed, so its lease may be another's; claim it again")]
    FencePassed,
    /// A guardian of this run lives.
    #[error("starting a run: a guardian holds the lock of its directory; connect to that one")]
    Locked,
    /// The run has ended in this directory already, or was given up.
    #[error("starting a run: it has ended or was given up in this epoch; claim it again")]
    Sealed,
    /// The program of the guardian cannot be executed.
    #[error("starting a guardian: {program:?} cannot be executed; name an installed leasehold")]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory of the run, or a socket, cannot be used.
    #[error("starting a guardian: the directory of the run or a socket cannot be used")]
    System(#[source] io::Error),
    /// The guardian ended before it had said that the task is started. If it was killed right before that, the task dies
    /// with it, but [`kill_leftovers`](super::kill_leftovers) is what proves it.
    #[error(
        "starting a guardian: {program:?} ended before it had started the task; the main of a \
         guardian program must begin with leasehold::guardian_entry()"
    )]
    Died {
        /// The program.
        program: PathBuf,
    },
    /// The guardian does not understand this version of leasehold.
    #[error("starting a guardian: {program:?} is of another version; install the same version")]
    Version {
        /// The program.
        program: PathBuf,
    },
}

impl StartError {
    /// Whether the machine lacked something that another time may be there: the run may be tried
    /// again without counting against it.
    pub fn is_resource_exhausted(&self) -> bool {
        match self {
            Self::Task(error) => error.is_resource_exhausted(),
            Self::Program { source, .. } | Self::System(source) => exhausted(source),
            _ => false,
        }
    }
}

impl Guardian {
    /// Starts a guardian for the run of this directory, and the task under it.
    ///
    /// Must be called inside a tokio runtime with IO and time enabled. Once it has returned, the
    /// program of the task is being executed. If the future is dropped before that, the run may or
    /// may not have been started: [`connect`](Guardian::connect) tells.
    ///
    /// # Errors
    /// Nothing runs, but see [`StartError::Died`]. What is left in the directory is to be removed with it.
    pub async fn start(
        program: &GuardianProgram,
        dir: &RunDir,
        spec: &RunSpec,
    ) -> Result<Guardian, StartError> {
        begin(program, None, dir, spec).await
    }

    /// The same with a guardian that is forked: many starts in a row cost less. It is no child of this process. Where the
    /// fork server does not listen, the guardian is executed.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_forked(
        server: &ForkServer,
        dir: &RunDir,
        spec: &RunSpec,
    ) -> Result<Guardian, StartError> {
        begin(server.program(), Some(server), dir, spec).await
    }
}

async fn begin(
    program: &GuardianProgram,
    server: Option<&ForkServer>,
    dir: &RunDir,
    spec: &RunSpec,
) -> Result<Guardian, StartError> {
    reap_stragglers();
    // Checked before anything is touched, and by the guardian as its last act before the start.
    if BootTime::now() >= spec.fence {
        return Err(StartError::FencePassed);
    }
    let mut prepared =
        Prepared::new(&spec.command, spec.inherited.iter().cloned(), |file| write(dir, file))?;
    // By these the processes of the run are found should its guardian be killed.
    for (name, value) in dir.badge() {
        prepared.env.insert(name.into(), value.into());
    }
    let body = encode(dir, spec, &prepared)?;
    let (ours, theirs) = StdStream::pair().map_err(StartError::System)?;
    open_conversation(&ours, dir, spec, body.len())?;
    let child = match server.map(|server| server.make(&theirs)) {
        Some(Ok(())) => {
            // Else the death of the guardian would not end the conversation.
            drop(theirs);
            None
        }
        Some(Err(_)) | None => Some(execute(program, &[], theirs)?),
    };

    ours.set_nonblocking(true).map_err(StartError::System)?;
    let socket = UnixStream::from_std(ours).map_err(StartError::System)?;
    let mut guardian = Guardian::new(dir.clone(), socket, child, Known::default());
    // After its fence a guardian starts nothing: one that is silent until then is none.
    let patience = spec.fence.saturating_since(BootTime::now()).saturating_add(SILENCE);
    let answer = timeout(patience, tell(&mut guardian, &body, &spec.stdin)).await;
    match answer.unwrap_or(None) {
        Some(Message::Started { guardian: pid, task }) => {
            guardian.know(Known::new(pid, task, spec.fence));
            Ok(guardian)
        }
        Some(Message::Failed { step, errno }) => {
            guardian.leave().await;
            Err(failure(program, spec, &prepared, step, errno))
        }
        _ => {
            guardian.kill();
            guardian.leave().await;
            Err(StartError::Died { program: program.path().into() })
        }
    }
}

/// Says what to do, and hears what became of it.
async fn tell(guardian: &mut Guardian, body: &[u8], stdin: &Stdin) -> Option<Message> {
    // If the guardian does not take it all, it says why.
    if guardian.write_all(body).await.is_ok()
        && let Stdin::Bytes(bytes) = stdin
    {
        let _ = guardian.write_all(bytes).await;
    }
    guardian.next_message().await
}

/// Writes the file that is made for the run; the guardian removes it when the run is over.
fn write(dir: &RunDir, file: &TempFile) -> io::Result<PathBuf> {
    // The task may run in another directory.
    let path = std::path::absolute(dir.path())?.join(TASK_FILE);
    let mut options = OpenOptions::new();
    let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    written.write_all(&file.contents)?;
    Ok(path)
}

fn encode(dir: &RunDir, spec: &RunSpec, prepared: &Prepared) -> Result<Vec<u8>, StartError> {
    let mut encoder = Encoder::new(&Terms {
        token: dir.token().map_err(StartError::System)?,
        fence: spec.fence.as_nanos(),
        grace: nanos(spec.grace),
        lease_grace: nanos(spec.lease_grace),
        timeout: spec.timeout.map(nanos),
        open_files: spec.limits.open_files,
        address_space: spec.limits.address_space,
        cpu_seconds: spec.limits.cpu_seconds,
        no_new_privileges: spec.no_new_privileges,
        log_cap: dir.log_cap(),
    });
    encoder.command(spec.command.cwd.as_deref(), prepared);
    let cgroup = spec.cgroup.as_ref().map(|parent| parent.join(dir.cgroup_name()));
    encoder.string(&[cgroup.unwrap_or_default().as_os_str().as_bytes()]);
    Ok(encoder.finish())
}

/// Puts the first message into the socket, with the descriptors. It is empty, so nobody waits.
fn open_conversation(
    socket: &StdStream,
    dir: &RunDir,
    spec: &RunSpec,
    body: usize,
) -> Result<(), StartError> {
    let directory = dir.descriptor().map_err(StartError::System)?;
    let mut descriptors = vec![directory.as_fd()];
    descriptors.extend(spec.locks.iter().map(OwnedFd::as_fd));
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(descriptors.len()))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let stdin = match &spec.stdin {
        Stdin::Null => NO_STDIN,
        Stdin::Bytes(bytes) => bytes.len() as u64,
    };
    let message = Message::Open {
        version: VERSION,
        body: body as u64,
        stdin,
        descriptors: descriptors.len() as u64,
    }
    .to_bytes();
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&message)],
        &mut ancillary,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    );
    match sent {
        Ok(FRAME) => Ok(()),
        Ok(_) => Err(StartError::System(io::ErrorKind::WriteZero.into())),
        Err(errno) => Err(StartError::System(errno.into())),
    }
}

/// By `posix_spawn`, which is why nothing is done between the fork and the program: forking a large
/// process is slow. The guardian makes its own session, so it must not lead a group.
pub(super) fn execute(
    program: &GuardianProgram,
    words: &[&str],
    socket: StdStream,
) -> Result<Child, StartError> {
    let linker: Vec<(OsString, OsString)> =
        std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(LINKER)).collect();
    let mut command = Command::new(program.path());
    command
        .arg0("leasehold")
        .arg(VERB)
        .args(words)
        .env_clear()
        .envs(linker)
        .stdin(OwnedFd::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Ok(Child::new(Pid::from_child(&child))),
        Err(source) => Err(StartError::Program { program: program.path().into(), source }),
    }
}

fn failure(
    program: &GuardianProgram,
    spec: &RunSpec,
    prepared: &Prepared,
    step: u64,
    errno: u64,
) -> StartError {
    let errno = Errno::from_raw_os_error(i32::try_from(errno).unwrap_or(0));
    let command: &TaskCommand = &spec.command;
    let run_id = command.identity.run_id.as_str();
    let setup = |step| {
        StartError::Task(SpawnError::system(run_id, SpawnFault::Setup { step }, errno.into()))
    };
    let step = Step::from_number(step);
    if let Some(error) = step.and_then(|step| prepared.start_error(command, step, errno)) {
        return StartError::Task(error);
    }
    match step {
        Some(Step::Fence) => StartError::FencePassed,
        Some(Step::Lock) if errno == Errno::WOULDBLOCK => StartError::Locked,
        Some(Step::Lock) => setup("taking the lock of the run"),
        Some(Step::Sealed) if matches!(errno, Errno::NOENT | Errno::EXIST) => StartError::Sealed,
        Some(Step::Sealed) => setup("looking at the directory of the run"),
        Some(Step::Files) => setup("making the files of the run"),
        Some(Step::Session) => setup("making a session for the guardian"),
        Some(Step::Watch) => setup("making what the task is watched with"),
        _ => StartError::Version { program: program.path().into() },
    }
}
