//! The binary: parses the command line, runs the command and returns the exit code.

use std::process::ExitCode;

use peerscope::{Ending, complain, parse, run, usage};

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(refusal) => return ExitCode::from(usage(&refusal)),
    };
    end_on_panic(cli.exit_contract.code(Ending::Usage));
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            complain(&failure);
            ExitCode::from(cli.exit_contract.code(Ending::Usage))
        }
    }
}

/// Ends the process with this code after a panic. A panic is an internal error and must not be mistaken for a verdict:
/// Rust's own code for it, 101, is not in the contract. The journal keeps what was measured. The hook ends the process,
/// so nothing is unwound.
fn end_on_panic(code: u8) {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        complain(&"internal error; please report the message above".into());
        std::process::exit(i32::from(code));
    }));
}
