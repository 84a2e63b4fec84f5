//! The report's JSON: the keys, kinds and words that scripts may rely on, and its schema.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

use crate::common::{list, pair, read_json};
use crate::shape::assert_shape;

/// docs/report.schema.json, ready for use.
static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let schema = read_json(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/report.schema.json"));
    let meta = jsonschema::meta::validate(&schema);
    assert!(meta.is_ok(), "the schema itself is none: {meta:?}");
    jsonschema::draft202012::new(&schema).unwrap()
});

/// What in a report does not fit its schema, the first of it.
pub fn violations(report: &Value) -> Vec<String> {
    SCHEMA.iter_errors(report).map(|error| format!("{}: {error}", error.instance_path())).take(5).collect()
}

/// The report fits its schema.
pub fn assert_schema(report: &Value) {
    assert_eq!(violations(report), [""; 0]);
}

const PLACEMENT: &str = "source:default|side destination:default|side host:non-blocking|blocking";
const STATUS: &str = "status:measured|failed|hung|skipped reason:text?";

/// Everything that holds of any report.
pub fn assert_contract(report: &Value) {
    assert_shape(
        report,
        "schema:peerscope.report/1 tool:object started_at:text machine:text snapshot:object topology:object \
         measurements:object? findings:list verdict:object timing:object",
        "report",
    );
    assert_shape(&report["tool"], "name:peerscope version:text", "tool");
    let started = report["started_at"].as_str().unwrap();
    let rfc3339 = &time::format_description::well_known::Rfc3339;
    assert!(time::OffsetDateTime::parse(started, rfc3339).is_ok(), "started_at is {started}");
    assert_shape(
        &report["timing"],
        "discover:number driver_start:number measure:number diagnose:number total:number driver_floor:number",
        "timing",
    );
    assert_shape(
        &report["verdict"],
        "verdict:healthy|faulty|inconclusive exit_code:whole tested:whole untested:whole",
        "verdict",
    );
    assert_snapshot(&report["snapshot"]);
    assert_topology(report);
    list(&report["findings"]).iter().for_each(assert_finding);
    if !report["measurements"].is_null() {
        assert_measurements(&report["measurements"]);
    }
}

fn assert_snapshot(snapshot: &Value) {
    assert_shape(
        snapshot,
        "host:object gpus:list pairs:list pci:list numa_nodes:list adapters:list problems:list",
        "snapshot",
    );
    assert_reasons(&snapshot["host"], &[], "host");
    for gpu in list(&snapshot["gpus"]) {
        assert_shape(
            gpu,
            "index:whole uuid:text? pci:text? name:text? architecture:text? memory_total_bytes:whole? \
             pcie_generation:whole? pcie_width:whole? pcie_generation_max:whole? pcie_width_max:whole? \
             pcie_replays:whole? nvlinks:list? mig:flag? ecc:flag? throttle_reasons:list? processes:list?",
            "gpu",
        );
        assert_reasons(gpu, &[], "gpu");
        for link in gpu["nvlinks"].as_array().into_iter().flatten() {
            assert_shape(link, "link:whole active:flag? version:text? speed_mbps:whole? remote:text?", "nvlink");
            assert_reasons(link, &[], "nvlink");
        }
    }
    for pair in list(&snapshot["pairs"]) {
        assert_shape(pair, "source:whole destination:whole p2p_read:text? p2p_write:text?", "snapshot pair");
        assert_reasons(pair, &[], "snapshot pair");
    }
    for function in list(&snapshot["pci"]) {
        assert_shape(function, "address:text generation:whole? width:whole?", "pci");
        // A root port has no parent: that is an answer.
        assert_reasons(function, &["parent"], "pci");
    }
}

