//! Connections between GPUs besides the PCIe tree: NVLinks, and refused or faulty pairs.

use std::collections::{BTreeMap, BTreeSet};

use super::parts::Above;
use crate::figures::{arrow, count};
use crate::highlight;
use crate::paint::Paint;
use model::finding::Subject;
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
    pub pair: Pair,
    pub what: Stroke,
    pub label: String,
    pub tip: String,
    /// GB/s each way, for a link.
    pub rate: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stroke {
    /// A bundle of NVLinks.
    NvLink,
    /// A bundle that carries less than it could.
    Slow,
    /// No peer access.
    Refused,
    /// A pair with a finding.
    Bad,
}

/// Returns everything that is drawn between two GPUs, and a note about pairs that are too many to draw.
pub(super) fn of(report: &Report) -> (Vec<Join>, Option<String>) {
    let mut joins: Vec<Join> =
        nvlinks(report).filter_map(|(ends, above)| bundle(ends, above)).collect();
    let pairs = report.topology.pairs.iter();
    let all = pairs.filter(|route| route.pair.source < route.pair.destination).count();
    let refused = refused(report);
    let few = refused.len() <= MOST.min(all / 2);
    let mut bad = bad(report);
    let note = match refused.len() {
        _ if few => {
            bad.retain(|join| !refused.contains(&join.pair));
            joins.extend(refused.into_iter().map(|pair| {
                let Pair { source, destination } = pair;
                let tip = format!("No peer access between GPU {source} and GPU {destination}");
                Join { pair, what: Stroke::Refused, label: "no P2P".into(), tip, rate: None }
            }));
            None
        }
        every if every == all => {
            Some("No peer access between any two GPUs: copies go through host memory".to_owned())
        }
        some => {
            let some = count(some, "pair");
            Some(format!(
                "No peer access between {some} of {all}: their copies go through host memory"
            ))
        }
    };
    joins.extend(bad.into_iter().take(MOST));
    (joins, note)
}

/// Returns a bundle of links from GPU to GPU.
fn bundle(ends: [NodeId; 2], above: Above) -> Option<Join> {
    let [source, destination] = [gpu(ends[0])?, gpu(ends[1])?];
    Some(Join {
        pair: low_first(Pair { source, destination }),
        what: if above.is_narrow() { Stroke::Slow } else { Stroke::NvLink },
        tip: format!("GPU {source} and GPU {destination}: {}", above.tip),
        rate: above.rate,
        label: match above.of {
            Some(of) => format!("{} of {of}", above.label),
            None => above.label,
        },
    })
}

/// Returns the links of each GPU to the NVSwitches.
pub(super) fn to_switches(report: &Report) -> impl Iterator<Item = (u32, Above)> {
    nvlinks(report).filter_map(|(ends, above)| match ends {
        [NodeId::NvSwitch, NodeId::Gpu(index)] | [NodeId::Gpu(index), NodeId::NvSwitch] => {
            Some((index, Above { tip: format!("GPU {index}: {}", above.tip), ..above }))
        }
        _ => None,
    })
}

/// Returns the NVLinks between two nodes, labelled in nvidia-smi's form, with the possible number if some are missing.
fn nvlinks(report: &Report) -> impl Iterator<Item = ([NodeId; 2], Above)> {
    let links = report.topology.links.iter().filter(|link| link.kind == LinkKind::NvLink);
    links.map(|link| ([link.upper, link.lower], nvlink(report, link)))
}

fn nvlink(report: &Report, link: &Link) -> Above {
    let [now, possible] =
        [link.capacity_gbps, link.possible_gbps].map(|rate| rate.map(|rate| rate.0));
    let bundle = match [link.upper, link.lower].map(|end| report.snapshot.gpu(gpu(end)?)) {
        [Some(one), Some(other)] => nvlink::direct(one, other),
        [Some(gpu), None] | [None, Some(gpu)] => nvlink::switched(gpu),
        [None, None] => None,
    };
    let number = bundle.map(|bundle| bundle.links);
    let slow = now.zip(possible).filter(|(now, possible)| *now < possible * AS_POSSIBLE);
    let of = slow.map(|(now, possible)| match number {
        Some(number) if now > 0.0 => {
            format!("{:.0}", (f64::from(number) * possible / now).min(999.0))
        }
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
    let (source, destination) = pair.unordered();
    Pair { source, destination }
}

/// Returns pairs without peer access, the lower GPU first.
fn refused(report: &Report) -> BTreeSet<Pair> {
    let no = |route: &&PairRoute| {
        let said = &route.peer_access;
        let mut by_nvml = [said.nvml_read, said.nvml_write].into_iter().flatten();
        // CUDA decides; NVML's status counts only if CUDA was not asked.
        said.cuda.map_or_else(
            || by_nvml.any(|said| !matches!(said, P2pStatus::Ok | P2pStatus::Unknown)),
            |granted| !granted,
        )
    };
    report.topology.pairs.iter().filter(no).map(|route| low_first(route.pair)).collect()
}

/// Returns pairs that are themselves the subject of a warning or an error.
fn bad(report: &Report) -> Vec<Join> {
    let mut found: BTreeMap<Pair, Join> = BTreeMap::new();
    for finding in &report.findings {
        let (Subject::Pair(of), mark) = (&finding.subject, highlight::paint(finding.severity))
        else {
            continue;
        };
        if mark < Paint::Warning {
            continue;
        }
        let (pair, mark) = (low_first(*of), mark.sign());
        let label = format!("{mark} {}", arrow(*of));
        let tip = finding.message.clone();
        let join = Join { pair, what: Stroke::Bad, label, tip, rate: None };
        let both = || format!("{mark} {}", arrow(pair).replace('→', "↔"));
        found.entry(pair).and_modify(|known| known.label = both()).or_insert(join);
    }
    found.into_values().collect()
}
