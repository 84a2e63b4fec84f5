//! Tests of the scripts in scripts/provisioning, started as their callers start them, over simulated machines.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    Ran, finish, is_there, peerscope, place, program_text, read_json, skipped_for_want_of, text_of,
    wait, write,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/provisioning");

/// Shell scripts among the examples; a test compares the list with the folder.
const SCRIPTS: [&str; 6] = [
    "accept-node",
    "check_peerscope",
    "node-problem-detector-plugin",
    "peerscope.nhc",
    "slurm-check-idle",
    "slurm-health-check",
];

pub(crate) fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(FOLDER).join(name));
    command.env("PEERSCOPE", program_text()).env_remove("PEERSCOPE_ARGS");
    command
}

/// Creates a program that does this, in a folder.
pub(crate) fn stand_in(folder: &Path, name: &str, does: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = PathBuf::from(write(folder, name, &format!("#!/bin/bash\n{does}\n")));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn shellcheck_has_nothing_to_say() {
    let mut found: Vec<_> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        // scripts/provisioning-test starts those in subfolders.
        .filter(|path| {
            path.is_file()
                && std::fs::read_to_string(path).unwrap().starts_with("#!/usr/bin/env bash\n")
        })
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    found.sort();
    assert_eq!(found, SCRIPTS);
    if !is_there("shellcheck") {
        return skipped_for_want_of("shellcheck");
    }
    let ran = finish(Command::new("shellcheck").args(SCRIPTS).current_dir(FOLDER));
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
}

#[test]
fn the_nagios_plugin_says_one_line_and_its_word() {
    let quick = ["check", "--profile", "quick", "--machine"];
    for (args, code, start) in [
        ([&quick[..], &["demo"]].concat(), 2, "PEERSCOPE CRITICAL - SIMULATED demo: pcie-narrow"),
        ([&quick[..], &["h200x2"]].concat(), 0, "PEERSCOPE OK - SIMULATED h200x2: 2 GPUs"),
        (
            [&quick[..], &["exclusive"]].concat(),
            3,
            "PEERSCOPE UNKNOWN - SIMULATED exclusive: not-tested",
        ),
        (
            vec!["topo", "--machine", "gpu-lost"],
            2,
            "PEERSCOPE CRITICAL - SIMULATED gpu-lost: gpu-unreachable",
        ),
        (
            vec!["topo", "--machine", "fabric-down"],
            2,
            "PEERSCOPE CRITICAL - SIMULATED fabric-down: fabric-not-ready",
        ),
        (vec!["topo", "--machine", PROHIBITED], 3, "PEERSCOPE UNKNOWN - SIMULATED "),
        (vec!["topo", "--bogus"], 3, "PEERSCOPE UNKNOWN - error: unexpected argument '--bogus'"),
        (vec!["topo", "--machine", "nosuch"], 3, "PEERSCOPE UNKNOWN - peerscope: "),
    ] {
        assert_line(&finish(script("check_peerscope").args(&args)), code, start);
    }
    let missing = finish(script("check_peerscope").env("PEERSCOPE", "/nowhere/peerscope"));
    assert_line(&missing, 3, "PEERSCOPE UNKNOWN - there is no program '/nowhere/peerscope'");
    let (folder, _) = place("");
    let hangs = stand_in(folder.path(), "hangs", "exec sleep 60");
    let hung =
        finish(script("check_peerscope").env("PEERSCOPE", hangs).env("PEERSCOPE_LIMIT", "1"));
    assert_line(&hung, 3, "PEERSCOPE UNKNOWN - no answer within 1 s");
}

fn assert_line(ran: &Ran, code: i32, start: &str) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert!(ran.stdout.starts_with(start), "{ran:?}");
    assert_eq!(ran.stdout.trim_end().lines().count(), 1, "{ran:?}");
}

