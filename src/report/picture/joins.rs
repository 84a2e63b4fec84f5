//! Connections between GPUs besides the PCIe tree: NVLinks, and refused or faulty pairs.

use std::collections::{BTreeMap, BTreeSet};

use super::parts::Above;
use crate::figures::count;
use model::finding::{Severity, Subject};
use model::node::NodeId;
use model::placement::Pair;
use model::report::Report;
use model::rounding::rate;
use model::snapshot::P2pStatus;
use model::topology::{Link, LinkKind, PairRoute};
use topology::nvlink;

/// Most pairs with a problem that are drawn; if there are more, they are counted.
const MOST: usize = 8;

/// Share of its possible rate below which a link is slow; above it, the figures differ by rounding.
const AS_POSSIBLE: f64 = 0.99;

/// A line between two GPUs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Join {
    pub(super) pair: Pair,
    pub(super) what: What,
    pub(super) label: String,
    pub(super) tip: String,
    /// GB/s each way, for a link.
    pub(super) rate: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A bundle of NVLinks.
    NvLink,
    /// A bundle that carries less than it could.
    Slow,
    /// No peer access.
    Refused,
    /// A pair with a finding.
    Bad,
}

/// Returns everything that is drawn between two GPUs.
pub(super) fn of(report: &Report) -> Vec<Join> {
    let links = report.topology.links.iter();
    let mut joins: Vec<Join> = links.filter_map(|link| bundle(report, link)).collect();
    let refused = refused(report);
    let few = refused.len() <= MOST.min(pairs(report) / 2);
    joins.extend(refused.iter().filter(|_| few).map(|&pair| Join {
        pair,
        what: What::Refused,
        label: "no P2P".into(),
        tip: format!("No peer access between GPU {} and GPU {}", pair.source, pair.destination),
        rate: None,
    }));
    joins.extend(
        bad(report)
            .into_iter()
            .filter(|join| !few || !refused.contains(&low_first(join.pair)))
            .take(MOST),
    );
    joins
}

/// Returns a bundle of links from GPU to GPU.
fn bundle(report: &Report, link: &Link) -> Option<Join> {
    let (LinkKind::NvLink, Some(source), Some(destination)) =
        (link.kind, gpu(link.upper), gpu(link.lower))
    else {
        return None;
    };
    let above = nvlinks(report, link);
    let label = above
        .of
        .as_ref()
        .map_or_else(|| above.label.clone(), |of| format!("{} of {of}", above.label));
    Some(Join {
        pair: low_first(Pair { source, destination }),
        what: if above.is_narrow() { What::Slow } else { What::NvLink },
        label,
        tip: format!("GPU {source} and GPU {destination}: {}", above.tip),
        rate: above.rate,
    })
}

/// Returns the links of each GPU to the NVSwitches.
pub(super) fn to_switches(report: &Report) -> Vec<(u32, Above)> {
    let links = report.topology.links.iter().filter(|link| link.kind == LinkKind::NvLink);
    let of_gpu = |link: &Link| match (link.upper, link.lower) {
        (NodeId::NvSwitch, NodeId::Gpu(index)) | (NodeId::Gpu(index), NodeId::NvSwitch) => {
            let above = nvlinks(report, link);
            Some((index, Above { tip: format!("GPU {index}: {}", above.tip), ..above }))
        }
        _ => None,
    };
    links.filter_map(of_gpu).collect()
}

/// Labels NVLinks in nvidia-smi's form, with the possible number if some are missing.
fn nvlinks(report: &Report, link: &Link) -> Above {
    let [now, possible] =
        [link.capacity_gbps, link.possible_gbps].map(|rate| rate.map(|rate| rate.0));
    let ends = [link.upper, link.lower].map(|end| report.snapshot.gpu(gpu(end)?));
    let bundle = match ends {
        [Some(one), Some(other)] => nvlink::direct(one, other),
        [Some(gpu), None] | [None, Some(gpu)] => nvlink::switched(gpu),
        [None, None] => None,
    };
    let number = bundle.map(|bundle| f64::from(bundle.links));
    let slow = now.zip(possible).filter(|(now, possible)| *now < possible * AS_POSSIBLE);
    let of = slow.map(|(now, possible)| match number {
        Some(number) if now > 0.0 => format!("{:.0}", (number * possible / now).min(999.0)),
        _ => format!("{} GB/s", rate(possible)),
    });
    let rates = now.map(|now| format!(", {} GB/s each way", rate(now))).unwrap_or_default();
    let label = number.map_or_else(|| "NVLink".to_owned(), |number| format!("NV{number}"));
    Above { label, of, rate: now, tip: format!("{}{rates}", link.label) }
}

const fn gpu(node: NodeId) -> Option<u32> {
    match node {
        NodeId::Gpu(index) => Some(index),
        _ => None,
    }
}

const fn low_first(pair: Pair) -> Pair {
    if pair.source <= pair.destination {
        pair
    } else {
        Pair { source: pair.destination, destination: pair.source }
    }
}

/// Counts pairs regardless of direction.
fn pairs(report: &Report) -> usize {
    report.topology.pairs.iter().filter(|route| route.pair.source < route.pair.destination).count()
}

/// Returns pairs without peer access, the lower GPU first.
fn refused(report: &Report) -> BTreeSet<Pair> {
    let no = |route: &&PairRoute| {
        let said = &route.peer_access;
        let by_nvml = [said.nvml_read, said.nvml_write].into_iter().flatten();
        let by_nvml =
            by_nvml.into_iter().any(|said| !matches!(said, P2pStatus::Ok | P2pStatus::Unknown));
        // CUDA decides; NVML's status counts only if CUDA was not asked.
        said.cuda.map_or(by_nvml, |granted| !granted)
    };
    report.topology.pairs.iter().filter(no).map(|route| low_first(route.pair)).collect()
}

/// Returns pairs that are themselves the subject of a warning or an error.
fn bad(report: &Report) -> Vec<Join> {
    let mut found: BTreeMap<Pair, Join> = BTreeMap::new();
    for finding in report.findings.iter().filter(|finding| finding.severity >= Severity::Warning) {
        let Subject::Pair(pair) = finding.subject else {
            continue;
        };
        let mark = if finding.severity == Severity::Error { "✖" } else { "▲" };
        let entry = found.entry(low_first(pair)).or_insert_with(|| Join {
            pair: low_first(pair),
            what: What::Bad,
            label: format!("{mark} {}→{}", pair.source, pair.destination),
            tip: String::new(),
            rate: None,
        });
        if entry.tip.is_empty() {
            entry.tip.clone_from(&finding.message);
        } else {
            entry.label = format!("{mark} {}↔{}", entry.pair.source, entry.pair.destination);
        }
    }
    found.into_values().collect()
}

/// Returns the notes below the picture.
pub(super) fn notes(report: &Report) -> Vec<String> {
    let (refused, all) = (refused(report).len(), pairs(report));
    if refused == 0 || refused <= MOST.min(all / 2) {
        return Vec::new();
    }
    vec![if refused == all {
        "No peer access between any two GPUs: copies go through host memory".to_owned()
    } else {
        format!(
            "No peer access between {} of {all}: their copies go through host memory",
            count(refused, "pair")
        )
    }]
}
