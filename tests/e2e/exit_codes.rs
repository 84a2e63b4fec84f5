//! Tests of exit codes (docs/exit-codes.md), and of the sentence with each failure.

use crate::common::{
    HARDWARE_REPORT, Ran, changed_report, check, finish, peerscope, place, read_json, run, text_of,
    with, write,
};

const HEALTHY: i32 = 0;
const FAULT: i32 = 1;
const USAGE: i32 = 2;
const UNTESTED: i32 = 3;

#[test]
fn a_run_without_a_verdict_is_unknown_to_nagios() {
    for args in [
        &["check", "--bogus"][..],
        &["frobnicate"],
        &["check", "--machine", "demo", "--profile", "thorough"],
        &["check", "--machine", "nosuch"],
        &["check", "--machine", "demo", "-o", "/nowhere/report.json"],
        &["diagnose", "/nowhere/report.json"],
        &["explain", "no-such-code"],
        &[],
    ] {
        assert_eq!(run(args).code, Some(USAGE), "{args:?}");
        for more in [&["--exit-contract", "nagios"][..], &["--exit-contract=nagios"]] {
            let args = [args, more].concat();
            let ran = run(&args);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{args:?}: {ran:?}");
        }
    }
    assert_eq!(
        run(&["check", "--exit-contract", "icinga"]).code,
        Some(USAGE),
        "no contract that is known"
    );
    assert_eq!(run(&["--help", "--exit-contract", "nagios"]).code, Some(HEALTHY));

    // An interrupted run, according to its report.
    let (_folder, path) =
        changed_report(|report| report["measurements"]["interrupted"] = true.into());
    assert_eq!(run(&["diagnose", &path]).code, Some(130));
    assert_eq!(run(&["diagnose", &path, "--exit-contract", "nagios"]).code, Some(3));
}

#[test]
fn nothing_measured_never_passes() {
    let everything_skipped = run(&with(
        check("h200x2", "standard"),
        &["--skip", "peers,host,overlap,latency,pipeline,async,load,live"],
    ));
    assert_eq!(everything_skipped.code, Some(UNTESTED), "{everything_skipped:?}");
}

#[test]
fn fail_on_moves_the_line() {
    // A report with a warning and nothing worse: nothing overlaps.
    let (_folder, path) = changed_report(|report| {
        for cell in report["measurements"]["overlap"].as_array_mut().unwrap() {
            cell["overlap_percent"] = 0.0.into();
        }
    });
    for (severity, expected) in [("error", HEALTHY), ("warning", FAULT), ("info", FAULT)] {
        let ran = run(&["diagnose", &path, "--fail-on", severity]);
        assert_eq!(ran.code, Some(expected), "{severity}: {ran:?}");
        assert!(ran.stdout.contains("placement-serialises"), "{ran:?}");
        // Below the `--fail-on` severity a warning stays one; at or above it, it is critical.
        let nagios = run(&["diagnose", &path, "--fail-on", severity, "--exit-contract", "nagios"]);
        assert_eq!(
            nagios.code,
            Some(if expected == FAULT { 2 } else { 1 }),
            "{severity}: {nagios:?}"
        );
    }
    assert_eq!(run(&["diagnose", &path]).code, Some(HEALTHY), "the default is error");
}

/// Checks for exit code 2, nothing on stdout, and one sentence of ours that names `what`.
fn assert_refused(args: &[&str], what: &str) -> Ran {
    let ran = run(args);
    assert_eq!(ran.code, Some(USAGE), "{args:?}: {ran:?}");
    assert_eq!(ran.stdout, "", "{args:?}");
    assert!(ran.stderr.contains(what), "{args:?} does not name {what}: {ran:?}");
    ran
}

fn assert_one_line(args: &[&str], what: &str) {
    let ran = assert_refused(args, what);
    assert!(ran.stderr.starts_with("peerscope: "), "{ran:?}");
    assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{args:?}: {ran:?}");
}

