//! The program's door: words become one call of the library, and its answer becomes text and an exit code.
//!
//! One verb, one file. Only this room reads the environment.

mod adapters;
mod allow;
mod archive;
mod cancel;
mod contract;
mod demo;
#[cfg(target_os = "linux")]
mod doctor;
mod events;
mod failure;
mod harmless;
mod history;
mod kinds;
mod list;
mod lock_looks;
mod locks;
mod logs;
mod notices;
mod notify;
mod out;
#[cfg(target_os = "linux")]
mod outputs;
mod pause;
mod prune;
mod retry;
#[cfg(target_os = "linux")]
mod runs;
mod settings;
mod show;
mod state;
mod steps;
mod store;
mod submit;
mod task_args;
mod text;
mod verify;
mod wait;
mod when;
mod why;
mod worker;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;
use store::StoreOption;

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 refused or failed, with the reason in one line on standard error; 2 wrong usage; 70 internal error.

Examples:
  leasehold submit agent --arg action_prompt='say hi'
  leasehold list --status queued --status running
  leasehold show ID --json";

/// A durable queue for agent tasks.
///
/// A task is submitted and becomes a row; a worker that can serve it claims it under a lease, runs it, and writes how
/// it ended together with one fact of history.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    store: StoreOption,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Submit(Box<submit::Submit>),
    List(list::List),
    Show(show::Show),
    History(history::History),
    Steps(steps::Steps),
    Events(events::Events),
    #[cfg(target_os = "linux")]
    #[command(name = "logs")]
    Outputs(outputs::Outputs),
    Cancel(cancel::Cancel),
    Retry(retry::Retry),
    Prune(prune::Prune),
    #[cfg(target_os = "linux")]
    Runs(runs::Runs),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Notices(notices::Notices),
    Verify(verify::Verify),
    Why(Box<why::Why>),
    Workers(workers::Workers),
    Worker(Box<worker::Worker>),
    #[cfg(target_os = "linux")]
    Doctor(doctor::Doctor),
    Demo(demo::Demo),
}

/// Runs the program to its end.
pub(crate) fn main() -> ExitCode {
    failure::report_panics();
    match parse().and_then(|cli| run(&cli)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn parse() -> Result<Cli, Failure> {
    let words: Vec<_> = std::env::args_os().collect();
    // Found here, since clap does not say which word it was.
    if let Some(word) = words.iter().skip(1).find(|word| word.to_str().is_none()) {
        let word = word.to_string_lossy();
        return Err(Failure::WrongWord(format!("the argument {word:?} is not valid UTF-8")));
    }
    Cli::try_parse_from(words).map_err(Failure::Usage)
}

fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    let store = &cli.store;
    match &cli.verb {
        Verb::Submit(verb) => return verb.run(store),
        Verb::Worker(verb) => return verb.run(store),
        #[cfg(target_os = "linux")]
        Verb::Doctor(verb) => return verb.run(store),
        Verb::Verify(verb) => return verb.run(store),
        Verb::Pause(verb) => verb.run(store),
        Verb::Resume(verb) => verb.run(store),
        Verb::Retry(verb) => return verb.run(store),
        Verb::Prune(verb) => verb.run(store),
        Verb::Why(verb) => verb.run(store),
        Verb::List(verb) => verb.run(store),
        Verb::Show(verb) => verb.run(store),
        Verb::History(verb) => verb.run(store),
        Verb::Steps(verb) => verb.run(store),
        Verb::Events(verb) => verb.run(store),
        #[cfg(target_os = "linux")]
        Verb::Outputs(verb) => verb.run(store),
        Verb::Cancel(verb) => verb.run(store),
        #[cfg(target_os = "linux")]
        Verb::Runs(verb) => verb.run(store),
        Verb::Notices(verb) => verb.run(store),
        Verb::Workers(verb) => verb.run(store),
        Verb::Demo(verb) => verb.run(),
    }?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_options_do_not_contradict_each_other() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn what_says_something_of_one_task_is_refused_beside_a_file_of_many() {
        let beside = ["from", "atomic", "json", "allow_command", "accept_kind", "url", "help"];
        let cli = super::Cli::command();
        let submit = cli.find_subcommand("submit").unwrap();
        let options: Vec<_> =
            submit.get_arguments().filter(|arg| !beside.contains(&arg.get_id().as_str())).collect();
        assert!(options.len() > 20, "{options:?}");
        for option in options {
            let value = match option.get_id().as_str() {
                "priority" | "max_failures" | "open_files" | "address_space" | "cpu_seconds"
                | "notify_attempts" => "1",
                "timeout" | "grace" | "check_timeout" | "after" | "expires" | "backoff"
                | "backoff_cap" | "notify_within" => "1s",
                "retry_on" | "never" => "75",
                _ => "word",
            };
            let mut words = vec!["leasehold", "submit", "--from", "-"];
            let long = option.get_long().map(|long| format!("--{long}"));
            match &long {
                Some(long) => words.push(long),
                None if option.is_last_set() => words.push("--"),
                None => {}
            }
            if option.get_action().takes_values() {
                words.push(value);
            }
            // What needs another option has it.
            if matches!(option.get_id().as_str(), "backoff" | "backoff_cap" | "retry_on" | "never")
            {
                words.extend(["--max-failures", "2"]);
            }
            if matches!(option.get_id().as_str(), "notify_attempts" | "notify_within") {
                words.extend(["--notify", "https://example.com"]);
            }
            let error = super::Cli::command().try_get_matches_from(&words).unwrap_err();
            assert_eq!(
                error.kind(),
                clap::error::ErrorKind::ArgumentConflict,
                "{words:?}: {error}"
            );
        }
    }
}
