//! `bracket`: counters before and after a job, over the fake driver and over simulated machines.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use sim::Simulated;
use sim::spec::{LogLine, MachineSpec};

use crate::common::{
    Ran, assert_fits_schema, codes, finish, peerscope, place, program_text, read_json, signal,
    text_of, wait_with_output,
};
use crate::fake::{CUDA, Fake};

fn spec(name: &str) -> MachineSpec {
    let mut spec = Simulated::find(name).unwrap().spec;
    spec.host.boot_id = Some("first".into());
    spec
}

/// Writes the description of a machine.
fn described(folder: &Path, name: &str, spec: &MachineSpec) -> String {
    let path = folder.join(name);
    std::fs::write(&path, toml::to_string(spec).unwrap()).unwrap();
    text_of(&path)
}

/// Returns the machine behind the fake driver, without a CUDA library that could be loaded.
fn without_cuda(folder: &Path, name: &str, spec: &MachineSpec) -> Fake {
    let fake = Fake::new(&described(folder, name, spec));
    let none = folder.join("no-library");
    std::fs::write(&none, "this is no library").unwrap();
    CUDA.iter().for_each(|name| fake.install(name, &none));
    fake
}

struct Between {
    _folder: tempfile::TempDir,
    state: PathBuf,
    begin: Ran,
    end: Ran,
    report: Value,
}

/// Reads a machine before and after a change over the fake driver.
fn between(before: &MachineSpec, after: &MachineSpec) -> Between {
    let (folder, state) = place("state");
    let (first, second) = (
        without_cuda(folder.path(), "before.toml", before),
        without_cuda(folder.path(), "after.toml", after),
    );
    let state_text = text_of(&state);
    let begin =
        finish(&mut first.command(&["bracket", "begin", "--state", &state_text, "--job", "41"]));
    let json = text_of(&folder.path().join("job.json"));
    let end = ["bracket", "end", "--state", &state_text, "--job", "41", "-o", &json];
    let end = finish(&mut second.command(&end));
    let report = read_json(&json);
    Between { _folder: folder, state, begin, end, report }
}

#[test]
fn a_quiet_job_has_no_finding_and_the_state_serves_once() {
    let machine = spec("h200x2");
    let ran = between(&machine, &machine);
    assert_eq!(
        (ran.begin.code, ran.begin.stdout.as_str(), ran.begin.stderr.as_str()),
        (Some(0), "", "")
    );
    assert_eq!(ran.end.code, Some(0), "{:?}", ran.end);
    assert!(ran.end.stdout.contains("No fault in the"), "{}", ran.end.stdout);
    assert!(ran.end.stdout.contains("of job 41"), "{}", ran.end.stdout);
    assert_eq!(codes(&ran.report), [""; 0]);
    assert_eq!(ran.report["measurements"], Value::Null);
    assert_fits_schema(&ran.report);
    assert_eq!(ran.report["bracket"]["gpus"].as_array().unwrap().len(), 2);
    assert!(!ran.state.exists());
    let again = finish(&mut peerscope(&["bracket", "end", "--state", &text_of(&ran.state)]));
    assert_eq!(again.code, Some(3));
    assert!(again.stderr.contains("there is no reading before the job in"), "{again:?}");
}

#[test]
fn what_the_job_added_is_attributed_to_links_and_gpus() {
    let mut before = spec("h200x2");
    before.gpus[0].nvlinks[0].errors.crc = 40;
    before.gpus[1].state.ecc_uncorrected = 2;
    let mut after = before.clone();
    after.gpus[0].nvlinks[0].errors.crc = 47;
    after.host.kernel_log.push(LogLine {
        seconds: 900,
        text: "NVRM: Xid (PCI:0000:00:07): 79, pid=9, name=x, GPU has fallen off the bus.".into(),
    });
    let ran = between(&before, &after);
    assert_eq!(ran.end.code, Some(1), "{:?}", ran.end);
    assert_eq!(codes(&ran.report), ["xid-reported", "nvlink-errors-rose"]);
    assert_eq!(ran.report["findings"][0]["subject"]["index"], 1);
    assert_eq!(ran.report["findings"][1]["subject"]["index"], 0);
    let links = ran.report["bracket"]["links"][0]["nvlink_errors"].as_array().unwrap();
    assert_eq!((links.len(), &links[0]["crc"]), (18, &Value::from(7)));
    // The report judges itself again.
    let (folder, file) = place("job.json");
    std::fs::write(&file, ran.report.to_string()).unwrap();
    let again = finish(&mut peerscope(&["diagnose", &text_of(&file), "--format", "json"]));
    assert_eq!((again.code, codes(&again.json())), (Some(1), codes(&ran.report)));
    drop(folder);
}

