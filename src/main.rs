//! The binary: parse, run, exit code.

use std::process::ExitCode;

use peerscope::{Allocator, Ending, complain, parse, run, usage};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(refusal) => return ExitCode::from(usage(&refusal)),
    };
    // A panic is an internal error and must not be mistaken for a verdict: Rust's own code for it,
    // 101, is not in the contract.
    let result = std::panic::catch_unwind(|| run(&cli));
    match result {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(failure)) => {
            complain(&failure);
            ExitCode::from(cli.exit_contract.code(Ending::Usage))
        }
        Err(_) => {
            complain(&"internal error; please report the message above".into());
            ExitCode::from(cli.exit_contract.code(Ending::Usage))
        }
    }
}
