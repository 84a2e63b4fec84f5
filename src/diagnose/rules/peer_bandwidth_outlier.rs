//! # What it means
//!
//! A pair of GPUs is clearly slower than the other pairs of this machine that are joined in the
//! same way, although it is not slow enough to be called faulty by itself.
//!
//! # How it is detected
//!
//! The reference figures (copy engine, issued by the source, one way, side streams, peer access on)
//! of pairs with the same class, the same theoretical rate and, beyond one host bridge, the same
//! NUMA nodes on the way are compared. With three such pairs or more, one that lies below their
//! median by more than the parameter, and by more than its own samples and theirs scatter, stands
//! out. Pairs below the floor of their class are left to `peer-bandwidth-low`, those that are slow in
//! one direction only to `peer-bandwidth-asymmetric` where they differ enough for it. PCIe pairs of a
//! virtual machine are not compared, since its PCI tree hides what they cross. Several pairs that
//! share one GPU or one link are one finding.
//!
//! # Why it matters
//!
//! Collective operations run at the speed of the slowest pair, and what is a little slow today is
//! mostly the link or the GPU that fails next.
//!
//! # What to do
//!
//! Stop other work on the GPUs and check again: what moves from pair to pair is noise. What stays
//! with one GPU or link: look for link errors, clocks that are held back, and other traffic on the
//! same switch; then swap the GPU with another to see whether it moves.
//!
//! # Sources
//!
//! Measured on 8 x H200: 56 pairs within 1% of each other. Repeats elsewhere spread by 5 to 10%
//! (cuda-samples issue 449), so less than that is no outlier.

use std::collections::BTreeSet;

use serde_json::json;

use super::bandwidth::{self, Compared};
use crate::diagnose::rule::{Evidence, Rule, finding};
use crate::diagnose::settings::Parameter;
use crate::diagnose::{cluster, suspects};
use crate::model::finding::{Finding, Severity};
use crate::model::placement::Path;

/// Pairs of GPUs (both directions together) from which a median is believed.
pub const LEAST_PAIRS: usize = 3;

/// Name of the parameter.
pub const OUTLIER: &str = "below_median_percent";

const PARAMETERS: &[Parameter] = &[Parameter {
    name: OUTLIER,
    default: 10.0,
    about: "how far below the median of its like a pair may be; 1 was measured on H200, and repeats spread by 5 to 10 \
            elsewhere (cuda-samples issue 449)",
}];

/// See the module's documentation.
pub struct PeerBandwidthOutlier;

impl Rule for PeerBandwidthOutlier {
    fn code(&self) -> &'static str {
        "peer-bandwidth-outlier"
    }

    fn severity(&self) -> Severity {
        Severity::Warning
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn source(&self) -> &'static str {
        include_str!("peer_bandwidth_outlier.rs")
    }

    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let outliers = bandwidth::outliers(evidence);
        let bad: Vec<_> = outliers.iter().map(|(compared, _)| compared.pair).collect();
        // A pair that is told as slow by another rule says nothing good of what it passes.
        let low: BTreeSet<_> =
            bandwidth::below_floor(evidence, Path::Direct).iter().map(|slow| slow.cell.pair).collect();
        let seen: Vec<_> =
            bandwidth::sound(evidence, Path::Direct).into_keys().filter(|pair| !low.contains(pair)).collect();
        let groups = cluster::groups(&bad, &seen, evidence.topology);
        groups.iter().filter_map(|group| self.finding(evidence, group, &outliers)).collect()
    }
}

impl PeerBandwidthOutlier {
    fn finding(
        &self,
        evidence: &Evidence<'_>,
        group: &cluster::Group,
        outliers: &[(Compared, usize)],
    ) -> Option<Finding> {
        let of_group = outliers.iter().filter(|(compared, _)| group.pairs.contains(&compared.pair));
        let (worst, alike) =
            of_group.max_by(|(one, _), (other, _)| one.below_percent().total_cmp(&other.below_percent()))?;
        let mut found = finding(
            self,
            group.subject(),
            format!(
                "Copies {} reach {} GB/s, {:.0}% less than the median of the {alike} pairs that are joined alike ({} \
                 GB/s)",
                group.place(evidence.snapshot),
                worst.achieved,
                worst.below_percent(),
                worst.normal,
            ),
            [
                ("lowest_achieved_gbps", json!(worst.achieved)),
                ("median_gbps", json!(worst.normal)),
                ("below_median_percent", json!((worst.below_percent() * 10.0).round() / 10.0)),
                ("alike_count", json!(alike)),
                ("pairs", group.evidence()),
            ],
            "Stop other work on these GPUs and check again. If the same pairs stay slow: look for link errors \
             (nvidia-smi nvlink -e) and clocks that are held back (nvidia-smi -q -d PERFORMANCE), then swap the GPU \
             with another to see whether it moves",
        );
        found.suspects = suspects::of_slow_copies(evidence, &group.pairs);
        Some(found)
    }
}
