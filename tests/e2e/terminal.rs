//! Tests of a terminal's page: its length, its width, and the progress during measurements.

use std::process::Command;

use crate::common::{
    DEMO, H200X8, Ran, check, finish, fresh_state, golden, is_there, peerscope, place,
    program_text, redact, skipped_for_want_of, with, write_json,
};

/// Returns the text of `diagnose` for a report on a terminal of this width.
fn diagnosed(report: &serde_json::Value, width: usize, more: &[&str]) -> String {
    let folder = place("").0;
    let path = write_json(folder.path(), "report.json", report);
    let mut args = vec!["diagnose", &path];
    args.extend(more);
    finish(peerscope(&args).env("COLUMNS", width.to_string())).stdout
}

#[test]
fn a_healthy_machine_of_eight_gpus_fits_twelve_lines_and_all_of_it_a_few_screens() {
    for width in [80, 140] {
        let page = diagnosed(&H200X8, width, &[]);
        assert!(page.lines().count() <= 12, "{} lines: {page}", page.lines().count());
        assert!(page.lines().all(|line| line.chars().count() <= width), "{page}");
        for part in ["56 of 56 pairs copy directly", "pinned host copies", "100% of healthy"] {
            assert!(page.split_whitespace().collect::<Vec<_>>().join(" ").contains(part), "{page}");
        }
    }
    for width in [80, 140] {
        let page = diagnosed(&H200X8, width, &["--verbose"]);
        assert!(page.lines().count() <= 150, "{} lines: {page}", page.lines().count());
    }
    golden("h200x8-80", &redact(&diagnosed(&H200X8, 80, &[])));
}

#[test]
fn a_faulty_machine_says_first_what_is_wrong() {
    for width in [80, 140] {
        for more in [&[][..], &["--verbose"]] {
            let page = diagnosed(&DEMO, width, more);
            assert!(page.lines().all(|line| line.chars().count() <= width), "{page}");
        }
        let page = diagnosed(&DEMO, width, &[]);
        // The fault, the next step and the part come before any figure, and on one screen.
        let top: Vec<&str> = page.lines().take(40).collect();
        for words in [
            "FAULTY: ",
            "[pcie-narrow]",
            "[peer-access-missing]",
            "do       Power off",
            "part     GPU 5: NVIDIA L40S, slot 6",
        ] {
            assert!(top.iter().any(|line| line.contains(words)), "{words}: {page}");
        }
    }
    golden("demo-80", &redact(&diagnosed(&DEMO, 80, &[])));
}

#[test]
fn one_or_two_findings_fit_a_screen() {
    for machine in ["demo", "rtx3090x4", "gpu-lost", "fabric-down", "h200x8-links-down"] {
        let mut command = peerscope(&with(check(machine, "standard"), &["--journal=none"]));
        let page = finish(command.env("COLUMNS", "80")).stdout;
        let findings =
            page.lines().filter(|line| line.starts_with("ERROR ") || line.starts_with("warning "));
        assert!((1..=2).contains(&findings.count()), "{machine}: {page}");
        assert!(page.lines().count() <= 24, "{machine}, {} lines: {page}", page.lines().count());
    }
}

#[test]
fn figures_and_every_table_are_of_pages_for_people() {
    for option in ["--figures", "--verbose"] {
        let ran =
            crate::common::run(&with(check("single", "quick"), &[option, "--format", "json"]));
        let what = format!("{option}: only the formats text and html");
        assert!(ran.code == Some(2) && ran.stderr.contains(&what), "{ran:?}");
    }
}

/// A script that runs a shell command on a pseudo-terminal of 100 columns, and prints everything written to it.
const AT_A_TERMINAL: &str = r#"
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    os.execvp("sh", ["sh", "-c", sys.argv[1]])
seen = b""
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    seen += part
os.waitpid(pid, 0)
sys.stdout.buffer.write(seen)
"#;

fn at_a_terminal(script: &str) -> Option<Ran> {
    if !is_there("python3") {
        skipped_for_want_of("python3");
        return None;
    }
    let script = script.replace("peerscope", &program_text());
    let mut command = Command::new("python3");
    command.args(["-c", AT_A_TERMINAL, &script]).env("TERM", "xterm").env("NO_COLOR", "1");
    let state = fresh_state();
    let lock = state.strip_prefix(env!("CARGO_TARGET_TMPDIR")).unwrap().to_owned();
    Some(finish(command.env("XDG_STATE_HOME", state).env("PEERSCOPE_LOCK", lock)))
}

