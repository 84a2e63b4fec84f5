//! Tests of failures that occur while several pairs copy at once, but not when each pair is tried alone. A loose link
//! and a weak power supply look like this.

use serde_json::Value;

use crate::common::{Ran, codes, finish, list, peerscope, place, read_json, text_of};
use crate::fake::Fake;

/// Each kind of event at one call, and how the finding must name it: `how`, and words of the message.
const KINDS: [(&str, &str, &str); 3] = [
    ("hang", "hung", "did not end within 1.0 s"),
    ("abort", "crashed", "signal 6"),
    ("code:719", "failed", "719)"),
];
/// The rounds of four GPUs have two pairs at once.
const FOUR: [&str; 8] =
    ["--gpus", "0,1,2,3", "check", "--profile", "quick", "--deadline", "1", "--journal=none"];

/// Checks four GPUs, or all of them, with faults at these calls.
fn run(faults: &str, args: &[&str], more: &[&str]) -> Ran {
    let fake = Fake::new("h200x8");
    finish(fake.command(&[args, more].concat()).env(fake_machine::FAULTS, faults))
}

fn json(faults: &str, more: &[&str]) -> (Ran, Value) {
    let ran = run(faults, &FOUR, &[&["--format", "json"], more].concat());
    let report = ran.json();
    (ran, report)
}

/// Returns the findings except information.
fn serious(report: &Value) -> Vec<&Value> {
    list(&report["findings"]).iter().filter(|finding| finding["severity"] != "info").collect()
}

#[test]
fn what_happens_once_in_company_is_a_warning_and_the_verdict_inconclusive() {
    for (fault, how, words) in KINDS {
        let (ran, report) = json(&format!("cuMemcpyPeerAsync@40={fault}"), &[]);
        assert_eq!(
            (ran.code, codes(&report)),
            (Some(3), vec!["copy-failed-once"]),
            "{fault}: {}",
            report["findings"]
        );
        let finding = &report["findings"][0];
        assert_eq!(finding["severity"], "warning", "{fault}");
        let message = finding["message"].as_str().unwrap();
        assert!(message.contains(words), "{fault}: {message}");
        let broken = list(&report["measurements"]["broken_off"]);
        assert_eq!(
            (broken.len(), &broken[0]["how"]),
            (1, &Value::from(how)),
            "{fault}: {broken:?}"
        );
        assert_eq!(broken[0]["again"]["result"], "worked", "{fault}: {broken:?}");
        // The message and the data name both pairs.
        let flows = list(&broken[0]["flows"]);
        assert_eq!(flows.len(), 2, "{fault}: {broken:?}");
        let facts = list(&finding["evidence"]["pairs"]);
        assert_eq!(facts.len(), 2, "{fault}: {finding}");
        assert!(
            facts.iter().all(|pair| message.contains(pair.as_str().unwrap())),
            "{fault}: {message}"
        );
        assert_eq!(finding["evidence"]["how"], how, "{fault}: {finding}");
        assert_eq!(report["verdict"]["untested"], 0, "{fault}: everything was measured");
    }
}

#[test]
fn what_happens_again_in_company_is_an_error() {
    for (fault, how, words) in KINDS {
        let (ran, report) =
            json(&format!("cuMemcpyPeerAsync@40={fault};cuMemcpyPeerAsync@90={fault}"), &[]);
        let found = serious(&report);
        assert_eq!((ran.code, found.len()), (Some(1), 1), "{fault}: {}", report["findings"]);
        assert_eq!(
            (&found[0]["code"], &found[0]["severity"]),
            (&"copy-failed".into(), &"error".into()),
            "{fault}"
        );
        let message = found[0]["message"].as_str().unwrap();
        assert!(message.contains(words), "{fault}: {message}");
        assert_eq!(list(&report["measurements"]["broken_off"]).len(), 2, "{fault}");
        let facts = list(&found[0]["evidence"]["pairs"]);
        assert!(facts.len() >= 2, "{fault}: {}", found[0]);
        assert!(
            facts.iter().all(|pair| message.contains(pair.as_str().unwrap())),
            "{fault}: {message}"
        );
        assert_eq!(found[0]["evidence"]["how"], how, "{fault}: {}", found[0]);
        assert_eq!(found[0]["evidence"]["events"], 2, "{fault}: {}", found[0]);
    }
}

