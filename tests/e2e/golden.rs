//! Tests of output without a golden file in another test crate, against its last reviewed version.
//!
//! `INSTA_UPDATE=always cargo test --test e2e golden` writes the files again; look at `git diff`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{
    DEMO, H200X8, HARDWARE_REPORT, check, finish, golden, peerscope, place, redact, run, text_of,
    with,
};

#[test]
fn the_list_of_machines() {
    let listed = run(&["machines"]).stdout;
    golden("machines", &listed);
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
}

#[test]
fn the_help_of_every_command() {
    let help = run(&["--help"]).stdout;
    golden("help", &help);
    let listed =
        help.split("Commands:\n").nth(1).unwrap().lines().take_while(|line| !line.is_empty());
    // A command's name is indented less than the rest of a sentence about it.
    let names = listed.filter_map(|line| {
        line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty())
    });
    let names: Vec<_> = names.filter(|name| *name != "help").collect();
    assert!(names.contains(&"check"), "{names:?}");
    for name in names {
        golden(&format!("help-{name}"), &run(&[name, "--help"]).stdout);
    }
}

#[test]
fn the_demo_machine_in_a_browser() {
    let (_folder, file) = place("report.html");
    run(&with(check("demo", "standard"), &["-o", &text_of(&file)]));
    let page = std::fs::read_to_string(file).unwrap();
    let times = [">Run</dt>", "id=\"ticket\"", "id=\"peerscope-report\""];
    let timed = |line: &&str| times.iter().any(|word| line.contains(word));
    let (taken_out, kept): (Vec<_>, Vec<_>) = page.lines().partition(timed);
    assert_eq!(taken_out.len(), times.len(), "{taken_out:?}");
    golden("demo-html", &kept.join("\n"));
}

#[test]
fn the_keys_of_a_report() {
    // Below these, keys are data.
    let open = ["unknown", "evidence"];
    let mut all = keys(&DEMO, &open);
    all.extend(keys(&H200X8, &open));
    golden("keys", &all.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_hardware_report() {
    golden("hardware", &redact(&run(&["diagnose", HARDWARE_REPORT]).stdout));
    let narrow =
        finish(peerscope(&["diagnose", "--verbose", HARDWARE_REPORT]).env("COLUMNS", "80"));
    golden("hardware-verbose-80", &redact(&narrow.stdout));
}

/// Returns every path to a key, with `[]` for the elements of a list. Keys below `open` ones are data and left out.
fn keys(value: &Value, open: &[&str]) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, open: &[&str], found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    found.insert(path.clone());
                    if !open.contains(&key.as_str()) {
                        walk(value, &path, open, found);
                    }
                }
            }
            Value::Array(elements) => {
                elements.iter().for_each(|value| walk(value, &format!("{path}[]"), open, found))
            }
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    walk(value, "", open, &mut found);
    found
}
