//! What is looked at and measured: `--gpus`, `--only`, `--skip`, `--memory`, `--overlap-bytes`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{check, codes, flowing, list, pair, place, read_json, run, text_of, with, write};

fn gpus(report: &Value) -> Vec<u64> {
    list(&report["snapshot"]["gpus"]).iter().map(|gpu| gpu["index"].as_u64().unwrap()).collect()
}

fn topo(names: &str) -> Value {
    let ran = run(&["topo", "--machine", "demo", "--format", "json", "--gpus", names]);
    assert!(ran.stderr.is_empty(), "{names}: {ran:?}");
    ran.json()
}

#[test]
fn gpus_are_chosen_by_index_uuid_and_pci_address() {
    let all = run(&["topo", "--machine", "demo", "--format", "json"]).json();
    let third = &list(&all["snapshot"]["gpus"])[3];
    let (uuid, pci) = (third["uuid"].as_str().unwrap(), third["pci"].as_str().unwrap());
    assert_eq!(pci, "0000:24:00.0");
    for name in ["3", uuid, &uuid.to_uppercase(), pci, "24:00.0", "00000000:24:00.0"] {
        assert_eq!(gpus(&topo(name)), [3], "{name}");
    }
    assert_eq!(gpus(&topo(&format!("5,{uuid},0000:03:00.0"))), [0, 3, 5], "mixed, in the machine's order");
    assert_eq!(gpus(&topo("2,2,2")), [2], "a GPU named twice is one");
    assert_eq!(gpus(&topo("1, 2")), [1, 2], "blanks around commas");
}

