//! The binary: parses the command line, runs the command and returns the exit code.

use std::process::ExitCode;

use peerscope::{Cli, Ending, complain, fail_evaluation, parse, run, usage};

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(refusal) => return ExitCode::from(usage(&refusal)),
    };
    end_on_panic(&cli);
    let code = run(&cli).unwrap_or_else(|failure| {
        complain(&failure);
        cli.exit_contract.code(Ending::Usage)
    });
    if code != 0 && cli.is_evaluated() {
        fail_evaluation();
    }
    ExitCode::from(code)
}

/// Ends the process with the code of an internal error after a panic. A panic is an internal error and must not be mistaken for a verdict:
/// Rust's own code for it, 101, is not in the contract. The journal keeps what was measured. The hook ends the process,
/// so nothing is unwound.
fn end_on_panic(cli: &Cli) {
    let code = cli.exit_contract.code(Ending::Usage);
    let evaluated = cli.is_evaluated();
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        complain(&"internal error; please report the message above".into());
        if evaluated {
            fail_evaluation();
        }
        std::process::exit(i32::from(code));
    }));
}
