//! Files of a run that were lost with the power, and sweeps that do not work at once.

use leasehold::db::ops::StoreId;
use leasehold::process::guardian::RunDir;
use leasehold::process::slot::Slot;
use rustix::process::Signal;

use crate::bench::{Bench, on_engines, sh, until};
use crate::machine;

/// What a loss of power leaves of files that were never synced. `damage` is done to the directory of the first attempt.
fn comes_back_after(bench: &Bench, damage: impl Fn(&std::path::Path)) {
    let id = bench.submit(&sh("echo start >>starts"));
    let store_id = bench.queue().read(&StoreId).unwrap();
    let slot = Slot::take(&bench.file(".local/state/leasehold"), &store_id).unwrap();
    slot.enlist("host:gone").unwrap();
    let dir = RunDir::create(slot.path(), &id, 1, 1 << 20).unwrap();
    damage(dir.path());
    let runs = slot.path().join("runs");
    drop(slot);
    bench.place.raw().run(
        "UPDATE schedule_runs SET status = 'running', leased_by = 'host:gone', lease_attempts = 1, lease_expires_at = 9e9",
    );
    bench.work(&["--once", "--target", "elsewhere"]);
    assert_eq!(bench.steps(&id), ["running>queued run.queued.guardian_lost"]);
    assert_eq!(std::fs::read_dir(&runs).unwrap().count(), 0, "nothing is left there");
    bench.work(&["--once"]);
    assert_eq!(bench.run(&id).status, "completed");
}

#[test]
fn a_run_whose_directory_lost_its_contents_goes_back_as_lost() {
    on_engines(|bench| {
        comes_back_after(bench, |dir| std::fs::write(dir.join("run.json"), "").unwrap());
    });
    on_engines(|bench| {
        comes_back_after(bench, |dir| {
            for name in ["run.json", "token", "guard.lock"] {
                std::fs::remove_file(dir.join(name)).unwrap();
            }
        });
    });
}

#[test]
fn a_run_whose_record_lost_its_contents_goes_back_as_lost() {
    on_engines(|bench| {
        comes_back_after(bench, |dir| {
            std::fs::write(dir.join("out.log"), "").unwrap();
            std::fs::write(dir.join("exit.json"), [0; 300]).unwrap();
        });
    });
}

/// Before its fence nobody else can have the run, so there is time to find what its guardian has left.
#[test]
fn a_sweep_that_fails_is_tried_again_before_the_run_goes_back() {
    on_engines(|bench| {
        let worker = bench.worker(&[]).ready();
        let id = bench.submit(&sh(
            "echo $LEASEHOLD_EPOCH $PPID >>starts; [ $LEASEHOLD_EPOCH = 2 ] || exec sleep 300",
        ));
        let line = until(|| bench.lines("starts").pop().ok_or_else(|| "not started".to_owned()));
        let guardian: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
        let store_id = bench.queue().read(&StoreId).unwrap();
        let slot = bench.file(".local/state/leasehold").join(store_id).join("0");
        let dir = RunDir::find(&slot, &id, 1).unwrap().unwrap();
        // Nobody can say that the guardian is gone while somebody has its lock.
        let lock = std::fs::File::open(dir.path().join("guard.lock")).unwrap();
        machine::stop(worker.pid());
        let pid = rustix::process::Pid::from_raw(i32::try_from(guardian).unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        until(|| lock.try_lock().map_err(|error| error.to_string()));
        worker.signal(Signal::CONT);
        until(|| {
            let log = worker.log();
            if log.matches("cannot clear away yet").count() > 1 { Ok(()) } else { Err(log) }
        });
        assert_eq!(bench.run(&id).status, "running");
        lock.unlock().unwrap();
        bench.until_status(&id, "completed");
        assert!(bench.steps(&id).contains(&"running>queued run.queued.guardian_lost".into()));
        assert_eq!(bench.lines("starts").len(), 2);
    });
}