#[test]
fn ranges_of_indices_are_chosen_too() {
    for (names, wanted) in [
        ("0-3", &[0, 1, 2, 3][..]),
        ("0-2,5", &[0, 1, 2, 5]),
        ("6,0-1,7-7", &[0, 1, 6, 7]),
        ("0-2,1-3,2", &[0, 1, 2, 3]),
        (" 4-5 , 0000:03:00.0", &[0, 4, 5]),
    ] {
        assert_eq!(gpus(&topo(names)), wanted, "{names}");
    }
    let began = std::time::Instant::now();
    for (names, what) in [
        ("3-0", "'3-0' counts down; give 0-3"),
        ("0-", "'0-' has no end"),
        ("-3", "'-3' has no start"),
        ("6-9", "there is no GPU '8': this machine has 0 (0000:03:00.0), "),
        ("0-4294967295", "there is no GPU '8'"),
        ("0-18446744073709551616", "no machine has as many GPUs"),
        ("0-1-2", "there is no GPU '0-1-2'"),
        ("0--3", "there is no GPU '0--3'"),
        ("a-b", "there is no GPU 'a-b'"),
    ] {
        let ran = run(&["topo", "--machine", "demo", &format!("--gpus={names}")]);
        assert_eq!((ran.code, ran.stderr.contains(what)), (Some(2), true), "{names}: {ran:?}");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn only_the_chosen_gpus_are_measured_and_judged() {
    let ran = run(&with(check("demo", "standard"), &["--format", "json", "--gpus", "0,2,6"]));
    assert_eq!(ran.code, Some(0), "the faults are of other GPUs");
    let report = ran.json();
    assert_eq!(gpus(&report), [0, 2, 6]);
    let wanted = BTreeSet::from([(0, 2), (0, 6), (2, 0), (2, 6), (6, 0), (6, 2)]);
    for table in ["peer", "overlap", "latency"] {
        let measured: BTreeSet<_> = list(&report["measurements"][table]).iter().map(pair).collect();
        assert_eq!(measured, wanted, "{table}");
    }
    // One that is at fault, and a healthy one.
    assert_eq!(run(&with(check("demo", "quick"), &["--gpus", "0,5"])).code, Some(1));
    // Of a pair by itself it cannot be told that others like it have peer access: a warning.
    let denied = with(check("demo", "quick"), &["--gpus", "1,6"]);
    assert_eq!(run(&denied).code, Some(0));
    assert_eq!(run(&with(denied, &["--fail-on", "warning"])).code, Some(1));
    // Nothing to copy to.
    assert_eq!(run(&with(check("h200x8", "quick"), &["--gpus", "4"])).code, Some(3));
    // A GPU that is lost, alone and among others.
    assert_eq!(run(&with(check("gpu-lost", "quick"), &["--gpus", "0,2,3"])).code, Some(0));
    assert_eq!(run(&with(check("gpu-lost", "quick"), &["--gpus", "0,1"])).code, Some(1));
    assert_eq!(run(&with(check("gpu-lost", "quick"), &["--gpus", "1"])).code, Some(1));
}

/// Host copies of a GPU that was left out pass an uplink of those that were not, or do not.
#[test]
fn other_programs_on_gpus_that_were_left_out_are_seen() {
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/others-load-a-host-link.toml");
    let check = |gpus: &[&str]| {
        let ran = run(&with(with(check(machine, "quick"), &["--format", "json"]), gpus));
        (ran.code, ran.json())
    };
    for (gpus, pairs) in [("0,3", 2), ("1,3", 2), ("0,1,3", 4)] {
        let (code, report) = check(&["--gpus", gpus]);
        assert_eq!((code, codes(&report)), (Some(3), vec!["gpu-busy"]), "{gpus}");
        let finding = &list(&report["findings"])[0];
        assert_eq!((&finding["subject"]["kind"], &finding["subject"]["index"]), (&"gpu".into(), &2.into()), "{gpus}");
        let message = finding["message"].as_str().unwrap();
        assert!(message.starts_with("Another program moved data over the PCIe link of GPU 2"), "{gpus}: {message}");
        assert!(message.contains(&format!("of {pairs} pairs")), "{gpus}: {message}");
        assert_eq!(finding["next_step"].as_str().unwrap().contains("--gpus 0,1"), gpus == "0,1,3", "{finding}");
        let saved = tempfile::tempdir().unwrap();
        let file = write(saved.path(), "report.json", &report.to_string());
        assert_eq!(run(&["diagnose", &file]).code, Some(3), "{gpus}: judged again");
    }
    let (code, report) = check(&["--gpus", "0,1"]);
    assert_eq!((code, codes(&report)), (Some(0), vec![]), "what is left out and shares nothing is nobody's matter");
    assert!(list(&report["measurements"]["background"]).iter().all(|seen| seen["gpu"] != 2), "{report}");
    // The advice of the whole machine leads to a healthy verdict.
    let (code, report) = check(&[]);
    let busy = list(&report["findings"]).iter().find(|finding| finding["code"] == "gpu-busy").unwrap();
    assert_eq!(code, Some(3));
    assert!(busy["next_step"].as_str().unwrap().ends_with("for the other GPUs alone: --gpus 0,1"), "{busy}");
}

fn counts(more: &[&str]) -> [usize; 3] {
    let report = run(&with(
        check("h200x2", "standard"),
        &with(vec!["--format".into(), "json".into()], more).iter().map(String::as_str).collect::<Vec<_>>(),
    ))
    .json();
    ["peer", "overlap", "latency"].map(|table| list(&report["measurements"][table]).len())
}

#[test]
fn probe_groups_are_chosen_and_left_out() {
    let [peer, overlap, latency] = counts(&[]);
    assert!(peer > 0 && overlap > 0 && latency > 0);
    assert_eq!(counts(&["--only", "overlap"]), [0, overlap, 0]);
    assert_eq!(counts(&["--only", "peers,latency"]), [peer, 0, latency]);
    assert_eq!(counts(&["--skip", "latency"]), [peer, overlap, 0]);
    assert_eq!(counts(&["--skip", "peers,overlap"]), [0, 0, latency]);
    assert_eq!(run(&with(check("h200x2", "standard"), &["--only", "overlap"])).code, Some(0));
}

#[test]
fn memory_and_overlap_size_are_kept_to() {
    let more = ["--format", "json", "--memory", "64MiB", "--overlap-bytes", "32MiB"];
    let ran = run(&with(check("h200x2", "standard"), &more));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.json();
    let limit = 64 << 20;
    for device in list(&report["measurements"]["driver"]["devices"]) {
        assert!(device["budget_bytes"].as_u64().unwrap() <= limit, "{device}");
    }
    for cell in list(&report["measurements"]["peer"]) {
        assert!(cell["bytes"].as_u64().unwrap() <= limit, "{cell}");
    }
    for cell in list(&report["measurements"]["overlap"]) {
        assert_eq!(cell["bytes"].as_u64(), Some(32 << 20), "{cell}");
    }
}

/// A run that left something out is healthy for what was asked, says so in every format, also when its saved report
/// is judged again, and names the command that repeats it.
#[test]
fn a_partial_run_never_reads_as_a_complete_one() {
    let (folder, report) = place("report.json");
    let config = write(folder.path(), "site.toml", "[severity]\npersistence-off = \"off\"\n");
    for (more, says) in [
        (&["--gpus", "0-1,5"][..], "5 of 8 GPUs were left out (--gpus 0-1,5)"),
        (&["--only", "peers"], "of the profile's probes, overlap, latency were left out (--only peers)"),
        (&["--skip", "latency"], "of the profile's probes, latency were left out (--skip latency)"),
        (&["--gpus", "1,0", "--skip", "peers,overlap"], "6 of 8 GPUs were left out (--gpus 1,0)"),
        (&["--config", &config], "persistence-off is off"),
    ] {
        let args = with(with(check("h200x8", "standard"), more), &["-o", &text_of(&report), "--no-journal"]);
        let ran = run(&args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let config: &[&str] = if more[0] == "--config" { more } else { &[] };
        for format in ["text", "html", "markdown", "junit", "prometheus", "line", "json"] {
            let again = run(&[&["diagnose", &text_of(&report), "--format", format][..], config].concat());
            let text = flowing(&again.stdout).replace("&#39;", "'").replace("&apos;", "'");
            let text = text.replace("\\_", "_").replace("\\", "");
            let short = [
                "partial; --gpus",
                "partial; --only",
                "partial; --skip",
                "silenced; persistence-off",
                "code=\"persistence-off\",severity=\"off\"",
                "_left_out\": [",
                "\"silenced\": [ {",
            ];
            let said = text.contains(says) || short.iter().any(|words| text.contains(words));
            assert!(said, "{more:?} in {format}: {}", &text[..text.len().min(900)]);
            assert!(!text.contains("nothing is at fault; all"), "{more:?} in {format}");
        }
        assert!(ran.stdout.contains("PARTIAL: ") || ran.stdout.contains("SILENCED by"), "{}", ran.stdout);
        let ticket = run(&[&["diagnose", &text_of(&report), "--format", "markdown"][..], config].concat()).stdout;
        let command = ticket.lines().find_map(|line| line.strip_prefix("`peerscope ")).unwrap().trim_end_matches('`');
        let command: Vec<&str> = command.split(' ').collect();
        for word in more {
            assert!(command.contains(word), "{word}: {command:?}");
        }
        // And it does repeat it.
        let repeated = run(&[&command[..], &["--format", "json"]].concat()).json();
        let first = read_json(&report);
        assert_eq!(repeated["request"], first["request"]);
        assert_eq!(repeated["verdict"], first["verdict"]);
    }
    // What leaves nothing out is no partial run.
    for more in [&["--gpus", "0-7"][..], &["--only", "peers,overlap,latency"]] {
        let ran = run(&with(check("h200x8", "standard"), more));
        assert!(!ran.stdout.contains("PARTIAL") && ran.stdout.contains("nothing is at fault; all"), "{}", ran.stdout);
    }
    let lowered = write(folder.path(), "raise.toml", "[severity]\npersistence-off = \"error\"\n");
    assert!(!run(&["topo", "--machine", "h200x2", "--config", &lowered]).stdout.contains("SILENCED"));
    // The facts alone, and a run that was killed.
    assert!(run(&["topo", "--machine", "demo", "--gpus", "0"]).stdout.contains("PARTIAL: 7 of 8 GPUs were left out"));
}

#[test]
fn a_gpu_that_is_lost_has_its_address_and_what_nvml_does_not_list_was_not_chosen() {
    let topo = |case: &str, gpus: &str| {
        let machine = format!("{}/tests/cases/{case}.toml", env!("CARGO_MANIFEST_DIR"));
        run(&["topo", "--machine", &machine, "--format", "json", "--gpus", gpus])
    };
    let case = "two-gpus-lost-and-one-with-nouveau";
    let lost = topo(case, "0000:04:00.0");
    assert_eq!(gpus(&lost.json()), [1], "by elimination");
    assert_eq!(list(&lost.json()["snapshot"]["unlisted_gpus"]).len(), 1);
    assert_eq!(topo(case, "0,2").code, Some(0), "the faults are of other GPUs");
    assert_eq!(list(&topo(case, "0,2").json()["findings"]).len(), 0);
}
