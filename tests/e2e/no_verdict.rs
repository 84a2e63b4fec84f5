//! Tests of the scripts in scripts/provisioning with a program that ends without a verdict, or that waited for another
//! check. A code alone takes no node out of service, and accepts no server.

use crate::common::{Ran, finish, place};
use crate::provisioning::{IN_SERVICE, health_check, script, stand_in};

/// The message of a run that waits for its turn, and of one whose turn never comes.
const WAITS: &str = "peerscope: another peerscope checks this machine: process 7 of user kim, since 16:40:12 UTC (3 s)";

/// Runs the health check and the prolog with a program that does this. Returns the run and the reason given to Slurm.
fn slurm(does: &str, job: Option<&str>) -> (Ran, Option<String>) {
    let (folder, _) = place("");
    let program = stand_in(folder.path(), "peerscope", does);
    let (ran, asked, _reports) = health_check(IN_SERVICE, job, |command| {
        command.env("PEERSCOPE", &program).env("PEERSCOPE_LIMIT", "2");
    });
    let reason =
        asked.lines().find_map(|line| line.strip_prefix("Reason=peerscope: ")).map(String::from);
    assert_eq!(reason.is_some(), asked.contains("State=DRAIN"), "{asked}");
    assert_eq!(ran.code, Some(i32::from(reason.is_some() && job.is_some())), "{does}: {ran:?}");
    (ran, reason)
}

/// Runs the step of a provisioning run with a program that does this.
fn accept(does: &str, limit: &str) -> Ran {
    let (folder, _) = place("");
    let program = stand_in(folder.path(), "peerscope", does);
    let reports = folder.path().join("reports");
    finish(
        script("accept-node")
            .env("PEERSCOPE", &program)
            .env("PEERSCOPE_REPORTS", reports)
            .env("PEERSCOPE_LIMIT", limit),
    )
}

#[test]
fn a_code_without_a_verdict_drains_and_accepts_nothing() {
    for says in
        ["true", "echo 'peerscope: cannot' >&2", "echo 'peerscope: PEERSCOPE CRITICAL - x' >&2"]
    {
        for code in [0, 1, 2, 101, 130] {
            let does = format!("{says}\nexit {code}");
            for job in [None, Some("1")] {
                let (ran, reason) = slurm(&does, job);
                assert_eq!(reason, None, "{does}: {ran:?}");
                assert!(ran.stderr.contains(&format!("exit code {code}")), "{does}: {ran:?}");
                assert!(
                    code > 1 || ran.stderr.contains("without a verdict, node left as it is"),
                    "{does}: {ran:?}"
                );
            }
            let ran = accept(&does, "20");
            assert_eq!(ran.code, Some(if code == 130 { 130 } else { 2 }), "{does}: {ran:?}");
            assert!(
                !ran.stderr.contains("accepted") && !ran.stderr.contains("REJECTED"),
                "{ran:?}"
            );
            assert!(
                code > 1 || ran.stderr.contains("no verdict on this server"),
                "{does}: {ran:?}"
            );
        }
    }
    // A word that contradicts the code.
    for (word, code) in [("OK", 1), ("UNKNOWN", 1)] {
        let (ran, reason) =
            slurm(&format!("echo 'PEERSCOPE {word} - 8 GPUs | errors=0'; exit {code}"), None);
        assert_eq!(reason, None, "{ran:?}");
    }
}