/// An unknown fact is null, and its reason stands beside it.
fn assert_reasons(object: &Value, may_be_null: &[&str], place: &str) {
    let nulls = object.as_object().unwrap().iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key.as_str());
    for key in nulls.filter(|key| !may_be_null.contains(key)) {
        let reason = object["unknown"][key].as_str().unwrap_or_default();
        let known = reason == "unsupported"
            || ["denied: ", "failed: ", "not read: "].iter().any(|word| reason.starts_with(word));
        assert!(known, "{place}.{key} is null and unknown.{key} is '{reason}'");
    }
    for (key, _) in object["unknown"].as_object().into_iter().flatten() {
        assert!(object.get(key).is_some_and(Value::is_null), "{place}.{key} has a reason and is not null");
    }
}

fn assert_topology(report: &Value) {
    let topology = &report["topology"];
    assert_shape(topology, "nodes:list links:list pairs:list", "topology");
    for node in list(&topology["nodes"]) {
        assert_shape(node, "id:text kind:text label:text pci:text?", "node");
    }
    let nodes: BTreeSet<_> = list(&topology["nodes"]).iter().map(|node| node["id"].as_str().unwrap()).collect();
    for link in list(&topology["links"]) {
        assert_shape(link, "upper:text lower:text capacity_gbps:number? possible_gbps:number? origin:text", "link");
        for end in ["upper", "lower"] {
            assert!(nodes.contains(link[end].as_str().unwrap()), "{link}: there is no such node");
        }
    }
    // Reports of earlier versions have none.
    for path in topology["gpu_paths"].as_array().into_iter().flatten() {
        assert_shape(path, "gpu:whole nodes:list", "path");
        assert!(list(&path["nodes"]).iter().all(|id| nodes.contains(id.as_str().unwrap())), "{path}: no such node");
    }
    for pair in list(&topology["pairs"]) {
        assert_shape(
            pair,
            "source:whole destination:whole class:text theoretical_gbps:number? theoretical_source:text \
             bottleneck:text? peer_access:object hops:list",
            "pair",
        );
        let class = pair["class"].as_str().unwrap();
        let nvlink = class.strip_prefix("NV").is_some_and(|count| count.parse::<u8>().is_ok());
        assert!(nvlink || ["PIX", "PXB", "PHB", "NODE", "SYS", "?"].contains(&class), "{pair}");
        assert_shape(&pair["peer_access"], "nvml_read:text? nvml_write:text? cuda:flag? cuda_failure:text?", "access");
    }
    assert_eq!(pairs(&topology["pairs"]), ordered_pairs(report), "topology.pairs is not every ordered pair once");
}

fn assert_finding(finding: &Value) {
    assert_shape(
        finding,
        "code:text severity:error|warning|info subject:object message:text evidence:object next_step:text",
        "finding",
    );
    let subject = &finding["subject"];
    let fields = match subject["kind"].as_str().unwrap() {
        "machine" => "",
        "gpu" => "index:whole",
        "pair" => "source:whole destination:whole",
        "link" => "index:whole link:whole",
        other => panic!("unknown subject {other}"),
    };
    assert_shape(subject, fields, "subject");
}

fn assert_measurements(measurements: &Value) {
    assert_shape(
        measurements,
        "profile:quick|standard|full driver:object peer:list overlap:list latency:list host:list load:list links:list \
         problems:list interrupted:flag",
        "measurements",
    );
    for cell in list(&measurements["peer"]) {
        assert_shape(
            cell,
            "source:whole destination:whole placement:object issuer:source|destination engine:copy|kernel \
             direction:one-way|both-ways path:direct|staged bytes:whole achieved_gbps:number? theoretical_gbps:number? \
             percent:number? samples:whole spread_percent:number? verified:ok|dropped|corrupt|inconclusive|skipped",
            "peer",
        );
        assert_shape(&cell["placement"], PLACEMENT, "placement");
        assert_status(cell, "achieved_gbps");
        let [achieved, theoretical, percent] =
            ["achieved_gbps", "theoretical_gbps", "percent"].map(|key| cell[key].as_f64());
        if let (Some(achieved), Some(theoretical)) = (achieved, theoretical) {
            let expected = 100.0 * achieved / theoretical;
            assert!((percent.unwrap() - expected).abs() < 0.01, "{cell}: {expected}% expected");
        } else {
            assert_eq!(percent, None, "{cell}");
        }
    }
    for cell in list(&measurements["overlap"]) {
        assert_shape(
            cell,
            "source:whole destination:whole placement:object compute_on:source|destination overlap_percent:number? \
             host_blocked_us:number? samples:whole",
            "overlap",
        );
        assert_shape(&cell["placement"], PLACEMENT, "placement");
        assert_status(cell, "overlap_percent");
    }
    for cell in list(&measurements["latency"]) {
        assert_shape(
            cell,
            "source:whole destination:whole path:direct|staged bytes:whole latency_us:number? samples:whole",
            "latency",
        );
        assert_status(cell, "latency_us");
    }
}

