//! One test for every machine and file: built-in machines, labelled cases, injected faults, saved reports. Each is
//! named after its machine or file, so that a failure identifies it: `cargo test --test machines live::demo
//! case::acs-slows`.
//!
//! The names are found when the tests start, so this has a harness of its own. Golden files are those of
//! tests/e2e/snapshots. Wrong labels end it before the first test.

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
mod pasted;
mod reports;
mod shadow;

use clap::Parser;
use libtest_mimic::{Arguments, Trial};

/// The arguments of libtest's harness, extended to several filters.
#[derive(Parser)]
struct Given {
    #[command(flatten)]
    arguments: Arguments,
    /// More filters: a test that has one of them in its name runs.
    #[arg(value_name = "FILTER")]
    more: Vec<String>,
}

impl Given {
    /// Returns the tests that match a filter, and the remaining arguments of the harness. A named test is not ignored.
    fn choose(mut self, trials: Vec<Trial>) -> (Arguments, Vec<Trial>) {
        self.arguments.include_ignored |=
            self.arguments.filter.is_some() && !self.arguments.ignored;
        // As libtest does.
        let threads = std::env::var("RUST_TEST_THREADS").ok();
        let threads = threads.and_then(|number| number.parse().ok());
        self.arguments.test_threads = self.arguments.test_threads.or(threads);
        if self.more.is_empty() {
            return (self.arguments, trials);
        }
        let filters: Vec<_> = self.arguments.filter.take().into_iter().chain(self.more).collect();
        let exact = self.arguments.exact;
        let is_named = |trial: &Trial| {
            let fits = |filter: &String| match exact {
                true => trial.name() == filter,
                false => trial.name().contains(filter),
            };
            filters.iter().any(fits)
        };
        (self.arguments, trials.into_iter().filter(is_named).collect())
    }
}

fn several_filters_choose_the_tests_of_each() {
    let chosen = |arguments: &[&str]| {
        let given = Given::parse_from([&["machines"], arguments].concat());
        let trials = ["live::demo", "case::demo", "case::x"]
            .map(|name| trial(name.into(), || {}).with_ignored_flag(name == "case::x"));
        let (arguments, chosen) = given.choose(trials.into());
        let left = chosen
            .iter()
            .filter(|trial| !arguments.is_filtered_out(trial) && !arguments.is_ignored(trial));
        left.map(|trial| trial.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(chosen(&[]), ["live::demo", "case::demo"]);
    assert_eq!(chosen(&["--include-ignored"]).len(), 3);
    assert_eq!(chosen(&["--ignored"]), ["case::x"]);
    assert_eq!(chosen(&["--ignored", "case"]), ["case::x"]);
    assert_eq!(chosen(&["case"]), ["case::demo", "case::x"]);
    assert_eq!(chosen(&["case::x", "live"]), ["live::demo", "case::x"]);
    assert_eq!(chosen(&["--exact", "case", "case::x"]), ["case::x"]);
    assert_eq!(chosen(&["demo", "x", "--skip", "live"]), ["case::demo", "case::x"]);
}

/// Creates a test of this name.
fn trial(name: String, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, || {
        run();
        Ok(())
    })
}

/// Runs one test in this many with a plain `cargo test`, in rooms with many tests of the same kind; the others are
/// ignored. So the run ends within minutes. `--include-ignored` runs them all, as `.ci/run sweep` does.
const SAMPLE: usize = 10;

/// Tests that wait for one deadline after the other. Begun last, they would run alone for half a minute.
const LONGEST: [&str; 2] =
    ["case::b300-every-pair-hangs-after-xid-145", "case::a40-hang-until-the-iommu-is-off"];

/// Marks all but a sample of the tests as ignored.
fn sampled(trials: Vec<Trial>) -> Vec<Trial> {
    let flagged = |(number, trial): (usize, Trial)| trial.with_ignored_flag(number % SAMPLE != 0);
    trials.into_iter().enumerate().map(flagged).collect()
}

fn main() {
    let given = Given::parse();
    if std::env::var_os(common::PROGRAM).is_some() {
        common::say(&format!("the program that is tested: {}", common::program().display()));
    }
    let wrong = cases::wrong_labels();
    if !wrong.is_empty() {
        common::say(&format!("no test has run: {}", wrong.join("\n")));
        std::process::exit(101);
    }
    let harness = trial(
        "harness::several_filters_choose_the_tests_of_each".into(),
        several_filters_choose_the_tests_of_each,
    );
    let rooms = [
        vec![harness],
        builtin::trials(),
        sampled(live::trials()),
        sampled(cases::trials()),
        expectations::trials(),
        pasted::trials(),
        sampled(injected::trials()),
        reports::trials(),
        shadow::trials(),
    ];
    let (arguments, mut trials) = given.choose(rooms.into_iter().flatten().collect());
    trials.sort_by_key(|trial| !LONGEST.contains(&trial.name()));
    let conclusion = libtest_mimic::run(&arguments, trials);
    cases::summarise();
    if conclusion.num_ignored > 0 {
        common::say(&format!(
            "\n*** {} tests are ignored: --include-ignored runs them, and so does a name ***\n",
            conclusion.num_ignored
        ));
    }
    conclusion.exit();
}
