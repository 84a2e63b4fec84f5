//! Tests of each built-in machine: golden output, exit codes by both contracts, the report's JSON against its contract
//! and schema, widths, and formats for other programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use serde_json::{Value, json};
use sim::builtin;
use unicode_width::UnicodeWidthStr;

use crate::common::{
    Ran, check, codes, finish, golden, is_there, list, peerscope, place, read_json, redact, run,
    skipped_for_want_of, text_of, with,
};
use crate::contract::{assert_contract, assert_nothing_left_out, assert_schema};
use crate::{pages, trial};

/// Machines whose texts are golden files, each of another kind: with faults, healthy with NVSwitches, of two sockets,
/// without GPUs, with a lost one, with bridges. What is found on the others stands in docs/machines.md.
const SHOWN: [&str; 6] = ["demo", "h200x8", "two-sockets", "none", "gpu-lost", "nvlink12"];

/// Most GPUs of a machine without a limit of lines.
const FEW_GPUS: usize = 8;
/// Most lines of a machine with up to 16 GPUs, and of one with more.
const MOST_LINES: [usize; 2] = [150, 80];

pub(crate) fn trials() -> Vec<Trial> {
    let of = |machine: &'static str| {
        [
            ("topo", topo as fn(&str)),
            ("quick", quick),
            ("standard", standard),
            ("description", description),
        ]
        .map(|(what, test)| {
            trial(format!("builtin::{machine}::{what}"), move || test(machine))
                .with_ignored_flag(!SHOWN.contains(&machine))
        })
    };
    let table = trial("builtin::exit_codes_are_documented".into(), || {
        let documented: Vec<_> = documented().into_keys().collect();
        let mut machines: Vec<_> = builtin::names().collect();
        machines.sort_unstable();
        assert_eq!(documented, machines, "docs/machines.md, Built-in machines");
    });
    builtin::names().flat_map(of).chain([table]).collect()
}

/// The row of a machine in docs/machines.md.
struct Documented {
    topo: i32,
    check: i32,
    /// What it shows, with the findings at warning and above: the last cell.
    because: String,
}

impl Documented {
    /// The rules that report at warning and above: words between backticks with a dash.
    fn rules(&self) -> BTreeSet<&str> {
        self.because.split('`').skip(1).step_by(2).filter(|word| word.contains('-')).collect()
    }
}

/// Reads the table of built-in machines.
fn documented() -> BTreeMap<String, Documented> {
    let text = include_str!("../../docs/machines.md");
    let rows = text
        .split("## Built-in machines")
        .nth(1)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    rows.flat_map(|row| {
        let cells: Vec<_> = row.trim_end_matches('|').splitn(4, " | ").collect();
        let machines =
            cells[0].trim_end_matches('`').split("`, `").map(str::to_owned).collect::<Vec<_>>();
        machines.into_iter().map(move |machine| {
            let [topo, check] = [cells[1], cells[2]].map(|code| code.parse().unwrap());
            (machine, Documented { topo, check, because: cells[3].to_owned() })
        })
    })
    .collect()
}

/// Returns the machines for which `check` finds nothing at warning and above.
pub(crate) fn healthy() -> Vec<String> {
    let machines = documented().into_iter();
    let healthy = machines.filter(|(_, machine)| machine.check == 0 && machine.rules().is_empty());
    healthy.map(|(name, _)| name).collect()
}

fn expected(machine: &str) -> Documented {
    documented()
        .remove(machine)
        .unwrap_or_else(|| panic!("docs/machines.md has no row of {machine}"))
}

/// Returns the code by `--exit-contract nagios` of a run that ends with this code by the default contract.
fn for_nagios(code: i32, report: &Value) -> i32 {
    let warned = list(&report["findings"]).iter().any(|finding| finding["severity"] == "warning");
    match code {
        0 => i32::from(warned),
        1 => 2,
        _ => 3,
    }
}

/// Checks that the report keeps its contract, and that its code is the exit code of the process.
fn assert_report(report: &Value, machine: &str, code: i32) {
    assert_contract(report);
    assert_schema(report);
    assert_eq!(report["machine"], machine);
    assert_eq!(report["verdict"]["exit_code"], code);
}

fn assert_ended(ran: &Ran, code: i32) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert_eq!(ran.stderr, "");
}

