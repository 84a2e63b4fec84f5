//! Tests of scripts/hardware-bench over a simulated machine, with stand-ins that print the output of the references.
//!
//! `tests/hardware-bench` contains output in the form of nvbandwidth 0.8, p2pBandwidthLatencyTest of the CUDA samples 13.0
//! and nvidia-smi 580. The forms were seen on one H200; the figures of two are those of
//! docs/dev/facts.md, "Other tools on the same machines".

use std::path::Path;
use std::process::Command;

use crate::common::{Ran, finish, fresh_state, is_there, place, program, skipped_for_want_of};
use crate::provisioning::stand_in;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/hardware-bench");
const OUTPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hardware-bench");

/// Environment variables that locate the references.
const REFERENCES: [&str; 5] =
    ["NVBANDWIDTH", "P2PBANDWIDTHLATENCYTEST", "NVIDIA_SMI", "DRIVER_START", "PYTORCH"];

fn bench(references: &[(&str, &Path)]) -> Ran {
    let mut command = Command::new("python3");
    command.args(["-B", SCRIPT, "--runs", "2", "--rest", "0"]).env("PEERSCOPE", program());
    command.env("PEERSCOPE_ARGS", "--machine h200x2").env("XDG_STATE_HOME", fresh_state());
    for name in REFERENCES {
        let given = references.iter().find(|(other, _)| *other == name);
        command.env(name, given.map_or(Path::new("/nowhere/at-all"), |(_, path)| path));
    }
    finish(&mut command)
}

/// Returns the row of a figure.
fn row<'a>(ran: &'a Ran, figure: &str) -> &'a str {
    let rows: Vec<_> = ran.stdout.lines().filter(|line| line.starts_with(figure)).collect();
    assert_eq!(rows.len(), 1, "{figure}: {ran:?}");
    rows[0]
}

const FIGURES: [(&str, &str); 12] = [
    ("nvbandwidth, write, copy engine", "396.40 to 396.47 GB/s"),
    ("nvbandwidth, read, copy engine", "393.93 to 394.02 GB/s"),
    ("nvbandwidth, write, kernel", "369.71 to 370.05 GB/s"),
    ("nvbandwidth, read, kernel", "376.02 to 376.38 GB/s"),
    ("nvbandwidth, both ways in all, writes", "783.70 to 783.70 GB/s"),
    ("nvbandwidth, both ways in all, reads", "778.81 to 778.81 GB/s"),
    ("p2pBandwidthLatencyTest, one way", "377.14 to 391.80 GB/s"),
    ("p2pBandwidthLatencyTest, without peer access", "36.91 to 37.02 GB/s"),
    ("p2pBandwidthLatencyTest, latency", "2.21 to 2.25 us"),
    ("nvidia-smi topo -m, classes", "0 of 2 pairs differ"),
    ("driver start", "0.940 s"),
    ("PyTorch, overlap in the eight placements", "16 cells, 6 overlap"),
];

