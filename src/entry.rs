//! What this program becomes when it is started by itself.

/// Must be the first line of the `main` of every program that starts guardians or runs workflows, which it does by
/// executing itself.
///
/// When this process was started to be a guardian or to run a workflow, it does that, and leaves from here: no thread,
/// runtime, log or store must exist yet. Else this returns at once.
///
/// ```
/// leasehold::guardian_entry();
/// // The program.
/// ```
pub fn guardian_entry() {
    crate::process::guardian_entry();
    #[cfg(target_os = "linux")]
    crate::execute::runner_entry();
}