/// Creates a folder of state with the journal of a run that was killed.
fn state_with_a_journal() -> (tempfile::TempDir, PathBuf) {
    let (folder, state) = place("state");
    let host = finish(Command::new("uname").arg("-n")).stdout;
    let journals = state.join("peerscope");
    std::fs::create_dir_all(&journals).unwrap();
    let header = serde_json::json!({
        "schema": "peerscope.journal/5", "tool": {"name": "peerscope", "version": "0.1.0"},
        "started_at": "2026-11-20T03:00:00Z", "machine": "live", "profile": "quick", "pid": 1, "args": ["check"],
    });
    write(&journals, &format!("20261120T030000Z-1@{}.jsonl", host.trim()), &format!("{header}\n"));
    (folder, state)
}

#[test]
fn plugins_say_the_verdict_and_no_remark() {
    let quick = |machine| ["check", "--profile", "quick", "--machine", machine];
    for (machine, nagios, detector) in [("h200x2", 0, 0), ("demo", 2, 1), ("none", 3, 3)] {
        for (plugin, code) in
            [("check_peerscope", nagios), ("node-problem-detector-plugin", detector)]
        {
            let (_folder, state) = state_with_a_journal();
            let ran = finish(script(plugin).args(quick(machine)).env("XDG_STATE_HOME", state));
            assert_line(&ran, code, "PEERSCOPE ");
            assert!(ran.stdout.contains(&format!("SIMULATED {machine}: ")), "{ran:?}");
        }
    }
    // Remarks before and after the verdict, and output without a verdict.
    let (folder, _) = place("");
    let verdict = "PEERSCOPE OK - 8 GPUs | errors=0";
    for (says, exit, nagios, detector, line) in [
        (
            format!("echo 'a remark' >&2; echo '{verdict}'; echo 'PEER' >&2"),
            0,
            0,
            0,
            "PEERSCOPE OK - 8 GPUs",
        ),
        ("echo 'peerscope: PEERSCOPE OK - all is well' >&2".into(), 0, 3, 2, ""),
        ("true".into(), 1, 3, 2, ""),
        ("echo 'peerscope: PEERSCOPE CRITICAL - x' >&2".into(), 1, 3, 2, ""),
        ("echo 'peerscope: cannot' >&2".into(), 2, 3, 2, ""),
        ("echo 'peerscope: cannot' >&2".into(), 3, 3, 3, ""),
    ] {
        let program = stand_in(folder.path(), "peerscope", &format!("{says}\nexit {exit}"));
        for (plugin, code) in
            [("check_peerscope", nagios), ("node-problem-detector-plugin", detector)]
        {
            let ran = finish(script(plugin).env("PEERSCOPE", &program));
            assert_line(&ran, code, line);
            assert!(
                line.starts_with("PEERSCOPE") || !ran.stdout.starts_with("PEERSCOPE OK"),
                "{ran:?}"
            );
        }
        // Only a verdict marks the node; with `strict`, a missing verdict does too.
        let is_verdict = line.starts_with("PEERSCOPE");
        for (argument, code) in [("", 0), ("strict", i32::from(!is_verdict))] {
            let ran = node_health_check(&program, argument);
            assert_eq!(ran.code, Some(code), "{says}, {exit}: {ran:?}");
            assert!(!ran.stdout.contains("remark"), "{ran:?}");
            let heard = if code == 0 { "logged " } else { "died 1 " };
            assert!(is_verdict || ran.stdout.starts_with(heard), "{ran:?}");
            assert_eq!(ran.stdout.contains("no verdict: "), !is_verdict, "{ran:?}");
            assert_eq!(ran.stdout.trim_end().lines().count(), usize::from(!is_verdict), "{ran:?}");
        }
    }
}

/// Runs the check of Node Health Check with this program.
pub(crate) fn node_health_check(program: &Path, argument: &str) -> Ran {
    // NHC sources the file and provides these two functions.
    let nhc = format!(
        "die() {{ echo \"died $*\"; }}; log() {{ echo \"logged $*\"; }}; . {FOLDER}/peerscope.nhc; check_peerscope {argument}"
    );
    finish(Command::new("bash").args(["-c", &nhc]).env("PEERSCOPE", text_of(program)))
}

