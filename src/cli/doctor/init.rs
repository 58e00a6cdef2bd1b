//! Process 1, and whether everything here ends when a container does.

use std::fs;
use std::path::Path;

use super::finding::Finding;
use crate::cli::store::variable;

const CHECK: &str = "init";
const INITS: [&str; 11] = [
    "systemd",
    "init",
    "tini",
    "docker-init",
    "catatonit",
    "dumb-init",
    "s6-svscan",
    "runit",
    "openrc-init",
    "launchd",
    "pause",
];

/// What is seen of process 1.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// Whether a worker, or this process, is it.
    is_ours: bool,
    /// Its name.
    name: String,
    /// What shows that this is a container.
    container: Option<&'static str>,
}

pub(super) fn check(workers: &[u32]) -> Finding {
    let name = fs::read_to_string("/proc/1/comm").unwrap_or_default().trim().to_owned();
    let files = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
    let variables = ["KUBERNETES_SERVICE_HOST", "container"];
    let container = files.into_iter().find(|file| Path::new(file).exists());
    let container =
        container.or_else(|| variables.into_iter().find(|name| variable(name).is_some()));
    let is_ours = std::process::id() == 1 || workers.contains(&1);
    judge(&Seen { is_ours, name, container })
}

fn judge(seen: &Seen) -> Finding {
    let together = "everything in it is killed when it stops: adoption is off between containers";
    let stop = "give the container's stop more time than --drain, and keep the state directory on a volume";
    if seen.is_ours {
        return Finding::warning(
            CHECK,
            format!("the worker is process 1 of a container, and {together}"),
            format!("run it under an init (docker run --init), {stop}"),
        );
    }
    if let Some(sign) = seen.container {
        return Finding::warning(
            CHECK,
            format!("this is a container ({sign} is there), and {together}"),
            stop,
        );
    }
    if INITS.contains(&seen.name.as_str()) {
        return Finding::ok(CHECK, format!("process 1 is {}", seen.name));
    }
    Finding::warning(
        CHECK,
        format!("process 1 is {:?}, which is no init that is known here", seen.name),
        "make sure that it reaps orphans, and that its end does not end the worker's guardians",
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn only_under_an_init_of_a_whole_machine_guardians_outlive_everything() {
        let machine = Seen { name: "systemd".into(), ..Seen::default() };
        assert_eq!(judge(&machine).state, State::Ok);
        let container = Seen { container: Some("/.dockerenv"), ..machine.clone() };
        assert_eq!(judge(&container).state, State::Warning);
        assert_eq!(judge(&Seen { is_ours: true, ..container }).state, State::Warning);
        assert_eq!(judge(&Seen { name: "bash".into(), ..machine }).state, State::Warning);
    }
}
