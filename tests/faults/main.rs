//! Faults at every call of the driver's libraries: the real binary over the fake driver, once for every function, fault
//! and place, and once for every missing function.
//!
//! Each run must end in time, without a panic. It needs a report that names the fault, the exit code that follows from
//! its cells, and a figure for every pair that the fault did not touch. `cargo test` takes one case in 61, always the
//! same ones; `scripts/fault-sweep` runs every case.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy looks only into test functions")]

#[path = "../e2e/common.rs"]
#[allow(dead_code, reason = "the other test crate's helpers")]
mod common;
#[path = "../machines/fake.rs"]
#[allow(dead_code, reason = "the other test crate's helpers")]
mod fake;

mod beds;
mod cases;
mod judge;
mod shared;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use beds::Bed;
use cases::{Case, Class};

/// Variable: `N+PART` runs one case in N, from case PART on; `1+0` runs every case. Without it, a sample runs.
const EXTENT: &str = "PEERSCOPE_FAULTS";
/// Variable: runs the cases of this bed alone.
const BED: &str = "PEERSCOPE_FAULTS_BED";
/// Runs one case in this many by default. A prime, so that each kind of fault is among them: the kinds repeat at every
/// function.
const SAMPLE: usize = 61;
/// Like [`SAMPLE`], for cases under load, and for one GPU and the host, which are fewer.
const SMALL_SAMPLE: usize = 53;

/// A function that is called only after a fault of another: NVML is never shut down, and a set of events is freed only if
/// it cannot be used.
const AFTER_A_FAULT: &str = "nvmlEventSetFree";

/// Runs these cases, those that sleep beside those that compute, and returns the errors.
fn run(beds: &[Bed], cases: &[Case]) -> Vec<String> {
    let (sleeping, computing): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.sleeps());
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let wrong = Mutex::new(Vec::new());
    let pool = |cases: &[&Case], threads: usize| {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let judged =
                            std::panic::catch_unwind(|| judge::judge(&beds[case.bed], case));
                        if let Err(why) =
                            judged.unwrap_or_else(|_| Err("it panicked, or did not end".into()))
                        {
                            wrong.lock().unwrap().push(format!("{}: {why}", case.name(beds)));
                        }
                    }
                });
            }
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| pool(&sleeping, 24));
        scope.spawn(|| pool(&computing, 2 * cores));
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    wrong
}

/// Runs these cases, prints the number of each class, and fails if one went wrong.
///
/// One sweep at a time: cases have limits of seconds, which pass by themselves where four sweeps share two processors.
fn sweep(what: &str, beds: &[Bed], cases: &[Case]) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let wrong = run(beds, cases);
    drop(turn);
    tell(what, cases);
    assert!(
        wrong.is_empty(),
        "{} of {} went wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

/// Prints the counts: cargo test captures the print macros, but not this.
#[allow(clippy::explicit_write, reason = "eprintln! is held back")]
fn tell(what: &str, cases: &[Case]) {
    let mut classes: BTreeMap<Class, usize> = BTreeMap::new();
    cases.iter().for_each(|case| *classes.entry(case.class()).or_default() += 1);
    let classes: Vec<_> =
        classes.iter().map(|(class, count)| format!("{count} {class:?}")).collect();
    writeln!(
        std::io::stderr(),
        "\n*** {what}: {} cases tried: {} ***\n",
        cases.len(),
        classes.join(", ")
    )
    .unwrap();
}

#[test]
fn every_fault_at_every_call_ends_in_a_report_that_names_it() {
    let beds = beds::all();
    sweep("faults", &beds, &sample(&beds, cases::all(&beds), SAMPLE));
}

#[test]
fn every_fault_while_several_flows_run_ends_in_a_report_that_names_it() {
    let beds = beds::all();
    sweep("faults under load", &beds, &sample(&beds, cases::of_load(&beds), SMALL_SAMPLE));
}

#[test]
fn every_fault_at_a_probe_of_one_gpu_and_the_host_ends_in_a_report_that_names_it() {
    let beds = beds::all();
    sweep("faults with one GPU", &beds, &sample(&beds, cases::of_one_gpu(&beds), SMALL_SAMPLE));
}

#[test]
fn every_fault_at_the_fields_of_nvlink_5_ends_in_a_report_that_names_it() {
    let beds = beds::all();
    sweep("faults of NVLink 5", &beds, &sample(&beds, cases::of_nvlink_5(&beds), SMALL_SAMPLE));
}

/// Returns one case in `one_in`, or as [`EXTENT`] and [`BED`] request.
fn sample(beds: &[Bed], mut every: Vec<Case>, one_in: usize) -> Vec<Case> {
    if let Ok(bed) = std::env::var(BED) {
        every.retain(|case| beds[case.bed].name == bed);
    }
    let extent = std::env::var(EXTENT).ok();
    let (step, part) = match extent.as_deref().map(|text| text.split_once('+')) {
        Some(Some((step, part))) => (step.parse().unwrap(), part.parse().unwrap()),
        Some(None) => panic!("{EXTENT} is no N+PART: {extent:?}"),
        None => (one_in, 0),
    };
    every.into_iter().skip(part).step_by(step).collect()
}

#[test]
fn every_function_that_a_library_lacks_is_named_or_done_without() {
    let beds = beds::all();
    sweep("missing functions", &beds, &cases::missing(&beds));
}

#[test]
fn every_function_of_the_fakes_is_tried_and_every_one_that_is_used_is_in_the_fakes() {
    let beds = beds::all();
    let every = cases::all(&beds);
    for functions in [fake_cuda::FUNCTIONS, fake_nvml::FUNCTIONS] {
        for function in functions {
            let tried = every.iter().any(|case| case.function == *function);
            assert!(
                tried || *function == AFTER_A_FAULT,
                "{function} is called in no bed: tests/faults/beds.rs lacks a command that calls it"
            );
        }
    }
    // Functions that the live code looks up in CUDA, from its own table.
    let table = include_str!("../../src/hardware/live/cuda/table.rs");
    let mut used: Vec<_> =
        table.split("b\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut there = fake_cuda::FUNCTIONS.to_vec();
    used.sort_unstable();
    there.sort_unstable();
    assert_eq!(used, there);
    // The wrapper looks up all of NVML: a call that the fake does not know leaves a note.
    for bed in &beds {
        assert_eq!(bed.unexpected, Vec::<String>::new(), "{}", bed.name);
    }
}
