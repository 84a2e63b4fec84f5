//! One test for every machine and file: built-in machines, labelled cases, injected faults, saved
//! reports. Each is named after it, so that a failure says which: `cargo test --test machines demo`.
//!
//! The names are found when the tests start, so this has a harness of its own. Golden files are those of
//! tests/e2e/snapshots; `INSTA_UPDATE=always cargo test --test machines builtin` writes them again.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests; clippy looks only into test functions"
)]

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

use std::path::Path;

use libtest_mimic::{Arguments, Trial};

/// A test of this name.
fn trial(name: String, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, || {
        run();
        Ok(())
    })
}

/// A program that is named must be of this very source: no file that cargo made it from is younger. Files of tests may be.
fn assert_is_of_this_source(program: &Path) {
    let time = |file: &Path| std::fs::metadata(file).and_then(|known| known.modified());
    let built = time(program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let listed = std::fs::read_to_string(program.with_extension("d"))
        .expect("cargo's list of what it was made from");
    let (_, files) = listed.trim().split_once(": ").unwrap();
    // A blank within a name has a backslash before it.
    for file in files
        .replace("\\ ", "\0")
        .split(' ')
        .map(|file| file.replace('\0', " "))
    {
        assert!(
            time(Path::new(&file)).unwrap() <= built,
            "{} is older than {file}",
            program.display()
        );
    }
}

fn main() {
    let arguments = Arguments::from_args();
    if std::env::var_os(common::PROGRAM).is_some() {
        let program = common::program();
        assert_is_of_this_source(&program);
        common::say(&format!(
            "the program that is tested: {}",
            program.display()
        ));
    }
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
