//! Rates that copies could reach if every link were as it should be. An expectation that follows a degraded link would
//! call a fault normal: "104% of expected" of a card with one of its sixteen lanes.

use model::node::NodeId;
use model::placement::{Pair, Path};
use model::topology::{Link, LinkKind, Topology};
use model::units::GbPerSecond;

/// The links of a machine that carry less than both their ends support, or than those of like GPUs.
pub(crate) struct Degraded<'a> {
    topology: &'a Topology,
    links: Vec<&'a Link>,
}

impl<'a> Degraded<'a> {
    /// Returns `None` if every link is as it should be.
    pub(crate) fn of(topology: &'a Topology) -> Option<Self> {
        let is_degraded = |link: &&Link| {
            let judged = link.kind == LinkKind::NvLink
                || link.pcie.as_ref().is_some_and(|pcie| !pcie.narrow.is_empty());
            judged
                && link
                    .capacity_gbps
                    .zip(link.possible_gbps)
                    .is_some_and(|(is, could)| is.0 < could.0 * 0.99)
        };
        let links: Vec<_> = topology.links.iter().filter(is_degraded).collect();
        (!links.is_empty()).then_some(Self { topology, links })
    }

    /// Returns the rate that the route of these copies could carry; `None` if it passes no degraded link.
    pub(crate) fn theoretical(&self, pair: Pair, path: Path) -> Option<GbPerSecond> {
        match path {
            Path::Direct => self.of_direct(pair),
            Path::Staged => self.of_ways_up(&[pair.source, pair.destination]),
        }
    }

    /// Returns the rate that the path between these GPUs and the host could carry; `None` if it passes no degraded
    /// link.
    pub(crate) fn of_ways_up(&self, gpus: &[u32]) -> Option<GbPerSecond> {
        let leads_up = |link: &Link| {
            link.pcie.as_ref().is_some_and(|pcie| gpus.iter().any(|gpu| pcie.gpus.contains(gpu)))
        };
        self.links.iter().any(|link| leads_up(link)).then_some(())?;
        least(
            self.topology
                .links
                .iter()
                .filter(|link| leads_up(link))
                .filter_map(|link| self.could(link)),
        )
    }

    fn of_direct(&self, pair: Pair) -> Option<GbPerSecond> {
        let hops = &self.topology.route(pair)?.hops;
        let between = |link: &Link, from: NodeId, to: NodeId| {
            (link.upper, link.lower) == (from, to) || (link.upper, link.lower) == (to, from)
        };
        let degraded = |from, to| self.links.iter().find(|link| between(link, from, to));
        hops.iter().any(|hop| degraded(hop.from, hop.to).is_some()).then_some(())?;
        least(hops.iter().filter_map(|hop| match degraded(hop.from, hop.to) {
            Some(link) => link.possible_gbps,
            None => hop.capacity_gbps,
        }))
    }

    fn could(&self, link: &Link) -> Option<GbPerSecond> {
        let is_degraded = self.links.iter().any(|degraded| std::ptr::eq(*degraded, link));
        if is_degraded { link.possible_gbps } else { link.capacity_gbps }
    }
}

fn least(rates: impl Iterator<Item = GbPerSecond>) -> Option<GbPerSecond> {
    rates.min_by(|one, other| one.0.total_cmp(&other.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::testing::{h200_vm, two_sockets, two_sockets_with_narrow_gpu};
    use topology::build;

    fn rate(topology: &Topology, pair: (u32, u32), path: Path) -> Option<f64> {
        let pair = Pair { source: pair.0, destination: pair.1 };
        Degraded::of(topology)?.theoretical(pair, path).map(|rate| rate.0.round())
    }

    #[test]
    fn what_passes_a_degraded_link_could_carry_what_both_its_ends_can() {
        let narrow = build(&two_sockets_with_narrow_gpu());
        let of_narrow =
            |gpu: u32| narrow.pcie_link_of(gpu).is_some_and(|link| !link.narrow.is_empty());
        let gpu = (0..4).find(|gpu| of_narrow(*gpu)).unwrap();
        let others: Vec<u32> = (0..4).filter(|other| *other != gpu).collect();
        let pair = Pair { source: gpu, destination: others[0] };
        for path in [Path::Direct, Path::Staged] {
            let is = narrow.route(pair).unwrap().theoretical(path).unwrap();
            let could = Degraded::of(&narrow).unwrap().theoretical(pair, path).unwrap();
            assert!(could > is, "{path}: {could} of {is}");
        }
        assert_eq!(
            rate(&narrow, (others[0], others[1]), Path::Direct),
            None,
            "passes sound links alone"
        );
        assert!(Degraded::of(&build(&two_sockets())).is_none());
    }

    #[test]
    fn gpus_with_nvlinks_down_could_have_those_of_the_others() {
        let mut machine = h200_vm(4);
        assert!(Degraded::of(&build(&machine)).is_none());
        crate::tests::with_links_down(&mut machine, &[1], 3..5);
        let topology = build(&machine);
        assert_eq!(rate(&topology, (0, 1), Path::Direct), Some(450.0));
        assert_eq!(rate(&topology, (0, 2), Path::Direct), None);
    }
}
