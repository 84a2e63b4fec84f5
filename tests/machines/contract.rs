//! Checks of the report's JSON. Its schema lists the keys, kinds and words that scripts may rely on; the code checks
//! rules that no schema can express.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use model::measurement::Measurements;
use serde_json::Value;

use crate::common::{list, pair, read_json};

/// Validator of docs/report.schema.json.
static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let schema = read_json(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/report.schema.json"));
    let meta = jsonschema::meta::validate(&schema);
    assert!(meta.is_ok(), "the schema itself is none: {meta:?}");
    jsonschema::draft202012::new(&schema).unwrap()
});

/// Returns the first violations of the schema in a report.
pub(crate) fn violations(report: &Value) -> Vec<String> {
    SCHEMA
        .iter_errors(report)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .take(5)
        .collect()
}

/// Checks that the report fits its schema.
pub(crate) fn assert_schema(report: &Value) {
    assert_eq!(violations(report), [""; 0]);
}

/// Checks everything that holds for any report beyond its schema.
pub(crate) fn assert_contract(report: &Value) {
    let started = report["started_at"].as_str().unwrap();
    let rfc3339 = &time::format_description::well_known::Rfc3339;
    assert!(time::OffsetDateTime::parse(started, rfc3339).is_ok(), "started_at is {started}");
    assert_snapshot(&report["snapshot"]);
    assert_topology(report);
    for finding in list(&report["findings"]) {
        let said = ["code", "message", "next_step"].map(|key| finding[key].as_str().unwrap());
        assert!(said.iter().all(|text| !text.is_empty()), "{finding}");
    }
    if !report["measurements"].is_null() {
        assert_measurements(&report["measurements"]);
    }
}

fn assert_snapshot(snapshot: &Value) {
    assert_reasons(&snapshot["host"], &[], "host");
    for gpu in list(&snapshot["gpus"]) {
        assert_reasons(gpu, &[], "gpu");
        for link in gpu["nvlinks"].as_array().into_iter().flatten() {
            assert_reasons(link, &[], "nvlink");
        }
    }
    for pair in list(&snapshot["pairs"]) {
        assert_reasons(pair, &[], "snapshot pair");
    }
    for function in list(&snapshot["pci"]) {
        // A root port has no parent: null is its answer.
        assert_reasons(function, &["parent"], "pci");
    }
}

/// Checks that an unknown fact is null and has a reason.
fn assert_reasons(object: &Value, may_be_null: &[&str], place: &str) {
    let nulls = object
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, value)| value.is_null())
        .map(|(key, _)| key.as_str());
    for key in nulls.filter(|key| !may_be_null.contains(key)) {
        let reason = object["unknown"][key].as_str().unwrap_or_default();
        let known = reason == "unsupported"
            || ["denied: ", "failed: ", "not read: "].iter().any(|word| reason.starts_with(word));
        assert!(known, "{place}.{key} is null and unknown.{key} is '{reason}'");
    }
    for (key, _) in object["unknown"].as_object().into_iter().flatten() {
        assert!(
            object.get(key).is_some_and(Value::is_null),
            "{place}.{key} has a reason and is not null"
        );
    }
}

fn assert_topology(report: &Value) {
    let topology = &report["topology"];
    let nodes: BTreeSet<_> =
        list(&topology["nodes"]).iter().map(|node| node["id"].as_str().unwrap()).collect();
    for link in list(&topology["links"]) {
        for end in ["upper", "lower"] {
            assert!(nodes.contains(link[end].as_str().unwrap()), "{link}: there is no such node");
        }
    }
    for path in list(&topology["gpu_paths"]) {
        assert!(
            list(&path["nodes"]).iter().all(|id| nodes.contains(id.as_str().unwrap())),
            "{path}: no such node"
        );
    }
    for pair in list(&topology["pairs"]) {
        let class = pair["class"].as_str().unwrap();
        let nvlink = class.strip_prefix("NV").is_some_and(|count| count.parse::<u8>().is_ok());
        assert!(nvlink || ["PIX", "PXB", "PHB", "NODE", "SYS", "?"].contains(&class), "{pair}");
    }
    assert_eq!(
        pairs(&topology["pairs"]),
        ordered_pairs(report),
        "topology.pairs is not every ordered pair once"
    );
}

