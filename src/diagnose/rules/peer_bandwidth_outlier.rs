//! # What it means
//!
//! A pair of GPUs, or every pair of a GPU, is clearly slower than the other pairs of this machine that are connected in
//! the same way, although it is not slow enough to be called faulty by itself.
//!
//! # How it is detected
//!
//! The reference figures (copy engine, issued by the source, one way, side streams, peer access on) of similar pairs
//! are compared, if there are three such pairs or more. Similar pairs have the same class, the same theoretical rate
//! and, beyond one host bridge, the same NUMA nodes on the route. Two things are reported. The first is a pair that
//! lies below their median by more than `below_median_percent`, and by more than its own spread and theirs. The second
//! is a GPU whose copies to all partners, or from all partners, lie below the median. Their median must lie below by
//! more than `gpu_below_median_percent` and by more than the spreads, and each of them by half of that percentage. The
//! second margin is narrower, because a GPU's row or column of the matrix is several figures that agree.
//!
//! The median is that of the pairs that are not slow themselves. Pairs of slow GPUs are left out: if two of four GPUs
//! are slow, these are five pairs in six. Pairs that lie below the fastest quarter by more than `below_median_percent`
//! are left out too.
//!
//! `peer-bandwidth-low` covers pairs below the floor of their class. `peer-bandwidth-asymmetric` covers pairs that are
//! slow in one direction only, if the directions differ enough for it. `unstable-measurement` covers those whose rows
//! scatter by more than is usual. PCIe pairs of a virtual machine are not compared, since its PCI tree hides what they
//! cross. Several pairs that share one GPU or one link are one finding.
//!
//! If six or more such figures scatter among themselves, a figure must also lie below what their scatter allows
//! (docs/measurement.md, "Scatter of figures that should be equal").
//!
//! # Why it matters
//!
//! Collective operations run at the speed of the slowest pair, and a link or GPU that is a little slow today is often
//! the one that fails next.
//!
//! # What to do
//!
//! Stop other work on the GPUs and check again: a fault that moves from pair to pair is noise. If it stays with one GPU
//! or link: look for link errors, clocks that are held back, and other traffic on the same switch. Then swap the GPU
//! with another to see if the fault moves.
//!
//! # Sources
//!
//! Measured on 8 x H200: 56 pairs within 1% of each other. Repeats elsewhere spread by 5 to 10%
//! (cuda-samples issue 449), so less than that is no outlier.

use super::alike::{self, Margins};
use super::bandwidth::{self, Compared};
use super::peer_bandwidth_asymmetric;
use super::prelude::*;
use super::{unread_traffic, unstable_measurement};
use model::node::NodeId;

const OUTLIER: Parameter = Parameter {
    name: "below_median_percent",
    default: 10.0,
    about: "how far below the median of comparable pairs a pair may be; 1 was measured on H200, and repeats spread \
        by 5 to 10 elsewhere (cuda-samples issue 449)",
};
const GPU: Parameter = Parameter {
    name: "gpu_below_median_percent",
    default: 6.0,
    about: "the same for all pairs of a GPU in one direction, in the middle; each lies below by half of it. Chosen: \
        six times the 1 that was measured between pairs on H200",
};

pub(crate) const RULE: Rule = Rule::new(
    "peer-bandwidth-outlier",
    Severity::Warning,
    include_str!("peer_bandwidth_outlier.rs"),
    judge,
)
.with(&[OUTLIER, GPU]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let outliers = outliers(evidence);
    let bad: Vec<_> = outliers.iter().map(|(compared, _)| compared.pair).collect();
    // A pair that another rule reports as slow does not show that the links it passes are good.
    let low = bandwidth::low_pairs(evidence);
    let seen: Vec<_> = bandwidth::sound(evidence, Path::Direct)
        .into_keys()
        .filter(|pair| !low.contains(pair))
        .collect();
    let groups = cluster::groups(&bad, &seen, evidence.topology);
    groups
        .iter()
        .filter_map(|group| finding(evidence, group, &outliers))
        .collect()
}

