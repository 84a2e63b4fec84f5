//! Tests docs/exit-codes.md against the program. Every row of its tables and every console block is run, or names the
//! test that covers it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{
    HARDWARE_REPORT, check, finish, peerscope, place, read_json, signal, text_of, wait, write_json,
};
use crate::worker_faults::{PATIENCE, hanging_run, until};

const PAGE: &str = include_str!("../../docs/exit-codes.md");

/// A table of the page.
struct Table {
    /// First line number, for messages.
    line: usize,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The line above the table, if it is a comment.
    above: Option<&'static str>,
}

/// Returns the tables, and the console blocks line by line: a prompt or its output.
fn parsed() -> (Vec<Table>, Vec<Vec<&'static str>>) {
    let (mut tables, mut blocks) = (Vec::<Table>::new(), Vec::new());
    let (mut fence, mut last, mut above) = (None, "", None);
    for (number, line) in PAGE.lines().enumerate() {
        match (line.strip_prefix("```"), fence) {
            (Some(language), None) => {
                assert!(
                    ["console", "text", "bash", "sh"].contains(&language),
                    "line {}: {line}",
                    number + 1
                );
                fence = Some(language);
                if language == "console" {
                    blocks.push(Vec::new());
                }
            }
            (Some(_), Some(_)) => fence = None,
            (None, Some("console")) => blocks.last_mut().unwrap().push(line),
            (None, Some(language)) => {
                assert!(!line.starts_with("$ "), "a command in a block of {language}: {line}")
            }
            (None, None) if line.starts_with('|') => {
                let cells = line
                    .trim_matches('|')
                    .split(" | ")
                    .map(|cell| cell.trim().to_owned())
                    .collect();
                if !last.starts_with('|') {
                    tables.push(Table { line: number + 1, header: cells, rows: Vec::new(), above });
                } else if !line.starts_with("|--") {
                    tables.last_mut().unwrap().rows.push(cells);
                }
            }
            (None, None) => {}
        }
        // Allow an empty line between a comment and its table.
        above = if line.is_empty() { above } else { line.strip_prefix("<!-- not run here: ") };
        last = line;
    }
    (tables, blocks)
}

/// Creates the reports and journals that commands of the page name.
fn files() -> tempfile::TempDir {
    let (folder, _) = place("");
    for (machine, name) in
        [("h200x2", "report.json"), ("demo", "faulty.json"), ("none", "incomplete.json")]
    {
        let args = [check(machine, "quick"), vec!["-o".into(), text_of(&folder.path().join(name))]]
            .concat();
        finish(&mut peerscope(&args));
    }
    let mut changed = read_json(folder.path().join("report.json"));
    changed["measurements"]["interrupted"] = true.into();
    write_json(folder.path(), "interrupted.json", &changed);
    let mut slower = read_json(HARDWARE_REPORT);
    write_json(folder.path(), "before.json", &slower);
    for cell in slower["measurements"]["peer"].as_array_mut().unwrap() {
        cell["achieved_gbps"] = cell["achieved_gbps"].as_f64().map(|rate| rate / 2.0).into();
    }
    write_json(folder.path(), "slower.json", &slower);
    slower["measurements"]["peer"].as_array_mut().unwrap().clear();
    write_json(folder.path(), "empty.json", &slower);
    folder
}

/// Creates a whole journal of this machine, from a run whose report could not be written.
fn journal(folder: &Path, machine: &str) {
    let file = folder.join(machine).with_extension("jsonl");
    let mut run =
        peerscope(&[check(machine, "quick"), vec!["--journal".into(), text_of(&file)]].concat());
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(wait(&mut run.stdout(full).stderr(Stdio::null()).spawn().unwrap()).code(), Some(2));
    assert!(file.exists());
}

fn command(line: &str, folder: &Path) -> Command {
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words.first(), Some(&"peerscope"), "{line}");
    let mut command = peerscope(&words[1..]);
    command.current_dir(folder);
    command
}

fn code(line: &str, folder: &Path) -> Option<i32> {
    finish(&mut command(line, folder)).code
}

