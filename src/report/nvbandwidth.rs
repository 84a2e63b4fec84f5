//! The figures in the JSON of NVIDIA's nvbandwidth, so that readers of its matrices can read peerscope's.
//!
//! The format follows json_output.cpp of nvbandwidth 0.8: rates as text, `N/A` on the diagonal and for pairs without a
//! rate, the arrows of the descriptions as they are there. In matrices of writes the row is the source. In matrices of
//! reads the row is the destination, whose device issues the copy.

use std::collections::BTreeMap;

use serde::Serialize;

use super::digest::Digest;
use super::escape::clean;
use super::format::{Format, Of, Style};
use super::json;
use model::cell::Measurement;
use model::flow::Setup;
use model::host::{HostDirection, HostWay};
use model::measurement::Measurements;
use model::placement::{Engine, Side};
use model::snapshot::Gpu;

pub(super) const FORMAT: Format = Format {
    of: Of::One,
    ..Format::new(
        "nvbandwidth",
        &[],
        "The matrices in nvbandwidth's JSON, for what reads that",
        render,
    )
};

#[derive(Debug, Serialize)]
struct Document {
    nvbandwidth: Root,
}

#[derive(Debug, Serialize)]
struct Root {
    #[serde(rename = "CUDA Runtime Version", skip_serializing_if = "Option::is_none")]
    cuda: Option<u32>,
    #[serde(rename = "Driver Version", skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    #[serde(rename = "GPU Device list")]
    devices: Vec<String>,
    git_version: &'static str,
    testcases: Vec<Testcase>,
    version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    warning: String,
}

#[derive(Debug, Serialize)]
struct Testcase {
    #[serde(skip_serializing_if = "Option::is_none")]
    average: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth_description: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bandwidth_matrix: Vec<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<f64>,
    name: &'static str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<f64>,
}

/// Rates by row and column, GB/s.
type Rates = BTreeMap<(u32, u32), f64>;

fn render(digest: &Digest<'_>, _: &Style) -> String {
    let report = digest.report;
    let host = &report.snapshot.host;
    let caveats: Vec<&str> = digest.caveats.values().map(String::as_str).collect();
    json::tidy(&Document {
        nvbandwidth: Root {
            cuda: host.cuda_version.known().and_then(|version| cuda(version)),
            driver: host.driver_version.known().map(|version| clean(version).into_owned()),
            devices: report.snapshot.gpus.iter().map(|gpu| device(digest, gpu)).collect(),
            git_version: "none: measured by peerscope",
            testcases: testcases(digest),
            version: format!("{} {}", report.tool.name, report.tool.version),
            warning: caveats.join(". "),
        },
    })
}

/// Returns `13000` for `13.0`, the driver's form of a version.
fn cuda(version: &str) -> Option<u32> {
    let (major, minor) = version.split_once('.')?;
    major
        .parse::<u32>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(minor.parse::<u32>().ok()?.checked_mul(10)?)
}

/// Returns `0: NVIDIA H200 (00000000:06:00): (host)`.
fn device(digest: &Digest<'_>, gpu: &Gpu) -> String {
    let name = gpu.name.known().map_or("unknown", String::as_str);
    let address = gpu.pci.get().map_or_else(String::new, |pci| pci.to_string());
    let short = address.rsplit_once('.').map_or(address.as_str(), |(slot, _)| slot);
    let host = digest.report.snapshot.host.hostname.known().map_or("unknown", String::as_str);
    clean(&format!("{}: {name} (0000{short}): ({host})", gpu.index)).into_owned()
}

fn testcases(digest: &Digest<'_>) -> Vec<Testcase> {
    let gpus = digest.gpus();
    let measured = digest.report.measurements.as_ref();
    let pairs = |engine, issuer| {
        measured.map(|measured| between(measured, engine, issuer)).unwrap_or_default()
    };
    let host =
        |direction| measured.map(|measured| with_host(measured, direction)).unwrap_or_default();
    let local = measured.map(within).unwrap_or_default();
    let case = |name, description, rows: &[u32], rates: &Rates| {
        testcase(name, description, rows, &gpus, rates)
    };
    vec![
        case(
            "host_to_device_memcpy_ce",
            "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
            &[0],
            &host(HostDirection::ToDevice),
        ),
        case(
            "device_to_host_memcpy_ce",
            "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)",
            &[0],
            &host(HostDirection::ToHost),
        ),
        case(
            "device_to_device_memcpy_read_ce",
            "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
            &gpus,
            &pairs(Engine::Copy, Side::Destination),
        ),
        case(
            "device_to_device_memcpy_write_ce",
            "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
            &gpus,
            &pairs(Engine::Copy, Side::Source),
        ),
        case(
            "device_to_device_memcpy_read_sm",
            "memcpy SM GPU(row) -> GPU(column) bandwidth (GB/s)",
            &gpus,
            &pairs(Engine::Kernel, Side::Destination),
        ),
        case(
            "device_to_device_memcpy_write_sm",
            "memcpy SM GPU(row) <- GPU(column) bandwidth (GB/s)",
            &gpus,
            &pairs(Engine::Kernel, Side::Source),
        ),
        case("device_local_copy", "memcpy local GPU(column) bandwidth (GB/s)", &[0], &local),
    ]
}

