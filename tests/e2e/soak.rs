//! Tests of hours under load, on simulated machines that change with time.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::common::{
    Ran, finish, peerscope, place, read_json, run, signal, text_of, wait, with, write,
};
use crate::fake::Fake;
use crate::worker_faults::{PATIENCE, child_of, until};

/// A machine that changes with time, and what must be reported of it.
struct Case {
    name: &'static str,
    /// What a description of 8 x H200 adds, and where the facts come from.
    faults: &'static str,
    length: &'static str,
    /// Codes of the rules on hours under load at warning or above, with their subjects. No other may be found.
    must: &'static [(&'static str, &'static str)],
    exit: i32,
    /// Words of the text.
    says: &'static [&'static str],
}

// The labels follow from the descriptions and were written before any output was seen.
const CASES: [Case; 19] = [
    // Healthy GPUs that become warm, as all do.
    Case {
        name: "warms-up",
        faults: "heat = [{ to_c = 70.0, minutes = 5.0 }]",
        length: "1h",
        must: &[],
        exit: 0,
        says: &[
            "Thermal equilibrium after",
            "70 °C",
            "No link counted an error",
            "The driver reported no Xid error",
        ],
    },
    // A link that becomes slower, with constant clocks.
    Case {
        name: "drifts",
        faults: "",
        length: "1h",
        must: &[("rate-fell-over-time", "GPU 3")],
        exit: 0,
        says: &["constant clocks"],
    },
    // A pair at a fifth of its rate from the second minute on: the first minutes that are compared have it already.
    Case {
        name: "falls-in-the-second-minute",
        faults: "copies = [{ pairs = { ordered = [0, 1] }, fault = { slow = { share = 0.2 } }, after_minutes = 2 }]",
        length: "30m",
        must: &[("rate-fell-over-time", "0 → 1")],
        exit: 1,
        says: &["GB/s after 30 min"],
    },
    // A worker that crashes once, and one that does so every ten minutes.
    Case {
        name: "crashes-once",
        faults: "copies = [{ pairs = { ordered = [0, 1] }, fault = \"crashes\", after_minutes = 10 }]",
        length: "15m",
        must: &[("not-tested", "machine")],
        exit: 3,
        says: &["crashed their process once"],
    },
    Case {
        name: "crashes-again-and-again",
        faults: "copies = [{ pairs = { ordered = [0, 1] }, fault = \"crashes\", after_minutes = 10 }]",
        length: "35m",
        must: &[("copy-failed", "machine")],
        exit: 1,
        says: &["crashed the process that ran them"],
    },
    // A GPU whose cooling fails: 84 degrees are 4 above its limit, so its clocks lose 8% in the end.
    Case {
        name: "too-hot",
        faults: "heat = [{ to_c = 60.0, minutes = 5.0 }, { gpu = 5, to_c = 84.0, minutes = 8.0, slows_above_c = 80.0, percent_per_c = 2.0 }]",
        length: "1h",
        must: &[("rate-fell-over-time", "GPU 5"), ("gpu-hotter-than-siblings", "GPU 5")],
        exit: 0,
        says: &["the cooling, not the link"],
    },
    // A link that trains well and flaps at temperature.
    Case {
        name: "flaps-after-40-minutes",
        faults: "flaps = [{ function = \"0000:00:08.0\", after_minutes = 40.0, every_minutes = 8.0, for_seconds = 20.0, down_to = \"Gen5 x8\" }]",
        length: "1h",
        must: &[("link-errors-over-time", "PCIe link of 0000:00:08.0")],
        exit: 1,
        says: &["first after 40 min"],
    },
    // An NVLink that errs once in 10^13 bits.
    Case {
        name: "errs-once-in-1e13-bits",
        faults: "nvlinks = [{ gpu = 1, link = 5, bits_per_error = 1e13 }]",
        length: "1h",
        must: &[("link-errors-over-time", "GPU 1 NVLink 5")],
        exit: 0,
        says: &["at 95%"],
    },
    // An NVLink that recovers every quarter of an hour.
    Case {
        name: "recovers",
        faults: "nvlinks = [{ gpu = 6, link = 2, recovers_every_minutes = 15.0 }]",
        length: "1h",
        must: &[("link-errors-over-time", "GPU 6 NVLink 2")],
        exit: 1,
        says: &["retrained"],
    },
    // Wrong bytes after half an hour.
    Case {
        name: "corrupts-after-30-minutes",
        faults: "copies = [{ pairs = { ordered = [2, 6] }, fault = { corrupt = { words = 3 } }, after_minutes = 30.0 }]",
        length: "1h",
        must: &[("data-wrong", "2 → 6")],
        exit: 1,
        says: &["first after 30 min"],
    },
    // An error of the GPU that copies do not see yet.
    Case {
        name: "xid-79-after-41-minutes",
        faults: "xids = [{ gpu = 5, code = 79, after_minutes = 41.5 }]",
        length: "1h",
        must: &[("xid-reported", "GPU 5")],
        exit: 1,
        says: &["Xid 79, first after 41 min"],
    },
    // An error that the GPU has corrected: no fault of the copies, and the driver has noted it.
    Case {
        name: "xid-94-now-and-then",
        faults: "xids = [{ gpu = 2, code = 94, after_minutes = 5.5, every_minutes = 20.0 }]",
        length: "1h",
        must: &[("xid-reported", "GPU 2")],
        exit: 0,
        says: &["Xid 94, 3 times, first after 5 min"],
    },
    // The twin: a program of its own crashed, which is nothing to repair.
    Case {
        name: "xid-31-of-a-program",
        faults: "xids = [{ gpu = 2, code = 31, after_minutes = 5.0 }]",
        length: "30m",
        must: &[],
        exit: 0,
        says: &["the driver reported Xid 31 of GPU 2"],
    },
    // A program that begins and ends is named, and nothing is at fault.
    Case {
        name: "a-program-comes-and-goes",
        faults: "programs = [{ gpu = 4, pid = 4711, name = \"python3\", from_minutes = 10.0, to_minutes = 20.0 }]",
        length: "30m",
        must: &[],
        exit: 0,
        says: &["python3 (process 4711) began to use GPU 4", "no longer uses GPU 4"],
    },
    // One that lives for three seconds is named too: programs are read once a second.
    Case {
        name: "a-program-of-three-seconds",
        faults: "programs = [{ gpu = 4, pid = 4711, name = \"python3\", from_minutes = 10.03, to_minutes = 10.08 }]",
        length: "12m",
        must: &[],
        exit: 0,
        says: &["10 min 6 s python3 (process 4711) began to use GPU 4", "no longer uses GPU 4"],
    },
    // Every copy is compared: a line that one of fifty loses, and a bit that flips once in 10^12, three times a second.
    Case {
        name: "loses-a-line-of-every-fiftieth-copy",
        faults: "copies = [{ pairs = { ordered = [0, 1] }, fault = { lost-line = { every = 50 } }, after_minutes = 2 }]",
        length: "8m",
        must: &[("data-wrong", "0 → 1")],
        exit: 1,
        says: &["of the copies", "never written"],
    },
    Case {
        name: "flips-a-bit-in-1e12",
        faults: "copies = [{ pairs = { ordered = [0, 1] }, fault = { bit-errors = { one_in = 1000000000000 } }, after_minutes = 2 }]",
        length: "8m",
        must: &[("data-wrong", "0 → 1")],
        exit: 1,
        says: &["of the copies", "first after 2 min"],
    },
    // All GPUs become 84 degrees hot; from 80 on, after 20 minutes, one pair's bytes are wrong.
    Case {
        name: "wrong-above-80-degrees",
        faults: "heat = [{ to_c = 84.0, minutes = 8.0 }]",
        length: "1h",
        must: &[("data-wrong", "2 → 6")],
        exit: 1,
        says: &["first after 20 min"],
    },
    Case {
        name: "hot-and-right",
        faults: "heat = [{ to_c = 84.0, minutes = 8.0 }]",
        length: "1h",
        must: &[],
        exit: 0,
        says: &[
            "none wrong: at most 1 wrong bit in",
            "to GPUs over links, 99.9% compared",
            "84 °C",
        ],
    },
];

