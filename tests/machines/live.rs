//! One description, two ways: through the simulated machine (`--machine NAME`), and through the live code over the fake
//! driver. Both must give the same report. A difference is a mistake in the live code, in the simulation or in the
//! fake.

use libtest_mimic::Trial;
use serde_json::Value;
use sim::builtin;

use crate::common::{check, finish, run, with};
use crate::fake::{Fake, unexpected};
use crate::trial;

/// Share and amount by which figures may differ: CUDA gives times as milliseconds in 32 bits.
const SHARE: f64 = 1e-4;
const MUCH: f64 = 0.005;

/// Profiles with their largest number of GPUs: more GPUs take a minute and show nothing new.
const PROFILES: [(&str, usize); 3] = [("quick", 16), ("standard", 4), ("full", 2)];

pub(crate) fn trials() -> Vec<Trial> {
    let machines = builtin::names()
        .map(|machine| trial(format!("live::{machine}"), move || same_report(machine)));
    let hidden = trial(
        "live::a_process_that_sees_some_gpus_only_says_so".into(),
        a_process_that_sees_some_gpus_only,
    );
    let others =
        trial("live::work_of_other_programs_is_seen".into(), work_of_other_programs_is_seen);
    let under_load = trial(
        "live::work_of_other_programs_while_load_runs_is_seen".into(),
        work_of_others_while_load_runs_is_seen,
    );
    let cases = CASES.map(|case| trial(format!("live::{case}"), move || same_functions(case)));
    machines.chain([hidden, others, under_load]).chain(cases).collect()
}

/// Cases whose PCI functions, and whose host, are read from files of a kernel.
const CASES: [&str; 12] = [
    "four-of-eight-not-listed",
    "four-of-eight-without-device-file",
    "healthy-container-without-four-device-files",
    "healthy-gpus-given-to-guests",
    "healthy-container-with-the-second-half",
    "healthy-gpu-excluded-by-parameter",
    "two-gpus-lost-and-one-with-nouveau",
    "nvswitches-and-all-links-down",
    "lost-at-a-cable-after-xid-79",
    "lost-and-switched-off-by-the-kernel",
    "healthy-one-slot-with-small-packets",
    "iommu-translates-against-its-parameter",
];

/// Checks that the facts and findings of a case are the same live, over files of its kernel and the fake NVML.
fn same_functions(case: &str) {
    let file = format!("{}/tests/cases/{case}.toml", env!("CARGO_MANIFEST_DIR"));
    let fake = Fake::new(&file);
    let args: Vec<_> = ["topo", "--machine", &file, "--format", "json"].map(String::from).into();
    let (simulated, live) = (run(&args).json(), finish(&mut fake.command(&live(&args))).json());
    for key in ["unlisted_gpus", "nvswitches", "pci", "adapters"] {
        let [live, simulated] = [&live, &simulated].map(|report| report["snapshot"].get(key));
        assert!(simulated.is_some_and(Value::is_array), "{key}");
        assert_eq!(live, simulated, "{key}");
    }
    assert_eq!(live["snapshot"]["host"], simulated["snapshot"]["host"]);
    assert_eq!(live["findings"], simulated["findings"]);
}

fn same_report(machine: &str) {
    let fake = Fake::new(machine);
    let compared = |args: &[String]| {
        let (simulated, live) = (run(args), finish(&mut fake.command(&live(args))));
        assert_eq!(live.stderr, "", "{args:?}");
        let (mut ours, mut theirs) = (simulated.json(), live.json());
        if without_beyond_the_link(&mut theirs) {
            [&mut ours, &mut theirs].into_iter().for_each(|report| drop(report["verdict"].take()));
        } else {
            assert_eq!(live.code, simulated.code, "{args:?}");
        }
        (ours, theirs)
    };
    let topo: Vec<_> = ["topo", "--machine", machine, "--format", "json"].map(String::from).into();
    let (simulated, live) = compared(&topo);
    for key in ["nodes", "links", "pairs", "gpu_paths"] {
        let [live, simulated] = [&live, &simulated].map(|report| report["topology"].get(key));
        assert!(simulated.is_some_and(Value::is_array), "topo: no {key}");
        assert_eq!(live, simulated, "topo: {key}");
    }

    let gpus = builtin::get(machine).unwrap().gpus.len();
    for (profile, _) in PROFILES.iter().filter(|(_, most)| gpus <= *most) {
        let mut args = with(check(machine, profile), &["--format", "json"]);
        // Bytes of the fake's host are made and compared on real clocks, one word after the other.
        if let Some(at) = args.iter().position(|arg| arg == "--deadline") {
            args[at + 1] = "8".into();
        }
        // A busy host must not look like a driver that hangs.
        args.extend(["--driver-deadline", "60s"].map(String::from));
        let (simulated, live) = compared(&args);
        assert_same(profile, simulated, live);
    }
    assert_eq!(
        unexpected(&fake.state()),
        Vec::<String>::new(),
        "the live code called functions that tests/fake-driver lacks: add each to the `exports.rs` of its library"
    );
}

