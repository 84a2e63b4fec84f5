//! The summary of a report: what a fleet compares of a machine. It is made from the report whenever one is written, and
//! is near the top of the text, so that a reader of many reports can stop there.

mod figures;
mod kind;

use std::collections::{BTreeMap, HashMap};

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::bracket::Bracket;
use super::finding::{self, Severity, Subject};
use super::machine_facts::{machine_facts, summed_up};
use super::pcie::Shape;
use super::placement::Pair;
use super::report::{MOST_GPUS, Report, Verdict};
use super::rolling::Rolling;
use super::snapshot::PcieErrors;
use super::topology::{self, LinkClass};
use super::under_load::{LinkUnderLoad, NvLinkErrorsAdded};
use super::units::GbPerSecond;

use figures::word;
pub use kind::{Ends, Figure, Kind, What};

/// The part of a report that `fleet` reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Summary {
    /// Host name. Null if not known, as all facts here.
    pub hostname: Option<String>,
    /// Version of the NVIDIA driver.
    pub driver_version: Option<String>,
    /// Newest CUDA version that the driver supports.
    pub cuda_version: Option<String>,
    /// Kernel release.
    pub kernel_version: Option<String>,
    /// Facts that stay from run to run, by their keys in `snapshot`: of the machine, of all GPUs, and with `pci_` the settings
    /// of all PCI functions on the way. Several values with their numbers: `7 x on, 1 x off`.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
    /// Profile of the check. Null for a report of facts alone.
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
    pub kinds: Vec<Kind>,
    /// The figures, a list for each: index of its kind in `kinds`; source and destination GPU, the same for one GPU,
    /// null for the whole machine; value in the unit of the kind, null without a sound one; percentage of the
    /// theoretical rate, null if not known.
    #[cfg_attr(any(test, feature = "testing"), schemars(with = "Vec<kind::Row>"))]
    pub figures: Vec<Figure>,
    /// Errors that the time of a job added. Left out by runs that were not around a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bracket: Option<SummedBracket>,
    /// What runs within a budget have covered. Left out by other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling: Option<Rolling>,
}

/// Errors that the time of a job added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct SummedBracket {
    /// Name of the job. Null if it has none.
    pub job: Option<String>,
    /// Time between the readings, seconds.
    pub seconds: f64,
    /// Links that counted errors.
    pub links: Vec<LinkErrors>,
}

/// Errors that a link counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct LinkErrors {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// Number of the NVLink. Null for the PCIe link.
    pub link: Option<u8>,
    /// Errors of all kinds.
    pub errors: u64,
}

impl SummedBracket {
    fn of(bracket: &Bracket) -> Self {
        let of_link = |load: &LinkUnderLoad| {
            let (gpu, nvlinks) = (load.index, load.nvlink_errors.clone().unwrap_or_default());
            let added = |of: fn(&PcieErrors) -> u64| {
                let both = load.pcie_errors_after.zip(load.pcie_errors_before);
                both.map_or(0, |(after, before)| of(&after).saturating_sub(of(&before)))
            };
            let counts = [
                load.replays_added.unwrap_or(0),
                added(|errors| errors.correctable),
                added(|errors| errors.non_fatal),
                added(|errors| errors.fatal),
            ];
            let pcie = LinkErrors {
                gpu,
                link: None,
                errors: counts.into_iter().fold(0, u64::saturating_add),
            };
            let nvlink = move |added: NvLinkErrorsAdded| LinkErrors {
                gpu,
                link: Some(added.link),
                errors: added.all(),
            };
            std::iter::once(pcie).chain(nvlinks.into_iter().map(nvlink))
        };
        let links = bracket.links.iter().flat_map(of_link);
        Self {
            job: bracket.job.clone(),
            seconds: bracket.seconds,
            links: links.filter(|link| link.errors > 0).collect(),
        }
    }
}

