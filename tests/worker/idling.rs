//! What a worker needs when there is nothing to do, and what it keeps when there was.

use std::time::{Duration, Instant};

use crate::bench::{command, on_engines, until};
use crate::machine::{children, count, cpu_ticks, resident_kib};

/// The promise is 1 % and 30 MB with optimization. Here there is none, and on a server every write of a test beside this
/// one makes the worker look.
#[test]
fn an_idle_worker_needs_next_to_nothing() {
    on_engines(|bench| {
        let worker = bench.worker(&[]).ready();
        let (before, began) = (cpu_ticks(worker.pid()), Instant::now());
        std::thread::sleep(Duration::from_secs(4));
        let used = (cpu_ticks(worker.pid()) - before) as f64 / 100.0;
        let share = 100.0 * used / began.elapsed().as_secs_f64();
        let memory = resident_kib(worker.pid()) as f64 / 1024.0;
        println!("{}: idle: {share:.2} % of a processor, {memory:.1} MiB", bench.engine());
        assert!(share < 60.0, "{share} %");
        assert!(memory < 60.0, "{memory} MiB");
    });
}

#[test]
fn five_hundred_tasks_leave_no_zombie_descriptor_or_thread() {
    on_engines(|bench| {
        let worker = bench.worker(&["--concurrency", "8"]).ready();
        let pid = worker.pid();
        let run = |tasks| {
            bench.submit_all(&vec![command("true", &[]); tasks]);
            bench.until_all("completed");
        };
        run(50);
        let held = || (count(pid, "fd"), count(pid, "task"), children(pid).len());
        // The last end is stored a moment before its executor is gone.
        let mut before = held();
        until(|| {
            let last = std::mem::replace(&mut before, held());
            if last == before && before.2 == 0 { Ok(()) } else { Err(format!("{before:?}")) }
        });
        let memory = resident_kib(pid);
        run(500);
        until(|| {
            let now = held();
            let same = now.0 <= before.0 && now.1 <= before.1 && now.2 == 0;
            if same { Ok(()) } else { Err(format!("before {before:?}, now {now:?}")) }
        });
        let grown = resident_kib(pid).saturating_sub(memory);
        println!(
            "{}: (descriptors, threads, children) {:?}, {grown} KiB more after 500",
            bench.engine(),
            held()
        );
        assert!(grown < 20 * 1024, "{grown} KiB");
    });
}
