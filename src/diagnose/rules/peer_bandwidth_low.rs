//! # What it means
//!
//! Copies between two GPUs are clearly slower than the links between them allow.
//!
//! # How it is detected
//!
//! The median of the reference measurement (copy engine, issued by the source, one way, side
//! streams, host not waiting, peer access on) lies below a share of the payload rate of the
//! narrowest link of the route: 75% over NVLink and below one host bridge, 55% where the copy
//! crosses host bridges or processors, where the class is not known, and over PCIe in a virtual
//! machine, whose PCI tree hides what is crossed. Pairs whose bytes arrived wrong are left to
//! `peer-data-wrong`. Several slow pairs that share one GPU or one link are one finding.
//!
//! # Why it matters
//!
//! Collective operations run at the speed of the slowest pair.
//!
//! # What to do
//!
//! Look at the other findings on the same GPU first: a narrow PCIe link or an inactive NVLink is
//! the cause, this is the effect. Without any: stop other work on the GPUs and measure again; look
//! for NVLink errors (`nvidia-smi nvlink -e`), for clocks that are held back (`nvidia-smi -q -d
//! PERFORMANCE`), and for an IOMMU or access control (ACS) that sends peer traffic through the
//! processor.
//!
//! # Sources
//!
//! Healthy machines reach 88% (8 x H200, measured), 82 to 84% (H100, published), 92% (A100), 84 to
//! 90% over PCIe on one socket and 62 to 81% across sockets. Azure's node check fails H100 pairs
//! below 335 of 450 GB/s (74%).

use serde_json::json;

use crate::diagnose::cluster::{self, Common};
use crate::diagnose::rule::{Evidence, Rule, finding};
use crate::diagnose::words;
use crate::model::finding::{Finding, Severity};
use crate::model::measurement::{PeerBandwidth, Verified};
use crate::model::placement::Path;
use crate::model::snapshot::Gpu;
use crate::model::topology::LinkClass;
use crate::model::units::GbPerSecond;

/// Least healthy share of theoretical over NVLink and below one host bridge, per cent. The lowest
/// healthy figure known is 82 (H100); Azure's node check draws the line at 335 of 450 GB/s, 74.
const FLOOR_NEAR_PERCENT: f64 = 75.0;

/// The same across host bridges or processors. The lowest healthy figure known is 62.
const FLOOR_FAR_PERCENT: f64 = 55.0;

/// See the module's documentation.
pub struct PeerBandwidthLow;

struct Slow<'a> {
    cell: &'a PeerBandwidth,
    theoretical: GbPerSecond,
    achieved: GbPerSecond,
    floor: f64,
}

impl<'a> Slow<'a> {
    /// `None` where the cell is fast enough, or there is nothing to compare it with.
    fn of(evidence: &Evidence<'_>, cell: &'a PeerBandwidth) -> Option<Self> {
        let route = evidence.topology.route(cell.pair);
        let theoretical = cell.theoretical_gbps.or_else(|| route?.theoretical_gbps);
        let class = route.map_or(LinkClass::Unknown, |route| route.class);
        let slow = Self {
            cell,
            theoretical: theoretical.filter(|rate| rate.0 > 0.0)?,
            achieved: cell.achieved_gbps?,
            floor: floor(class, evidence.virtual_machine()),
        };
        (slow.percent() < slow.floor).then_some(slow)
    }

    fn percent(&self) -> f64 {
        self.achieved.percent_of(self.theoretical)
    }
}

fn floor(class: LinkClass, virtual_machine: bool) -> f64 {
    match class {
        LinkClass::NvLink(_) => FLOOR_NEAR_PERCENT,
        LinkClass::Pix | LinkClass::Pxb | LinkClass::Phb if !virtual_machine => FLOOR_NEAR_PERCENT,
        _ => FLOOR_FAR_PERCENT,
    }
}

