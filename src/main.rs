//! The binary: parse, run, exit code.

use std::process::ExitCode;

use clap::Parser;
use peerscope::cli::Cli;
use peerscope::commands;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(commands::usage(&error)),
    };
    // A panic is an internal error and must not be mistaken for a verdict: Rust's own code for it,
    // 101, is not in the contract.
    let result = std::panic::catch_unwind(|| commands::run(&cli));
    match result {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(sentence)) => {
            commands::complain(&sentence);
            ExitCode::from(commands::EXIT_USAGE)
        }
        Err(_) => {
            commands::complain("internal error; please report the message above");
            ExitCode::from(commands::EXIT_USAGE)
        }
    }
}
