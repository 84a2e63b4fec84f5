//! Tests of what is checked and measured: `--gpus`, `--only`, `--skip`, `--memory`, `--overlap-bytes`.

use std::collections::BTreeSet;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::{
    check, codes, flowing, list, pair, peerscope, place, read_json, run, text_of, with, write,
};
use crate::worker_faults::{PATIENCE, until};

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
    assert_eq!(
        gpus(&topo(&format!("5,{uuid},0000:03:00.0"))),
        [0, 3, 5],
        "mixed, in the machine's order"
    );
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
    // A selection with the faulty GPU, and a healthy one.
    assert_eq!(run(&with(check("demo", "quick"), &["--gpus", "0,5"])).code, Some(1));
    // A pair alone does not show that others like it have peer access, so this is a warning.
    let denied = with(check("demo", "quick"), &["--gpus", "1,6"]);
    assert_eq!(run(&denied).code, Some(0));
    assert_eq!(run(&with(denied, &["--fail-on", "warning"])).code, Some(1));
    // The host is the only partner for copies.
    let alone = run(&with(check("h200x8", "quick"), &["--gpus", "4", "--format", "json"]));
    assert_eq!(alone.code, Some(0));
    let copies = list(&alone.json()["measurements"]["host"]).to_vec();
    assert!(copies.len() == 2 && copies.iter().all(|copy| copy["gpu"] == 4), "{copies:?}");
    // A lost GPU, alone and among others.
    assert_eq!(run(&with(check("gpu-lost", "quick"), &["--gpus", "0,2,3"])).code, Some(0));
    assert_eq!(run(&with(check("gpu-lost", "quick"), &["--gpus", "0,1"])).code, Some(1));
    assert_eq!(run(&with(check("gpu-lost", "quick"), &["--gpus", "1"])).code, Some(1));
}

/// Host copies of a left-out GPU use an uplink of the selected GPUs, or do not.
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
        assert_eq!(
            (&finding["subject"]["kind"], &finding["subject"]["index"]),
            (&"gpu".into(), &2.into()),
            "{gpus}"
        );
        let message = finding["message"].as_str().unwrap();
        assert!(
            message.starts_with("Another program moved data over the PCIe link of GPU 2"),
            "{gpus}: {message}"
        );
        assert!(message.contains(&format!("of {pairs} pairs")), "{gpus}: {message}");
        assert_eq!(
            finding["next_step"].as_str().unwrap().contains("--gpus 0,1"),
            gpus == "0,1,3",
            "{finding}"
        );
        let saved = tempfile::tempdir().unwrap();
        let file = write(saved.path(), "report.json", &report.to_string());
        assert_eq!(run(&["diagnose", &file]).code, Some(3), "{gpus}: judged again");
    }
    let (code, report) = check(&["--gpus", "0,1"]);
    assert_eq!(
        (code, codes(&report)),
        (Some(0), vec![]),
        "what is left out and shares nothing is nobody's matter"
    );
    assert!(
        list(&report["measurements"]["background"]).iter().all(|seen| seen["gpu"] != 2),
        "{report}"
    );
    // The advice for the whole machine leads to a healthy verdict.
    let (code, report) = check(&[]);
    let busy =
        list(&report["findings"]).iter().find(|finding| finding["code"] == "gpu-busy").unwrap();
    assert_eq!(code, Some(3));
    let last = list(&busy["steps"]).last().unwrap();
    assert_eq!(last["id"], "check-alone", "{busy}");
    assert_eq!(last["gpus"], json!([0, 1]), "{busy}");
}

fn counts(more: &[&str]) -> [usize; 3] {
    let report = run(&with(
        check("h200x2", "standard"),
        &with(vec!["--format".into(), "json".into()], more)
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    ))
    .json();
    ["peer", "overlap", "latency"].map(|table| list(&report["measurements"][table]).len())
}