#[test]
fn names_of_a_machine_are_no_commands_of_the_terminal() {
    if !is_there("jq") {
        return skipped_for_want_of("jq");
    }
    let (folder, _) = place("");
    let report = serde_json::json!({"findings": [{
        "severity": "error", "code": "pcie-narrow", "message": "GPU 5 in slot \u{1b}[2J\u{9b}1m\u{202e}6\nPEERSCOPE OK",
        "next_step": "reseat \u{7}it",
    }]});
    let file = write(folder.path(), "r.json", &report.to_string());
    let does = format!(
        "while [ $# -gt 0 ]; do case $1 in *.json) cp {file} \"$1\" ;; esac; shift; done; exit 1"
    );
    let program = stand_in(folder.path(), "peerscope", &does);
    let ran = finish(
        script("accept-node")
            .env("PEERSCOPE", program)
            .env("PEERSCOPE_REPORTS", folder.path().join("reports")),
    );
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let acts = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!ran.stderr.contains(acts), "{ran:?}");
    assert!(
        ran.stderr.contains("error: GPU 5 in slot ?[2J?1m?6?PEERSCOPE OK [pcie-narrow]"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("    do: reseat ?it\n"), "{ran:?}");
}

/// A machine with a GPU on which no program can start.
const PROHIBITED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/gpu-in-prohibited-mode.toml");

#[test]
fn node_health_check_marks_a_node_by_facts() {
    let (folder, _) = place("");
    for (machine, strict, heard) in [
        (
            "fabric-down",
            "",
            "died 1 check_peerscope: PEERSCOPE CRITICAL - SIMULATED fabric-down: fabric-not-ready",
        ),
        (
            "h200x8-links-down",
            "",
            "died 1 check_peerscope: PEERSCOPE CRITICAL - SIMULATED h200x8-links-down: nvlink-inactive",
        ),
        (PROHIBITED, "", "logged check_peerscope: exit code 3: PEERSCOPE UNKNOWN - "),
        (PROHIBITED, "strict", "died 1 check_peerscope: PEERSCOPE UNKNOWN - "),
        ("h200x8", "strict", ""),
    ] {
        let does = format!("exec {} \"$@\" --machine {machine}", program_text());
        let program = stand_in(folder.path(), "peerscope", &does);
        let ran = node_health_check(&program, strict);
        assert!(ran.stdout.starts_with(heard), "{machine}: {ran:?}");
        assert_eq!(ran.stdout.is_empty(), heard.is_empty(), "{machine}: {ran:?}");
    }
}

#[test]
fn an_old_journal_is_reported_once_and_can_still_be_recovered() {
    let (_folder, state) = state_with_a_journal();
    let run = |args: &[&str]| finish(peerscope(args).env("XDG_STATE_HOME", &state));
    let told: Vec<_> = (0..3)
        .map(|_| {
            run(&["check", "--machine", "single", "--profile", "quick"]).stderr.lines().count()
        })
        .collect();
    assert_eq!(told, [1, 0, 0]);
    let recovered = run(&["recover", "--format", "json"]);
    assert_eq!(recovered.json()["started_at"], "2026-11-20T03:00:00Z");
}

#[test]
fn the_node_problem_detector_hears_of_problems_alone() {
    for (machine, code) in [
        ("demo", 1),
        ("fabric-down", 1),
        ("h200x8-links-down", 1),
        (PROHIBITED, 3),
        ("h200x8", 0),
        ("none", 3),
    ] {
        let ran =
            finish(script("node-problem-detector-plugin").args(["topo", "--machine", machine]));
        assert_line(&ran, code, "PEERSCOPE ");
        assert!(!ran.stdout.contains('|') && ran.stdout.len() <= 200, "{ran:?}");
    }
    let missing =
        finish(script("node-problem-detector-plugin").env("PEERSCOPE", "/nowhere/peerscope"));
    assert_line(&missing, 2, "there is no program");
    let rules = read_json(Path::new(FOLDER).join("node-problem-detector.json"));
    assert!(rules["rules"][0]["path"].as_str().unwrap().ends_with("/node-problem-detector-plugin"));
}

