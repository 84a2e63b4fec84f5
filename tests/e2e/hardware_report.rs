//! Tests with a report of real hardware, 8 x H200: its figures, and the findings after changes to it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::common::{HARDWARE_REPORT, Ran, changed_report, codes, list, pair, read_json, run};

/// Returns true for the reference setup: the copy engine, issued by the source, one way; side streams, host not
/// waiting.
fn is_reference(cell: &Value) -> bool {
    let placement = json!({"source": "side", "destination": "side", "host": "non-blocking"});
    is_in(cell, "copy", "direct")
        && cell["direction"] == "one-way"
        && cell["placement"] == placement
}

fn is_in(cell: &Value, engine: &str, path: &str) -> bool {
    cell["engine"] == engine && cell["path"] == path && cell["issuer"] == "source"
}

fn achieved(cell: &Value) -> f64 {
    cell["achieved_gbps"].as_f64().unwrap()
}

fn peers(report: &Value) -> &[Value] {
    list(&report["measurements"]["peer"])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn it_names_no_machine() {
    let text = std::fs::read_to_string(HARDWARE_REPORT).unwrap();
    for gpu in list(&read_json(HARDWARE_REPORT)["snapshot"]["gpus"]) {
        assert!(
            gpu["uuid"].as_str().unwrap().starts_with("GPU-00000000-0000-0000-0000-"),
            "{}",
            gpu["uuid"]
        );
        assert!(
            gpu["serial"].as_str().unwrap_or_default().starts_with("000000000000"),
            "{}",
            gpu["serial"]
        );
        assert_eq!(gpu["processes"], json!([]));
    }
    assert!(text.contains(r#""hostname":"vm""#));
}

#[test]
fn every_pair_reaches_what_h200_should() {
    let report = read_json(HARDWARE_REPORT);
    let cells: Vec<_> = peers(&report).iter().filter(|cell| is_reference(cell)).collect();
    assert_eq!(cells.len(), 56);
    let mut rows: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for cell in cells {
        assert!((394.0..=398.0).contains(&achieved(cell)), "{cell}");
        assert_eq!(cell["theoretical_gbps"], 450.0);
        assert_eq!(cell["verified"], "ok");
        rows.entry(pair(cell).0).or_default().push(achieved(cell));
    }
    // A tool without a warm-up reads its first row low.
    let medians: Vec<_> = rows.into_values().map(median).collect();
    let (least, most) = medians
        .iter()
        .fold((f64::MAX, 0.0_f64), |(least, most), &row| (least.min(row), most.max(row)));
    assert!((most - least) / least < 0.005, "{medians:?}");
}

#[test]
fn staged_and_kernel_copies_are_in_their_bands() {
    let report = read_json(HARDWARE_REPORT);
    let one_way = |cell: &&Value| cell["direction"] == "one-way";
    let staged: Vec<_> = peers(&report)
        .iter()
        .filter(|cell| is_in(cell, "copy", "staged"))
        .filter(one_way)
        .collect();
    let kernel: Vec<_> = peers(&report)
        .iter()
        .filter(|cell| is_in(cell, "kernel", "direct"))
        .filter(one_way)
        .collect();
    assert_eq!((staged.len(), kernel.len()), (56, 56));
    assert!(staged.iter().all(|cell| (30.0..=40.0).contains(&achieved(cell))));
    assert!(kernel.iter().all(|cell| achieved(cell) >= 360.0));
}

#[test]
fn copies_overlap_kernels_as_the_streams_have_it() {
    let report = read_json(HARDWARE_REPORT);
    let mut seen = 0;
    for cell in list(&report["measurements"]["overlap"]) {
        let placement = &cell["placement"];
        let should = placement["source"] == "side"
            && (cell["compute_on"] == "source" || placement["destination"] == "side");
        let share = cell["overlap_percent"].as_f64().unwrap();
        assert!(if should { share >= 95.0 } else { share <= 3.0 }, "{cell}");
        seen += 1;
    }
    // 56 pairs, 8 placements, a kernel on either side.
    assert_eq!(seen, 56 * 8 * 2);
}

#[test]
fn it_was_fast_enough() {
    let timing = &read_json(HARDWARE_REPORT)["timing"];
    let [discover, total] = ["discover", "total"].map(|key| timing[key].as_f64().unwrap());
    assert!(discover < 0.5 && total < 20.0, "{timing}");
}

/// Runs `diagnose` on the report after a change.
fn after(change: impl FnOnce(&mut Value)) -> (Ran, Value) {
    let (_folder, path) = changed_report(change);
    let ran = run(&["diagnose", &path, "--format", "json"]);
    let report = ran.json();
    (ran, report)
}

fn cells_of(report: &mut Value, wanted: impl Fn(&Value) -> bool) -> Vec<&mut Value> {
    report["measurements"]["peer"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .filter(|cell| wanted(cell))
        .collect()
}

fn slow_down(cell: &mut Value, gbps: f64) {
    cell["achieved_gbps"] = gbps.into();
    cell["percent"] = (gbps / 450.0 * 100.0).into();
}

/// Checks for exit code 1 and one finding of this code, and returns the finding.
fn one_finding<'a>(ran: &Ran, report: &'a Value, code: &str) -> &'a Value {
    assert_eq!(ran.code, Some(1), "{:?}", codes(report));
    assert_eq!(codes(report), [code]);
    assert_eq!(report["verdict"]["verdict"], "faulty");
    &report["findings"][0]
}

#[test]
fn one_slow_pair_is_named() {
    let (ran, report) = after(|report| {
        for cell in cells_of(report, |cell| is_reference(cell) && pair(cell) == (2, 5)) {
            slow_down(cell, 200.0);
        }
    });
    let finding = one_finding(&ran, &report, "peer-bandwidth-low");
    assert_eq!(finding["subject"], json!({"kind": "pair", "source": 2, "destination": 5}));
    assert_eq!(finding["evidence"]["lowest_achieved_gbps"], 200.0);
    assert_eq!(finding["evidence"]["expected_gbps"], 396.0);
    let message = finding["message"].as_str().unwrap();
    for part in ["GPU 2", "GPU 5", "200", "396"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_pair_just_above_the_floor_is_fine() {
    // An H200 reaches 396 of 450 GB/s, and its floor is 370. Copies of 301 MiB may take 5 us beside their bytes, so the
    // floor here is 367.8.
    for (gbps, code) in [(369.0, 0), (367.0, 1)] {
        let (ran, report) = after(|report| slow_down(cells_of(report, is_reference)[0], gbps));
        assert_eq!(ran.code, Some(code), "{gbps}: {:?}", codes(&report));
    }
}

#[test]
fn every_nvlink_of_a_gpu_down_is_named() {
    let (ran, report) = after(|report| {
        for link in report["snapshot"]["gpus"][0]["nvlinks"].as_array_mut().unwrap() {
            link["active"] = false.into();
        }
    });
    assert_eq!(
        one_finding(&ran, &report, "nvlink-inactive")["subject"],
        json!({"kind": "gpu", "index": 0})
    );
}

fn narrow_slot(virtual_machine: bool) -> (Ran, Value) {
    after(|report| {
        report["snapshot"]["host"]["virtual_machine"] = virtual_machine.into();
        report["snapshot"]["gpus"][6]["pcie_width"] = 8.into();
        report["measurements"]["links"][6]["width"] = json!([8, 8]);
        let pci = report["snapshot"]["gpus"][6]["pci"].clone();
        let functions = report["snapshot"]["pci"].as_array_mut().unwrap();
        let function = functions.iter_mut().find(|function| function["address"] == pci).unwrap();
        function["width"] = 8.into();
        // Faster copies would refute the link's readings.
        for cell in cells_of(report, |cell| {
            cell["path"] == "staged" && [pair(cell).0, pair(cell).1].contains(&6)
        }) {
            cell["achieved_gbps"] = 24.0.into();
        }
    })
}

#[test]
fn a_narrow_slot_is_named() {
    let (ran, report) = narrow_slot(false);
    let finding = one_finding(&ran, &report, "pcie-narrow");
    assert_eq!(finding["subject"], json!({"kind": "gpu", "index": 6}));
    assert_eq!(
        (&finding["evidence"]["width_lanes"], &finding["evidence"]["width_possible_lanes"]),
        (&json!(8), &json!(16))
    );
    // A virtual machine hides the slot: the finding is then a warning, not a fault.
    let (ran, report) = narrow_slot(true);
    assert_eq!(ran.code, Some(0));
    assert_eq!(codes(&report), ["pcie-narrow"]);
    assert_eq!(report["findings"][0]["severity"], "warning");
}

#[test]
fn a_report_without_a_single_figure_never_passes() {
    for table in ["peer", "overlap", "latency"] {
        let (ran, report) = after(|report| report["measurements"][table] = json!([]));
        assert_eq!(ran.code, Some(3), "without {table} less is there than was asked for");
        assert!(codes(&report).contains(&"not-tested"), "{table}: {:?}", codes(&report));
    }
    let (ran, report) = after(|report| {
        for table in ["peer", "overlap", "latency"] {
            report["measurements"][table] = json!([]);
        }
    });
    assert_eq!(ran.code, Some(3));
    assert_eq!(codes(&report), ["nothing-measured"]);
}

/// Tests a report of four H200 of which CUDA_VISIBLE_DEVICES named three, out of order.
#[test]
fn devices_that_were_masked_and_reordered_are_the_right_ones() {
    let masked = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/h200x4-masked.json");
    let ran = run(&["diagnose", masked, "--format", "json"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report = ran.json();
    assert_eq!(codes(&report), ["devices-hidden"], "what is hidden is reported once");
    let finding = &report["findings"][0];
    assert_eq!(finding["evidence"]["cuda_order"], serde_json::json!(["GPU 2", "GPU 0", "GPU 1"]));
    assert_eq!(finding["evidence"]["hidden_gpus"], serde_json::json!([3]));
    let measured = peers(&report).iter().filter(|cell| cell["status"] == "measured");
    for cell in measured {
        assert!(cell["source"] != 3 && cell["destination"] != 3, "{cell}");
        assert!((390.0..400.0).contains(&achieved(cell)), "{cell}");
    }
}

/// Tests a full check of one H100 alone: the rate of its link judges host and GPU, and no peer counts as missing.
#[test]
fn one_h100_is_healthy_by_its_host_copies() {
    let alone = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/h100x1-full.json");
    let ran = run(&["diagnose", alone, "--figures"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("healthy: nothing is at fault") && said.contains("NVIDIA H100 80GB HBM3"),
        "{said}"
    );
    assert!(
        said.contains("pinned host copies reach 55.0 to 55.1 GB/s (101 to 102% of healthy)"),
        "{said}"
    );
    assert!(!said.contains("Between GPUs"), "{said}");
    // A link with half the lanes is below what is expected.
    let mut slow = read_json(alone);
    for copy in slow["measurements"]["host"].as_array_mut().unwrap() {
        if let Some(reached) = copy["achieved_gbps"].as_f64() {
            copy["achieved_gbps"] = json!(reached / 2.0);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow.json");
    std::fs::write(&file, slow.to_string()).unwrap();
    let ran = run(&["diagnose", file.to_str().unwrap(), "--format", "json"]);
    assert!(codes(&ran.json()).contains(&"host-bandwidth-low"), "{ran:?}");
}

/// On one GPU a program that copies disturbs no pair, but every copy with the host.
#[test]
fn one_h200_beside_another_programs_copies_names_the_measurements_that_are_not_judged() {
    let busy = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/h200x1-beside-host-copies.json");
    let ran = run(&["diagnose", busy, "--format", "json"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report = ran.json();
    assert_eq!(codes(&report), ["gpu-busy"]);
    let message = report["findings"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("by the figures of 2 measurements"), "{message}");
}

/// A limit of open files that keeps the only GPU from opening is no reason to say that nothing is to be done.
#[test]
fn one_h200_that_a_limit_kept_from_opening_is_not_nothing_to_repair() {
    let limited =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/limited/h200x1-few-open-files.json");
    let ran = run(&["diagnose", limited, "--format", "json"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let finding = &ran.json()["findings"][0];
    assert!(finding["message"].as_str().unwrap().contains("(ulimit -n) is 24"), "{finding}");
    assert_ne!(finding["steps"][0]["id"], "nothing", "{finding}");
}