fn assert_measurements(measurements: &Value) {
    assert!(["quick", "standard", "full"].contains(&measurements["profile"].as_str().unwrap()));
    for (table, figure) in
        [("peer", "achieved_gbps"), ("overlap", "overlap_percent"), ("latency", "latency_us")]
    {
        list(&measurements[table]).iter().for_each(|cell| assert_status(cell, figure));
    }
    for cell in list(&measurements["peer"]) {
        let [achieved, theoretical, percent] =
            ["achieved_gbps", "theoretical_gbps", "percent"].map(|key| cell[key].as_f64());
        if let (Some(achieved), Some(theoretical)) = (achieved, theoretical) {
            let expected = 100.0 * achieved / theoretical;
            assert!((percent.unwrap() - expected).abs() < 0.01, "{cell}: {expected}% expected");
        } else {
            assert_eq!(percent, None, "{cell}");
        }
    }
}

/// Checks that a cell has a figure or a reason.
fn assert_status(cell: &Value, figure: &str) {
    let measured = cell["status"] == "measured";
    assert_eq!(cell[figure].is_number(), measured, "{cell}");
    assert_eq!(cell["reason"].is_null(), measured, "{cell}");
    assert_eq!(cell["samples"].as_u64().unwrap() > 0, measured, "{cell}");
}

fn pairs(cells: &Value) -> Vec<(u64, u64)> {
    let mut pairs: Vec<_> = list(cells).iter().map(pair).collect();
    pairs.sort_unstable();
    pairs
}

fn ordered_pairs(report: &Value) -> Vec<(u64, u64)> {
    let gpus: Vec<_> = list(&report["snapshot"]["gpus"])
        .iter()
        .map(|gpu| gpu["index"].as_u64().unwrap())
        .collect();
    let mut pairs = Vec::new();
    for &source in &gpus {
        pairs.extend(
            gpus.iter().filter(|&&gpu| gpu != source).map(|&destination| (source, destination)),
        );
    }
    pairs.sort_unstable();
    pairs
}

/// Checks the reference set: copy engine, issued by the source, one way. A pair without CUDA's access has it over the
/// staged path.
fn assert_reference_set(report: &Value) {
    let reference = [("engine", "copy"), ("issuer", "source"), ("direction", "one-way")];
    let mut placements: BTreeMap<((u64, u64), &str), BTreeSet<String>> = BTreeMap::new();
    for cell in list(&report["measurements"]["peer"]) {
        if reference.iter().all(|(key, value)| cell[key] == *value) {
            let key = (pair(cell), cell["path"].as_str().unwrap());
            let placement = &cell["placement"];
            let name = ["source", "destination", "host"]
                .map(|part| placement[part].as_str().unwrap())
                .join("/");
            assert!(placements.entry(key).or_default().insert(name), "twice: {cell}");
        }
    }
    for route in list(&report["topology"]["pairs"]) {
        let path = if route["peer_access"]["cuda"] == true { "direct" } else { "staged" };
        let found = placements.get(&(pair(route), path)).map_or(0, BTreeSet::len);
        assert_eq!(found, 8, "{path} placements of {route}");
    }
}

/// Most GPUs for which every placement of each pair is measured.
const MOST_GPUS: usize = 16;

/// Checks that every ordered pair has all eight placements and every other figure, if nothing is left untested.
pub(crate) fn assert_nothing_left_out(report: &Value) {
    let (measurements, verdict) = (&report["measurements"], &report["verdict"]);
    let whole =
        verdict["tested"] != 0 && verdict["untested"] == 0 && measurements["profile"] != "quick";
    if !whole || list(&report["snapshot"]["gpus"]).len() > MOST_GPUS {
        return;
    }
    assert_reference_set(report);
    let direct = list(&report["topology"]["pairs"])
        .iter()
        .filter(|route| route["peer_access"]["cuda"] == true);
    let direct: Vec<_> = direct.map(pair).collect();
    // Overlap is measured only with peer access.
    for (table, expected) in [
        ("peer", &ordered_pairs(report)),
        ("latency", &ordered_pairs(report)),
        ("overlap", &direct),
    ] {
        let found: BTreeSet<_> = pairs(&measurements[table]).into_iter().collect();
        assert_eq!(&found.into_iter().collect::<Vec<_>>(), expected, "{table}");
    }
    let rows =
        Measurements::TABLES.iter().filter_map(|table| measurements[table].as_array()).flatten();
    // What the platform does not offer counts as nothing.
    let offered = rows.filter(|row| row["not_supported"] != true);
    // Each flow of several at once is a measurement.
    let tested: usize = offered.map(|row| row["flows"].as_array().map_or(1, Vec::len)).sum();
    let tested = u64::try_from(tested).unwrap();
    assert_eq!(report["verdict"]["tested"].as_u64(), Some(tested));
}