/// Returns direct copies in one direction. The issuer is the row.
fn between(measured: &Measurements, engine: Engine, issuer: Side) -> Rates {
    let cells = measured.in_setup(Setup::REFERENCE.with_engine(engine).with_issuer(issuer));
    let rates = cells.into_iter().filter(|(_, cell)| cell.is_sound()).filter_map(|(pair, cell)| {
        let place = match issuer {
            Side::Source => (pair.source, pair.destination),
            Side::Destination => (pair.destination, pair.source),
        };
        Some((place, cell.achieved_gbps?.0))
    });
    rates.collect()
}

/// Returns copies of each GPU alone to or from reused pinned memory; with several NUMA nodes, the best.
fn with_host(measured: &Measurements, direction: HostDirection) -> Rates {
    let mut best = Rates::new();
    for copy in measured.host_alone(HostWay::PINNED.with_direction(direction)) {
        if let Some(rate) = copy.rate() {
            let shown = best.entry((0, copy.gpu)).or_insert(rate.0);
            *shown = shown.max(rate.0);
        }
    }
    best
}

fn within(measured: &Measurements) -> Rates {
    let sound = measured.local.iter().filter(|local| local.cell().tested());
    sound.filter_map(|local| Some(((0, local.gpu), local.achieved_gbps?.0))).collect()
}

/// Returns a matrix, or a waived test if there is no figure.
fn testcase(
    name: &'static str,
    description: &'static str,
    rows: &[u32],
    columns: &[u32],
    rates: &Rates,
) -> Testcase {
    let empty = Testcase {
        average: None,
        bandwidth_description: None,
        bandwidth_matrix: Vec::new(),
        max: None,
        min: None,
        name,
        status: "Waived",
        sum: None,
    };
    if rates.is_empty() {
        return empty;
    }
    let text =
        |place| rates.get(&place).map_or_else(|| "N/A".to_owned(), |rate| format!("{rate:.2}"));
    let sum: f64 = rates.values().sum();
    #[allow(clippy::cast_precision_loss, reason = "at most a square of 72 GPUs")]
    let average = sum / rates.len() as f64;
    Testcase {
        average: Some(average),
        bandwidth_description: Some(description),
        bandwidth_matrix: rows
            .iter()
            .map(|row| columns.iter().map(|column| text((*row, *column))).collect())
            .collect(),
        max: rates.values().copied().reduce(f64::max),
        min: rates.values().copied().reduce(f64::min),
        status: "Passed",
        sum: Some(sum),
        ..empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::report::Report;

    fn written(report: &Report) -> serde_json::Value {
        let file: serde_json::Value =
            serde_json::from_str(&render(&Digest::of(report), &Style::PLAIN)).unwrap();
        file["nvbandwidth"].clone()
    }

    fn case<'a>(root: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
        root["testcases"].as_array().unwrap().iter().find(|case| case["name"] == name).unwrap()
    }

    #[test]
    fn a_matrix_has_a_row_for_each_source_and_nothing_in_its_diagonal() {
        let root = written(&sample::healthy(8));
        let case = case(&root, "device_to_device_memcpy_write_ce");
        assert_eq!(case["status"], "Passed");
        let matrix = case["bandwidth_matrix"].as_array().unwrap();
        assert_eq!(matrix.len(), 8);
        for (n, row) in matrix.iter().enumerate() {
            for (m, cell) in row.as_array().unwrap().iter().enumerate() {
                let text = cell.as_str().unwrap();
                assert_eq!(n == m, text == "N/A", "{n}, {m}: {text}");
                assert!(n == m || text.parse::<f64>().unwrap() > 300.0, "{text}");
            }
        }
        assert!(case["sum"].as_f64().unwrap() > 56.0 * 300.0);
        assert_eq!(root["GPU Device list"].as_array().unwrap().len(), 8);
    }

    #[test]
    fn what_has_no_sound_figure_has_none_here() {
        let mut report = sample::healthy(2);
        for cell in &mut report.measurements.as_mut().unwrap().peer {
            cell.verified = model::status::Verified::Corrupt;
        }
        let root = written(&report);
        assert_eq!(case(&root, "device_to_device_memcpy_write_ce")["status"], "Waived");
        report.measurements = None;
        let root = written(&report);
        assert!(
            root["testcases"].as_array().unwrap().iter().all(|case| case["status"] == "Waived")
        );
    }

    #[test]
    fn cuda_versions_are_numbers() {
        assert_eq!([cuda("13.0"), cuda("12.8"), cuda("x")], [Some(13000), Some(12080), None]);
    }
}