/// Checks that `FILE FUNCTION -->` names an existing test.
fn assert_is_test(named: &str, what: &str) {
    let named = named.split_once("-->").unwrap_or_else(|| panic!("{what}: {named}")).0;
    let (file, function) =
        named.trim().split_once(' ').unwrap_or_else(|| panic!("{what}: no function: {named}"));
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    let text = text.unwrap_or_else(|error| panic!("{what}: {file}: {error}"));
    assert!(text.contains(&format!("fn {function}(")), "{what}: {file} has no {function}");
}

/// Returns the first number of a cell such as `1 warning`.
fn number(cell: &str) -> Option<i32> {
    cell.split_whitespace().next()?.parse().ok()
}

#[test]
fn every_row_of_the_page_is_what_the_program_does() {
    let (tables, _) = parsed();
    let folder = files();
    let mut run = 0;
    for Table { line, header, rows, above } in &tables {
        let what = format!("docs/exit-codes.md, line {line}, {}", header.join(" | "));
        assert!(!rows.is_empty(), "{what}");
        assert!(rows.iter().all(|row| row.len() == header.len()), "{what}: a row has other cells");
        let column = |name: &str| header.iter().position(|cell| cell == name);
        if let Some(named) = above {
            assert_is_test(named, &what);
            continue;
        }
        if header[0] == "command" {
            assert_commands(rows, folder.path());
            continue;
        }
        for row in rows {
            if let Some(named) =
                row.iter().find_map(|cell| Some(cell.split_once("<!-- not run here: ")?.1))
            {
                assert_is_test(named, &row.join(" | "));
                continue;
            }
            let example = column("example").map(|example| &row[example]);
            let cell = example
                .unwrap_or_else(|| panic!("{what}: no example, and no test is named: {row:?}"));
            let shown = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
            let shown = shown.unwrap_or_else(|| panic!("{what}: no command: {cell}"));
            // If the table has no codes, all of its commands are refused.
            let expected = match column("code").or(column("default")) {
                Some(codes) => number(&row[codes]),
                None => Some(2),
            };
            assert_eq!(code(shown, folder.path()), expected, "{what}: {shown}");
            if let Some(nagios) = column("nagios") {
                let shown = format!("{shown} --exit-contract nagios");
                assert_eq!(code(&shown, folder.path()), number(&row[nagios]), "{what}: {shown}");
            }
            run += 1;
        }
    }
    assert!(
        tables.len() >= 5 && run >= 18,
        "{} tables, {run} commands: the page is not read right",
        tables.len()
    );
}

