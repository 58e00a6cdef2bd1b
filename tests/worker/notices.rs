//! Notices of ended tasks, sent by real workers to real receivers.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::process::{Command, Output};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leasehold::db::Notice;
use leasehold::db::ops::{ListNotices, NoticeHistory, NoticeOf};
use leasehold::domain::notice::SigningKey;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::Signal;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::bench::{Bench, Worker, on_engines, on_sqlite, until};
use crate::receiver::{Receiver, status};

/// Submits a shell script whose end somebody is told of.
fn submit(bench: &Bench, to: &str, options: &[&str], script: &str) -> String {
    bench.submit_script(&[&["--notify", to], options].concat(), script)
}

const LOCAL: [&str; 2] = ["--notify-allow", "127.0.0.0/8"];
const QUICK: [&str; 2] = ["--notify-backoff", "0.05"];

/// A worker that may call this machine, until nothing is left to be done or to be sent.
fn work(bench: &Bench, options: &[&str]) {
    work_until_sent(bench, bench.program([&["worker"], &LOCAL[..], options].concat()));
}

/// One that leaves by itself waits for what it sends, though not for ever.
fn work_until_sent(bench: &Bench, program: Command) {
    let mut worker = Worker::start(program, bench.log_file()).ready();
    let open = "SELECT status AS value FROM schedule_runs WHERE ended_at IS NULL
                UNION ALL SELECT status FROM dispatch_outbox WHERE status IN ('pending', 'delivering')";
    until(|| match bench.texts(open) {
        open if open.is_empty() => Ok(()),
        open => Err(format!("{open:?}")),
    });
    worker.signal(Signal::TERM);
    worker.leaves_with(0);
}

fn worker(bench: &Bench, options: &[&str]) -> Worker {
    bench.worker(&[&LOCAL[..], options].concat()).ready()
}

fn notice(bench: &Bench, run_id: &str) -> Notice {
    bench.queue().read(&NoticeOf { run_id: run_id.into() }).unwrap().unwrap()
}

#[track_caller]
fn until_status(bench: &Bench, run_id: &str, status: &str) -> Notice {
    until(|| {
        let there = bench.queue().read(&NoticeOf { run_id: run_id.into() }).unwrap();
        match there {
            Some(notice) if notice.status == status => Ok(notice),
            other => Err(format!("{other:?}")),
        }
    })
}

/// A notice's history as `from>to reason`.
fn steps(bench: &Bench, id: &str) -> Vec<String> {
    let facts = bench.queue().read(&NoticeHistory { id: id.into() }).unwrap();
    let step = |fact: leasehold::db::Fact| {
        format!("{}>{} {}", fact.previous_status.unwrap(), fact.status, fact.reason_code)
    };
    facts.into_iter().map(step).collect()
}

fn run(bench: &Bench, words: &[&str]) -> Output {
    bench.program(words).output().unwrap()
}

#[test]
fn a_notice_is_sent_once_with_a_signature_and_says_how_the_task_ended() {
    on_engines(|bench| {
        let receiver = Receiver::start();
        let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        std::fs::write(bench.file("key"), format!("{key}\n")).unwrap();
        let to = receiver.url("/hook?token=t");
        let id = submit(bench, &to, &["--env", "A=secret"], "exit 7");
        work(bench, &["--notify-key-file", "key"]);

        let run = bench.run(&id);
        assert_eq!((run.status.as_str(), run.exit_code), ("failed", Some(7)));
        let there = notice(bench, &id);
        assert_eq!((there.status.as_str(), there.attempt), ("delivered", 1), "{there:?}");
        assert_eq!(
            steps(bench, &there.id),
            [
                "pending>delivering dispatch.delivering.attempt",
                "delivering>delivered dispatch.delivered.transport_ok"
            ]
        );
        let requests = receiver.requests();
        let [request] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!(request.path, "/hook?token=t");
        assert_eq!(request.header("content-type"), "application/json");
        assert_eq!(request.header("leasehold-event"), there.id);
        assert_eq!(request.header("webhook-id"), there.id);
        assert_eq!(request.header("leasehold-attempt"), "1");
        let timestamp = request.header("webhook-timestamp").parse().unwrap();
        let signature =
            SigningKey::parse(key.as_bytes()).unwrap().sign(&there.id, timestamp, &request.body);
        assert_eq!(request.header("webhook-signature"), signature);
        let said = request.json();
        assert_eq!(said["type"], "leasehold.task_ended");
        assert_eq!(said["event"], there.id.as_str());
        let data = &said["data"];
        assert_eq!(data["run_id"], id.as_str());
        assert_eq!((&data["status"], &data["exit_code"]), (&"failed".into(), &7.into()));
        assert_eq!(data["reason_code"], "run.failed.exit_nonzero");
        assert_eq!(data["ended_at"].as_f64(), run.ended_at);
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("secret") && !body.contains("exit 7"), "{body}");
        // Nobody sends it again.
        bench.work(&[&["--until-empty"], &LOCAL[..]].concat());
        assert_eq!(receiver.requests().len(), 1);
        bench.assert_sound();
    });
}