#[test]
fn every_reference_has_its_rows() {
    if !is_there("python3") {
        return skipped_for_want_of("python3");
    }
    // -j makes JSON; versions without -j print text anyway.
    for form in ["json", "txt"] {
        let (folder, _) = place("");
        let folder = folder.path();
        let nvbandwidth = format!(
            "[[ $* == *_sm* ]] && part=sm || part=ce\ncat {OUTPUT}/nvbandwidth-0.8-$part.{form}"
        );
        let nvbandwidth = stand_in(folder, "nvbandwidth", &nvbandwidth);
        let p2p =
            stand_in(folder, "p2p", &format!("cat {OUTPUT}/p2pBandwidthLatencyTest-13.0.txt"));
        let smi = stand_in(folder, "smi", &format!("cat {OUTPUT}/nvidia-smi-topo.txt"));
        let start = stand_in(folder, "start", "echo 'init 0.53'; echo 'ready 0.9400'");
        let pytorch = stand_in(
            folder,
            "pytorch",
            &format!("[[ $2 == --like && -s $3 ]] && cat {OUTPUT}/pytorch.json"),
        );
        let ran = bench(&[
            ("PYTORCH", &pytorch),
            ("NVBANDWIDTH", &nvbandwidth),
            ("P2PBANDWIDTHLATENCYTEST", &p2p),
            ("NVIDIA_SMI", &smi),
            ("DRIVER_START", &start),
        ]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.stdout.contains("not installed"), "{}", ran.stdout);
        for (figure, says) in FIGURES {
            let row = row(&ran, figure);
            assert!(row.contains(says), "{form}: {row}");
            // The profile 'standard' has no kernel that reads, and no reads both ways.
            let has_none = figure.ends_with("read, kernel") || figure.ends_with("in all, reads");
            assert!(has_none || !row.contains("not measured"), "{form}: {row}");
        }
        // Every cell of the table of placements is compared. Simulated GPUs behave like real ones.
        assert!(
            row(&ran, "PyTorch, overlap").contains("points at most"),
            "{}",
            row(&ran, "PyTorch, overlap")
        );
        for said in [
            "PyTorch, pinned, to-device",
            "PyTorch, pipeline, speed-up",
            "PyTorch, host in kernel launch",
        ] {
            assert!(!row(&ran, said).contains("not installed"), "{}", row(&ran, said));
        }
        for figure in ["nvbandwidth, write, copy engine", "p2pBandwidthLatencyTest, one way"] {
            assert!(row(&ran, figure).contains("% at most ("), "{}", row(&ran, figure));
        }
        for path in ["direct", "staged"] {
            let figure = format!("standard, 2 runs, worst variation, {path}");
            assert!(row(&ran, &figure).contains('%'), "{path}");
        }
    }
}

#[test]
fn one_disturbed_run_does_not_stand_for_all() {
    if !is_there("python3") {
        return skipped_for_want_of("python3");
    }
    let code = r#"
import runpy, sys
medians = runpy.run_path(sys.argv[1], run_name="bench")["medians"]
def report(rate, samples=3):
    return {"measurements": {"host": [{"gpu": 0, "achieved_gbps": rate, "samples": samples}], "profile": "standard"}}
assert medians([report(55.1), report(54.9), report(30.5)]) == report(54.9), "a median of runs"
assert medians([report(55.1), report(None), report(30.5)]) == report(42.8), "a run without the figure does not count"
uneven = report(30.5)
uneven["measurements"]["host"] *= 2
assert medians([report(55.1), report(55.1), uneven]) == uneven, "cells that cannot be told apart are left"
"#;
    let ran = finish(Command::new("python3").args(["-c", code, SCRIPT]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn what_is_missing_is_said_in_its_row() {
    if !is_there("python3") {
        return skipped_for_want_of("python3");
    }
    let ran = bench(&[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    for (figure, _) in FIGURES {
        assert!(row(&ran, figure).contains("not installed"), "{}", row(&ran, figure));
    }
}

#[test]
fn a_reference_that_fails_is_no_reference_that_is_missing() {
    if !is_there("python3") {
        return skipped_for_want_of("python3");
    }
    let (folder, _) = place("");
    let fails = stand_in(folder.path(), "fails", "echo 'CUDA_ERROR_NO_DEVICE' >&2; exit 7");
    let waived =
        stand_in(folder.path(), "waived", &format!("cat {OUTPUT}/nvbandwidth-0.8-waived.json"));
    let ran = bench(&[
        ("NVBANDWIDTH", &waived),
        ("P2PBANDWIDTHLATENCYTEST", &fails),
        ("DRIVER_START", &fails),
    ]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(row(&ran, "p2pBandwidthLatencyTest, one way").contains("failed: exit 7"));
    assert!(row(&ran, "driver start").contains("failed: CUDA_ERROR_NO_DEVICE"));
    assert!(row(&ran, "nvbandwidth, write, copy engine").contains("not measured"));
    assert!(
        ran.stderr.contains("FAILED p2pBandwidthLatencyTest: exit 7: CUDA_ERROR_NO_DEVICE"),
        "{ran:?}"
    );
}