/// Repeats an observed case: five events in one run, and "healthy: nothing is at fault".
#[test]
fn five_events_in_one_run_are_no_healthy_machine() {
    let faults = "cuMemcpyPeerAsync@20=hang;cuMemcpyPeerAsync@100=abort;cuMemcpyPeerAsync@180=code:719;\
                  cuMemcpyPeerAsync@260=hang;cuMemcpyPeerAsync@340=abort";
    let (_folder, file) = place("report.json");
    let file = text_of(&file);
    let args = ["check", "--profile", "quick", "--deadline", "1", "--journal=none"];
    let ran = run(faults, &args, &["-o", &file]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report = read_json(&file);
    assert!(codes(&report).contains(&"copy-failed"), "{}", report["findings"]);
    assert!(
        ran.stdout.contains("while several run at once") && ran.stdout.contains("copy-failed"),
        "{}",
        ran.stdout
    );
    let found =
        list(&report["findings"]).iter().find(|finding| finding["code"] == "copy-failed").unwrap();
    let message = found["message"].as_str().unwrap();
    // The message names the four flows of the first event, and so does the data.
    let four = ["GPU 0 → GPU 7", "GPU 1 → GPU 6", "GPU 2 → GPU 5", "GPU 3 → GPU 4"];
    assert!(four.iter().all(|flow| message.contains(flow)), "{message}");
    let pairs = list(&found["evidence"]["pairs"]);
    assert!(four.iter().all(|flow| pairs.contains(&Value::from(*flow))), "{found}");
    assert!(
        list(&report["measurements"]["broken_off"]).len() >= 2,
        "{}",
        report["measurements"]["broken_off"]
    );
}

#[test]
fn a_worker_that_crashes_once_by_itself_is_a_warning_with_one_pair_at_a_time_too() {
    let (ran, report) = json("cuMemcpyPeerAsync@150=abort", &["--serial"]);
    assert_eq!(
        (ran.code, codes(&report)),
        (Some(3), vec!["copy-failed-once"]),
        "{}",
        report["findings"]
    );
    let finding = &report["findings"][0];
    assert_eq!(finding["severity"], "warning");
    assert_eq!(finding["subject"]["kind"], "pair", "{finding}");
    assert_eq!(list(&finding["evidence"]["pairs"]).len(), 1, "{finding}");
    let message = finding["message"].as_str().unwrap();
    assert!(message.contains("signal 6") && message.contains("GPU "), "{message}");
}

/// The report contains everything that the rules need, so every reader and every format reports the event.
#[test]
fn every_format_and_a_second_reading_say_the_same() {
    let (_folder, file) = place("report.json");
    let json = text_of(&file);
    let page = |extension: &str| json.replace("report.json", &format!("report.{extension}"));
    let outputs = ["json", "html", "md", "prom", "xml"].map(page);
    let mut args: Vec<&str> = FOUR.to_vec();
    outputs.iter().for_each(|output| args.extend(["-o", output]));
    let ran = run("cuMemcpyPeerAsync@40=hang", &args, &["--format", "line"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stdout.starts_with("PEERSCOPE UNKNOWN") && ran.stdout.contains("copy-failed-once"),
        "{}",
        ran.stdout
    );
    for output in &outputs[1..4] {
        let text = std::fs::read_to_string(output).unwrap();
        assert!(text.contains("copy-failed-once"), "{output}: {text}");
    }
    let prom = std::fs::read_to_string(&outputs[3]).unwrap();
    assert!(prom.contains(r#"peerscope_rule_findings{code="copy-failed-once""#), "{prom}");
    let again = finish(&mut peerscope(&["diagnose", &json, "--format", "json"]));
    assert_eq!(again.code, Some(3), "{again:?}");
    assert_eq!(again.json()["findings"], read_json(&file)["findings"]);
    let brief = finish(&mut peerscope(&["diagnose", &json]));
    assert!(
        brief.stdout.contains("copy-failed-once") && brief.stdout.contains("inconclusive"),
        "{}",
        brief.stdout
    );
    assert!(!brief.stdout.contains("as it should be"), "{}", brief.stdout);
}

/// A journal contains an event as soon as it happened: the run is killed while the rest is measured.
#[test]
fn the_journal_of_a_run_that_was_killed_has_the_event() {
    let fake = Fake::new("h200x8");
    let (_folder, journal) = place("run.journal");
    let journal = text_of(&journal);
    let args = [
        "--gpus",
        "0,1,2,3",
        "check",
        "--profile",
        "quick",
        "--deadline",
        "20",
        "--journal",
        &journal,
    ];
    let mut run = fake
        .command(&args)
        .env(fake_machine::FAULTS, "cuMemcpyPeerAsync@40=code:719;cuMemcpyPeerAsync@60=hang")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    crate::worker_faults::until("the event in the journal", crate::worker_faults::PATIENCE, || {
        std::fs::read_to_string(&journal).ok().filter(|text| text.contains("broken-off"))
    });
    run.kill().unwrap();
    run.wait().unwrap();
    let recovered = finish(&mut peerscope(&["recover", &journal, "--format", "json"]));
    let report = recovered.json();
    assert!(codes(&report).contains(&"copy-failed-once"), "{}", report["findings"]);
    assert_eq!(recovered.code, Some(3), "{}", report["findings"]);
    let message = list(&report["findings"])
        .iter()
        .find(|finding| finding["code"] == "copy-failed-once")
        .unwrap();
    assert!(message["message"].as_str().unwrap().contains("719)"), "{message}");
}