/// Runs the health check over this machine, on a node for which Slurm's `scontrol show node` prints `node`. Returns the
/// run with its log in `stderr`, its requests to Slurm, and the folder with its reports.
fn slurm_health_check(
    machine: &str,
    node: &str,
    job: Option<&str>,
) -> (Ran, String, tempfile::TempDir) {
    health_check(node, job, |command| {
        command.env("PEERSCOPE_ARGS", format!("--machine {machine}"));
    })
}

/// Like [`slurm_health_check`], over the machine or program that `with` sets.
pub(crate) fn health_check(
    node: &str,
    job: Option<&str>,
    with: impl FnOnce(&mut Command),
) -> (Ran, String, tempfile::TempDir) {
    let (folder, said) = place("scontrol.log");
    let shown = write(folder.path(), "node", node);
    let does = format!(
        "[ \"$1\" = show ] && exec cat {shown}\nprintf '%s\\n' \"$@\" >>{}",
        said.display()
    );
    stand_in(folder.path(), "scontrol", &does);
    stand_in(folder.path(), "logger", &format!("echo \"$@\" >>{}/logged", folder.path().display()));
    let mut command = script("slurm-health-check");
    command.env("PATH", format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap()));
    command
        .env("PEERSCOPE_REPORTS", folder.path())
        .env("SLURMD_NODENAME", "node7")
        .env_remove("SLURM_JOB_ID");
    command.envs(job.map(|job| ("SLURM_JOB_ID", job)));
    with(&mut command);
    let ran = finish(&mut command);
    assert_eq!(ran.stderr, "");
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let logged = text(&folder.path().join("logged"));
    (Ran { stderr: logged, ..ran }, text(&said), folder)
}

pub(crate) const IN_SERVICE: &str =
    "NodeName=node7 Arch=x86_64\n   State=IDLE ThreadsPerCore=1\n   Partitions=all\n";

#[test]
fn slurm_drains_with_the_finding_as_its_reason() {
    for (machine, reason) in [
        ("demo", Some("Reason=peerscope: SIMULATED demo: pcie-narrow: ")),
        ("exclusive", Some("Reason=peerscope: no verdict: SIMULATED exclusive: not-tested: ")),
        ("h200x2", None),
    ] {
        for job in [None, Some("1")] {
            let (ran, asked, folder) = slurm_health_check(machine, IN_SERVICE, job);
            // A prolog also fails, after it has given the reason.
            assert_eq!(ran.code, Some(i32::from(reason.is_some() && job.is_some())), "{ran:?}");
            match reason {
                Some(reason) => {
                    assert!(
                        asked.contains("NodeName=node7\nState=DRAIN\n") && asked.contains(reason),
                        "{asked}"
                    );
                    assert!(!asked.contains('|'), "{asked}");
                }
                None => assert_eq!(asked, ""),
            }
            assert_eq!(read_json(folder.path().join("last.json"))["machine"], machine);
        }
    }
}