#[test]
fn wrong_usage_is_named() {
    // clap reports these, with a line of help after the sentence.
    for (args, what) in [
        (&["--bogus"][..], "--bogus"),
        (&["check", "--bogus"], "--bogus"),
        (&["frobnicate"], "frobnicate"),
        (&["check", "--machine", "demo", "--profile", "thorough"], "thorough"),
        (&["check", "--machine", "demo", "--memory", "1MiB"], "64MiB"),
        (&["check", "--machine", "demo", "--memory", "plenty"], "plenty"),
        (&["check", "--machine", "demo", "--deadline", "never"], "never"),
        (&["check", "--machine", "demo", "--deadline", "-1"], "-1"),
        (&["check", "--machine", "demo", "--overlap-bytes", "1"], "16MiB"),
        (&["check", "--machine", "demo", "--fail-on", "doom"], "doom"),
        (&["check", "--machine", "demo", "--only", "weather"], "weather"),
        (&["check", "--machine", "demo", "--only", "peers", "--skip", "latency"], "--skip"),
        (&["topo", "--machine", "demo", "--format", "yaml"], "yaml"),
        (&["diagnose"], "<FILE>"),
    ] {
        let ran = assert_refused(args, what);
        assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    }
    // peerscope reports these itself.
    assert_one_line(&["topo", "--machine", "nosuch"], "'nosuch'");
    assert_one_line(&["check", "--machine", "nosuch"], "demo");
    assert_refused(&["check", "demo"], "'--machine demo'");
    assert_eq!(run(&["topo", "--machine", "H200x2"]).code, Some(HEALTHY));
    let soak = ["soak", "--for", "1s", "--machine", "h200x2"];
    assert_one_line(&[&soak[..], &["--serial"]].concat(), "--serial");
    assert_one_line(
        &["check", "--machine", "demo", "--profile", "quick", "--only", "latency"],
        "--profile standard",
    );
    assert_one_line(&["explain", "no-such-code"], "'no-such-code'");
    for gpu in ["77", "nonsense", "GPU-12345678-0000-0000-0000-000000000000", "0000:99:00.0", "-"] {
        let gpus = format!("--gpus={gpu}");
        assert_one_line(&["topo", "--machine", "demo", &gpus], &format!("'{gpu}'"));
        assert_one_line(&["check", "--machine", "demo", &gpus], "7 (0000:64:00.0)");
    }
    assert_one_line(&["check", "--machine", "demo", "--gpus", "0,1,77"], "'77'");
}

#[test]
fn a_file_that_cannot_be_written_is_named_before_anything_is_measured() {
    let (folder, as_json) = place("folder.json");
    std::fs::create_dir(&as_json).unwrap();
    let as_json = text_of(&as_json);
    let missing = text_of(&folder.path().join("missing/report.json"));
    let a_folder = text_of(folder.path());
    let files = [
        ("report.xyz", "report.xyz"),
        ("report", "'report'"),
        (missing.as_str(), missing.as_str()),
        (as_json.as_str(), "it is a folder"),
        (a_folder.as_str(), a_folder.as_str()),
        ("/proc/report.json", "/proc/report.json"),
    ];
    for (file, what) in files {
        assert_one_line(&["check", "--machine", "demo", "-o", file], what);
        assert_one_line(&["topo", "--machine", "demo", "-o", file], what);
        assert_one_line(&["diagnose", HARDWARE_REPORT, "-o", file], what);
    }
    assert_one_line(&["check", "--machine", "demo", "-o", "graph.pdf"], "graph.pdf");
    // The first file is fine, and must not hide the second.
    let fine = text_of(&folder.path().join("fine.json"));
    assert_one_line(&["check", "--machine", "demo", "-o", &fine, "-o", &missing], &missing);
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["folder.json"], "something was left behind");
}

