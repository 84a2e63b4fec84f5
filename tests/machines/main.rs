//! One test for every machine and file: built-in machines, labelled cases, injected faults, saved
//! reports. Each is named after it, so that a failure says which: `cargo test --test machines demo`.
//!
//! The names are found when the tests start, so this has a harness of its own. Golden files are those of
//! tests/e2e/snapshots; `INSTA_UPDATE=always cargo test --test machines builtin` writes them again.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy looks only into test functions")]

#[path = "../e2e/common.rs"]
#[allow(dead_code, reason = "the other test crate's helpers")]
mod common;

#[path = "../../src/diagnose/advice_steps.rs"]
mod advice_steps;
mod builtin;
mod cases;
mod contract;
mod expectations;
#[allow(dead_code, reason = "the other test crate's helpers")]
mod fake;
mod injected;
mod live;
mod pages;
mod reports;

use libtest_mimic::{Arguments, Trial};

/// A test of this name.
fn trial(name: String, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, || {
        run();
        Ok(())
    })
}

fn main() {
    let arguments = Arguments::from_args();
    let rooms = [
        builtin::trials(),
        live::trials(),
        cases::trials(),
        expectations::trials(),
        injected::trials(),
        reports::trials(),
    ];
    let conclusion = libtest_mimic::run(&arguments, rooms.into_iter().flatten().collect());
    cases::summarise();
    conclusion.exit();
}