/// Identity and PCIe link of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "SummaryGpu"))]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "SummaryLink"))]
pub struct Link {
    /// Id of the node nearer to the processor, or of the lower GPU.
    pub upper: String,
    /// Id of the other node.
    pub lower: String,
    /// Kind of the link: `pcie`, `nv-link`, ….
    pub kind: String,
    /// For people: `Gen4 x16`.
    pub label: String,
    /// Current payload rate per direction. Null if not known.
    pub capacity_gbps: Option<GbPerSecond>,
    /// Payload rate per direction that both ends support.
    pub possible_gbps: Option<GbPerSecond>,
}

/// The class of the connection between an ordered pair of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PairClass {
    /// The GPU that data leaves.
    pub source: u32,
    /// The GPU that data reaches.
    pub destination: u32,
    /// Class of the connection, in nvidia-smi's words.
    pub class: LinkClass,
}

/// A finding without its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "SummaryFinding"))]
pub struct Finding {
    /// Code of the rule.
    pub code: String,
    /// Severity of the finding.
    pub severity: Severity,
    /// The part of the machine that the finding is about.
    pub subject: Subject,
    /// The problem in a sentence.
    pub message: String,
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Without `..`, so that a new key cannot be forgotten here.
        let Self {
            schema,
            tool,
            started_at,
            machine,
            request,
            read_from,
            snapshot,
            topology,
            measurements,
            bracket,
            rolling,
            findings,
            advice,
            verdict,
            timing,
        } = self;
        let mut to = to.serialize_struct("Report", 19)?;
        to.serialize_field("schema", schema)?;
        to.serialize_field("tool", tool)?;
        to.serialize_field("started_at", started_at)?;
        to.serialize_field("machine", machine)?;
        to.serialize_field("request", request)?;
        if let Some(read_from) = read_from {
            to.serialize_field("read_from", read_from)?;
        }
        to.serialize_field("summary", &Summary::of(self))?;
        to.serialize_field("snapshot", snapshot)?;
        to.serialize_field("topology", topology)?;
        to.serialize_field("measurements", measurements)?;
        if let Some(bracket) = bracket {
            to.serialize_field("bracket", bracket)?;
        }
        if let Some(rolling) = rolling {
            to.serialize_field("rolling", rolling)?;
        }
        to.serialize_field("findings", findings)?;
        if !advice.is_empty() {
            to.serialize_field("advice", advice)?;
        }
        to.serialize_field("verdict", verdict)?;
        to.serialize_field("timing", timing)?;
        to.end()
    }
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
        let figures = figures::Figures::of(measured, classes, numa);
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
            findings: report.findings.iter().map(Finding::of).collect(),
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
            bracket: report.bracket.as_deref().map(SummedBracket::of),
            rolling: report.rolling.clone(),
        }
    }

    /// Returns why no report can have this summary, worded to follow the file's name.
    pub fn defect(&self) -> Option<String> {
        if self.gpus.len() > MOST_GPUS {
            let gpus = self.gpus.len();
            return Some(format!("has {gpus} GPUs; a report can have {MOST_GPUS} at most"));
        }
        let of_pairs = self.pairs.iter().flat_map(|pair| [pair.source, pair.destination]);
        let of_figures = self.figures.iter().filter_map(|figure| figure.ends.gpus());
        let stranger = of_pairs
            .chain(of_figures.flatten().map(u32::from))
            .find(|gpu| self.gpus.iter().all(|known| known.index != *gpu));
        let figures = self.figures.iter();
        let mut kinds = figures.map(|figure| usize::from(figure.kind));
        if let Some(gpu) = stranger {
            Some(format!(
                "cannot be a report: summary.gpus has no GPU {gpu}, and other rows have it"
            ))
        } else {
            let kind = kinds.find(|kind| *kind >= self.kinds.len())?;
            Some(format!(
                "cannot be a report: summary.kinds has no kind {kind}, and a figure has it"
            ))
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
    fn of(finding: &finding::Finding) -> Self {
        Self {
            code: finding.code.to_string(),
            severity: finding.severity,
            subject: finding.subject.clone(),
            message: finding.message.clone(),
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