/// A cell has a figure, or it says why not.
fn assert_status(cell: &Value, figure: &str) {
    assert_shape(cell, STATUS, "cell");
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
    let gpus: Vec<_> = list(&report["snapshot"]["gpus"]).iter().map(|gpu| gpu["index"].as_u64().unwrap()).collect();
    let mut pairs = Vec::new();
    for &source in &gpus {
        pairs.extend(gpus.iter().filter(|&&gpu| gpu != source).map(|&destination| (source, destination)));
    }
    pairs.sort_unstable();
    pairs
}

/// The reference set: copy engine, issued by the source, one way. A pair that CUDA denies access
/// has it over the staged path.
fn assert_reference_set(report: &Value) {
    let reference = [("engine", "copy"), ("issuer", "source"), ("direction", "one-way")];
    let mut placements: BTreeMap<((u64, u64), &str), BTreeSet<String>> = BTreeMap::new();
    for cell in list(&report["measurements"]["peer"]) {
        if reference.iter().all(|(key, value)| cell[key] == *value) {
            let key = (pair(cell), cell["path"].as_str().unwrap());
            let placement = &cell["placement"];
            let name = ["source", "destination", "host"].map(|part| placement[part].as_str().unwrap()).join("/");
            assert!(placements.entry(key).or_default().insert(name), "twice: {cell}");
        }
    }
    for route in list(&report["topology"]["pairs"]) {
        let path = if route["peer_access"]["cuda"] == true { "direct" } else { "staged" };
        let found = placements.get(&(pair(route), path)).map_or(0, BTreeSet::len);
        assert_eq!(found, 8, "{path} placements of {route}");
    }
}

/// More GPUs have fewer placements of each pair measured.
const MOST_GPUS: usize = 16;

/// Where nothing is left untested, every ordered pair has all eight placements and every other figure.
pub fn assert_nothing_left_out(report: &Value) {
    let (measurements, verdict) = (&report["measurements"], &report["verdict"]);
    let whole = verdict["tested"] != 0 && verdict["untested"] == 0 && measurements["profile"] != "quick";
    if !whole || list(&report["snapshot"]["gpus"]).len() > MOST_GPUS {
        return;
    }
    assert_reference_set(report);
    let direct = list(&report["topology"]["pairs"]).iter().filter(|route| route["peer_access"]["cuda"] == true);
    let direct: Vec<_> = direct.map(pair).collect();
    // Overlap is measured where peer access is.
    for (table, expected) in
        [("peer", &ordered_pairs(report)), ("latency", &ordered_pairs(report)), ("overlap", &direct)]
    {
        let found: BTreeSet<_> = pairs(&measurements[table]).into_iter().collect();
        assert_eq!(&found.into_iter().collect::<Vec<_>>(), expected, "{table}");
    }
    let cells = ["peer", "overlap", "latency"].map(|table| list(&measurements[table]).len() as u64);
    assert_eq!(report["verdict"]["tested"].as_u64(), Some(cells.iter().sum()));
}
