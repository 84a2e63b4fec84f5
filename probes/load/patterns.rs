//! The flows of each load pattern, derived from the graph. No two patterns have the same flows.

use std::collections::{BTreeMap, BTreeSet};

use crate::Request;
use crate::host::plan as host;
use crate::plan::in_full::{MOST_GPUS_IN_FULL, gpus_in_full};
use model::flow::{Flow, HostMemory};
use model::load::Pattern;
use model::node::NodeId;
use model::placement::{Engine, Pair};
use model::topology::{Hop, Link, LinkClass, LinkKind};

/// Limit on the hops that are tried with two flows: chosen. Machines with more GPUs than [`MOST_GPUS_IN_FULL`] have
/// many similar hops.
const MOST_HOPS: usize = 32;

/// Other GPUs that one GPU can access at a time without NVSwitch. Source: CUDA C++ Programming Guide, Peer-to-Peer
/// Memory Access.
const MOST_PEERS: usize = 8;

/// A pattern to be measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planned {
    pub(crate) pattern: Pattern,
    /// Name among several such patterns.
    pub(crate) of: String,
    pub(crate) flows: Vec<Flow>,
    /// True if counters are read around it.
    pub(crate) counted: bool,
}

/// Returns all patterns of the profile for these GPUs.
pub(crate) fn patterns(request: &Request<'_>) -> Vec<Planned> {
    let usable = |gpu: &u32| request.buffer_of(Pair { source: *gpu, destination: *gpu }).is_some();
    let gpus: Vec<u32> = request.gpus.iter().copied().filter(usable).collect();
    let some: Vec<u32> = gpus_in_full(&gpus).into_iter().collect();
    let mut found = Found { request, gpus, seen: BTreeSet::new(), planned: Vec::new() };
    found.permutations();
    found.through_hops();
    some.iter().for_each(|gpu| found.all_into(*gpu));
    if request.profile.load.everything {
        some.iter().for_each(|gpu| found.out_of(*gpu));
        found.with_host();
    }
    found.planned
}

/// Returns the patterns that load a machine for hours: each link in each direction, and copies with the host.
pub(crate) fn for_hours(request: &Request<'_>) -> Vec<Planned> {
    let gpus: Vec<u32> = request.usable().map(|device| device.index).collect();
    let mut found = Found { request, gpus, seen: BTreeSet::new(), planned: Vec::new() };
    found.permutations();
    // Kernels have a round of their own, in which they heat all GPUs.
    (found.planned).retain(|planned| planned.pattern.engine() == Engine::Copy);
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
            Some(pair) => self.request.driver.is_direct(pair),
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
            .filter(|pair| self.request.driver.is_direct(*pair));
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

fn flow(source: u32, destination: u32) -> Flow {
    Pair { source, destination }.into()
}