#[test]
fn a_receiver_that_is_down_or_answers_500_gets_it_later_under_the_same_id() {
    on_engines(|bench| {
        // Taken, so that nobody else gets it meanwhile, and not listened at.
        let flags = SocketFlags::CLOEXEC;
        let place = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        bind(&place, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let place = TcpListener::from(place);
        let port = place.local_addr().unwrap().port();
        let id = submit(bench, &format!("http://127.0.0.1:{port}/"), &[], "true");
        let mut worker = worker(bench, &QUICK);
        let failed = until(|| {
            let there = bench.queue().read(&NoticeOf { run_id: id.clone() }).unwrap();
            there.filter(|notice| notice.last_error.is_some()).ok_or("not tried".into())
        });
        assert!(failed.last_error.unwrap().contains("no connection"));
        assert_eq!(bench.run(&id).status, "completed", "the task has ended all the same");
        listen(&place, 128).unwrap();
        let receiver = Receiver::on(place, |number| match number {
            0..2 => status(500),
            _ => status(200),
        });
        let there = until_status(bench, &id, "delivered");
        let requests = receiver.requests();
        assert_eq!(requests.len(), 3, "{requests:?}");
        assert!(requests.iter().all(|request| request.header("webhook-id") == there.id));
        let last = requests[2].header("leasehold-attempt").to_owned();
        assert_eq!(last, there.attempt.to_string());
        assert!(there.attempt > 3, "{there:?}");
        worker.end_at_once();
        bench.assert_sound();
    });
}

#[test]
fn a_worker_that_is_killed_while_it_sends_leaves_that_to_the_next_one() {
    on_engines(|bench| {
        let receiver = Receiver::answering(|number| if number == 0 { None } else { status(204) });
        let id = submit(bench, &receiver.url("/"), &[], "true");
        let first = worker(bench, &["--notify-timeout", "1h"]);
        until(|| match receiver.requests().len() {
            1 => Ok(()),
            other => Err(other.to_string()),
        });
        first.kill();
        assert_eq!(notice(bench, &id).status, "delivering");
        let mut next = worker(bench, &[]);
        assert_eq!(receiver.requests().len(), 1, "it is the first one's for an hour");
        bench.place.raw().run("UPDATE dispatch_outbox SET next_attempt_at = 1.5");
        let there = until_status(bench, &id, "delivered");
        assert_eq!(there.attempt, 2);
        let events: Vec<String> = receiver
            .requests()
            .iter()
            .map(|request| request.header("leasehold-event").to_owned())
            .collect();
        assert_eq!(events, [there.id.as_str(), there.id.as_str()]);
        assert_eq!(steps(bench, &there.id)[1], "delivering>delivering dispatch.delivering.attempt");
        next.end_at_once();
        bench.assert_sound();
    });
}

#[test]
fn what_is_not_public_is_not_called_however_it_is_spelled() {
    on_sqlite(|bench| {
        let receiver = Receiver::start();
        let port = receiver.port;
        let spellings = [
            "127.0.0.1",
            "localhost",
            "LOCALHOST",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.1",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
        ];
        let submitted = spellings.map(|host| {
            submit(bench, &format!("http://{host}:{port}/"), &["--notify-attempts", "1"], "true")
        });
        work_until_sent(bench, bench.program(["worker"]));
        for (id, host) in submitted.iter().zip(spellings) {
            let there = notice(bench, id);
            let error = there.last_error.unwrap_or_default();
            assert_eq!(there.status, "dead_letter", "{host}: {error}");
            // Not every machine has an IPv6 or reads every spelling; none of them is called.
            assert!(
                error.contains("not public") || error.contains("cannot be found"),
                "{host}: {error}"
            );
        }
        assert!(receiver.requests().is_empty());
        assert!(notice(bench, &submitted[1]).last_error.unwrap().contains("not public"));
        assert!(notice(bench, &submitted[3]).last_error.unwrap().contains("not public"));
        // By name only what has that name is allowed.
        let [by_name, by_address] = [&submitted[1], &submitted[0]];
        for id in [by_name, by_address] {
            assert!(run(bench, &["notices", "retry", id]).status.success());
        }
        work_until_sent(bench, bench.program(["worker", "--notify-allow", "localhost"]));
        assert_eq!(notice(bench, by_name).status, "delivered");
        assert_eq!(notice(bench, by_address).status, "dead_letter");
        bench.assert_sound();
    });
}

#[test]
fn a_redirect_is_not_followed_and_a_final_answer_ends_it_at_once() {
    on_engines(|bench| {
        let behind = Receiver::start();
        let location = behind.url("/behind");
        let receiver = Receiver::answering(move |_| {
            Some(format!("HTTP/1.1 302 X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"))
        });
        let gone = Receiver::answering(|_| status(410));
        let moved = submit(bench, &receiver.url("/"), &[], "true");
        let refused = submit(bench, &gone.url("/"), &[], "true");
        work(bench, &[]);
        for (id, said) in [(&moved, "302"), (&refused, "410")] {
            let there = notice(bench, id);
            assert_eq!((there.status.as_str(), there.attempt), ("dead_letter", 1), "{there:?}");
            assert!(there.last_error.unwrap().contains(said));
            let last = "delivering>dead_letter dispatch.dead_letter.refused";
            assert_eq!(steps(bench, &there.id).last().unwrap(), last);
        }
        assert!(behind.requests().is_empty());
        assert_eq!((receiver.requests().len(), gone.requests().len()), (1, 1));
    });
}

#[test]
fn one_that_cannot_be_sent_in_time_expires_and_an_operator_sends_it_again() {
    on_engines(|bench| {
        let receiver =
            Receiver::answering(|number| if number < 3 { status(503) } else { status(200) });
        let late = submit(bench, &receiver.url("/"), &["--notify-within", "0.01"], "true");
        let mut worker = worker(bench, &["--notify-backoff", "1h"]);
        let expired = until_status(bench, &late, "expired");
        assert!(
            steps(bench, &expired.id)
                .last()
                .unwrap()
                .ends_with(">expired dispatch.expired.deadline")
        );
        let refused = run(bench, &["notices", "retry", "no-such-notice"]);
        assert_eq!(refused.status.code(), Some(1));
        // The worker hears of it by itself.
        let before = receiver.requests().len();
        assert!(run(bench, &["notices", "retry", &late]).status.success());
        until(|| match receiver.requests().len() {
            there if there > before => Ok(()),
            there => Err(there.to_string()),
        });
        let pending = until(|| {
            let there = notice(bench, &late);
            if there.last_error.is_some() { Ok(there) } else { Err(format!("{there:?}")) }
        });
        assert_eq!((pending.status.as_str(), pending.expires_at), ("pending", None));
        let refused = run(bench, &["notices", "retry", &pending.id]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(1) && said.contains("is pending"), "{said}");
        worker.end_at_once();
        bench.assert_sound();
    });
}

#[test]
fn a_dead_letter_is_sent_again_when_an_operator_says_so() {
    on_engines(|bench| {
        let receiver =
            Receiver::answering(|number| if number < 2 { status(500) } else { status(200) });
        let id = submit(bench, &receiver.url("/"), &["--notify-attempts", "2"], "true");
        let mut worker = worker(bench, &QUICK);
        let dead = until_status(bench, &id, "dead_letter");
        assert_eq!((dead.attempt, dead.max_attempts), (2, 2));
        let last = "delivering>dead_letter dispatch.dead_letter.max_attempts";
        assert_eq!(steps(bench, &dead.id).last().unwrap(), last);
        let listed = run(bench, &["notices", "--status", "dead_letter"]);
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains(&dead.id) && listed.contains("it answered 500"), "{listed}");
        assert!(run(bench, &["notices", "retry", &id]).status.success());
        let there = until_status(bench, &id, "delivered");
        assert_eq!((there.attempt, there.last_error), (1, None));
        let shown = String::from_utf8(run(bench, &["show", &id]).stdout).unwrap();
        assert!(shown.contains("notice: delivered, attempt 1 of 2"), "{shown}");
        worker.end_at_once();
        bench.assert_sound();
    });
}