/// Checks that `topo` first says that the machine is simulated, and exits with its code in every form.
fn topo(machine: &str) {
    let Documented { topo: code, .. } = expected(machine);
    let args = |more: &[&str]| with(vec!["topo".into(), "--machine".into(), machine.into()], more);
    let said = format!("SIMULATED machine {machine}");
    let text = run(&args(&[]));
    assert_ended(&text, code);
    assert!(text.stdout.starts_with(&said));
    let narrow = assert_fits(&args(&[]), 80);
    assert_fits(&args(&["--verbose"]), 80);
    let wide = assert_fits(&args(&[]), 140);
    assert_few_lines(machine, "topo", &narrow, &wide);

    let (folder, file) = place("report.json");
    let file_of =
        |extension: &str| text_of(&folder.path().join("report").with_extension(extension));
    let files = ["json", "html", "xml"].map(file_of);
    let outputs: Vec<_> = files.iter().flat_map(|file| ["-o", file.as_str()]).collect();
    assert_ended(&run(&args(&outputs)), code);
    let [_, html, junit] = files.each_ref().map(|file| std::fs::read_to_string(file).unwrap());
    let report = read_json(&file);
    assert_report(&report, machine, code);
    assert!(report["measurements"].is_null(), "topo measures nothing");
    shown(machine, "topo", &text);
    assert!(html.contains(&format!("<p class=\"banner\" role=\"note\">{said}")), "{html}");
    assert_junit(&junit, code, false);

    let line = run(&args(&["--format", "line", "--exit-contract", "nagios"]));
    assert_line(&line, machine, for_nagios(code, &report));
    let json = run(&args(&["--format", "json", "--exit-contract", "nagios"]));
    assert_ended(&json, for_nagios(code, &report));
    assert_report(&json.json(), machine, for_nagios(code, &report));
}

fn quick(machine: &str) {
    let documented = expected(machine);
    let code = documented.check;
    let (folder, file) = place("report.json");
    let name = |name: &str| text_of(&folder.path().join(name));
    let (json, junit, metrics) = (text_of(&file), name("report.xml"), name("report.prom"));
    let text = run(&with(check(machine, "quick"), &["-o", &json, "-o", &junit, "-o", &metrics]));
    assert_ended(&text, code);
    let report = read_json(&file);
    assert_report(&report, machine, code);
    shown(machine, "quick", &text);
    if SHOWN.contains(&machine) {
        golden(&format!("{machine}-json"), &whole(&report));
    }
    let found = list(&report["findings"]).iter().filter(|finding| finding["severity"] != "info");
    let found: BTreeSet<_> = found.map(|finding| finding["code"].as_str().unwrap()).collect();
    assert_eq!(documented.rules(), found, "docs/machines.md, Built-in machines");
    assert_junit(&std::fs::read_to_string(junit).unwrap(), code, true);
    assert_metrics(&metrics);

    // Check the other contract, and that the files equal the output.
    let nagios = for_nagios(code, &report);
    let pairs = with(check(machine, "quick"), &["--exit-contract", "nagios", "--format", "json"]);
    let again = name("again.json");
    let printed = run(&with(pairs, &["-o", &again]));
    assert_ended(&printed, nagios);
    assert_eq!(printed.json()["verdict"]["exit_code"], nagios);
    assert_eq!(printed.json(), read_json(&again), "the file differs from stdout");

    // A saved report gets the verdict of the machine.
    let diagnose = |more: &[&str]| run(&with(vec!["diagnose".into(), json.clone()], more));
    assert_ended(&diagnose(&["-o", &again]), code);
    let judged = read_json(&again);
    for part in ["findings", "verdict", "measurements", "snapshot", "topology"] {
        assert_eq!(judged[part], report[part], "{part} did not survive");
    }
    assert_line(&diagnose(&["--format", "line", "--exit-contract", "nagios"]), machine, nagios);
    // A missing test neither passes nor counts as a fault; and without a finding, nothing fails.
    if codes(&report).iter().all(|code| ["not-tested", "nothing-measured"].contains(code)) {
        for severity in ["info", "warning", "error"] {
            assert_ended(&diagnose(&["--fail-on", severity]), code);
        }
    }
    let diagnose = ["diagnose".to_owned(), json.clone()];
    assert_few_lines(machine, "check", &assert_fits(&diagnose, 80), &assert_fits(&diagnose, 140));
}

fn standard(machine: &str) {
    let (folder, file) = place("report.json");
    let [page, picture] = pages::files(folder.path()).map(|file| text_of(&file));
    let text = run(&with(
        check(machine, "standard"),
        &["-o", &text_of(&file), "-o", &page, "-o", &picture],
    ));
    let report = read_json(&file);
    shown(machine, "standard", &text);
    pages::assert_pages(folder.path(), &report);
    assert_report(&report, machine, text.code.unwrap());
    assert_nothing_left_out(&report);
    for columns in [60, 80] {
        assert_fits(&["diagnose", &text_of(&file)], columns);
        assert_fits(&["diagnose", &text_of(&file), "--verbose"], columns);
    }
}