#[test]
fn a_report_that_cannot_be_read_is_named() {
    let (folder, _) = place("");
    let whole = read_json(HARDWARE_REPORT).to_string();
    let half: String = whole.chars().take(whole.len() / 2).collect();
    for (name, text, what) in [
        ("empty.json", "", "is empty"),
        ("broken.json", "{]", "not JSON"),
        ("truncated.json", half.as_str(), "not JSON"),
        ("schema-number.json", r#"{"schema": 1}"#, "no \"schema\""),
        ("other.json", r#"{"schema": "peerscope.report/99"}"#, "peerscope.report/99"),
        ("hollow.json", r#"{"schema": "peerscope.report/1"}"#, "tool"),
    ] {
        let path = write(folder.path(), name, text);
        assert_one_line(&["diagnose", &path], what);
        assert_one_line(&["diagnose", &path], &path);
    }
    // JSON of something else is a text that says too little.
    for text in ["[1, 2]", "{}"] {
        let ran = run(&["diagnose", &write(folder.path(), "other.json", text)]);
        assert!(ran.code == Some(3) && ran.stderr.contains("no \"schema\""), "{ran:?}");
    }
    assert_one_line(&["diagnose", "/nowhere/report.json"], "/nowhere/report.json");
    assert_one_line(&["diagnose", &text_of(folder.path())], &text_of(folder.path()));
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"][..], &["--version"], &["check", "--help"], &["explain"], &["machines"]]
    {
        let ran = run(args);
        assert_eq!(ran.code, Some(HEALTHY), "{args:?}");
        assert!(!ran.stdout.is_empty() && ran.stderr.is_empty(), "{args:?}: {ran:?}");
    }
}

#[test]
fn every_code_is_explained() {
    let list = run(&["explain"]).stdout;
    let codes: Vec<_> = list.lines().filter(|line| line.starts_with("  ")).collect();
    // Every rule with a page: the index of docs/rules has a row for each.
    let index = include_str!("../../docs/rules/README.md");
    let pages = index.lines().filter(|line| line.starts_with("| [")).count();
    assert!(pages > 40 && codes.len() == pages, "{list}");
    let narrow = finish(peerscope(&["explain"]).env("COLUMNS", "80")).stdout;
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    for code in codes.into_iter().filter_map(|line| line.split_whitespace().next()) {
        for (more, headings) in [
            (&[][..], &["What it means", "What to do"][..]),
            (&["--verbose"], &["How it is detected", "Sources"]),
        ] {
            let page = finish(peerscope(&["explain", code]).args(more).env("COLUMNS", "80"));
            assert_eq!(page.code, Some(HEALTHY), "{code}");
            for heading in headings {
                assert!(page.stdout.contains(heading), "{code}: no {heading}");
            }
            assert_eq!(page.stdout.contains("How it is detected"), !more.is_empty(), "{code}");
            assert!(page.stdout.ends_with('\n'), "{code}: the page does not end its last line");
            let is_long = |line: &&str| line.chars().count() > 80 && line.contains(' ');
            assert_eq!(page.stdout.lines().find(is_long), None, "{code}");
        }
    }
}

#[test]
fn a_word_finds_the_rules_that_have_it() {
    let found = run(&["explain", "Narrow"]);
    assert_eq!(found.code, Some(HEALTHY), "{found:?}");
    for code in ["pcie-narrow ", "pcie-narrow-by-design ", "adapter-link-narrow "] {
        assert_eq!(found.stdout.matches(code).count(), 1, "{found:?}");
    }
    assert!(!found.stdout.contains("data-wrong"), "{found:?}");
}

/// Tries every option that cannot have an effect, as docs/exit-codes.md lists them.
#[test]
fn options_without_effect_are_refused() {
    let machine = ["--machine", "demo"];
    let (folder, _) = place("");
    let config = write(folder.path(), "config.toml", "");
    let globals = [
        &machine[..],
        &["--machine", "live"],
        &["--gpus", "0"],
        &["--driver-deadline", "3"],
        &["--config", &config],
    ];
    let report = HARDWARE_REPORT;
    for (command, effective) in [
        (&["diagnose", report][..], &["--config"][..]),
        (&["compare", report, report], &["--config"]),
        (&["recover", "/nowhere/journal"], &["--config"]),
        (&["expect", report], &[]),
        (&["explain"], &[]),
        (&["explain", "pcie-narrow"], &[]),
        (&["machines"], &[]),
        (&["machines", "--show", "demo"], &[]),
    ] {
        for global in globals {
            if effective.contains(&global[0]) {
                continue;
            }
            for args in [[command, global].concat(), [global, command].concat()] {
                assert_one_line(
                    &args,
                    &format!("peerscope: {} has no effect on {}", global[0], command[0]),
                );
            }
        }
        // These two options mean the same for every command.
        if command[0] != "recover" {
            let args = [command, &["--color", "never", "--exit-contract", "nagios"]].concat();
            assert_eq!(run(&args).code, Some(0), "{args:?}");
        }
    }
    for more in [
        &["--format", "json"][..],
        &["--format", "line", "-o", "/tmp/x.md"],
        &["--format", "junit"],
    ] {
        for command in
            [&["check"][..], &["topo"], &["diagnose", report], &["recover", "/nowhere/journal"]]
        {
            assert_one_line(&[command, more, &["--verbose"]].concat(), "--verbose: ");
        }
    }
    let verbose_in_a_file = [
        "topo",
        "--machine",
        "single",
        "-v",
        "--format",
        "line",
        "-o",
        &text_of(&folder.path().join("x.html")),
    ];
    assert_eq!(run(&verbose_in_a_file).code, Some(0));
    for (args, what) in [
        (&["check", "--profile", "quick", "--skip", "latency"][..], "--skip"),
        (&["check", "--profile", "quick", "--skip", "overlap,latency"], "--skip"),
        (&["check", "--profile", "quick", "--only", "latency"], "--only"),
        (&["check", "--profile", "quick", "--overlap-bytes", "32MiB"], "--overlap-bytes"),
        (&["check", "--skip", "overlap", "--overlap-bytes", "32MiB"], "--overlap-bytes"),
        (&["check", "--only", "peers", "--overlap-bytes", "32MiB"], "--overlap-bytes"),
        (&["check", "-o", "/tmp/x.json", "-o", "/tmp/../tmp/x.json"], "is the same file"),
        // The journal is removed at the end.
        (&["check", "-o", "/tmp/x.json", "--journal", "/tmp/../tmp/x.json"], "is the same file"),
        (&["check", "--overlap-bytes", "2GiB"], "more than --memory"),
    ] {
        assert_one_line(&[args, &machine].concat(), what);
    }
    // clap refuses these: a single-valued option given twice, and options that exclude each other.
    for more in [
        &["--format", "text", "--format", "json"][..],
        &["--profile", "quick", "--profile", "full"],
        &["--fail-on", "info", "--fail-on", "info"],
        &["--journal", "/tmp/x", "--journal", "none"],
        &["--only", "peers", "--skip", "overlap"],
        &["--machine", "demo"],
    ] {
        assert_refused(&[&["check"], &machine[..], more].concat(), more[0]);
    }
}

#[test]
fn a_name_that_is_nearly_right_gets_a_suggestion() {
    let (folder, _) = place("");
    for (name, text, meant) in [
        ("severity.toml", "[severity]\npcie-narow = \"off\"\n", "'pcie-narrow'"),
        ("parameters.toml", "[parameters.peer-copy-unevn]\n", "'peer-copy-uneven'"),
        (
            "parameter.toml",
            "[parameters.peer-copy-uneven]\nfloor_copy_percnt = 3\n",
            "'floor_copy_percent'",
        ),
        ("class.toml", "[expected.nvlink4]\n", "'nvlink-4'"),
    ] {
        let file = write(folder.path(), name, text);
        assert_one_line(
            &["diagnose", HARDWARE_REPORT, "--config", &file],
            &format!("did you mean {meant}?"),
        );
    }
    for (args, meant) in [
        (&["topo", "--machine", "h200x9"][..], "did you mean 'h200x8'?"),
        (&["check", "--machine", "lvie"], "did you mean 'live'?"),
        (&["check", "--machine", "h200"], "did you mean 'h200x8'?"),
        (&["machines", "--show", "dem"], "did you mean 'demo'?"),
        (&["explain", "PCIE_NARROW"], "did you mean 'pcie-narrow'?"),
        (&["explain", "not-testd"], "did you mean 'not-tested'?"),
    ] {
        assert_one_line(args, meant);
    }
    for (args, meant) in [
        (&["check", "--only", "peer"][..], "'peers'"),
        (&["check", "--skip", "latncy"], "'latency'"),
        (&["check", "--profile", "quik"], "'quick'"),
        (&["check", "--fail-on", "eror"], "'error'"),
        (&["topo", "--format", "jsn"], "'json'"),
        (&["chek"], "'check'"),
        (&["check", "--profil", "quick"], "'--profile'"),
        (&["topo", "--exit-contract", "nagois"], "'nagios'"),
    ] {
        assert_refused(args, if args.len() == 1 { "similar subcommand" } else { "similar" });
        assert_refused(args, meant);
    }
    assert!(!run(&["explain", "zzz"]).stderr.contains("did you mean"));
}
