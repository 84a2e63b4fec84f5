//! The summary of a report: what a fleet keeps and compares of a machine.

mod figures;
mod kind;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use model::finding::{self, Severity, Subject};
use model::machine_facts::{machine_facts, summed_up};
use model::pcie::Shape;
use model::placement::Pair;
use model::report::{Report, Verdict};
use model::topology::{self, LinkClass};
use model::units::GbPerSecond;

use figures::word;
pub(crate) use kind::{Ends, Method, Metric, Point};

/// The part of a report that `fleet` reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Host name. `None` if not known, as all facts here.
    pub hostname: Option<String>,
    /// Version of the NVIDIA driver.
    pub driver_version: Option<String>,
    /// Newest CUDA version that the driver supports.
    pub cuda_version: Option<String>,
    /// Kernel release.
    pub kernel_version: Option<String>,
    /// Facts that stay from run to run, by their keys in `snapshot`: of the machine, of all GPUs, and with `pci_` the
    /// settings of all PCI functions on the way. Several values with their numbers: `7 x on, 1 x off`.
    pub facts: BTreeMap<String, String>,
    /// Profile of the check. `None` for a report of facts alone.
    pub profile: Option<String>,
    /// True if the run was interrupted or cut off.
    pub interrupted: bool,
    /// Number of GPUs that `--gpus` left out.
    pub gpus_left_out: u32,
    /// The conclusion.
    pub verdict: Verdict,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// The GPUs in the report's order.
    pub gpus: Vec<Gpu>,
    /// Links of the graph.
    pub links: Vec<Link>,
    /// Link class of every ordered pair.
    pub pairs: Vec<PairClass>,
    /// Kinds of measurements with their setup, each once.
    pub kinds: Vec<Metric>,
    /// The figures.
    pub figures: Vec<Point>,
}

/// Identity and PCIe link of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// NVML's index.
    pub index: u32,
    /// PCI address.
    pub pci: Option<String>,
    /// NVML's UUID.
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Serial number of the board.
    pub serial: Option<String>,
    /// Version of the video BIOS.
    pub vbios: Option<String>,
    /// Label of the physical slot.
    pub slot: Option<String>,
    /// PCIe link under load: `Gen5 x16`.
    pub link: Option<String>,
    /// Best link that both ends support.
    pub link_possible: Option<String>,
}

/// A link between two nodes of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Id of the node nearer to the processor, or of the lower GPU.
    pub upper: String,
    /// Id of the other node.
    pub lower: String,
    /// Kind of the link: `pcie`, `nv-link`, ….
    pub kind: String,
    /// For people: `Gen4 x16`.
    pub label: String,
    /// Current payload rate per direction. `None` if not known.
    pub capacity_gbps: Option<GbPerSecond>,
    /// Payload rate per direction that both ends support.
    pub possible_gbps: Option<GbPerSecond>,
}

/// The class of the connection between an ordered pair of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairClass {
    /// The GPU that data leaves.
    pub source: u32,
    /// The GPU that data reaches.
    pub destination: u32,
    /// Class of the connection, in nvidia-smi's words.
    pub class: LinkClass,
}

/// A finding without its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SummaryFinding"))]
pub struct Finding {
    /// Code of the rule.
    pub code: String,
    /// Severity of the finding.
    pub severity: Severity,
    /// The part of the machine that the finding is about.
    pub subject: Subject,
    /// The problem in a sentence.
    pub message: String,
    /// The part that it is about, as it is printed on it: slot, address, serial number. Empty if not known.
    pub part: String,
    /// The first steps.
    pub step: String,
}

impl Summary {
    /// Makes the summary of a report.
    pub fn of(report: &Report) -> Self {
        let (host, measured) = (&report.snapshot.host, report.measurements.as_ref());
        let pairs = report.topology.pairs.iter();
        let classes: HashMap<Pair, LinkClass> =
            pairs.clone().map(|route| (route.pair, route.class)).collect();
        let numa = report.snapshot.gpus.iter();
        let numa = numa.map(|gpu| (gpu.index, gpu.numa_node.get())).collect();
        let figures = figures::Points::of(measured, classes, numa);
        Self {
            hostname: host.hostname.known().cloned(),
            driver_version: host.driver_version.known().cloned(),
            cuda_version: host.cuda_version.known().cloned(),
            kernel_version: host.kernel_version.known().cloned(),
            facts: summed_up(&machine_facts(&report.snapshot, &report.topology)),
            profile: measured.map(|measured| measured.profile.clone()),
            interrupted: measured.is_some_and(|measured| measured.interrupted || measured.cut_off),
            gpus_left_out: report.request.gpus_left_out,
            verdict: report.verdict.clone(),
            findings: report.findings.iter().map(|found| Finding::of(found, report)).collect(),
            gpus: gpus(report),
            links: report.topology.links.iter().map(Link::of).collect(),
            pairs: pairs
                .map(|route| PairClass {
                    source: route.pair.source,
                    destination: route.pair.destination,
                    class: route.class,
                })
                .collect(),
            kinds: figures.kinds,
            figures: figures.figures,
        }
    }
}

fn gpus(report: &Report) -> Vec<Gpu> {
    let links = report.topology.links.iter();
    let mut links: BTreeMap<u32, _> = links
        .filter_map(|link| link.pcie.as_ref())
        .filter_map(|pcie| Some((pcie.gpu?, pcie)))
        .collect();
    let gpus = report.snapshot.gpus.iter();
    gpus.map(|gpu| {
        let link = links.remove(&gpu.index);
        Gpu {
            index: gpu.index,
            pci: gpu.pci.known().map(ToString::to_string),
            uuid: gpu.uuid.known().cloned(),
            name: gpu.name.known().cloned(),
            serial: gpu.serial.known().cloned(),
            vbios: gpu.vbios.known().cloned(),
            slot: link.and_then(|link| link.slot.clone()),
            link: link.and_then(|link| shape(link.now)),
            link_possible: link.and_then(|link| shape(link.possible)),
        }
    })
    .collect()
}

fn shape(shape: Shape) -> Option<String> {
    let generation = shape.generation.map(|generation| format!("Gen{generation}"));
    let width = shape.width.map(|width| format!("x{width}"));
    let parts: Vec<_> = generation.into_iter().chain(width).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

impl Link {
    fn of(link: &topology::Link) -> Self {
        Self {
            upper: link.upper.to_string(),
            lower: link.lower.to_string(),
            kind: word(link.kind),
            label: link.label.clone(),
            capacity_gbps: link.capacity_gbps,
            possible_gbps: link.possible_gbps,
        }
    }
}

impl Finding {
    fn of(finding: &finding::Finding, report: &Report) -> Self {
        Self {
            code: finding.code.to_string(),
            severity: finding.severity,
            subject: finding.subject.clone(),
            message: finding.message.clone(),
            part: report::part(finding, &report.snapshot),
            step: report::at_once(finding),
        }
    }

    /// Returns the GPUs that the finding is about.
    pub fn gpus(&self) -> Vec<u32> {
        match &self.subject {
            Subject::Gpu { index } | Subject::Link { index, .. } => vec![*index],
            Subject::Pair(pair) => vec![pair.source, pair.destination],
            Subject::Machine | Subject::PcieLink { .. } | Subject::PciFunction { .. } => Vec::new(),
        }
    }
}