#[test]
fn a_gpu_that_fell_off_is_the_jobs() {
    let before = spec("h200x8");
    let mut after = before.clone();
    let gone = after.gpus.remove(5);
    after.pci.retain(|function| function.address != gone.pci);
    let ran = between(&before, &after);
    assert_eq!(ran.end.code, Some(1), "{:?}", ran.end);
    assert!(codes(&ran.report).contains(&"fell-since-baseline"), "{:?}", codes(&ran.report));
    let message = ran.report["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains(&gone.pci.to_string()), "{message}");
}

#[test]
fn a_restart_is_said_and_not_judged() {
    let before = spec("h200x2");
    let mut restarted = before.clone();
    restarted.host.boot_id = Some("second".into());
    restarted.gpus[0].nvlinks[0].errors.crc = 9;
    let mut updated = before.clone();
    updated.host.driver_version = "590.1".into();
    let mut began_again = before.clone();
    let mut counted = before.clone();
    for machine in [&mut counted, &mut began_again] {
        machine.gpus.iter_mut().for_each(|gpu| gpu.nvlinks[0].errors.crc = 5);
    }
    began_again.gpus.iter_mut().for_each(|gpu| gpu.nvlinks[0].errors.crc = 1);
    for (before, after, why) in [
        (&before, &restarted, "the system was started again"),
        (&before, &updated, "its version was 580.159.04 before it and is 590.1 now"),
        (&counted, &began_again, "the counters of all GPUs began again"),
    ] {
        let ran = between(before, after);
        assert_eq!((ran.end.code, codes(&ran.report)), (Some(3), vec!["job-not-judged"]), "{why}");
        let message = ran.report["findings"][0]["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn a_state_that_is_of_no_use_is_refused_in_a_sentence() {
    let (folder, state) = place("state");
    let fake = without_cuda(folder.path(), "machine.toml", &spec("h200x2"));
    let text = text_of(&state);
    let begin = finish(&mut fake.command(&["bracket", "begin", "--state", &text, "--job", "41"]));
    assert_eq!(begin.code, Some(0), "{begin:?}");
    let whole = std::fs::read(&state).unwrap();
    let end = |fake: &Fake, more: &[&str]| {
        let ran =
            finish(&mut fake.command(&[&["bracket", "end", "--state", &text], more].concat()));
        assert_eq!(ran.stdout, "", "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        (ran.code.unwrap(), ran.stderr)
    };
    let (code, why) = end(&fake, &["--job", "42"]);
    assert_eq!(code, 3);
    assert!(why.contains("before job 41, not before job 42"), "{why}");
    let other =
        String::from_utf8(whole.clone()).unwrap().replace("\"uuid\":\"GPU-", "\"uuid\":\"GPU-f");
    std::fs::write(&state, other).unwrap();
    let (code, why) = end(&fake, &[]);
    assert_eq!(code, 3);
    assert!(why.contains("of another machine (simulated)"), "{why}");
    assert!(state.exists(), "it may serve its own machine");
    for cut in [0, 20, whole.len() / 2, whole.len() - 3] {
        std::fs::write(&state, &whole[..cut]).unwrap();
        let (code, why) = end(&fake, &[]);
        assert_eq!((code, why.contains("was cut off")), (3, true), "{cut}: {why}");
    }
    for (odd, wanted, words) in [
        (
            String::from_utf8(whole.clone()).unwrap().replace("\"taken\":{", "\"taken\":["),
            3,
            "is damaged",
        ),
        (
            "{\"schema\":\"peerscope.report/1\"}".to_owned(),
            2,
            "is not a file of 'peerscope bracket begin'",
        ),
        ("notes".to_owned(), 2, "is not a file of 'peerscope bracket begin'"),
    ] {
        std::fs::write(&state, odd).unwrap();
        let (code, why) = end(&fake, &[]);
        assert_eq!((code, why.contains(words)), (wanted, true), "{why}");
    }
    std::fs::remove_file(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    assert_eq!(end(&fake, &[]).0, 2);
}

#[test]
fn a_command_has_its_input_output_and_exit_code() {
    let (folder, json) = place("job.json");
    let fake = without_cuda(folder.path(), "machine.toml", &spec("h200x2"));
    let args = ["bracket", "-o", &text_of(&json), "--", "sh", "-c", "cat; echo said >&2; exit 7"];
    let mut child = fake.command(&args);
    let mut child =
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"given\n").unwrap();
    let output = wait_with_output(child);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"given\n");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("said\n") && stderr.contains("exit code 7"), "{stderr}");
    let report = read_json(&json);
    assert_eq!(report["bracket"]["exit_code"], 7);
    assert_eq!(report["bracket"]["command"][0], "sh");
    let state = std::fs::read_dir(fake.state()).unwrap();
    let calls = state
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("cuda"));
    assert_eq!(calls.count(), 0, "no function of CUDA was called");
    let none = finish(&mut fake.command(&["bracket", "--", "/no/such/program"]));
    assert_eq!(none.code, Some(127), "{none:?}");
    let denied = finish(&mut fake.command(&["bracket", "--", "/etc/passwd"]));
    assert_eq!(denied.code, Some(126), "{denied:?}");
    let usage = finish(&mut fake.command(&["bracket"]));
    assert_eq!(usage.code, Some(2), "{usage:?}");
}

#[test]
fn a_command_gets_signals_and_its_death_is_that_of_the_bracket() {
    for (name, number) in [("TERM", 15), ("INT", 2), ("USR1", 10)] {
        let (folder, json) = place("job.json");
        let fake = without_cuda(folder.path(), "machine.toml", &spec("h200x2"));
        let begun = folder.path().join("begun");
        let sleep = format!("touch {}; exec sleep 60", begun.display());
        let args = ["bracket", "-o", &text_of(&json), "--", "sh", "-c", &sleep];
        let mut child = fake.command(&args);
        let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while !begun.exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        signal(name, child.id());
        let output = wait_with_output(child);
        assert_eq!(output.status.code(), Some(128 + number), "{name}: {output:?}");
        assert_eq!(read_json(&json)["bracket"]["signal"], number, "{name}");
    }
}

#[test]
fn the_copies_of_a_job_are_counted() {
    let (folder, json) = place("job.json");
    let fake = Fake::new(&described(folder.path(), "machine.toml", &spec("h200x2")));
    let program = program_text();
    let args = [
        "bracket",
        "-o",
        &text_of(&json),
        "--",
        &program,
        "check",
        "--profile",
        "quick",
        "--only",
        "peers",
    ];
    let ran = finish(&mut fake.command(&args));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("pairs copy directly"), "{}", ran.stdout);
    let report = read_json(&json);
    for gpu in report["bracket"]["gpus"].as_array().unwrap() {
        for way in ["nvlink_sent_bytes", "nvlink_received_bytes"] {
            assert!(gpu[way].as_u64().unwrap() > 1 << 30, "{way}: {gpu}");
        }
    }
    assert_eq!(codes(&report), [""; 0]);
}

#[test]
fn errors_of_a_simulated_job_are_found() {
    let (folder, json) = place("job.json");
    let mut machine = spec("h200x2");
    let fault = toml::from_str("gpu = 1\nlink = 4\nerrors = { crc = 3 }").unwrap();
    machine.faults.nvlinks.push(fault);
    let machine = described(folder.path(), "machine.toml", &machine);
    let args =
        ["bracket", "--machine", &machine, "--job", "7", "-o", &text_of(&json), "--", "true"];
    let ran = finish(&mut peerscope(&args));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stderr.contains("SIMULATED"), "{}", ran.stderr);
    let report = read_json(&json);
    assert_eq!(codes(&report), ["nvlink-errors-rose"]);
    assert_eq!(report["findings"][0]["subject"]["link"], 4);
}

#[test]
fn without_a_driver_the_command_runs_all_the_same() {
    let ran = finish(
        peerscope(&["bracket", "--", "sh", "-c", "echo ran; exit 5"])
            .env("LD_LIBRARY_PATH", "/nowhere"),
    );
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), "ran\n"), "{ran:?}");
}