#[test]
fn a_slow_receiver_holds_up_only_itself() {
    on_sqlite(|bench| {
        let slow = Receiver::answering(|_| None);
        let quick = Receiver::start();
        for _ in 0..20 {
            submit(bench, &slow.url("/"), &[], "true");
        }
        let told = submit(bench, &quick.url("/"), &[], "true");
        let mut worker = worker(bench, &["--notify-timeout", "1h"]);
        until_status(bench, &told, "delivered");
        let after = submit(bench, &quick.url("/"), &[], "true");
        until_status(bench, &after, "delivered");
        bench.until_all("completed");
        let delivering = "SELECT id AS value FROM dispatch_outbox WHERE status = 'delivering'";
        until(|| match bench.texts(delivering).len() {
            2 => Ok(()),
            other => Err(format!("{other} are being sent")),
        });
        assert!(slow.requests().len() <= 2, "two at once");
        worker.end_at_once();
    });
}

#[test]
fn a_receiver_that_never_answers_is_given_up_in_time() {
    on_sqlite(|bench| {
        let slow = Receiver::answering(|_| None);
        let options = ["--notify-attempts", "1"];
        let id = submit(bench, &slow.url("/"), &options, "true");
        bench.work(&[&["--until-empty", "--notify-timeout", "0.2"], &LOCAL[..]].concat());
        let there = notice(bench, &id);
        assert_eq!(there.status, "dead_letter", "a worker that leaves waits for its attempt");
        assert!(there.last_error.unwrap().contains("no answer within 0.2 s"));
    });
}