#[test]
fn probe_groups_are_chosen_and_left_out() {
    let [peer, overlap, latency] = counts(&[]);
    assert!(peer > 0 && overlap > 0 && latency > 0);
    // By name on every kind of stream: 2 pairs, 32 placements, a kernel on 3 streams of either GPU.
    assert_eq!((overlap, counts(&["--only", "overlap"])), (32, [0, 2 * 32 * 3 * 2, 0]));
    assert_eq!(counts(&["--only", "peers,latency"]), [peer, 0, latency]);
    assert_eq!(counts(&["--skip", "latency"]), [peer, overlap, 0]);
    assert_eq!(counts(&["--skip", "peers,overlap"]), [0, 0, latency]);
    assert_eq!(run(&with(check("h200x2", "standard"), &["--only", "overlap"])).code, Some(0));
}

#[test]
fn memory_and_overlap_size_are_kept_to() {
    let more = ["--format", "json", "--memory", "70MB", "--overlap-bytes", "32MiB"];
    let ran = run(&with(check("h200x2", "standard"), &more));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.json();
    let limit = 70_000_000;
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

/// Every format of `check`.
const FORMATS: [&str; 7] = ["text", "html", "markdown", "junit", "prometheus", "line", "json"];

/// Words of a report without a fault from which nothing was left out.
const WHOLE: [&str; 2] = ["nothing is at fault; all", "PEERSCOPE OK - SIMULATED nvlink12: 4 GPUs"];

/// A selection, and how a report must describe it.
#[derive(Default)]
struct Choice<'a> {
    options: &'a [&'a str],
    /// The options that left something out, in short.
    short: &'a str,
    /// The parts that they left out, a sentence each.
    left_out: &'a [&'a str],
    gpus_left_out: u64,
    probes_left_out: &'a [&'a str],
    /// The configuration that switched off `persistence-off`.
    config: Option<&'a str>,
}

impl Choice<'_> {
    /// Returns the words of this format if something was left out, and the words that must be absent.
    fn partial(&self, format: &str) -> (Vec<String>, &'static [&'static str]) {
        let (all, short) = (self.left_out.join("; "), self.short);
        match format {
            "text" => {
                (vec![format!("PARTIAL: {all} "), format!("; PARTIAL: {short}")], &["PARTIAL"])
            }
            "html" => {
                (vec![format!("PARTIAL: {all}<"), format!("; PARTIAL: {short}")], &["PARTIAL"])
            }
            "markdown" => {
                (vec![format!("**PARTIAL: {all}.**"), format!("; PARTIAL: {short}")], &["PARTIAL"])
            }
            "junit" => (
                vec![
                    format!("<property name=\"partial\" value=\"yes: PARTIAL: {all}\"/>"),
                    format!("; PARTIAL: {short}"),
                ],
                &["PARTIAL", "<property name=\"partial\" value=\"yes"],
            ),
            "prometheus" => {
                let series = self
                    .left_out
                    .iter()
                    .map(|what| format!(" peerscope_left_out{{what=\"{what}\"}} 1"));
                (
                    [" peerscope_partial 1".to_owned()].into_iter().chain(series).collect(),
                    &[" peerscope_partial 1", " peerscope_left_out{"],
                )
            }
            "line" => (vec![format!("partial; {short}; ")], &["partial;"]),
            _ => unreachable!("{format}"),
        }
    }

    /// Like [`Self::partial`], for a rule that was switched off.
    fn silenced(&self, format: &str) -> (Vec<String>, &'static [&'static str]) {
        let sentence =
            format!("SILENCED by {}: persistence-off is off", self.config.unwrap_or_default());
        let headline = "; 1 rule SILENCED".to_owned();
        match format {
            "text" | "html" | "markdown" => (vec![sentence, headline], &["SILENCED"]),
            "junit" => (
                vec![format!("<property name=\"silenced\" value=\"yes: {sentence}\"/>"), headline],
                &["SILENCED", "<property name=\"silenced\" value=\"yes"],
            ),
            "prometheus" => (
                vec![
                    " peerscope_silenced 1".into(),
                    " peerscope_rule_silenced{code=\"persistence-off\",severity=\"off\"} 1".into(),
                ],
                &[" peerscope_silenced 1", " peerscope_rule_silenced{"],
            ),
            "line" => (vec!["silenced; persistence-off; ".into()], &["silenced;"]),
            _ => unreachable!("{format}"),
        }
    }

    /// Compares the words of a format with the selection: all of it, and nothing else.
    fn assert_said(&self, format: &str, written: &str) {
        if format == "json" {
            return self.assert_requested(&serde_json::from_str(written).unwrap());
        }
        // Without escapes and the help texts of metrics, on one line.
        let lines = written.lines().filter(|line| format != "prometheus" || !line.starts_with('#'));
        let text = flowing(&format!(". {}", lines.collect::<Vec<_>>().join("\n")));
        let text = text.replace("&#39;", "'").replace("&apos;", "'").replace('\\', "");
        let (partial, silenced) = (self.partial(format), self.silenced(format));
        let checks = [(!self.left_out.is_empty(), partial), (self.config.is_some(), silenced)];
        for (applies, (words, none)) in checks {
            for word in words.iter().filter(|_| applies) {
                assert!(
                    text.contains(word),
                    "{:?} as {format} has no '{word}': {written}",
                    self.options
                );
            }
            for word in none {
                assert_eq!(
                    text.contains(word),
                    applies,
                    "{:?} as {format}, '{word}': {written}",
                    self.options
                );
            }
        }
        let whole = self.left_out.is_empty() && self.config.is_none();
        assert!(
            whole || !WHOLE.iter().any(|words| text.contains(words)),
            "{:?} as {format}: {written}",
            self.options
        );
    }

    fn assert_requested(&self, report: &Value) {
        let request = &report["request"];
        let named = |option: &str| -> Vec<&str> {
            let at = self.options.iter().position(|word| *word == option);
            at.map(|at| self.options[at + 1].split(',').collect()).unwrap_or_default()
        };
        for (key, option) in [("gpus", "--gpus"), ("only", "--only"), ("skip", "--skip")] {
            assert_eq!(request[key], json!(named(option)), "{:?}", self.options);
        }
        assert_eq!(request["gpus_left_out"], self.gpus_left_out, "{:?}", self.options);
        assert_eq!(
            list(&request["left_out_gpus"]).len() as u64,
            self.gpus_left_out,
            "{:?}",
            self.options
        );
        assert_eq!(request["probes_left_out"], json!(self.probes_left_out), "{:?}", self.options);
        assert_eq!(request["config"], json!(self.config), "{:?}", self.options);
        let silenced = self.config.map(|_| json!({"code": "persistence-off", "severity": null}));
        assert_eq!(
            request["silenced"],
            json!(silenced.into_iter().collect::<Vec<_>>()),
            "{:?}",
            self.options
        );
    }
}