#[test]
fn slurm_keeps_what_somebody_else_set() {
    let ours = "Reason=peerscope: SIMULATED demo: pcie-narrow: x4 [root@2026-11-21T16:57:32]";
    // State, the line of the reason, and true if the check drains it with a reason of ours.
    for (state, reason, drained) in [
        ("IDLE", "", true),
        ("MIXED+PLANNED", "", true),
        ("IDLE", "Reason=left from last year [kim@2025-01-01T00:00:00]", true),
        ("IDLE+DRAIN", ours, true),
        ("DOWN*+DRAIN", ours, true),
        ("DOWN*", "Reason=Not responding [slurm@2026-11-21T16:57:32]", true),
        ("DOWN", "Reason=Node unexpectedly rebooted [slurm@2026-11-21T16:57:32]", true),
        ("IDLE+DRAIN", "Reason=ask Kim [root@2026-11-21T16:57:32]", false),
        ("IDLE+DRAIN", "Reason=ask Kim about peerscope: x4 [root@2026-11-21T16:57:32]", false),
        ("ALLOCATED+DRAIN", "Reason=Prolog error [slurm@2026-11-21T16:57:32]", false),
        ("IDLE+DRAIN", "", false),
        ("DOWN", "Reason=ask Kim [root@2026-11-21T16:57:32]", false),
        ("DOWN*+DRAIN", "Reason=Not responding [root@2026-11-21T16:57:32]", false),
        ("FAILING", "Reason=ask Kim [root@2026-11-21T16:57:32]", false),
    ] {
        let node = format!(
            "NodeName=node7\n   State={state} ThreadsPerCore=1\n   {reason}\n   Comment=Reason=none\n"
        );
        for job in [None, Some("1")] {
            let (ran, asked, folder) = slurm_health_check("demo", &node, job);
            assert_eq!(asked.contains("State=DRAIN"), drained, "{state}, {reason}: {ran:?}");
            assert_eq!(ran.code, Some(i32::from(job.is_some())), "{ran:?}");
            // Nothing is copied on a node that is not ours, unless a job is about to start there.
            assert_eq!(
                folder.path().join("last.json").exists(),
                drained || job.is_some(),
                "{state}, {reason}: {ran:?}"
            );
            assert_eq!(ran.stderr.contains("somebody else"), !drained, "{ran:?}");
        }
    }
    // If Slurm does not answer, nothing is set, and slurmd asks again before the node is in service.
    let (ran, asked, _) = slurm_health_check("demo", "", None);
    assert_eq!((ran.code, asked.as_str()), (Some(1), ""), "{ran:?}");
    // A repaired node stays drained until a person gives it back.
    let (ran, asked, _) =
        slurm_health_check("h200x2", &format!("   State=IDLE+DRAIN\n   {ours}\n"), None);
    assert_eq!((ran.code, asked.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stderr.contains("State=RESUME gives it back"), "{ran:?}");
}

#[test]
fn a_node_is_accepted_or_rejected_with_its_reports() {
    for (machine, code) in [("demo", 1), ("h200x2", 0), ("none", 3)] {
        let (folder, _) = place("");
        let ran = finish(
            script("accept-node")
                .env("PEERSCOPE_ARGS", format!("--machine {machine}"))
                .env("PEERSCOPE_REPORTS", folder.path()),
        );
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains("says nothing about this server"), "{ran:?}");
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            2,
            "a report as JSON and as text"
        );
    }
}

#[test]
fn an_accepted_node_keeps_no_warning_to_itself() {
    if !is_there("jq") {
        return skipped_for_want_of("jq");
    }
    for (more, code, said) in
        [("", 0, "accepted with the warnings above"), (" --fail-on warning", 1, "REJECTED")]
    {
        let (folder, _) = place("");
        let ran = finish(
            script("accept-node")
                .env("PEERSCOPE_ARGS", format!("--machine desktop{more}"))
                .env("PEERSCOPE_REPORTS", folder.path()),
        );
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains("warning: ") && ran.stderr.contains(said), "{ran:?}");
    }
}