/// Checks that `--show` prints the description of the machine, with its sources.
fn description(machine: &str) {
    let shown = run(&["machines", "--show", machine]);
    assert_ended(&shown, 0);
    assert_eq!(Some(shown.stdout.as_str()), builtin::description(machine));
}

/// Compares the text of a run with its golden file, if the machine has one.
fn shown(machine: &str, command: &str, ran: &Ran) {
    if SHOWN.contains(&machine) {
        golden(&format!("{machine}-{command}"), &redact(&ran.stdout));
    }
}

/// Returns the tables of measurements by name.
fn tables(report: &Value) -> impl Iterator<Item = (&String, &[Value])> {
    let tables = report["measurements"].as_object().into_iter().flatten();
    tables.filter_map(|(name, table)| Some((name, table.as_array()?.as_slice())))
}

/// Counts the cells of each table by status.
fn cells(report: &Value) -> BTreeMap<String, u32> {
    let mut cells = BTreeMap::new();
    for (table, rows) in tables(report) {
        let statuses = rows.iter().filter_map(|row| row["status"].as_str());
        statuses.for_each(|status| *cells.entry(format!("{table} {status}")).or_default() += 1);
    }
    cells
}

/// Returns the complete findings, the verdict, and the counts of cells by status.
fn whole(report: &Value) -> String {
    let whole = json!({
        "cells": cells(report),
        "findings": report["findings"],
        "problems": report["measurements"]["problems"],
        "verdict": report["verdict"],
    });
    serde_json::to_string_pretty(&whole).unwrap()
}

/// Checks that no line is wider than the terminal, and returns the text.
pub(crate) fn assert_fits<S: AsRef<str> + std::fmt::Debug>(args: &[S], columns: usize) -> String {
    let text = finish(peerscope(args).env("COLUMNS", columns.to_string())).stdout;
    for line in text.lines() {
        assert!(line.width() <= columns, "{args:?}: {} of {columns} columns: {line}", line.width());
        assert_eq!(line, line.trim_end(), "{args:?}: blanks at the end of a line");
    }
    text
}

/// Checks that many GPUs are shown in few lines.
fn assert_few_lines(machine: &str, command: &str, narrow: &str, wide: &str) {
    let gpus = builtin::get(machine).unwrap().gpus.len();
    if gpus > FEW_GPUS {
        let most = MOST_LINES[usize::from(gpus > 16)];
        let [narrower, wider] = [narrow, wide].map(|text| text.lines().count());
        assert!(
            wider <= narrower && narrower <= most,
            "{narrower} lines, {wider} where there is room"
        );
        golden(&format!("{machine}-{command}-80"), &redact(narrow));
    }
}

/// Checks that the result is red if the exit code is not 0, and never green for nothing.
fn assert_junit(xml: &str, code: i32, measures: bool) {
    let junit = quick_junit::Report::deserialize_from_str(xml).unwrap();
    assert_eq!(junit.failures + junit.errors > 0, code != 0, "{xml}");
    let skipped: usize = junit.test_suites.iter().map(|suite| suite.skipped).sum();
    let passed = junit.tests - junit.failures - junit.errors - skipped;
    let nothing = code != 0 && xml.contains(">nothing was measured");
    // `18 of 18 figures are not verified`
    let (before, _) = xml.split_once(" figures are not verified").unwrap_or_default();
    let mut words = before.rsplit([' ', '"']);
    let (all, some) = (words.next(), words.nth(1));
    let unverified = code != 0 && all == some && all.is_some_and(|all| !all.is_empty());
    assert_eq!(passed == 0, !measures || nothing || unverified, "{passed} passed: {xml}");
}

/// Checks that the output is one line with the word of its Nagios code.
fn assert_line(ran: &Ran, machine: &str, code: i32) {
    assert_ended(ran, code);
    let line = ran.stdout.strip_suffix('\n').unwrap();
    let word = ["OK", "WARNING", "CRITICAL", "UNKNOWN"][usize::try_from(code).unwrap()];
    assert!(line.starts_with(&format!("PEERSCOPE {word} - SIMULATED {machine}: ")), "{line}");
    assert!(line.len() <= 200 && line.is_ascii() && !line.contains('\n'), "{line}");
}

/// Checks that promtool has no complaint, and that series of pairs exist only if requested.
pub(crate) fn assert_metrics(file: &str) {
    if !is_there("promtool") {
        return skipped_for_want_of("promtool (Debian: prometheus)");
    }
    let input = std::fs::File::open(Path::new(file)).unwrap();
    let output = Command::new("promtool").args(["check", "metrics"]).stdin(input).output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && said.is_empty(), "{file}: {said}");
}
