//! What surrounds a run and is no fault of the hardware: variables of the environment.

use crate::common::{Ran, cells, codes, finish, list, say};
use crate::fake::Fake;

const QUICK: [&str; 5] = ["check", "--profile", "quick", "--format", "json"];

/// A healthy machine as the live one, with these variables set.
fn with_environment(machine: &str, profile: &str, variables: &[(&str, &str)]) -> Ran {
    let fake = Fake::new(machine);
    let mut args = QUICK;
    args[2] = profile;
    finish(fake.command(&args).envs(variables.iter().copied()))
}

#[test]
fn variables_that_distort_the_driver_are_taken_from_the_worker_and_named() {
    for (machine, profile) in [("h200x2", "standard"), ("nvlink12", "quick")] {
        let plain = with_environment(machine, profile, &[]);
        let set = [
            ("CUDA_LAUNCH_BLOCKING", "1"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
            ("CUDA_COREDUMP_FILE", "/tmp/core"),
            ("CUDA_CACHE_DISABLE", "1"),
        ];
        let ran = with_environment(machine, profile, &set);
        assert_eq!(ran.code, plain.code, "{machine}: {ran:?}");
        let (plain, report) = (plain.json(), ran.json());
        let removed = &report["measurements"]["driver"]["environment_removed"];
        let expected = ["CUDA_COREDUMP_FILE=/tmp/core", "CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_LAUNCH_BLOCKING=1"];
        assert_eq!(list(removed), expected, "{machine}");
        let mut others = codes(&report);
        others.retain(|code| *code != "environment-distorting");
        assert_eq!((others.len() + 1, others), (codes(&report).len(), codes(&plain)), "{machine}");
        let figures = |report: &serde_json::Value| -> Vec<_> {
            list(&report["measurements"]["peer"]).iter().map(|cell| cell["achieved_gbps"].clone()).collect()
        };
        assert_eq!(figures(&report), figures(&plain), "{machine}");
    }
}

#[test]
fn every_format_names_what_was_taken_away() {
    let fake = Fake::new("h200x2");
    for format in ["text", "json", "html", "markdown", "junit", "prometheus"] {
        let args = ["check", "--profile", "quick", "--format", format];
        let ran = finish(fake.command(&args).env("CUDA_LAUNCH_BLOCKING", "1"));
        assert_eq!(ran.code, Some(0), "{format}: {ran:?}");
        assert!(ran.stdout.contains("environment-distorting"), "{format}: {}", ran.stdout);
    }
}

/// What the removal is for: with launches that block, no gate holds, and nothing can be timed. That
/// accuses no pair.
#[test]
fn a_gate_that_opens_by_itself_is_inconclusive() {
    for (machine, profile) in [("h200x2", "standard"), ("nvlink12", "quick")] {
        let set = [("CUDA_LAUNCH_BLOCKING", "1"), ("PEERSCOPE_KEEP_CUDA_ENVIRONMENT", "1")];
        let ran = with_environment(machine, profile, &set);
        assert_eq!(ran.code, Some(3), "{machine}: {ran:?}");
        let report = ran.json();
        assert_eq!(report["measurements"]["driver"]["environment_removed"], serde_json::Value::Null);
        let lost: Vec<_> = cells(&report).filter(|cell| cell["status"] != "measured").collect();
        assert!(!lost.is_empty(), "{machine}: the gates held");
        for cell in lost {
            assert_eq!(cell["status"], "skipped", "{machine}: {cell}");
            assert!(cell["reason"].as_str().unwrap().contains("opened by itself"), "{machine}: {cell}");
        }
        assert!(!codes(&report).contains(&"peer-copy-failed"), "{machine}: {:?}", codes(&report));
        say(&format!("{machine}: {:?}", codes(&report)));
    }
}
