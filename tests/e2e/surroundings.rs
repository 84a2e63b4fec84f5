//! Tests of environment variables, which affect a run but are no fault of the hardware.

use crate::common::{Ran, cells, codes, finish, list, say};
use crate::fake::Fake;

const QUICK: [&str; 5] = ["check", "--profile", "quick", "--format", "json"];

/// Checks a healthy machine as the live one, with these variables set.
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
        let expected = [
            "CUDA_COREDUMP_FILE=/tmp/core",
            "CUDA_DEVICE_MAX_CONNECTIONS=1",
            "CUDA_LAUNCH_BLOCKING=1",
        ];
        assert_eq!(list(removed), expected, "{machine}");
        let mut others = codes(&report);
        others.retain(|code| *code != "environment-distorting");
        assert_eq!((others.len() + 1, others), (codes(&report).len(), codes(&plain)), "{machine}");
        let figures = |report: &serde_json::Value| -> Vec<_> {
            list(&report["measurements"]["peer"])
                .iter()
                .map(|cell| cell["achieved_gbps"].clone())
                .collect()
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

/// Shows why the variables are removed: with blocking launches, no gate holds, and nothing can be timed. That accuses
/// no pair.
#[test]
fn a_gate_that_opens_by_itself_is_inconclusive() {
    for (machine, profile) in [("h200x2", "standard"), ("nvlink12", "quick")] {
        let set = [("CUDA_LAUNCH_BLOCKING", "1"), ("PEERSCOPE_KEEP_CUDA_ENVIRONMENT", "1")];
        let ran = with_environment(machine, profile, &set);
        assert_eq!(ran.code, Some(3), "{machine}: {ran:?}");
        let report = ran.json();
        assert_eq!(
            report["measurements"]["driver"]["environment_removed"],
            serde_json::Value::Null
        );
        let lost: Vec<_> = cells(&report).filter(|cell| cell["status"] != "measured").collect();
        assert!(!lost.is_empty(), "{machine}: the gates held");
        for cell in lost {
            assert_eq!(cell["status"], "skipped", "{machine}: {cell}");
            assert!(
                cell["reason"].as_str().unwrap().contains("opened by itself"),
                "{machine}: {cell}"
            );
        }
        assert!(!codes(&report).contains(&"copy-failed"), "{machine}: {:?}", codes(&report));
        say(&format!("{machine}: {:?}", codes(&report)));
    }
}

/// A worker that joined a daemon would share a server with its clients.
#[test]
fn the_worker_keeps_away_from_an_mps_daemon() {
    let fake = Fake::new("h200x2");
    let removed = |variables: &[(&str, &str)]| {
        let ran = finish(
            fake.command(&QUICK)
                .env_remove("CUDA_MPS_PIPE_DIRECTORY")
                .envs(variables.iter().copied()),
        );
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.json()["measurements"]["driver"]["environment_removed"].clone()
    };
    assert_eq!(removed(&[]), serde_json::Value::Null);
    let set = removed(&[("CUDA_MPS_PIPE_DIRECTORY", "/run/mps")]);
    assert_eq!(list(&set), ["CUDA_MPS_PIPE_DIRECTORY=/run/mps"]);
    std::fs::create_dir_all(fake.root().join("tmp/nvidia-mps")).unwrap();
    assert_eq!(removed(&[]), serde_json::Value::Null, "a folder is no daemon");
    std::fs::write(fake.root().join("tmp/nvidia-mps/control"), "").unwrap();
    assert_eq!(list(&removed(&[])), ["CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"]);
}

/// Returns CUDA's ordinals of the requested GPUs, and the exit code.
fn ordinals(
    machine: &str,
    gpus: &str,
    visible: Option<&str>,
) -> (Vec<serde_json::Value>, Option<i32>) {
    let fake = Fake::new(machine);
    let mut command = fake.command(&[&QUICK[..], &["--gpus", gpus]].concat());
    visible.map(|visible| command.env("CUDA_VISIBLE_DEVICES", visible));
    let ran = finish(&mut command);
    let report = ran.json();
    let devices = list(&report["measurements"]["driver"]["devices"]);
    (devices.iter().map(|device| device["ordinal"].clone()).collect(), ran.code)
}

#[test]
fn cuda_shows_the_worker_only_the_gpus_that_were_chosen() {
    assert_eq!(ordinals("h200x8", "2,5", None), (vec![0.into(), 1.into()], Some(0)));
    assert_eq!(ordinals("h200x8", "0-7", None).0[7], 7);
    // The user's setting stays, and the GPUs that it hides are reported.
    assert_eq!(ordinals("h200x8", "2,5", Some("7,5,2")), (vec![2.into(), 1.into()], Some(0)));
    assert_eq!(
        ordinals("h200x8", "1-3", Some("1,2")),
        (vec![0.into(), 1.into(), serde_json::Value::Null], Some(3))
    );
}

#[test]
fn kernels_that_one_gpu_refuses_cost_that_gpu_only() {
    let fake = Fake::new("h200x8");
    let mut command = fake.command(&[&QUICK[..], &["--gpus", "0-2"]].concat());
    let ran = finish(command.env(fake_machine::FAULTS, "cuModuleLoadData@1=code:223"));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report = ran.json();
    let driver = &report["measurements"]["driver"];
    assert_eq!(driver["kernels_failure"], serde_json::Value::Null);
    let without: Vec<_> = list(&driver["devices"])
        .iter()
        .filter(|device| !device["kernels_failure"].is_null())
        .collect();
    assert_eq!(without.len(), 1, "{driver}");
    let gpu = &without[0]["index"];
    for cell in list(&report["measurements"]["peer"]) {
        let concerned = cell["source"] == *gpu || cell["destination"] == *gpu;
        assert_eq!(cell["verified"], if concerned { "inconclusive" } else { "ok" }, "{cell}");
        assert_eq!(cell["status"], "measured", "{cell}");
    }
}