/// A certificate for `localhost`, by an authority of its own: what a server needs, and what one trusts who trusts it.
fn certified() -> (ServerConfig, String) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let der = certified.cert.der().clone();
    let encoded = STANDARD.encode(&der);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let pem =
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"));
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![der], key.into())
        .unwrap();
    (config, pem)
}

#[test]
fn over_tls_only_who_can_prove_to_be_the_receiver_gets_it() {
    on_sqlite(|bench| {
        let (config, pem) = certified();
        std::fs::write(bench.file("trusted.pem"), pem).unwrap();
        let receiver = Receiver::secured(config);
        let to = |host: &str| format!("https://{host}:{}/", receiver.port);
        let once = ["--notify-attempts", "1"];
        let [right, other] =
            ["localhost", "127.0.0.1"].map(|host| submit(bench, &to(host), &once, "true"));
        let worker = |trusted: &str| {
            let mut program = bench.program([&["worker"], &LOCAL[..]].concat());
            program.env("SSL_CERT_FILE", bench.file(trusted)).env("SSL_CERT_DIR", "");
            work_until_sent(bench, program);
        };
        worker("trusted.pem");
        assert_eq!(notice(bench, &right).status, "delivered", "{:?}", notice(bench, &right));
        let refused = notice(bench, &other);
        assert_eq!(refused.status, "dead_letter");
        assert!(refused.last_error.unwrap().contains("no TLS"), "the name is another one");
        let (_, stranger) = certified();
        std::fs::write(bench.file("stranger.pem"), stranger).unwrap();
        let again = submit(bench, &to("localhost"), &once, "true");
        worker("stranger.pem");
        assert!(notice(bench, &again).last_error.unwrap().contains("no TLS"));
        std::fs::write(bench.file("empty.pem"), "").unwrap();
        assert!(run(bench, &["notices", "retry", &again]).status.success());
        worker("empty.pem");
        let error = notice(bench, &again).last_error.unwrap();
        assert!(error.contains("trusts no authority"), "{error}");
        assert_eq!(receiver.requests().len(), 1);
    });
}