#[test]
fn what_could_not_be_tested_drains_with_what_was_said_of_it() {
    let old = "echo 'peerscope: the run that began yesterday did not finish' >&2";
    let long = "x".repeat(300);
    for (does, wanted) in [
        (
            "echo 'peerscope: no room' >&2; echo '  at /dev' >&2; exit 3".into(),
            "peerscope: no room   at /dev".to_owned(),
        ),
        (format!("{old}; echo 'peerscope: no room' >&2; exit 3"), "peerscope: no room".into()),
        (format!("echo {long} >&2; exit 3"), long[..150].into()),
        ("exit 3".into(), "peerscope gave no reason".into()),
        (
            format!(
                "{old}; echo 'PEERSCOPE UNKNOWN - not-tested: GPU 2 is in use | errors=0'; echo more >&2; exit 3"
            ),
            "not-tested: GPU 2 is in use".into(),
        ),
    ] {
        for job in [None, Some("1")] {
            let (ran, reason) = slurm(&does, job);
            assert_eq!(reason, Some(format!("no verdict: {wanted}")), "{does}: {ran:?}");
        }
        let ran = accept(&does, "20");
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(ran.stderr.contains("NOT TESTED, and no report"), "{ran:?}");
        assert!(!does.contains("no room") || ran.stderr.contains("peerscope: no room"), "{ran:?}");
    }
}

#[test]
fn a_wait_that_used_up_the_limit_says_nothing_about_the_node() {
    let waits = format!("echo '{WAITS}; waiting for up to 1 s' >&2");
    // The run ends in the wait, after it, or not even on a signal that it may refuse.
    let ended = "trap 'echo PEERSCOPE UNKNOWN - interrupted; exit 130' TERM; sleep 30 & wait";
    for hangs in ["exec sleep 30", ended] {
        for job in [None, Some("1")] {
            let (ran, reason) = slurm(&format!("{waits}\n{hangs}"), job);
            assert_eq!(reason, None, "{ran:?}");
            assert!(
                ran.stderr.contains("node7 left as it is: the wait for another check used up"),
                "{ran:?}"
            );
            assert!(ran.stderr.contains("process 7 of user kim"), "{ran:?}");
            let (ran, reason) = slurm(hangs, job);
            assert_eq!(reason.as_deref(), Some("no answer within 2 s"), "{ran:?}");
        }
        let ran = accept(&format!("{waits}\n{hangs}"), "1");
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(
            ran.stderr.contains("a wait for another check of this server used up the limit of 1 s"),
            "{ran:?}"
        );
        assert!(ran.stderr.contains(WAITS) && !ran.stderr.contains("dmesg"), "{ran:?}");
        let ran = accept(hangs, "1");
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(ran.stderr.contains("dmesg") && !ran.stderr.contains("wait for"), "{ran:?}");
    }
    // A finding after the wait counts.
    let found = "echo 'PEERSCOPE CRITICAL - pcie-narrow: x4 | errors=1'; exit 1";
    assert_eq!(slurm(&format!("{waits}\n{found}"), None).1.as_deref(), Some("pcie-narrow: x4"));
    let untested = "echo 'PEERSCOPE UNKNOWN - not-tested: GPU 2 | errors=0'; exit 3";
    assert_eq!(
        slurm(&format!("{waits}\n{untested}"), None).1.as_deref(),
        Some("no verdict: not-tested: GPU 2")
    );
}

/// A health check and a prolog write the same files: the check's own output decides, not the files.
#[test]
fn the_report_of_another_run_decides_nothing() {
    let theirs = "PEERSCOPE UNKNOWN - nothing-measured: Nothing was measured: another peerscope checks this machine";
    let hindered = r#"echo '{"hindrance": "another-check"}' >"$PEERSCOPE_REPORTS/last.json""#;
    let (ran, reason) = slurm(
        &format!("{hindered}; echo 'PEERSCOPE UNKNOWN - not-tested: GPU 2 | e=0'; exit 3"),
        None,
    );
    assert_eq!(reason.as_deref(), Some("no verdict: not-tested: GPU 2"), "{ran:?}");
    for waited in ["; wait with --wait TIME", "; it did not end within 1 s (--wait)"] {
        for file in ["true", r#"echo '{}' >"$PEERSCOPE_REPORTS/last.json""#] {
            let (ran, reason) = slurm(
                &format!("{file}; echo '{WAITS}{waited}' >&2; echo '{theirs} | e=0'; exit 3"),
                None,
            );
            assert_eq!(reason, None, "{ran:?}");
            assert!(ran.stderr.contains("left as it is: nothing-measured"), "{ran:?}");
        }
    }
}