/// A run that left something out is healthy for what was requested. Every format says so, also when the saved report is
/// judged again, and names the command that repeats the run. A run that left nothing out does not mention it.
#[test]
fn a_partial_run_never_reads_as_a_complete_one() {
    let (folder, report) = place("report.json");
    let report = text_of(&report);
    let config = write(folder.path(), "site.toml", "[severity]\npersistence-off = \"off\"\n");
    for choice in [
        Choice::default(),
        Choice { options: &["--gpus", "0-3"], ..Choice::default() },
        Choice {
            options: &["--only", "peers,host,overlap,latency,pipeline,async,load,live"],
            ..Choice::default()
        },
        Choice {
            options: &["--gpus", "0-1,3"],
            short: "--gpus 0-1,3",
            left_out: &["1 of 4 GPUs were left out (--gpus 0-1,3)"],
            gpus_left_out: 1,
            ..Choice::default()
        },
        Choice {
            options: &["--only", "peers"],
            short: "--only peers",
            left_out: &[
                "of the profile's probes, host, overlap, latency, pipeline, async, load, live were left out (--only peers)",
            ],
            probes_left_out: &["host", "overlap", "latency", "pipeline", "async", "load", "live"],
            ..Choice::default()
        },
        Choice {
            options: &["--skip", "latency"],
            short: "--skip latency",
            left_out: &["of the profile's probes, latency were left out (--skip latency)"],
            probes_left_out: &["latency"],
            ..Choice::default()
        },
        Choice {
            options: &["--gpus", "1,0", "--skip", "peers,overlap"],
            short: "--gpus 1,0 --skip peers,overlap",
            left_out: &[
                "2 of 4 GPUs were left out (--gpus 1,0)",
                "of the profile's probes, peers, overlap were left out (--skip peers,overlap)",
            ],
            gpus_left_out: 2,
            probes_left_out: &["peers", "overlap"],
            ..Choice::default()
        },
        Choice { options: &["--config", &config], config: Some(&config), ..Choice::default() },
        Choice {
            options: &["--gpus", "2-3", "--config", &config],
            short: "--gpus 2-3",
            left_out: &["2 of 4 GPUs were left out (--gpus 2-3)"],
            gpus_left_out: 2,
            config: Some(&config),
            ..Choice::default()
        },
    ] {
        let ran = run(&with(
            check("nvlink12", "standard"),
            &[choice.options, &["-o", &report, "--journal=none"]].concat(),
        ));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        choice.assert_said("text", &ran.stdout);
        let first = read_json(&report);
        choice.assert_requested(&first);
        // A report is judged by the current configuration.
        let config = choice.config.map_or_else(Vec::new, |config| vec!["--config", config]);
        let again = |format| {
            run(&[&["diagnose", &report, "--format", format][..], &config].concat()).stdout
        };
        FORMATS.iter().for_each(|format| choice.assert_said(format, &again(format)));
        if choice.left_out.is_empty() && choice.config.is_none() {
            for (format, said) in [("text", 0), ("html", 0), ("markdown", 0), ("line", 1)] {
                assert!(again(format).contains(WHOLE[said]), "{format}: {}", again(format));
            }
        }
        let ticket = again("markdown");
        let command = ticket
            .lines()
            .find_map(|line| line.strip_prefix("`peerscope "))
            .unwrap()
            .trim_end_matches('`');
        let command: Vec<&str> = command.split(' ').collect();
        let chosen =
            [&["check", "--profile", "standard", "--machine", "nvlink12"], choice.options].concat();
        assert_eq!(command, chosen);
        // The command repeats the run.
        let repeated = run(&[&command[..], &["--format", "json"]].concat()).json();
        assert_eq!(repeated["request"], first["request"]);
        assert_eq!(repeated["verdict"], first["verdict"]);
    }
    let raised = write(folder.path(), "raise.toml", "[severity]\npersistence-off = \"error\"\n");
    assert!(
        !run(&["topo", "--machine", "h200x2", "--config", &raised]).stdout.contains("SILENCED")
    );
    // The same for facts alone.
    for (gpus, partial) in [("0", true), ("0-7", false)] {
        let text = run(&["topo", "--machine", "demo", "--gpus", gpus]).stdout;
        assert_eq!(
            text.contains("PARTIAL: 7 of 8 GPUs were left out (--gpus 0)"),
            partial,
            "{text}"
        );
        assert_eq!(text.contains("PARTIAL"), partial, "{text}");
    }
}

