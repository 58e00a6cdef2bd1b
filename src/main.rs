//! The `leasehold` program.

mod cli;

fn main() -> std::process::ExitCode {
    leasehold::guardian_entry();
    cli::main()
}