/// Checks that every command of the table can end with exactly its listed codes: runs show each code, and no other
/// occurs.
fn assert_commands(rows: &[Vec<String>], folder: &Path) {
    let mut seen: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for machine in ["demo", "h200x2"] {
        journal(folder, machine);
    }
    crate::watch::busy(folder, "");
    for line in [
        "check --machine h200x2 --profile quick",
        "check --machine demo --profile quick",
        "check --machine none",
        "check --machine nosuch",
        "soak --for 1s --machine h200x2 --profile quick --journal=none",
        "soak --for 1s --machine demo --profile quick --journal=none",
        "soak --for 1s --machine none --journal=none",
        "soak --for never",
        "topo --machine h200x2",
        "topo --machine demo",
        "topo --machine none",
        "topo --machine nosuch",
        "watch --machine job.toml --for 2s",
        "watch --machine demo --for 2s",
        "watch --machine h200x2",
        "watch --machine none --for 2s",
        "diagnose report.json",
        "diagnose faulty.json",
        "diagnose incomplete.json",
        "diagnose interrupted.json",
        "diagnose report.json --gpus 0",
        "diagnose report.json --machine demo",
        "recover demo.jsonl",
        "recover h200x2.jsonl",
        "recover nosuch.jsonl",
        "compare before.json before.json",
        "compare before.json slower.json",
        "compare before.json empty.json",
        "compare before.json nosuch.json",
        "fleet report.json",
        "fleet faulty.json",
        "fleet incomplete.json",
        "fleet nosuch.json",
        "fleet report.json -o /nowhere/fleet.html",
        "expect report.json",
        "expect nosuch.json",
        "pick -k 1 report.json",
        "pick -k 8 faulty.json",
        "pick -k 1 nosuch.json",
        "pick -k 1 incomplete.json",
        "explain",
        "explain nosuch",
        "machines",
        "machines --show nosuch",
        "completions bash",
        "completions nosuch",
    ] {
        let name = line.split(' ').next().unwrap();
        seen.entry(name).or_default().insert(code(&format!("peerscope {line}"), folder).unwrap());
    }
    let (mut interrupted, _) = hanging_run(&text_of(&folder.join("stopped.json")));
    signal("INT", interrupted.id());
    seen.get_mut("check").unwrap().insert(wait(&mut interrupted).code().unwrap());
    let series = folder.join("soak.prom");
    let mut soaking = peerscope(&[
        "soak",
        "--for",
        "7d",
        "--machine",
        "h200x2",
        "--profile",
        "quick",
        "--journal=none",
        "--textfile",
        &text_of(&series),
    ]);
    let mut soaking = soaking.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("a minute of the soak", PATIENCE, || series.exists().then_some(()));
    signal("INT", soaking.id());
    seen.get_mut("soak").unwrap().insert(wait(&mut soaking).code().unwrap());

    let stopped = crate::watch::interrupted(&text_of(&folder.join("job.toml")), &[]);
    seen.get_mut("watch").unwrap().insert(stopped.code().unwrap());

    let mut documented: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for row in rows {
        let codes: BTreeSet<i32> = row[1].split(", ").map(|code| code.parse().unwrap()).collect();
        for name in row[0].split(", ") {
            let name = name.trim_matches('`').split(' ').next().unwrap();
            assert!(documented.insert(name, codes.clone()).is_none(), "{name} is there twice");
        }
    }
    assert_eq!(documented, seen, "docs/exit-codes.md, By command; and what the commands do");
    // All commands, except those that only a package or peerscope itself starts.
    let help = finish(&mut peerscope(&["--help"])).stdout;
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let listed: BTreeSet<_> =
        list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let known: BTreeSet<_> = documented.keys().copied().chain(["help"]).collect();
    let missing: Vec<_> =
        listed.iter().filter(|name| peerscope_has(name) && !known.contains(*name)).collect();
    assert!(missing.is_empty(), "docs/exit-codes.md, By command, has no row for {missing:?}");
}

/// Returns true if the name is a command: a line of the list of commands may be the rest of a sentence.
fn peerscope_has(name: &str) -> bool {
    finish(&mut peerscope(&[name, "--help"])).code == Some(0)
}

/// Removes what differs from run to run.
fn without_time(line: &str) -> String {
    line.split(' ')
        .map(|word| if word.starts_with("time=") { "time=" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn every_console_block_of_the_page_shows_what_happens() {
    let (_, blocks) = parsed();
    let (folder, _) = place("");
    let mut run = 0;
    for block in blocks {
        let mut lines = block.into_iter().peekable();
        while let Some(prompt) = lines.next() {
            let shown = prompt.strip_prefix("$ ").unwrap_or_else(|| panic!("no prompt: {prompt}"));
            let line = shown
                .strip_suffix("; echo $?")
                .unwrap_or_else(|| panic!("it shows no code: {shown}"));
            let mut expected: Vec<_> =
                std::iter::from_fn(|| lines.next_if(|line| !line.starts_with("$ "))).collect();
            let code = expected.pop().and_then(|code| code.parse().ok());
            let (line, quiet) =
                line.strip_suffix(" >/dev/null").map_or((line, false), |line| (line, true));
            let ran = finish(&mut command(line, folder.path()));
            assert_eq!(ran.code, code, "{shown}: {ran:?}");
            let stdout = if quiet { "" } else { &ran.stdout };
            let printed: Vec<_> =
                stdout.lines().chain(ran.stderr.lines()).map(without_time).collect();
            assert_eq!(
                printed,
                expected.into_iter().map(without_time).collect::<Vec<_>>(),
                "{shown}"
            );
            run += 1;
        }
    }
    assert!(run >= 4, "{run} commands: the page is not read right");
}