fn a_process_that_sees_some_gpus_only() {
    let fake = Fake::new("h200x2");
    let args = ["check", "--profile", "quick", "--format", "json"];
    let ran = finish(fake.command(&args).env("CUDA_VISIBLE_DEVICES", "1"));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let devices = ran.json()["measurements"]["driver"]["devices"].clone();
    assert!(
        devices[0]["failure"].as_str().unwrap().contains("CUDA_VISIBLE_DEVICES is '1'"),
        "{devices}"
    );
    assert_eq!((&devices[1]["failure"], &devices[1]["ordinal"]), (&Value::Null, &Value::from(0)));
    // This order differs from NVML's: nothing may be joined by index.
    let swapped = finish(fake.command(&args).env("CUDA_VISIBLE_DEVICES", "1,0"));
    assert_eq!(swapped.code, Some(0), "{swapped:?}");
    assert_eq!(swapped.json()["measurements"]["driver"]["devices"][0]["ordinal"], 1);
}

/// Checks that traffic of other programs is found. The clock is not the machine's own, so its rate is not compared.
fn work_of_other_programs_is_seen() {
    let fake = Fake::new("tests/cases/others-copy-between-two.toml");
    let ran = finish(
        &mut fake.command(&["check", "--profile", "quick", "--format", "json"].map(String::from)),
    );
    let report = ran.json();
    assert_eq!(ran.code, Some(3), "{report:#}");
    let codes: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|finding| &finding["code"]).collect();
    assert_eq!(codes, ["gpu-busy"], "{report:#}");
    let background = report["measurements"]["background"].as_array().unwrap();
    let moved = |seen: &&Value| seen["nvlink_sent_gbps"].as_f64().is_some_and(|rate| rate > 10.0);
    let busy: Vec<_> =
        background.iter().filter(moved).map(|seen| (&seen["gpu"], &seen["moment"])).collect();
    assert_eq!(
        busy,
        [(&Value::from(0), &Value::from("start")), (&Value::from(0), &Value::from("end"))]
    );
}

/// Checks the excess of NVLink counts over this program's bytes, if no other program ran before or after.
fn work_of_others_while_load_runs_is_seen() {
    let fake = Fake::new("tests/cases/others-copy-only-while-load-runs.toml");
    let args =
        ["check", "--profile", "standard", "--only", "load", "--format", "json"].map(String::from);
    let ran = finish(&mut fake.command(&args));
    let report = ran.json();
    assert_eq!(ran.code, Some(3), "{report:#}");
    let codes: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|finding| &finding["code"]).collect();
    assert_eq!(codes, ["gpu-busy"], "{report:#}");
    let background = report["measurements"]["background"].as_array().unwrap();
    let busy = background
        .iter()
        .filter(|seen| seen["nvlink_received_gbps"].as_f64().is_some_and(|rate| rate > 1.0));
    let busy: Vec<_> = busy.map(|seen| (&seen["gpu"], &seen["moment"])).collect();
    assert_eq!(busy, [(&Value::from(1), &Value::from("load"))]);
}

/// Returns the same arguments for the live machine.
fn live(args: &[String]) -> Vec<String> {
    let at = args.iter().position(|arg| arg == "--machine").unwrap();
    let mut args = args.to_vec();
    "live".clone_into(&mut args[at + 1]);
    args
}

fn assert_same(what: &str, mut simulated: Value, mut live: Value) {
    // Copies that are compared are enqueued one by one, on the host's own clock, which the simulation does not have: a busy
    // host makes them slower, and less of their comparing fall together with them. Nothing makes them faster than alone.
    let [ours, theirs] = [&mut simulated, &mut live].map(take_compared);
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for ((one, alone), (other, _)) in ours.iter().zip(&theirs) {
        assert!(*one > 0.0 && *other > 0.0, "{what}: {one} beside {other} GB/s");
        assert!(*other < alone * 1.002, "{what}: {other} GB/s, and {alone} without comparing");
    }
    for report in [&mut simulated, &mut live] {
        blank(report);
        blank_timed_by_the_host(report);
        blank_pageable_pipelines(report);
    }
    let mut differences = Vec::new();
    compare("", &simulated, &live, &mut differences);
    assert!(
        differences.is_empty(),
        "{what}: simulated, and live over the fake driver:\n{}",
        differences.join("\n")
    );
}

/// Removes what must differ: times, the host's own clock, numbers of readings.
fn blank(report: &mut Value) {
    let top = report.as_object_mut().unwrap();
    for key in ["machine", "started_at", "timing"] {
        assert!(top.remove(key).is_some(), "{key}");
    }
    for finding in report["findings"].as_array_mut().unwrap() {
        if let Some(evidence) = finding["evidence"].as_object_mut() {
            evidence.remove("driver_start_seconds");
        }
    }
    if let Some(driver) = report["measurements"]["driver"].as_object_mut() {
        driver.remove("start_seconds");
    }
    for (table, key) in [
        ("peer", "host_blocked_us"),
        ("overlap", "host_blocked_us"),
        ("host", "host_blocked_us"),
        ("pinning", "allocate_ms_per_gib"),
        ("pinning", "free_ms_per_gib"),
        ("pinning", "register_ms_per_gib"),
        ("pinning", "unregister_ms_per_gib"),
        ("pinning", "allocating_takes_bytes"),
        ("pinning", "copying_takes_bytes"),
        ("links", "readings"),
        ("links", "temperature_max_c"),
        ("calls", "host_blocked_us"),
        ("calls", "spread_percent"),
        ("launch_loop", "host_us"),
        ("launch_loop", "turn_us"),
        ("launch_loop", "spread_percent"),
        ("pipeline", "enqueue_us"),
        // The bound depends on the time of enqueueing, among others.
        ("pipeline", "bound"),
        ("hazard", "copy_us"),
        ("sharing", "open_us"),
    ] {
        let cells = report["measurements"][table].as_array_mut();
        cells
            .into_iter()
            .flatten()
            .for_each(|cell| drop(cell.as_object_mut().unwrap().remove(key)));
    }
}

