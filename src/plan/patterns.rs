//! The flows of each load pattern, derived from the graph. No two patterns have the same flows.

use std::collections::{BTreeMap, BTreeSet};

use super::many::{MOST_GPUS_IN_FULL, gpus_in_full};
use super::{Request, budget, host, is_direct};
use model::flow::{Flow, HostMemory};
use model::load::Pattern;
use model::node::NodeId;
use model::placement::{Engine, Pair};
use model::topology::{Hop, Link, LinkClass, LinkKind, NodeKind};

/// Limit on the hops that are tried with two flows: chosen. Machines with more GPUs than [`MOST_GPUS_IN_FULL`] have
/// many similar hops.
const MOST_HOPS: usize = 32;

/// Other GPUs that one GPU can access at a time without NVSwitch. Source: CUDA C++ Programming Guide, Peer-to-Peer
/// Memory Access.
const MOST_PEERS: usize = 8;

/// A pattern to be measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Planned {
    pub(super) pattern: Pattern,
    /// Name among several such patterns.
    pub(super) of: String,
    pub(super) flows: Vec<Flow>,
    /// True if counters are read around it.
    pub(super) counted: bool,
}

/// Returns all patterns of the profile for these GPUs.
pub(super) fn patterns(request: &Request<'_>) -> Vec<Planned> {
    let usable =
        |gpu: &u32| budget(request.driver, Pair { source: *gpu, destination: *gpu }).is_some();
    let gpus: Vec<u32> = request.gpus.iter().copied().filter(usable).collect();
    let some: Vec<u32> = gpus_in_full(&gpus).into_iter().collect();
    let mut found = Found { request, gpus, seen: BTreeSet::new(), planned: Vec::new() };
    found.permutations();
    some.iter().for_each(|gpu| found.two_into(*gpu));
    found.through_hops();
    some.iter().for_each(|gpu| found.all_into(*gpu));
    if request.profile.load.everything {
        some.iter().for_each(|gpu| found.out_of(*gpu));
        found.crossing();
        found.groups();
        found.host();
    }
    found.planned
}

/// Returns the patterns that load a machine for hours: each link in each direction, both at once, two flows into one GPU,
/// and copies with the host.
pub(super) fn for_hours(request: &Request<'_>) -> Vec<Planned> {
    let gpus: Vec<u32> = request.usable().map(|device| device.index).collect();
    let first = gpus.first().copied();
    let mut found = Found { request, gpus, seen: BTreeSet::new(), planned: Vec::new() };
    found.permutations();
    // Kernels have a round of their own, in which they heat all GPUs.
    (found.planned).retain(|planned| planned.pattern.engine() == Engine::Copy);
    found.ring_both_ways();
    first.into_iter().for_each(|gpu| found.two_into(gpu));
    found.with_host();
    // One GPU has no pattern of several flows, and its link is to be loaded as well.
    if let [gpu] = found.gpus[..] {
        let up = found.up(gpu);
        let alone = [(Pattern::HostToAll, up.reversed()), (Pattern::AllToHost, up)];
        found.planned.extend(alone.map(|(pattern, flow)| Planned {
            pattern,
            of: String::new(),
            flows: vec![flow],
            counted: false,
        }));
    }
    found.planned
}

/// The patterns found so far.
struct Found<'a> {
    request: &'a Request<'a>,
    gpus: Vec<u32>,
    /// Sets of flows that are already planned, by what moves them.
    seen: BTreeSet<(Engine, BTreeSet<Flow>)>,
    planned: Vec<Planned>,
}

