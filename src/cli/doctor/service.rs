//! Who ends processes besides us: systemd, logind, and whoever stops a container. A guardian that is killed with its
//! worker cannot hand its task over.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::finding::Finding;

const CHECK: &str = "service-manager";
/// How long systemd may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What systemd started a process as.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    Service {
        unit: String,
        of_user: bool,
    },
    /// A login.
    Session(String),
    /// Something that neither ends with a login nor by a kill mode that is ours to judge.
    Scope(String),
    None,
}

/// The verdict for each home that the given processes have; of this process where none is given.
pub(super) fn check(workers: &[u32]) -> Vec<Finding> {
    let mut places: Vec<String> = workers.iter().map(|pid| format!("/proc/{pid}/cgroup")).collect();
    if places.is_empty() {
        places.push("/proc/self/cgroup".to_owned());
    }
    let mut homes: Vec<Home> =
        places.iter().map(|place| home(&fs::read_to_string(place).unwrap_or_default())).collect();
    homes.sort();
    homes.dedup();
    homes.into_iter().map(|home| judge_home(&home)).collect()
}

fn judge_home(home: &Home) -> Finding {
    match home {
        Home::Service { unit, of_user } => {
            judge_service(unit, kill_mode(unit, *of_user).as_deref())
        }
        Home::Session(scope) => judge_session(scope, kills_user_processes(&logind_files())),
        Home::Scope(scope) => Finding::ok(CHECK, format!("{scope}: it ends when it is stopped")),
        Home::None => match std::env::var_os("INVOCATION_ID") {
            None => Finding::ok(CHECK, "not started by systemd"),
            Some(_) => judge_service("a unit that is not seen from here", None),
        },
    }
}

/// By `/proc/<pid>/cgroup`: the innermost part that is a unit.
fn home(groups: &str) -> Home {
    let of_systemd = |line: &&str| line.starts_with("0::") || line.contains(":name=systemd:");
    let paths = groups.lines().filter(of_systemd).filter_map(|line| line.splitn(3, ':').nth(2));
    for path in paths {
        let unit =
            path.rsplit('/').find(|part| part.ends_with(".service") || part.ends_with(".scope"));
        match unit {
            Some(unit) if unit.starts_with("session-") => return Home::Session(unit.to_owned()),
            Some(unit) if unit.ends_with(".scope") => return Home::Scope(unit.to_owned()),
            Some(unit) => {
                // Below `user@<uid>.service` are the units of that user's own manager.
                let of_user = path.contains("/user@") && !unit.starts_with("user@");
                return Home::Service { unit: unit.to_owned(), of_user };
            }
            None => {}
        }
    }
    Home::None
}

fn judge_service(unit: &str, kill_mode: Option<&str>) -> Finding {
    let todo = format!("set KillMode=process in {unit}");
    match kill_mode {
        Some("process") => Finding::ok(CHECK, format!("{unit} has KillMode=process")),
        Some(other) => Finding::warning(
            CHECK,
            format!(
                "{unit} has KillMode={other}: guardians die with the worker, so adoption is off"
            ),
            todo,
        ),
        None => Finding::warning(
            CHECK,
            format!(
                "the KillMode of {unit} is not known: by default guardians die with the worker"
            ),
            todo,
        ),
    }
}

fn judge_session(scope: &str, kills: Option<bool>) -> Finding {
    let todo =
        "set KillUserProcesses=no in /etc/systemd/logind.conf, or run the worker as a service";
    match kills {
        Some(false) => Finding::ok(CHECK, format!("{scope}: what runs in it outlives the logout")),
        Some(true) => Finding::warning(
            CHECK,
            format!("{scope}: logind kills workers, guardians and tasks at the logout"),
            todo,
        ),
        None => Finding::warning(
            CHECK,
            format!("{scope}: whether logind kills what runs in it at the logout is not known"),
            todo,
        ),
    }
}

/// Asks systemd; nothing where it is not there or does not answer.
fn kill_mode(unit: &str, of_user: bool) -> Option<String> {
    let mut command = Command::new("systemctl");
    if of_user {
        command.arg("--user");
    }
    command.args(["show", "--property=KillMode", "--value", "--", unit]);
    answer(&mut command, PATIENCE).filter(|mode| !mode.is_empty())
}

/// The one line that a program prints if it ends well and in time.
fn answer(command: &mut Command, patience: Duration) -> Option<String> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let deadline = Instant::now() + patience;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| line.trim().to_owned())
}