#[test]
fn a_command_is_told_on_its_standard_input() {
    on_sqlite(|bench| {
        let tell = bench.file("tell");
        let script = "#!/bin/sh\ncat >>told\necho >>told\n\
             echo \"$LEASEHOLD_EVENT $LEASEHOLD_ATTEMPT ${LEASEHOLD_NOTIFY_SECRET-none}\" >>about\n\
             [ $(wc -l <about) -ge 2 ] || { echo 'not now' >&2; exit 3; }\nsleep 300 &\n";
        std::fs::write(&tell, script).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&tell, executable).unwrap();
        let path = format!("{}:/usr/bin:/bin", bench.place.dir.path().display());
        let allowed = ["--allow-command", "tell"];
        let id = submit(bench, "command:tell", &allowed, "true");
        let words = [&["worker"], &LOCAL[..], &QUICK, &allowed].concat();
        let mut program = bench.program(words);
        program.env("PATH", path).env("LEASEHOLD_NOTIFY_SECRET", "0123456789abcdef");
        let mut worker = Worker::start(program, bench.log_file()).ready();
        let there = until_status(bench, &id, "delivered");
        assert_eq!(there.attempt, 2);
        let told = bench.lines("told");
        assert_eq!(told.len(), 2);
        for line in &told {
            let said: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(said["event"], there.id.as_str());
            assert_eq!(said["data"]["run_id"], id.as_str());
        }
        let about = bench.lines("about");
        assert_eq!(about, [format!("{} 1 none", there.id), format!("{} 2 none", there.id)]);
        let facts = bench.queue().read(&NoticeHistory { id: there.id }).unwrap();
        let summary = facts[1].reason_summary.clone().unwrap();
        assert!(summary.contains("exit code 3: not now"), "{summary}");
        worker.end_at_once();
        // It was allowed at the submit, and is not here.
        let other = submit(
            bench,
            "command:tell",
            &[&allowed[..], &["--notify-attempts", "1"]].concat(),
            "true",
        );
        work_until_sent(bench, bench.program(["worker"]));
        let there = notice(bench, &other);
        assert_eq!(there.status, "dead_letter");
        assert!(there.last_error.unwrap().contains("--allow-command tell"));
    });
}

#[test]
fn whatever_is_killed_each_task_that_has_ended_has_left_one_notice() {
    on_engines(|bench| {
        let receiver = Receiver::start();
        const TASKS: usize = 60;
        let ids: Vec<String> = (0..TASKS)
            .map(|number| {
                let script = format!("sleep 0.0{}; exit {}", number % 7, number % 3);
                submit(bench, &receiver.url("/"), &[], &script)
            })
            .collect();
        // After this many ends the next worker is killed, wherever it stands then.
        for ended in [3, 11, 20, 28, 41] {
            let worker = worker(
                bench,
                &["--concurrency", "4", "--lease-ttl", "5s", "--notify-timeout", "1s"],
            );
            until(|| {
                let there = bench.statuses();
                let done: usize = there
                    .iter()
                    .filter(|(name, _)| *name == "completed" || *name == "failed")
                    .map(|(_, count)| count)
                    .sum();
                if done >= ended { Ok(()) } else { Err(format!("{there:?}")) }
            });
            worker.kill();
            // What has ended has its notice, in whatever state.
            bench.assert_sound();
        }
        let mut last = worker(bench, &["--lease-ttl", "5s", "--notify-timeout", "1s"]);
        for id in &ids {
            until_status(bench, id, "delivered");
        }
        last.end_at_once();
        let all = bench.queue().read(&ListNotices { status: None, limit: 1000 }).unwrap();
        assert_eq!(all.len(), TASKS);
        let mut told: Vec<String> = receiver
            .requests()
            .iter()
            .map(|request| request.json()["data"]["run_id"].as_str().unwrap().to_owned())
            .collect();
        told.sort();
        told.dedup();
        let mut ids = ids;
        ids.sort();
        assert_eq!(told, ids, "each was told of, some of them perhaps twice");
        bench.assert_sound();
    });
}