impl Found<'_> {
    /// Plans a pattern with the direct ones of these flows, if there are at least two and no other pattern has them.
    fn add(&mut self, pattern: Pattern, of: String, flows: impl IntoIterator<Item = Flow>) {
        let direct = |flow: &Flow| match flow.pair() {
            Some(pair) => is_direct(self.request.driver, pair),
            None => flow.with_host().is_some(),
        };
        let flows: Vec<Flow> = flows.into_iter().filter(direct).collect();
        let own: BTreeSet<Flow> = flows.iter().copied().collect();
        if flows.len() < 2
            || own.len() < flows.len()
            || self.exceeds_peers(&flows)
            || !self.seen.insert((pattern.engine(), own))
        {
            return;
        }
        let counted = matches!(pattern, Pattern::Ring | Pattern::HostToAll | Pattern::AllToHost);
        self.planned.push(Planned { pattern, of, flows, counted });
    }

    /// Returns true if kernels can copy these flows, and what they reach is known: over NVLink.
    fn suit_kernels(&self, flows: &[Flow]) -> bool {
        let kernels = |gpu: u32| self.request.driver.kernels_failure_of(gpu).is_none();
        flows.iter().all(|flow| {
            let route = flow.pair().and_then(|pair| self.request.topology.route(pair));
            let over_nvlink =
                route.is_some_and(|route| matches!(route.class, LinkClass::NvLink(_)));
            over_nvlink && flow.gpus().all(kernels)
        })
    }

    /// Returns true if a GPU would have to access more others at the same time than it can without NVSwitch.
    fn exceeds_peers(&self, flows: &[Flow]) -> bool {
        let mut reached: BTreeMap<u32, usize> = BTreeMap::new();
        for pair in flows.iter().filter_map(|flow| flow.pair()) {
            let class = self.request.topology.route(pair).map(|route| route.class);
            if !matches!(class, Some(LinkClass::NvLink(_))) {
                *reached.entry(pair.source).or_default() += 1;
            }
        }
        reached.into_values().any(|others| others > MOST_PEERS)
    }

    /// Returns flows from every GPU to the one `by` places further in this order.
    fn shift(gpus: &[u32], by: usize) -> Vec<Flow> {
        let to = |place: usize| gpus[(place + by) % gpus.len()];
        gpus.iter().enumerate().map(|(place, &gpu)| flow(gpu, to(place))).collect()
    }

    fn permutations(&mut self) {
        let gpus = self.gpus.clone();
        let every = gpus.len() <= MOST_GPUS_IN_FULL;
        for by in (1..gpus.len()).filter(|by| every || [1, gpus.len() / 2].contains(by)) {
            match by {
                1 => {
                    let ring = Self::shift(&gpus, 1);
                    self.add(Pattern::Ring, String::new(), ring.iter().copied());
                    // Collectives copy by kernels.
                    if self.suit_kernels(&ring) {
                        self.add(Pattern::RingByKernels, String::new(), ring);
                    }
                }
                _ => self.add(Pattern::Shift, format!("by {by}"), Self::shift(&gpus, by)),
            }
        }
    }

    /// Returns the other GPUs, starting with the one after this GPU.
    fn others(&self, gpu: u32) -> Vec<u32> {
        let place = self.gpus.iter().position(|other| *other == gpu).unwrap_or(0);
        let (before, behind) = self.gpus.split_at(place);
        behind.iter().skip(1).chain(before).copied().collect()
    }

    fn two_into(&mut self, gpu: u32) {
        let direct =
            |from: &u32| is_direct(self.request.driver, Pair { source: *from, destination: gpu });
        let from: Vec<u32> = self.others(gpu).into_iter().filter(direct).take(2).collect();
        self.add(
            Pattern::TwoIntoOne,
            format!("GPU {gpu}"),
            from.into_iter().map(|from| flow(from, gpu)),
        );
    }

    fn all_into(&mut self, gpu: u32) {
        let others = self.others(gpu);
        self.add(
            Pattern::AllToOne,
            format!("GPU {gpu}"),
            others.into_iter().map(|from| flow(from, gpu)),
        );
    }

    fn out_of(&mut self, gpu: u32) {
        let others = self.others(gpu);
        self.add(
            Pattern::OneToAll,
            format!("GPU {gpu}"),
            others.into_iter().map(|to| flow(gpu, to)),
        );
    }

    fn ring_both_ways(&mut self) {
        let flows = Self::both_ways(&self.gpus);
        self.add(Pattern::RingBothWays, String::new(), flows);
    }

    /// Returns flows from every GPU to the next one and to the one before.
    fn both_ways(gpus: &[u32]) -> Vec<Flow> {
        let there = Self::shift(gpus, 1);
        let back = there.iter().map(|flow| flow.reversed());
        there.iter().copied().chain(back).collect()
    }

    /// Plans these flows by kernels if they can copy them, otherwise by copy engines.
    fn add_moved_by(&mut self, by_engines: Pattern, by_kernels: Pattern, flows: Vec<Flow>) {
        let pattern = if self.suit_kernels(&flows) { by_kernels } else { by_engines };
        self.add(pattern, String::new(), flows);
    }

    /// Plans patterns in which GPUs that receive from several also send to several. Where kernels can, they copy: the
    /// copies of one engine take turns in an order that drifts, kernels of a GPU run at the same time.
    fn crossing(&mut self) {
        let gpus = self.gpus.clone();
        let ring = Self::both_ways(&gpus);
        self.add_moved_by(Pattern::RingBothWays, Pattern::RingBothWaysByKernels, ring);
        if gpus.len() <= MOST_GPUS_IN_FULL {
            // The permutations follow each other: if an engine takes turns, no two flows send to the same GPU at a
            // time.
            let flows = (1..gpus.len()).flat_map(|by| Self::shift(&gpus, by));
            let flows = flows.collect();
            self.add_moved_by(Pattern::AllPairs, Pattern::AllPairsByKernels, flows);
        }
        let halves = self.by_place();
        let (one, other) = halves.split_at(halves.len() / 2);
        let across =
            one.iter().zip(other).flat_map(|(&one, &other)| [flow(one, other), flow(other, one)]);
        self.add(Pattern::Bisection, String::new(), across.collect::<Vec<_>>());
    }

    /// Returns the GPUs in the order of the tree, with those of one node and of one switch next to each other.
    fn by_place(&self) -> Vec<u32> {
        let mut gpus = self.gpus.clone();
        let way = |gpu: u32| {
            let nodes = self.request.topology.gpu_path(gpu);
            nodes.split_last().map_or(Vec::new(), |(_, above)| above.to_vec())
        };
        gpus.sort_by_key(|&gpu| (host::node_of(self.request, gpu), way(gpu), gpu));
        gpus
    }

    /// Plans the patterns of GPUs below one switch, and of GPUs within one NUMA node.
    fn groups(&mut self) {
        let (mut switches, mut nodes) =
            (BTreeMap::<NodeId, Vec<u32>>::new(), BTreeMap::<u32, Vec<u32>>::new());
        for &gpu in &self.gpus {
            // Use the nearest switch: if several are above each other, the others are separate hops.
            let path = self.request.topology.gpu_path(gpu);
            let is_switch = |id: &&NodeId| {
                let kind = self.request.topology.node(**id).map(|node| node.kind);
                kind == Some(NodeKind::SwitchPort)
            };
            // From the GPU up: its downstream port, then the upstream port that all GPUs of the switch share.
            switches.entry_for(path.iter().rev().filter(is_switch).nth(1).copied(), gpu);
            nodes.entry_for(host::node_of(self.request, gpu), gpu);
        }
        for (switch, gpus) in switches {
            self.add(Pattern::BelowOneSwitch, switch.to_string(), Self::shift(&gpus, 1));
        }
        for (node, gpus) in nodes {
            self.add(Pattern::WithinOneNode, format!("NUMA node {node}"), Self::shift(&gpus, 1));
        }
    }

    fn up(&self, gpu: u32) -> Flow {
        let node = host::node_of(self.request, gpu);
        Flow::from_host(node, HostMemory::Pinned, gpu).reversed()
    }

    /// Plans copies of all GPUs with the host, in each direction.
    fn with_host(&mut self) {
        let up: Vec<Flow> = self.gpus.iter().map(|gpu| self.up(*gpu)).collect();
        let down: Vec<Flow> = up.iter().map(|flow| flow.reversed()).collect();
        self.add(Pattern::HostToAll, String::new(), down);
        self.add(Pattern::AllToHost, String::new(), up);
    }

    fn host(&mut self) {
        self.with_host();
        for couple in self.by_place().chunks_exact(2) {
            let (one, other) = (couple[0], couple[1]);
            if is_direct(self.request.driver, Pair { source: one, destination: other }) {
                let of = format!("GPU {one} and GPU {other}");
                let flows = [flow(one, other), flow(other, one), self.up(one).reversed()];
                self.add(Pattern::NeighboursBesideHost, of, flows);
            }
        }
    }

    /// Plans two flows through each hop that several GPUs share, separately for each direction.
    fn through_hops(&mut self) {
        let before = self.planned.len();
        for (hop, flows) in self.hops() {
            if self.planned.len() - before >= MOST_HOPS {
                return;
            }
            let (from, to) = hop;
            self.add(Pattern::ThroughOneHop, format!("link from {from} to {to}"), flows);
        }
    }

    /// Returns hops, each with two flows that share none of their GPUs: copies between GPUs if there are any,
    /// otherwise with the host.
    fn hops(&self) -> Vec<((NodeId, NodeId), Vec<Flow>)> {
        let mut found: Vec<((NodeId, NodeId), Vec<Flow>)> = Vec::new();
        let usable: BTreeSet<u32> = self.gpus.iter().copied().collect();
        let pairs = Pair::ordered(&self.gpus)
            .into_iter()
            .filter(|pair| is_direct(self.request.driver, *pair));
        let mut passing: BTreeMap<(NodeId, NodeId), Vec<Pair>> = BTreeMap::new();
        for pair in pairs {
            let hops = self.request.topology.route(pair).map_or(&[][..], |route| &route.hops);
            hops.iter().filter(|hop| self.is_shared(hop)).for_each(|hop| {
                passing.entry((hop.from, hop.to)).or_default().push(pair);
            });
        }
        for (hop, pairs) in &passing {
            let apart = |pair: &&Pair, other: &Pair| {
                let ends = [pair.source, pair.destination];
                !ends.contains(&other.source) && !ends.contains(&other.destination)
            };
            let two = pairs
                .iter()
                .find_map(|pair| Some([*pair, *pairs.iter().find(|other| apart(&pair, other))?]));
            found.extend(two.map(|two| (*hop, two.map(Flow::from).to_vec())));
        }
        for link in &self.request.topology.links {
            let all = link.pcie.as_ref().map_or(&[][..], |pcie| &pcie.gpus);
            let below: Vec<u32> =
                all.iter().copied().filter(|gpu| usable.contains(gpu)).take(2).collect();
            for hop in [(link.lower, link.upper), (link.upper, link.lower)] {
                if below.len() == 2 && found.iter().all(|(other, _)| *other != hop) {
                    let up = below.iter().map(|gpu| self.up(*gpu));
                    let flows = if hop.0 == link.lower {
                        up.collect()
                    } else {
                        up.map(Flow::reversed).collect()
                    };
                    found.push((hop, flows));
                }
            }
        }
        found
    }

    /// Returns true if GPUs share this hop: a PCIe link above a switch, or the link between NUMA nodes.
    fn is_shared(&self, hop: &Hop) -> bool {
        let between = |link: &&Link| {
            [(link.upper, link.lower), (link.lower, link.upper)].contains(&(hop.from, hop.to))
        };
        let ends_at_gpu = [hop.from, hop.to].iter().any(|end| matches!(end, NodeId::Gpu(_)));
        let link = self.request.topology.links.iter().find(between);
        link.is_some_and(|link| match link.kind {
            LinkKind::Pcie => link.pcie.is_some() && !ends_at_gpu,
            LinkKind::Interconnect => true,
            LinkKind::NvLink | LinkKind::RootComplex => false,
        })
    }
}

/// Groups of GPUs by key. A GPU without a key belongs to no group.
trait EntryFor<K> {
    fn entry_for(&mut self, key: Option<K>, gpu: u32);
}

impl<K: Ord> EntryFor<K> for BTreeMap<K, Vec<u32>> {
    fn entry_for(&mut self, key: Option<K>, gpu: u32) {
        if let Some(key) = key {
            self.entry(key).or_default().push(gpu);
        }
    }
}

fn flow(source: u32, destination: u32) -> Flow {
    Pair { source, destination }.into()
}