#[test]
fn runs_of_accept_node_do_not_overwrite_each_other() {
    let (folder, _) = place("");
    // The clock stands still, so that all runs fall into one second.
    stand_in(folder.path(), "date", "echo 20261121T120000Z");
    let reports = folder.path().join("reports");
    let start = |machine: &str| {
        let mut command = script("accept-node");
        command
            .env("PATH", format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap()));
        command
            .env("PEERSCOPE_ARGS", format!("--machine {machine} --profile quick"))
            .env("PEERSCOPE_REPORTS", &reports);
        command.stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let machines = ["h200x2", "demo", "single", "none"];
    let runs: Vec<_> = machines.map(start).into_iter().collect();
    let codes: Vec<_> = runs.into_iter().map(|mut run| wait(&mut run).code()).collect();
    assert_eq!(codes, [Some(0), Some(1), Some(0), Some(3)]);
    let files: Vec<_> =
        std::fs::read_dir(&reports).unwrap().map(|entry| entry.unwrap().path()).collect();
    let json =
        files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    let mut seen: Vec<_> = json.map(read_json).collect();
    assert_eq!((files.len(), seen.len()), (8, 4));
    // The caller's profile replaced the script's.
    assert!(seen.iter().all(|report| report["measurements"]["profile"] == "quick"));
    seen.sort_by_key(|report| machines.iter().position(|machine| report["machine"] == *machine));
    let seen: Vec<_> = seen.iter().map(|report| report["machine"].as_str().unwrap()).collect();
    assert_eq!(seen, machines);
    // A run without a report leaves no file.
    assert_eq!(wait(&mut start("nosuch")).code(), Some(2));
    assert_eq!(std::fs::read_dir(&reports).unwrap().count(), 8);
}

#[test]
fn nhc_marks_a_node_for_a_fault_and_only_strictly_for_the_unknown() {
    let (folder, _) = place("");
    for (says, exit, argument, code, heard) in [
        ("PEERSCOPE OK - 8 GPUs | errors=0", 0, "", 0, ""),
        (
            "PEERSCOPE CRITICAL - pcie-narrow: x4 | errors=1",
            1,
            "",
            1,
            "died 1 check_peerscope: PEERSCOPE CRITICAL - pcie-narrow: x4",
        ),
        (
            "PEERSCOPE UNKNOWN - nothing | errors=0",
            3,
            "",
            0,
            "logged check_peerscope: exit code 3: PEERSCOPE UNKNOWN - nothing",
        ),
        (
            "PEERSCOPE UNKNOWN - nothing | errors=0",
            3,
            "strict",
            1,
            "died 1 check_peerscope: PEERSCOPE UNKNOWN - nothing",
        ),
    ] {
        let program = stand_in(folder.path(), "peerscope", &format!("echo '{says}'; exit {exit}"));
        let ran = node_health_check(&program, argument);
        assert_eq!((ran.code, ran.stdout.trim_end()), (Some(code), heard), "{ran:?}");
    }
}

#[test]
fn systemd_takes_the_units() {
    if !is_there("systemd-analyze") {
        return skipped_for_want_of("systemd-analyze (Debian: systemd)");
    }
    let (folder, _) = place("");
    let service =
        std::fs::read_to_string(Path::new(FOLDER).join("peerscope-textfile.service")).unwrap();
    let timer =
        std::fs::read_to_string(Path::new(FOLDER).join("peerscope-textfile.timer")).unwrap();
    // systemd checks that the program exists.
    let program = "/usr/bin/env peerscope";
    assert!(service.contains(&format!("ExecStart={program} topo ")));
    let service = service
        .replace(&format!("ExecStart={program} "), &format!("ExecStart={} ", program_text()));
    let units = [
        write(folder.path(), "peerscope-textfile.service", &service),
        write(folder.path(), "peerscope-textfile.timer", &timer),
    ];
    let ran = finish(Command::new("systemd-analyze").arg("verify").args(&units));
    let about_ours: Vec<_> = ran.stderr.lines().filter(|line| line.contains("peerscope")).collect();
    assert!(about_ours.is_empty(), "{ran:?}");

    // The service's command works on a machine of ours.
    let file = folder.path().join("peerscope.prom");
    let line = service.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let words =
        words.map(|word| if word.ends_with(".prom") { text_of(&file) } else { word.to_owned() });
    let ran = finish(command.args(words).args(["--machine", "demo"]));
    assert_eq!(ran.code, Some(1));
    assert!(service.contains("SuccessExitStatus=1 3"));
    // The unit is root's, and the folder may not be.
    assert!(service.contains("ProtectSystem=strict\n"));
    assert!(std::fs::read_to_string(&file).unwrap().contains("\npeerscope_exit_code 1\n"));
}
