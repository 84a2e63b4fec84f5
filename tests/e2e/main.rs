//! Tests of the real binary, from its command line to its exit code, over simulated machines, over a report of real
//! hardware, and on this machine.
//!
//! They form one crate, so that it links once and its tests run side by side. Golden files are under `snapshots`;
//! `scripts/goldens` writes them again.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy looks only into test functions")]

mod common;

mod as_expected;
mod blocked;
mod browser;
mod demo;
mod descriptions;
mod exit_codes;
mod exit_codes_page;
#[path = "../machines/fake.rs"]
#[allow(dead_code, reason = "the other test crate's helpers")]
mod fake;
mod fleet;
mod formats;
mod full;
mod gates;
mod generated;
mod golden;
mod hardware_bench;
mod hardware_classes;
mod hardware_faults;
mod hardware_report;
mod history;
mod host_over_time;
mod impossible;
mod in_company;
mod installed;
mod journal;
mod limits;
mod no_driver;
mod no_verdict;
mod output;
mod over_time;
mod pasted;
mod pick;
mod plumbing;
mod provisioning;
mod recorded;
mod removed_rows;
mod scale;
mod second_looks;
mod second_reading;
mod selection;
mod sharing;
mod soak;
mod surroundings;
mod terminal;
mod topo;
mod trace;
mod two_checks;
mod watch;
mod worker_faults;
mod wrong_bytes;
