//! `leasehold submit --from`: the tasks of a file, one per line.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::process::ExitCode;

use leasehold::clock::{Clock, SystemClock};
use leasehold::domain::submission::{Submission, SubmissionRefusal};
use leasehold::domain::task::{SubmitRules, TaskSpec};
use leasehold::submit::MOST_ATOMIC;
use leasehold::{Config, Error, Queue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lines::{Line, Lines, Step};
use super::refuse_what_never_starts;
use super::report::{Refused, Report};
use crate::cli::failure::Failure;
use crate::cli::store::StoreOption;

/// So many tasks are stored at a time,
const MOST_TASKS: usize = 1000;
/// or this many bytes of lines.
const MOST_BYTES: usize = 4 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct FromOptions {
    /// Submit many tasks: one JSON object per line of a file, or of standard input with -
    ///
    /// A task has the members action_kind, args, execution_target (host unless given), required_capabilities,
    /// library_ref, library_content_hash and idempotency_key; and the settings named as the options here, with _ for -:
    /// timeout, grace, cwd, env (an object), stdin (the text that it reads), after, expires, priority, max_failures,
    /// backoff, backoff_cap, retry_on and final (lists), nofile, as, cpu. Their values are texts as on the command line;
    /// lengths of time may be numbers of seconds. What a task must leave behind is the object contract, as show prints
    /// it. Any other member is refused, and one that is there twice. Blank lines are skipped; a line has at most 16 MiB.
    ///
    /// The ids are printed in the order of the lines, once they are stored. A line that is refused prints nothing there:
    /// its number and the reason stand on standard error, the others are stored, and the exit code is 1. Nothing waits
    /// for the end of the input; what is there is stored, up to 1000 tasks at a time.
    ///
    /// Was it killed, run it again: a task with an idempotency_key is not stored twice, and its id is printed again. A
    /// task without one is.
    #[arg(long, value_name = "FILE|-")]
    from: Option<String>,
    /// With --from: store all tasks or none, in one transaction; at most 10000 lines, all of which are read first
    #[arg(long, conflicts_with = "kind")]
    atomic: bool,
    /// With --from: print one object per task, {"line": N, "id": ID} or {"line": N, "error": REASON, "code": WORD}
    #[arg(long, conflicts_with = "kind")]
    json: bool,
}

impl FromOptions {
    /// Where the tasks come from, if they do.
    pub(super) fn source(&self) -> Option<&str> {
        self.from.as_deref()
    }

    pub(super) fn run(
        &self,
        source: &str,
        store: &StoreOption,
        config: Config,
    ) -> Result<ExitCode, Failure> {
        let rules = config.submit_rules();
        let input = BufReader::with_capacity(1 << 16, open(source)?);
        let lines = Lines::new(input, is_ready);
        let report = Report::new(self.json);
        let many = Many { source, lines, rules, report, store, config, queue: None };
        if self.atomic { many.store_together() } else { many.store_each() }?;
        Ok(ExitCode::SUCCESS)
    }
}

fn open(source: &str) -> Result<File, Failure> {
    // Past the buffer of the standard library, which nobody else uses here.
    let file = match source {
        "-" => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        name => File::open(name),
    };
    file.map_err(|error| unreadable(source, &error))
}

/// Whether there is something to read, or an end, without waiting for it.
fn is_ready(reader: &BufReader<File>) -> bool {
    let mut fd = [PollFd::new(reader.get_ref(), PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Who cannot be asked is read.
    !reader.buffer().is_empty() || poll(&mut fd, Some(&at_once)).map_or(true, |ready| ready > 0)
}

fn unreadable(source: &str, error: &io::Error) -> Failure {
    Failure::Refused(format!("cannot read --from {source:?}: {error}"))
}

/// A line, and its task or what is wrong with it.
type Read = (u64, Result<Submission, Refused>);
/// A line, and whether it is a task.
type Checked = (u64, Result<(), Refused>);

struct Many<'a, F> {
    source: &'a str,
    lines: Lines<BufReader<File>, F>,
    rules: SubmitRules,
    report: Report,
    store: &'a StoreOption,
    config: Config,
    /// Opened, and perhaps made, when there is something to store.
    queue: Option<Queue>,
}

impl<F: Fn(&BufReader<File>) -> bool> Many<'_, F> {
    /// Each line for itself, as it comes.
    fn store_each(mut self) -> Result<(), Failure> {
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        loop {
            let step = self.lines.next();
            let is_more = match step {
                Ok(Step::Line(line)) => {
                    bytes += line.text.as_ref().map_or(0, String::len);
                    waiting.push((line.number, task_of(line, &self.rules)));
                    if waiting.len() < MOST_TASKS && bytes < MOST_BYTES {
                        continue;
                    }
                    true
                }
                Ok(Step::Quiet) => true,
                Ok(Step::End) => false,
                Err(error) => {
                    self.store(std::mem::take(&mut waiting))?;
                    self.report.clear();
                    return Err(unreadable(self.source, &error));
                }
            };
            bytes = 0;
            self.store(std::mem::take(&mut waiting))?;
            self.report.progress(self.lines.number());
            if !is_more {
                return self.report.end(false);
            }
        }
    }

    fn queue(&mut self) -> Result<&mut Queue, Failure> {
        match &mut self.queue {
            Some(queue) => Ok(queue),
            none => Ok(none.insert(self.store.write(self.config.clone())?)),
        }
    }

    fn store(&mut self, read: Vec<Read>) -> Result<(), Failure> {
        let (lines, tasks) = parted(read);
        let answers =
            if tasks.is_empty() { Vec::new() } else { self.queue()?.submit_tasks(&tasks) };
        let mut answers = answers.into_iter();
        for (line, checked) in lines {
            let answer = match checked.map(|()| answers.next()) {
                Err(refused) => Err(refused),
                Ok(Some(Err(Error::Store(error)))) if error.is_of_the_store() => {
                    self.report.write()?;
                    self.report.clear();
                    return Err(Failure::Refused(format!(
                        "stopped at line {line}: {error}; the tasks before it are stored"
                    )));
                }
                Ok(Some(answer)) => answer.map_err(|error| Refused::from(&error)),
                // There is an answer for each task.
                Ok(None) => continue,
            };
            match answer {
                Ok(id) => self.report.stored(line, &id),
                Err(refused) => self.report.refused(line, &refused),
            }
        }
        self.report.write()
    }

    /// All lines or none.
    fn store_together(mut self) -> Result<(), Failure> {
        let read = self.read_all()?;
        let (lines, tasks) = parted(read);
        let numbers: Vec<u64> = lines.iter().map(|(line, _)| *line).collect();
        let answers: Vec<Result<String, Refused>> = if tasks.is_empty() || tasks.len() < lines.len()
        {
            lines.into_iter().map(|(_, checked)| checked.and(Err(withheld()))).collect()
        } else {
            match self.queue()?.submit_tasks_atomic(&tasks) {
                Ok(ids) => ids.into_iter().map(Ok).collect(),
                Err(Error::Batch { refused, of }) => {
                    let mut answers = vec![Err(withheld()); of];
                    for (place, error) in refused {
                        answers[place] = Err(of_line(&error, &numbers));
                    }
                    answers
                }
                Err(error) => return Err(error.into()),
            }
        };
        for (line, answer) in numbers.into_iter().zip(answers) {
            match answer {
                Ok(id) => self.report.stored(line, &id),
                Err(refused) if refused == withheld() => self.report.withheld(line, &refused),
                Err(refused) => self.report.refused(line, &refused),
            }
        }
        self.report.end(true)
    }

    fn read_all(&mut self) -> Result<Vec<Read>, Failure> {
        let mut read = Vec::new();
        loop {
            match self.lines.next().map_err(|error| unreadable(self.source, &error))? {
                Step::Line(_) if read.len() == MOST_ATOMIC => {
                    return Err(Failure::Refused(format!(
                        "--from {:?} has more than {MOST_ATOMIC} tasks, so --atomic cannot store them in one transaction; \
                         nothing was stored: cut it, or leave --atomic out and give each task an idempotency_key",
                        self.source
                    )));
                }
                Step::Line(line) => read.push((line.number, task_of(line, &self.rules))),
                Step::Quiet => {}
                Step::End => return Ok(read),
            }
        }
    }
}

fn task_of(line: Line, rules: &SubmitRules) -> Result<Submission, Refused> {
    let task = Submission::from_json_text(&line.text?, rules, SystemClock.now())?;
    let spec = TaskSpec::check(&task.app, rules)?;
    task.settings.permit(&rules.allow_commands).map_err(SubmissionRefusal::from)?;
    refuse_what_never_starts(&spec, &rules.allow_commands)
        .map_err(|reason| Refused::new("never_starts", reason))?;
    Ok(task)
}

/// Which lines are tasks, and the tasks.
fn parted(read: Vec<Read>) -> (Vec<Checked>, Vec<Submission>) {
    let mut tasks = Vec::with_capacity(read.len());
    let lines = read.into_iter().map(|(line, task)| (line, task.map(|task| tasks.push(task))));
    (lines.collect(), tasks)
}

/// What is said of a task that is all right, beside others that are not.
fn withheld() -> Refused {
    Refused::new("batch_refused", "not stored, since another task is refused")
}

/// A batch counts tasks; the file has lines.
fn of_line(error: &Error, numbers: &[u64]) -> Refused {
    match error {
        Error::KeyTwice { key, first } => Refused::new(
            error.code(),
            format!(
                "the key {key:?} stands for line {}, which is another task: submit it under a key of its own",
                numbers[*first]
            ),
        ),
        other => other.into(),
    }
}