fn finding(
    evidence: &Evidence<'_>,
    group: &cluster::Group,
    outliers: &[(Compared, usize)],
) -> Option<Finding> {
    let pairs = group.pair_set();
    let of_group = outliers
        .iter()
        .filter(|(compared, _)| pairs.contains(&compared.pair));
    let (worst, alike) = of_group
        .max_by(|(one, _), (other, _)| one.below_percent().total_cmp(&other.below_percent()))?;
    let counters = match group.pairs.iter().any(|pair| evidence.over_pcie(*pair)) {
        true => Step::PcieErrors,
        false => Step::LinkErrors,
    };
    let mut found = RULE
        .finding(
            group.subject(),
            format!(
                "Copies {} reach {} GB/s, {:.0}% less than the median of the {alike} pairs that are connected alike \
                 ({} GB/s)",
                group.place(evidence.snapshot),
                worst.achieved,
                worst.below_percent(),
                worst.normal,
            ),
            Plan::now([Step::Stop(Work::OnGpus), Step::CheckAgain]).if_it_stays([
                counters,
                Step::Clocks,
                Step::Swap(Part::Gpu(OneOf(group.gpus()))),
            ]),
        )
        .fact("lowest_achieved", worst.achieved)
        .fact("median", worst.normal)
        .fact("below_median", Fact::percent(worst.below_percent()))
        .fact("alike_count", *alike)
        .pairs(&group.pairs);
    found = unread_traffic::with_reason(found, evidence, &group.pairs);
    found.suspects = suspects::of_slow_group(evidence, group);
    Some(found)
}

/// Returns pairs above their floor that lie clearly below the median of comparable pairs, with the number of these.
fn outliers(evidence: &Evidence<'_>) -> Vec<(Compared, usize)> {
    let mut reported = bandwidth::low_pairs(evidence);
    reported.extend(unstable_measurement::scattering(evidence));
    reported.extend(
        peer_bandwidth_asymmetric::asymmetric(evidence)
            .0
            .iter()
            .map(|compared| compared.pair),
    );
    alike::below(alike(evidence), &reported, margins(evidence))
}

/// Returns the pairs of GPUs that are slow with every partner, by GPU and direction, whatever other rules report on
/// them.
pub(crate) fn of_slow_gpus(evidence: &Evidence<'_>) -> Vec<Vec<Pair>> {
    alike::of_slow_gpus(alike(evidence), margins(evidence))
}

fn margins(evidence: &Evidence<'_>) -> Margins {
    Margins {
        pair: RULE.parameter(evidence, &OUTLIER),
        gpu: RULE.parameter(evidence, &GPU),
    }
}

fn alike<'a>(evidence: &Evidence<'a>) -> BTreeMap<Like, Vec<&'a PeerBandwidth>> {
    let mut alike: BTreeMap<Like, Vec<&PeerBandwidth>> = BTreeMap::new();
    for (pair, cell) in bandwidth::sound(evidence, Path::Direct) {
        if let Some(like) = evidence
            .topology
            .route(pair)
            .and_then(|route| Like::of(evidence, route))
        {
            alike.entry(like).or_default().push(cell);
        }
    }
    alike
}

/// The properties that make routes equal: class, rate, and, for routes that leave a host bridge, the memories that they
/// cross, since processors are not equally far from each other.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Like {
    class: LinkClass,
    theoretical_mbps: u64,
    crossed: BTreeSet<NodeId>,
}

impl Like {
    /// Returns `None` if the class or the rate is not known, or if a virtual machine hides what is crossed.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate in MB/s, rounded"
    )]
    fn of(evidence: &Evidence<'_>, route: &PairRoute) -> Option<Self> {
        let nvlink = matches!(route.class, LinkClass::NvLink(_));
        if route.class == LinkClass::Unknown || (!nvlink && evidence.virtual_machine()) {
            return None;
        }
        let numa = route
            .hops
            .iter()
            .flat_map(|hop| [&hop.from, &hop.to])
            .filter(|id| matches!(id, NodeId::Numa(_)));
        let theoretical_mbps = (route.theoretical_gbps?.0 * 1000.0).round() as u64;
        Some(Self {
            class: route.class,
            theoretical_mbps,
            crossed: numa.copied().collect(),
        })
    }
}