/// Codes of the rules on hours under load.
const CODES: [&str; 7] = [
    "xid-reported",
    "rate-fell-over-time",
    "link-errors-over-time",
    "gpu-hotter-than-siblings",
    "data-wrong",
    "copy-failed",
    "not-tested",
];

/// Writes the description of a case, and returns its path.
fn described(case: &Case, folder: &std::path::Path) -> String {
    let drifts = match case.name {
        // 5% over an hour.
        "drifts" => "drifts = [{ gpu = 3, percent = 5.0, over_ms = 3600000.0 }]\n",
        "wrong-above-80-degrees" => {
            "pairs = [{ pairs = { ordered = [2, 6] }, fault = { corrupt = { words = 1 } }, above_c = 80 }]\n"
        }
        _ => "",
    };
    let text = format!(
        "base = \"h200x8\"\nsummary = \"{}\"\n[faults]\n{drifts}[over_time]\n{}\n",
        case.name, case.faults
    );
    write(folder, "machine.toml", &text)
}

fn soak(machine: &str, length: &str, more: &[&str]) -> Ran {
    run(&with(arguments(machine, length), more))
}

fn arguments(machine: &str, length: &str) -> Vec<String> {
    let args =
        ["soak", "--machine", machine, "--for", length, "--profile", "quick", "--only", "peers"];
    args.map(String::from).to_vec()
}