/// The report of a killed run, made from its journal, does not read as complete either.
#[test]
fn a_partial_run_that_was_killed_stays_partial() {
    let (folder, _) = place("");
    for choice in [
        Choice::default(),
        Choice {
            options: &["--gpus", "0-4,6", "--skip", "latency"],
            short: "--gpus 0-4,6 --skip latency",
            left_out: &[
                "2 of 8 GPUs were left out (--gpus 0-4,6)",
                "of the profile's probes, latency were left out (--skip latency)",
            ],
            gpus_left_out: 2,
            probes_left_out: &["latency"],
            ..Choice::default()
        },
    ] {
        let journal = folder.path().join(format!("{}.jsonl", choice.options.len()));
        let args = with(
            check("two-sockets", "standard"),
            &[choice.options, &["--journal", &text_of(&journal)]].concat(),
        );
        let mut killed =
            peerscope(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("some outcomes", PATIENCE, || {
            let written = std::fs::read_to_string(&journal).unwrap_or_default();
            (written.matches("\"event\":{\"outcome\":").count() > 20).then_some(())
        });
        killed.kill().unwrap();
        killed.wait().unwrap();
        for format in FORMATS {
            let ran = run(&["recover", &text_of(&journal), "--format", format]);
            assert_eq!(ran.code, Some(3), "{ran:?}");
            let recovered =
                ["RECOVERED", "recovered;", "peerscope_recovered 1", "\"cut_off\": true"];
            assert!(
                recovered.iter().any(|word| ran.stdout.contains(word)),
                "{format}: {}",
                ran.stdout
            );
            choice.assert_said(format, &ran.stdout);
        }
    }
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

/// Returns the facts of a case with these GPUs.
fn facts(case: &str, gpus: &[&str]) -> Value {
    let machine = format!("{}/tests/cases/{case}.toml", env!("CARGO_MANIFEST_DIR"));
    run(&[&["topo", "--machine", &machine, "--format", "json"][..], gpus].concat()).json()
}

#[test]
fn to_name_every_gpu_that_nvml_lists_hides_nothing() {
    let case = format!("{}/tests/cases/four-of-eight-not-listed.toml", env!("CARGO_MANIFEST_DIR"));
    let whole = run(&with(check(&case, "quick"), &["--format", "json"])).json();
    for names in ["0-3", "3,1,2,0", "0-1,0000:05:00.0,06:00.0", "0-3,1"] {
        let ran = run(&with(check(&case, "quick"), &["--format", "json", "--gpus", names]));
        assert_eq!(ran.code, Some(1), "{names}: {ran:?}");
        let report = ran.json();
        assert_eq!(codes(&report), ["gpu-not-listed"; 4], "{names}");
        assert_eq!(report["findings"], whole["findings"], "{names}");
        assert_eq!(
            (&report["request"]["gpus_left_out"], list(&report["request"]["left_out_gpus"]).len()),
            (&0.into(), 0)
        );
        let text = run(&with(check(&case, "quick"), &["--gpus", names])).stdout;
        assert!(text.contains("FAULTY") && !text.contains("PARTIAL"), "{text}");
    }
    // Try every case: GPUs may be missing, left out on purpose, or lost.
    let mut tried = 0;
    for file in std::fs::read_dir(format!("{}/tests/cases", env!("CARGO_MANIFEST_DIR"))).unwrap() {
        let path = file.unwrap().path();
        let case = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !["not-listed", "nouveau", "lost", "excluded", "vfio", "console", "container"]
            .iter()
            .any(|word| case.contains(word))
        {
            continue;
        }
        let whole = facts(&case, &[]);
        let all: Vec<String> = gpus(&whole).iter().map(u64::to_string).collect();
        if all.is_empty() {
            continue;
        }
        let named = facts(&case, &["--gpus", &all.join(",")]);
        assert_eq!(named["findings"], whole["findings"], "{case}");
        assert_eq!(
            named["snapshot"]["unlisted_gpus"], whole["snapshot"]["unlisted_gpus"],
            "{case}"
        );
        assert_eq!(named["request"]["gpus_left_out"], 0, "{case}");
        tried += 1;
    }
    assert!(tried >= 8, "{tried}");
}

#[test]
fn what_nvml_does_not_list_counts_among_what_was_left_out() {
    for (case, names, left_out, all, addresses) in [
        ("four-of-eight-not-listed", "0,1", 6, 8, &["05", "06", "23", "24", "25", "26"][..]),
        ("four-of-eight-not-listed", "1-3", 5, 8, &["03", "23", "24", "25", "26"]),
        // A container: GPUs that the host did not pass in are not its GPUs.
        ("container-with-one-gpu-not-listed", "0,1", 2, 4, &["05", "06"]),
        // GPUs 1 and 5 are lost and keep their positions; nouveau drives the third.
        ("two-gpus-lost-and-one-with-nouveau", "0,2", 6, 8, &["04", "06", "23", "24", "25", "26"]),
    ] {
        let report = facts(case, &["--gpus", names]);
        assert_eq!(list(&report["findings"]).len(), 0, "{case}: {}", report["findings"]);
        let request = &report["request"];
        assert_eq!(request["gpus_left_out"], left_out, "{case}: {request}");
        let mut found: Vec<&str> = list(&request["left_out_gpus"])
            .iter()
            .map(|gpu| gpu["pci"].as_str().unwrap())
            .collect();
        found.sort_unstable();
        let wanted: Vec<String> = addresses.iter().map(|bus| format!("0000:{bus}:00.0")).collect();
        assert_eq!(found, wanted, "{case}");
        let machine = format!("{}/tests/cases/{case}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = run(&["topo", "--machine", &machine, "--gpus", names]).flowing();
        assert!(
            text.contains(&format!(
                "PARTIAL: {left_out} of {all} GPUs were left out (--gpus {names})"
            )),
            "{text}"
        );
    }
}
