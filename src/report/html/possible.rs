//! What routes could carry if no link of them were narrower than its ends: a slow slot must not make its own slow
//! figures look as they should be.

use std::collections::HashMap;

use crate::model::node::NodeId;
use crate::model::placement::Pair;
use crate::model::report::Report;

/// Links that carry less than both of their ends can do.
pub(super) struct Possible<'a> {
    report: &'a Report,
    /// Both rates of each, now and possible, GB/s, by its lower end and its upper.
    narrow: HashMap<(NodeId, NodeId), [f64; 2]>,
}

impl<'a> Possible<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        let narrow = report.topology.links.iter().filter_map(|link| {
            let (now, possible) = (link.capacity_gbps?.0, link.possible_gbps?.0);
            // At rest a link may run at a lower rate: only what counts as narrow is less than it should be.
            let is_narrow = link.pcie.as_ref().is_none_or(|pcie| !pcie.narrow.is_empty());
            (is_narrow && now < possible * 0.99).then_some(((link.lower, link.upper), [now, possible]))
        });
        Self { report, narrow: narrow.collect() }
    }

    /// The share that a pair's route carries of what it could; 1 where nothing of it is narrow.
    pub(super) fn of_pair(&self, pair: Pair) -> f64 {
        if self.narrow.is_empty() {
            return 1.0;
        }
        let hops = self.report.topology.route(pair).map(|route| route.hops.as_slice()).unwrap_or_default();
        self.share(hops.iter().map(|hop| (hop.from, hop.to, hop.capacity_gbps.map(|rate| rate.0))))
    }

    /// The same of a GPU's way to the host.
    pub(super) fn of_gpu(&self, gpu: u32) -> f64 {
        let topology = &self.report.topology;
        let way = topology.way_up(NodeId::Gpu(gpu));
        let rate = |lower: NodeId| topology.link_above(lower).and_then(|link| Some(link.capacity_gbps?.0));
        self.share(way.windows(2).map(|ends| (ends[0], ends[1], rate(ends[0]))))
    }

    fn share(&self, hops: impl Iterator<Item = (NodeId, NodeId, Option<f64>)>) -> f64 {
        let (mut now, mut possible) = (f64::INFINITY, f64::INFINITY);
        for (from, to, rate) in hops {
            let narrow = self.narrow.get(&(from, to)).or_else(|| self.narrow.get(&(to, from)));
            let rates = narrow.copied().or(rate.map(|rate| [rate; 2])).unwrap_or([f64::INFINITY; 2]);
            (now, possible) = (now.min(rates[0]), possible.min(rates[1]));
        }
        if now.is_finite() && possible > 0.0 { (now / possible).min(1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_pair_behind_a_narrow_slot_is_held_against_a_wide_one() {
        let report = sample::pcie_box();
        let possible = Possible::of(&report);
        let share = possible.of_pair(Pair { source: 0, destination: 3 });
        assert!((share - 0.25).abs() < 0.01, "{share}");
        assert!((possible.of_gpu(3) - 0.25).abs() < 0.01);
        assert!(
            (possible.of_pair(Pair { source: 0, destination: 1 }) - 1.0).abs() < 1e-9,
            "an idle link is no narrow one"
        );
    }
}