/// Takes the rates of copies that are compared, each with the rate of the same copies without it.
fn take_compared(report: &mut Value) -> Vec<(f64, f64)> {
    let patterns = report["measurements"]["load"].as_array_mut().into_iter().flatten();
    let flows = patterns.flat_map(|load| load["flows"].as_array_mut().unwrap());
    let rates = flows.filter_map(|flow| {
        let compared = flow.as_object_mut().unwrap().remove("compared_gbps")?;
        Some((compared.as_f64().unwrap(), flow["achieved_gbps"].as_f64().unwrap()))
    });
    rates.collect()
}

/// Removes the finding that memory which the host fills for each copy arrives faster than the link can carry: the fake copies
/// on no clock while the host fills on its own, so a narrow link is slower than both. Returns true if there was one.
fn without_beyond_the_link(report: &mut Value) -> bool {
    let Some(findings) = report["findings"].as_array_mut() else { return false };
    let all = findings.len();
    findings.retain(|finding| {
        let message = finding["message"].as_str().unwrap_or_default();
        finding["code"] != "figure-impossible" || !message.contains("filled first")
    });
    findings.len() < all
}

/// Removes the figures of memory that is page-locked or filled for each copy, which the host's own clock times.
fn blank_timed_by_the_host(report: &mut Value) {
    let copies = report["measurements"]["host"].as_array_mut();
    for copy in copies.into_iter().flatten().filter(|copy| copy["allocation"] != "reused") {
        let copy = copy.as_object_mut().unwrap();
        for key in ["achieved_gbps", "percent", "expected_percent", "spread_percent", "samples"] {
            copy.remove(key);
        }
    }
    for advice in report["advice"].as_array_mut().into_iter().flatten() {
        let advice = advice.as_object_mut().unwrap();
        let timed = ["pinned_anew_gbps", "filled_gbps"].map(|key| advice.remove(key));
        if timed.into_iter().flatten().any(|rate| !rate.is_null()) {
            advice.remove("sentence");
        }
    }
    for finding in report["findings"].as_array_mut().unwrap() {
        let message = finding["message"].as_str().unwrap_or_default();
        if finding["code"] == "pageable-slower" && message.contains("anew") {
            finding.as_object_mut().unwrap().remove("message");
        }
    }
}

/// Removes the times of pipelines whose calls wait: the length of their kernels depends on the host's own clock.
fn blank_pageable_pipelines(report: &mut Value) {
    let pipelines = report["measurements"]["pipeline"].as_array_mut();
    for pipeline in
        pipelines.into_iter().flatten().filter(|pipeline| pipeline["memory"] == "pageable")
    {
        for key in
            ["kernel_us", "one_stream_us", "several_streams_us", "speed_up", "possible_speed_up"]
        {
            pipeline.as_object_mut().unwrap().remove(key);
        }
    }
}

fn compare(path: &str, simulated: &Value, live: &Value, differences: &mut Vec<String>) {
    let same = match (simulated, live) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                let missing = &Value::String("(no such key)".into());
                let of =
                    |map: &serde_json::Map<String, Value>| map.get(key).unwrap_or(missing).clone();
                compare(&format!("{path}/{key}"), &of(one), &of(other), differences);
            }
            true
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}/{at}"), one, other, differences);
            }
            true
        }
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            (one - other).abs() <= SHARE * one.abs().max(other.abs()) + MUCH
        }
        (Value::String(one), Value::String(other)) => one == other || same_error(one, other),
        (one, other) => one == other,
    };
    if !same {
        differences.push(format!("{path}\n    {simulated}\n    {live}"));
    }
}

/// Returns true if two sentences report the same error. The live code adds CUDA's own name for it and the remedy to
/// call and code.
fn same_error(one: &str, other: &str) -> bool {
    let essence = |text: &str| -> Vec<String> {
        let words =
            text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let call = |word: &str| {
            word.starts_with("cu") && word.chars().nth(2).is_some_and(char::is_uppercase)
        };
        let number = |word: &str| word.chars().all(|c| c.is_ascii_digit());
        words.filter(|word| call(word) || number(word)).map(String::from).collect()
    };
    let essence = (essence(one), essence(other));
    essence.0 == essence.1 && essence.0.iter().any(|word| word.starts_with("cu"))
}