/// Returns the final content of a terminal: each line after its last carriage return, without control sequences.
fn shown(seen: &str) -> String {
    let line = |line: &str| {
        let last = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
        let last = last.rsplit("\u{1b}[2K").next().unwrap_or_default();
        last.to_owned()
    };
    seen.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn while_a_pair_hangs_the_time_left_is_shown_and_the_line_is_cleared_in_the_end() {
    let run = "peerscope check --machine pair-hangs --profile quick --deadline 3 --journal=none";
    let Some(ran) = at_a_terminal(&format!("{run} > /dev/null")) else {
        return;
    };
    for words in ["no answer for 1 s, given up in 2 s; ", " s left", "GPU 1 → GPU 2: "] {
        assert!(ran.stdout.contains(words), "{words}: {:?}", ran.stdout);
    }
    assert_eq!(shown(&ran.stdout).trim(), "", "{:?}", ran.stdout);
    // Nothing is printed if stderr is not a terminal.
    let quiet = crate::common::run(&with(check("pair-hangs", "quick"), &[]));
    assert_eq!(quiet.stderr, "", "{quiet:?}");
}

#[test]
fn at_a_terminal_the_page_of_a_fleet_ends_with_its_findings_and_verdict() {
    let (folder, _) = place("");
    let report = |name: &str, machine: &serde_json::Value| {
        let mut report = machine.clone();
        report["snapshot"]["host"]["hostname"] = name.into();
        write_json(folder.path(), &format!("{name}.json"), &report)
    };
    let all = [report("n1", &DEMO), report("n2", &H200X8), report("n3", &H200X8)];
    let Some(ran) =
        at_a_terminal(&format!("peerscope fleet --verbose --nodes 'n[1-4]' {}", all.join(" ")))
    else {
        return;
    };
    let lines: Vec<&str> = ran.stdout.lines().map(|line| line.trim_end_matches('\r')).collect();
    assert!(lines.len() > 24, "{lines:#?}");
    let end = &lines[lines.len() - 24..];
    let verdict = end.iter().position(|line| line.starts_with("FAULTY: 1 of 3")).unwrap();
    assert!(end[..verdict].iter().any(|line| line.contains("[fleet-node-missing]")), "{end:#?}");
}

#[test]
fn at_a_terminal_the_verdict_is_the_last_line_of_a_long_page() {
    let Some(ran) = at_a_terminal(
        "peerscope check --machine demo --profile quick --figures --journal=none 2> /dev/null",
    ) else {
        return;
    };
    let lines: Vec<&str> = ran.stdout.lines().map(|line| line.trim_end_matches('\r')).collect();
    let verdicts: Vec<usize> =
        (0..lines.len()).filter(|&line| lines[line].starts_with("FAULTY: 2 errors")).collect();
    assert_eq!(verdicts.len(), 2, "{lines:#?}");
    assert_eq!(verdicts[1], lines.len() - 1, "{lines:#?}");
    assert!(lines[verdicts[1] - 3..].iter().any(|line| line.starts_with("ERROR")), "{lines:#?}");
}

/// Ten faulty machines of different kinds: part, place and first step appear within ten lines of 80 columns that begin with
/// the verdict. Only a simulated machine has lines before it.
#[test]
fn part_place_and_first_step_of_ten_faulty_machines_are_known_in_ten_lines() {
    let mut complaints = Vec::new();
    for (case, part, place, step) in [
        ("x16-trained-x4", "GPU 7", "slot 8", "eseat GPU 7"),
        ("corrupt-into-one-gpu", "GPU 4", "slot 5", "NCCL_P2P_DISABLE=1"),
        ("hangs-between-two", "GPU 2 (slot 3) and GPU 3", "slot 3", "NCCL_P2P_DISABLE=1"),
        ("lost-below-a-port-with-errors", "GPU 2", "slot 3", "Xid"),
        ("mesh-with-a-dead-link", "NVLink 2 of GPU 1", "slot 2", "Xid 74"),
        ("bridge-half-seated", "bridge between GPU 0", "slot 1", "eseat"),
        ("fabric-never-started", "All 8 GPUs", "NVSwitch", "systemctl status nvidia-fabricmanager"),
        ("acs-corrupts", "Peer access", "0000:02:00.0", "NCCL_P2P_DISABLE=1"),
        ("slow-socket-crossing", "Copies over", "NUMA node 0", "BIOS"),
        ("remapping-failed", "GPU 6", "slot 7", "eplace"),
    ] {
        let machine = format!("{}/tests/cases/{case}.toml", env!("CARGO_MANIFEST_DIR"));
        let args = ["check", "--machine", &machine, "--journal=none", "--deadline", "2"];
        let page = finish(peerscope(&args).env("COLUMNS", "80")).stdout;
        let known = |words: &str| {
            let top = |lines: usize| {
                page.lines()
                    .take(lines)
                    .flat_map(str::split_whitespace)
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            (1..=page.lines().count()).find(|lines| top(*lines).contains(words))
        };
        let verdict = page.lines().position(|line| line.starts_with("FAULTY"));
        let above = verdict.unwrap_or_default();
        for words in [part, place, step] {
            let at = known(words);
            if at.is_none_or(|line| line > above + 10) {
                complaints.push(format!("{case}: {words:?} in line {at:?}\n{page}"));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