/// The texts of logind's settings, in the order in which they count.
fn logind_files() -> Vec<String> {
    let places = ["/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd"];
    let mut files: Vec<PathBuf> = Vec::new();
    // The main file is the one with the greatest right, and counts less than the parts.
    files.extend(
        places.iter().map(|place| Path::new(place).join("logind.conf")).rfind(|file| file.exists()),
    );
    let mut parts = BTreeMap::new();
    for place in places {
        for part in
            fs::read_dir(Path::new(place).join("logind.conf.d")).into_iter().flatten().flatten()
        {
            if part.path().extension().is_some_and(|ending| ending == "conf") {
                parts.insert(part.file_name(), part.path());
            }
        }
    }
    files.extend(parts.into_values());
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect()
}

/// What is set last counts; where nothing is, what the file names as its default in a comment.
fn kills_user_processes(texts: &[String]) -> Option<bool> {
    let lines = || texts.iter().flat_map(|text| text.lines()).map(str::trim);
    let value = |line: &str, start: &str| {
        let word = line.strip_prefix(start)?.trim_start().strip_prefix('=')?.trim();
        match word.to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "1" | "y" | "t" => Some(true),
            "no" | "false" | "off" | "0" | "n" | "f" => Some(false),
            _ => None,
        }
    };
    let set = lines().filter_map(|line| value(line, "KillUserProcesses")).next_back();
    set.or_else(|| lines().find_map(|line| value(line, "#KillUserProcesses")))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn service(unit: &str, of_user: bool) -> Home {
        Home::Service { unit: unit.into(), of_user }
    }

    #[test]
    fn a_process_s_unit_is_the_innermost_of_its_path() {
        for (groups, found) in [
            (
                "0::/system.slice/leasehold-worker.service\n",
                service("leasehold-worker.service", false),
            ),
            ("0::/system.slice/w.service/payload\n", service("w.service", false)),
            (
                "0::/user.slice/user-7.slice/user@7.service/app.slice/w.service\n",
                service("w.service", true),
            ),
            (
                "0::/user.slice/user-7.slice/user@7.service/init.scope\n",
                Home::Scope("init.scope".into()),
            ),
            (
                "0::/user.slice/user-7.slice/session-3.scope\n",
                Home::Session("session-3.scope".into()),
            ),
            (
                "4:memory:/x.service\n1:name=systemd:/system.slice/w.service\n0::/\n",
                service("w.service", false),
            ),
            ("0::/system.slice/docker-ab12.scope\n", Home::Scope("docker-ab12.scope".into())),
            ("4:memory:/x.service\n0::/\n", Home::None),
            ("", Home::None),
        ] {
            assert_eq!(home(groups), found, "{groups}");
        }
    }

    #[test]
    fn only_the_kill_mode_process_leaves_guardians_alone() {
        assert_eq!(judge_service("w.service", Some("process")).state, State::Ok);
        for mode in [Some("control-group"), Some("mixed"), Some("none"), None] {
            assert_eq!(judge_service("w.service", mode).state, State::Warning, "{mode:?}");
        }
    }

    #[test]
    fn a_login_ends_everything_only_if_logind_says_so() {
        assert_eq!(judge_session("session-3.scope", Some(false)).state, State::Ok);
        assert_eq!(judge_session("session-3.scope", Some(true)).state, State::Warning);
        assert_eq!(judge_session("session-3.scope", None).state, State::Warning);
    }

    #[test]
    fn of_logind_s_settings_the_last_counts_and_a_comment_is_the_default() {
        let kills = |texts: &[&str]| {
            kills_user_processes(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(kills(&[]), None);
        assert_eq!(kills(&["[Login]\n#KillUserProcesses=no\n"]), Some(false));
        let both = ["[Login]\n#KillUserProcesses=no\n", "[Login]\nKillUserProcesses = yes\n"];
        assert_eq!(kills(&both), Some(true));
        assert_eq!(kills(&["KillUserProcesses=yes\n", "KillUserProcesses=off\n"]), Some(false));
        assert_eq!(kills(&["KillUserProcesses=perhaps\nKillOnlyUsers=x\n"]), None);
    }

    #[test]
    fn a_program_that_does_not_answer_is_not_waited_for() {
        let patience = Duration::from_secs(60);
        assert_eq!(answer(Command::new("echo").arg("process"), patience), Some("process".into()));
        assert_eq!(answer(&mut Command::new("false"), patience), None);
        assert_eq!(answer(&mut Command::new("no-such-program"), patience), None);
        assert_eq!(answer(Command::new("sleep").arg("60"), Duration::ZERO), None);
    }
}