impl Rule for PeerBandwidthLow {
    fn code(&self) -> &'static str {
        "peer-bandwidth-low"
    }

    fn severity(&self) -> Severity {
        Severity::Error
    }

    fn source(&self) -> &'static str {
        include_str!("peer_bandwidth_low.rs")
    }

    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let mut cells = evidence.reference(Path::Direct);
        cells.retain(|_, cell| !matches!(cell.verified, Verified::Dropped | Verified::Corrupt));
        let slow: Vec<_> = cells.values().filter_map(|cell| Slow::of(evidence, cell)).collect();
        let bad: Vec<_> = slow.iter().map(|slow| slow.cell.pair).collect();
        let seen: Vec<_> = cells.keys().copied().collect();
        let groups = cluster::groups(&bad, &seen, evidence.topology);
        groups.iter().filter_map(|group| self.finding(evidence, group, &slow)).collect()
    }
}

impl PeerBandwidthLow {
    fn finding(&self, evidence: &Evidence<'_>, group: &cluster::Group, slow: &[Slow<'_>]) -> Option<Finding> {
        let of_group = || slow.iter().filter(|slow| group.pairs.contains(&slow.cell.pair));
        let worst = of_group().min_by(|one, other| one.percent().total_cmp(&other.percent()))?;
        // For a group, the narrowest hop of one of its pairs would be a false trail. Of two directions
        // it is the first's: which is slower may turn on a digit that a saved report has not.
        let alone = group.pairs.first().filter(|_| group.common == Common::OnePair);
        let route = alone.and_then(|pair| evidence.topology.route(*pair));
        let bottleneck = route.and_then(|route| route.bottleneck.clone());
        let message = format!(
            "Copies {} reach only {} of {} GB/s ({:.0}%, at least {:.0}% is normal)",
            group.place(evidence.snapshot),
            worst.achieved,
            worst.theoretical,
            worst.percent(),
            worst.floor,
        );
        let next_step = match &group.common {
            Common::Gpu(index) => format!(
                "Look first at other findings on GPU {index}. If there is none: stop other work on it, measure \
                 again, then check its links (nvidia-smi nvlink -e) and clocks (nvidia-smi -q -d PERFORMANCE), and \
                 reseat it or swap it with another GPU to see whether the fault moves with it"
            ),
            Common::Links(_) => "Check the cable, riser or switch board that these pairs share, and whether other \
                 traffic uses it; measure again with the machine idle"
                .into(),
            Common::Everything => "Stop other work on the machine and measure again. If it stays: check whether an \
                 IOMMU or ACS sends peer traffic through the processor, and whether the clocks are held back \
                 (nvidia-smi -q -d PERFORMANCE)"
                .into(),
            Common::OnePair => "Stop other work on the two GPUs and measure again; then check the links of both \
                 (nvidia-smi nvlink -e) and, over PCIe, whether an IOMMU or ACS sends their traffic through the \
                 processor, or one of the slots is the chipset's, whose uplink no link file shows"
                .into(),
        };
        let has_other_work = |gpu: &&Gpu| {
            gpu.processes.known().is_some_and(|processes| !processes.is_empty())
                && group.pairs.iter().any(|pair| pair.source == gpu.index || pair.destination == gpu.index)
        };
        let busy: Vec<_> = evidence.snapshot.gpus.iter().filter(has_other_work).map(|gpu| gpu.index).collect();
        let mut found = finding(
            self,
            group.subject(),
            message,
            [
                ("lowest_achieved_gbps", json!(worst.achieved)),
                ("theoretical_gbps", json!(worst.theoretical)),
                ("lowest_percent", json!((worst.percent() * 10.0).round() / 10.0)),
                ("floor_percent", json!(worst.floor)),
                ("bottleneck", json!(bottleneck)),
                ("pairs", group.evidence()),
            ],
            next_step,
        );
        if !busy.is_empty() {
            found.message.push_str(&format!("; other processes hold memory on {}", words::gpus(&busy)));
            found.evidence.insert("gpus_with_other_processes".into(), json!(busy));
        }
        Some(found)
    }
}