/// Returns the subject of a finding in words.
fn subject(finding: &Value) -> String {
    let subject = &finding["subject"];
    let number = |key: &str| subject[key].as_u64().map(|number| number.to_string());
    match (number("source"), number("destination"), number("index"), number("link")) {
        (Some(source), Some(destination), ..) => format!("{source} → {destination}"),
        (_, _, Some(index), Some(link)) => format!("GPU {index} NVLink {link}"),
        (_, _, Some(index), None) => format!("GPU {index}"),
        _ => match subject["address"].as_str() {
            Some(address) => format!("PCIe link of {address}"),
            None => "machine".to_owned(),
        },
    }
}

#[test]
fn what_changes_over_time_is_found_and_nothing_else() {
    let mut wrong = Vec::new();
    for case in &CASES {
        let (folder, report) = place("report.json");
        let machine = described(case, folder.path());
        let ran =
            soak(&machine, case.length, &["--figures", "--journal=none", "-o", &text_of(&report)]);
        if ran.code != Some(case.exit) {
            wrong.push(format!("{}: exit {:?}, {}", case.name, ran.code, ran.stderr));
        }
        let text = ran.flowing();
        for words in case.says.iter().filter(|words| !text.contains(**words)) {
            wrong.push(format!("{}: does not say '{words}': {}", case.name, ran.stdout));
        }
        if text.contains(" s s") {
            wrong.push(format!("{}: a unit twice: {}", case.name, ran.stdout));
        }
        let report = read_json(&report);
        let findings = report["findings"].as_array().unwrap().iter();
        let mut found: Vec<(String, String)> = findings
            .filter(|finding| finding["severity"] != "info")
            .map(|finding| (finding["code"].as_str().unwrap().to_owned(), subject(finding)))
            .collect();
        found.sort();
        let mut must: Vec<(String, String)> = case
            .must
            .iter()
            .map(|(code, subject)| ((*code).to_owned(), (*subject).to_owned()))
            .collect();
        must.sort();
        if found != must {
            wrong.push(format!("{}: {found:?} instead of {must:?}", case.name));
        }
        let soak = &report["measurements"]["soak"];
        assert_eq!(soak["ended"], "time-over", "{}", case.name);
        let seconds = soak["seconds"].as_f64().unwrap();
        let asked = soak["requested_seconds"].as_f64().unwrap();
        assert!((asked..asked + 15.0).contains(&seconds), "{}: {seconds}", case.name);
        if case.name.starts_with("errs") {
            let in_1e15 = report["findings"]
                .as_array()
                .unwrap()
                .iter()
                .find_map(|finding| finding["evidence"]["errors_per_petabit"].as_f64());
            // Bits within the check and in first rows are counted too, and whole errors only.
            assert!((90.0..110.0).contains(&in_1e15.unwrap()), "{in_1e15:?}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_link_that_corrects_more_and_more_symbols_is_found_before_it_errs() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cases/gb200-tray-whose-link-corrects-many-symbols.toml");
    let found = |rates: &str| {
        let (folder, report) = place("report.json");
        let text = format!(
            "base = \"{}\"\nsummary = \"x\"\n[faults]\nnvlinks = []\n[over_time]\nnvlinks = [{{ gpu = 2, link = 3, \
             corrected_a_minute = {rates}, corrects_after_minutes = 20.0 }}]\n",
            base.display()
        );
        let machine = write(folder.path(), "machine.toml", &text);
        let ran = soak(&machine, "1h", &["--journal=none", "-o", &text_of(&report)]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        (ran.flowing(), read_json(&report))
    };
    // 40 minutes: 100 codewords with four symbols, 20 with five.
    let (text, report) = found("[600.0, 40.0, 6.0, 2.5, 0.5]");
    let all = report["findings"].as_array().unwrap();
    let low = |found: &&Value| found["code"] == "nvlink-margin-low";
    let finding = all.iter().find(low).expect("a finding");
    assert_eq!(subject(finding), "GPU 2 NVLink 3");
    assert_eq!(finding["severity"], "warning");
    let first = finding["evidence"]["first_after_seconds"].as_f64().unwrap();
    assert!((1200.0..1330.0).contains(&first), "{first}");
    let codewords = finding["evidence"]["codewords"].as_u64().unwrap();
    assert!((115..=121).contains(&codewords), "{codewords}");
    assert!(text.contains("up to 5 symbols of a codeword (NVLink 3 of GPU 2"), "{text}");
    // Its twin corrects far more, and never many at a time.
    let (text, report) = found("[60000.0, 4000.0, 30.0]");
    assert_eq!(report["findings"].as_array().unwrap().iter().find(low), None);
    assert!(text.contains("up to 3 symbols of a codeword"), "{text}");
    let (text, _) = found("[60000.0, 4000.0]");
    assert!(text.contains("No NVLink corrected more than 2 symbols of a codeword"), "{text}");
}

#[test]
fn the_first_fault_ends_it_on_request() {
    let (folder, report) = place("report.json");
    let case = CASES.iter().find(|case| case.name.starts_with("corrupts")).unwrap();
    let machine = described(case, folder.path());
    let ran = soak(&machine, "1h", &["--fail-fast", "--journal=none", "-o", &text_of(&report)]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let soak = &read_json(&report)["measurements"]["soak"];
    assert_eq!(soak["ended"], "first-fault");
    let seconds = soak["seconds"].as_f64().unwrap();
    assert!((1800.0..1900.0).contains(&seconds), "{seconds}");
}

#[test]
fn a_hang_costs_its_round_and_a_new_worker_goes_on() {
    let (folder, report) = place("report.json");
    // Only the shift by four has this pair.
    let case = Case {
        faults: "copies = [{ pairs = { ordered = [0, 4] }, fault = \"hangs\", after_minutes = 5.0 }]",
        name: "hangs-after-5-minutes",
        ..CASES[0]
    };
    let machine = described(&case, folder.path());
    let ran = soak(&machine, "9m", &["--deadline", "1", "--journal=none", "-o", &text_of(&report)]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report = read_json(&report);
    let soak = &report["measurements"]["soak"];
    assert_eq!((&soak["ended"], &soak["rounds_lost"]), (&"time-over".into(), &1.into()), "{ran:?}");
    assert!(soak["rounds"].as_u64().unwrap() > 80, "{}", soak["rounds"]);
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["code"] == "copy-failed"));
}

#[test]
fn a_killed_worker_is_replaced_and_a_signal_ends_it_with_a_full_report() {
    let (folder, report) = place("report.json");
    let journal = text_of(&folder.path().join("journal"));
    let series = folder.path().join("soak.prom");
    let more = ["-o", &text_of(&report), "--journal", &journal, "--textfile", &text_of(&series)];
    let mut command = peerscope(&with(arguments("h200x2", "7d"), &more));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let limit = PATIENCE;
    until("minutes", limit, || series.exists().then_some(()));
    let worker = until("a worker", limit, || child_of(child.id()));
    signal("KILL", worker);
    until("another worker", limit, || child_of(child.id()).filter(|pid| *pid != worker));
    let minutes = || {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        text.matches("\"event\":{\"minute\":").count()
    };
    let before = minutes();
    until("more minutes", limit, || (minutes() > before + 6).then_some(()));
    signal("INT", child.id());
    assert_eq!(wait(&mut child).code(), Some(130));
    let report = read_json(&report);
    let soak = &report["measurements"]["soak"];
    assert_eq!(soak["ended"], "interrupted");
    assert!(soak["minutes"].as_array().unwrap().len() > 5);
    let problems = |event: &Value| event["kind"] == "problem";
    assert!(soak["events"].as_array().unwrap().iter().any(problems), "{}", soak["events"]);
    let codes: Vec<&str> = crate::common::codes(&report);
    let own: Vec<_> = codes.iter().filter(|code| CODES.contains(code)).collect();
    assert_eq!(own, [&"not-tested"], "{codes:?}");
    let series = std::fs::read_to_string(&series).unwrap();
    assert!(series.contains("peerscope_soak_temperature_celsius{gpu=\"1\"} 42"), "{series}");
}

/// The live code, with the host's clock and single copies instead of one of many.
#[test]
fn the_live_code_soaks_and_survives_an_error_of_the_driver() {
    let (_folder, report) = place("report.json");
    let fake = Fake::new("h200x2");
    let path = text_of(&report);
    let args = [
        "soak",
        "--for",
        // Ten times what the copies before the error take on an idle host.
        "20s",
        "--profile",
        "quick",
        "--only",
        "peers",
        "--journal=none",
        "-o",
        &path,
    ];
    // A sticky error in the middle of the soak: the check of this machine needs fewer copies.
    let faults = "cuMemcpyPeerAsync@2500=code:719";
    let ran = finish(fake.command(&args).env(fake_machine::FAULTS, faults));
    let report = read_json(&report);
    let soak = &report["measurements"]["soak"];
    assert_eq!(soak["ended"], "time-over", "{ran:?}");
    assert_ne!(soak["rounds"], 0, "the new worker runs rounds");
    assert_eq!(soak["rounds_lost"], 1, "{}", soak["events"]);
    let kinds: Vec<&Value> =
        soak["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    // The worker is replaced, and the round has failed.
    assert_eq!(kinds, ["problem", "failed"], "{}", soak["events"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

#[test]
fn a_soak_that_was_killed_is_recovered_from_its_journal() {
    let (folder, report) = place("report.json");
    let journal = text_of(&folder.path().join("journal"));
    let series = folder.path().join("soak.prom");
    let more = ["--journal", &journal, "--textfile", &text_of(&series)];
    let mut command = peerscope(&with(arguments("h200x2", "7d"), &more));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("minutes", PATIENCE, || series.exists().then_some(()));
    signal("KILL", child.id());
    wait(&mut child);
    let ran = run(&["recover", &journal, "-o", &text_of(&report)]);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    let soak = &read_json(&report)["measurements"]["soak"];
    assert_eq!(soak["ended"], "cut-off", "{ran:?}");
    assert!(!soak["minutes"].as_array().unwrap().is_empty());
}

#[test]
fn a_day_takes_seconds_and_megabytes() {
    let (folder, report) = place("report.json");
    let journal = folder.path().join("journal");
    let mut command = peerscope(&with(
        arguments("h200x2", "24h"),
        &["-o", &text_of(&report), "--journal", &text_of(&journal)],
    ));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut largest = 0;
    while child.try_wait().unwrap().is_none() {
        largest = std::fs::metadata(&journal).map_or(largest, |file| file.len().max(largest));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!((100_000..20_000_000).contains(&largest), "{largest} bytes");
    let report = read_json(&report);
    let minutes = report["measurements"]["soak"]["minutes"].as_array().unwrap().len();
    assert!((1400..=1441).contains(&minutes), "{minutes}");
}

#[test]
fn a_file_that_cannot_be_written_is_told_once() {
    let ran = soak("h200x2", "10m", &["--textfile", "/dev/full"]);
    assert_eq!(ran.stderr.matches("cannot write /dev/full").count(), 1, "{ran:?}");
}

#[test]
fn the_page_draws_it_and_diagnose_reads_it_back() {
    let (folder, page) = place("report.html");
    let case = CASES.iter().find(|case| case.name == "too-hot").unwrap();
    let machine = described(case, folder.path());
    let ran = soak(&machine, "20m", &["--journal=none", "-o", &text_of(&page)]);
    assert!(ran.code.is_some(), "{ran:?}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("Hours under load") && html.contains("<polyline"));
    assert!(!html.contains("http://") || !html.contains("src=\"http"), "offline");
    let again = run(&["diagnose", &text_of(&page), "--format", "json"]);
    assert!(again.json()["measurements"]["soak"]["minutes"].as_array().unwrap().len() >= 20);
}
