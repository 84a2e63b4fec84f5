//! Capacity of the path between a GPU and host memory, and the hop that limits it.

use std::collections::{BTreeMap, BTreeSet};

use super::network::Network;
use super::routes;
use model::host::{HostCopy, HostWay};
use model::node::NodeId;
use model::snapshot::{Gpu, NvLinkRemote, Snapshot};
use model::topology::Topology;
use model::topology::{Hop, Link};
use model::units::GbPerSecond;

/// The limit of a GPU's copies from and to the host.
#[derive(Debug, Clone, PartialEq)]
struct Limit {
    /// Payload rate per direction of this GPU's share of the hop.
    gbps: GbPerSecond,
    /// The hop, for people.
    hop: String,
    /// GPUs that have a share of it.
    shared_by: usize,
}

/// Returns true if this GPU reaches host memory by another way than PCIe: over NVLink to the processor.
pub(crate) fn beside_pcie(gpu: &Gpu) -> bool {
    let links = gpu.nvlinks.known().into_iter().flatten();
    gpu.c2c.get() == Some(true)
        || links.into_iter().any(|link| link.remote.get() == Some(NvLinkRemote::Npu))
}

/// Returns the rate of a GPU's links to the processor of its module, per direction. Unknown for a GPU without memory of its
/// own, such as GB10's: the memory of the host limits it, not the links.
pub fn c2c_rate(gpu: &Gpu) -> Option<GbPerSecond> {
    gpu.memory_total_bytes.get()?;
    gpu.c2c_links.get()?.rate()
}

/// Returns the number of links to its processor that a GPU should have: as many as the best of its model here. How NVML
/// counts those of a processor with two GPUs is not published; on GH200 all that it counts are up (`nvidia-smi c2c -s`).
pub fn c2c_made(snapshot: &Snapshot, gpu: &Gpu) -> Option<u32> {
    let is_alike =
        |other: &&Gpu| gpu.name.known().is_some() && other.name.known() == gpu.name.known();
    let alike = snapshot.gpus.iter().filter(is_alike).filter_map(|other| other.c2c_links.get());
    let own = gpu.c2c_links.get()?;
    let counted =
        gpu.architecture.known().is_some_and(|name| name == "Hopper").then_some(own.count);
    alike.map(|links| links.active).chain(counted).max()
}

/// Returns true if this GPU is known to reach host memory by another way than PCIe, from NVML or from CUDA.
pub(crate) fn is_beside_pcie(snapshot: &Snapshot, topology: &Topology, gpu: u32) -> bool {
    let own = topology.link_above(NodeId::Gpu(gpu));
    snapshot.gpu(gpu).is_some_and(beside_pcie)
        || own.is_some_and(|own| own.pcie.as_ref().is_some_and(|pcie| pcie.placeholder))
}

/// Returns the limit of copies between this GPU and the host while all of `busy` copy in the same direction. GPUs
/// that pass the same hop get equal shares of it. Returns `None` if no hop's rate is known, or if the GPU has another
/// way than PCIe.
fn limit(
    snapshot: &Snapshot,
    network: &Network<'_>,
    gpu: u32,
    busy: &BTreeSet<u32>,
) -> Option<Limit> {
    if is_beside_pcie(snapshot, network.topology, gpu) {
        let own = snapshot.gpu(gpu)?;
        let (gbps, links) = (c2c_rate(own)?, own.c2c_links.get()?.active);
        return Some(Limit { gbps, hop: format!("NVLink-C2C, {links} links"), shared_by: 1 });
    }
    let sharing = |link: &Link| {
        let behind = link.pcie.iter().flat_map(|pcie| &pcie.gpus);
        behind.filter(|other| **other == gpu || busy.contains(other)).count().max(1)
    };
    let hops: Vec<(Hop, &Link)> = network.over_pcie(&network.topology.way_up(NodeId::Gpu(gpu)));
    let rated = hops.iter().filter_map(|(hop, link)| {
        let shared_by = sharing(link);
        Some((hop, *link, hop.capacity_gbps?.0 / part(shared_by), shared_by))
    });
    // On a tie, prefers the hop nearer the GPU.
    let (hop, link, gbps, shared_by) =
        rated.reduce(|least, next| if next.2 < least.2 { next } else { least })?;
    let place = routes::describe(network, hop, link);
    let hop = if shared_by > 1 { format!("{place}, shared by {shared_by} GPUs") } else { place };
    Some(Limit { gbps: GbPerSecond(gbps), hop, shared_by })
}

/// Returns true if GPUs that copy with the host at once share the hop that limits this one.
pub fn shares_limit(
    snapshot: &Snapshot,
    topology: &Topology,
    gpu: u32,
    busy: &BTreeSet<u32>,
) -> bool {
    limit(snapshot, &Network::of(topology), gpu, busy).is_some_and(|limit| limit.shared_by > 1)
}

#[allow(clippy::cast_precision_loss, reason = "a number of GPUs")]
const fn part(shared_by: usize) -> f64 {
    shared_by as f64
}

/// Returns the GPUs that copied at once, by way and number.
pub fn at_once(copies: &[HostCopy]) -> BTreeMap<(HostWay, u32), BTreeSet<u32>> {
    let mut sets: BTreeMap<(HostWay, u32), BTreeSet<u32>> = BTreeMap::new();
    for copy in copies.iter().filter(|copy| copy.at_once > 1) {
        sets.entry((copy.way(), copy.at_once)).or_default().insert(copy.gpu);
    }
    sets
}

/// Adds the theoretical rate to every figure. Calling it twice changes nothing.
pub fn fill(snapshot: &Snapshot, topology: &Topology, copies: &mut [HostCopy]) {
    let (network, sets, alone) = (Network::of(topology), at_once(copies), BTreeSet::new());
    for copy in copies {
        let busy = sets.get(&(copy.way(), copy.at_once)).unwrap_or(&alone);
        let way = topology.way_up(NodeId::Gpu(copy.gpu));
        let is_far =
            copy.numa_node.is_some_and(|node| way.last() != Some(&NodeId::Numa(Some(node))));
        let beside = is_beside_pcie(snapshot, topology, copy.gpu);
        // The memory of another processor is reached over links that nobody shows.
        let limit = limit(snapshot, &network, copy.gpu, busy).filter(|_| !(beside && is_far));
        let theory = limit.as_ref().map(|limit| limit.gbps);
        if super::set_theory(
            (theory, copy.achieved_gbps),
            (&mut copy.theoretical_gbps, &mut copy.percent),
        ) {
            copy.bottleneck = limit.map(|limit| limit.hop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use model::reading::Reading;
    use model::snapshot::C2cLinks;
    use model::testing::{
        function_mut, h200_vm, host_copy, two_sockets, two_sockets_with_narrow_gpu,
    };

    fn of(machine: &Snapshot, gpu: u32, busy: &[u32]) -> Option<Limit> {
        limit(machine, &Network::of(&build(machine)), gpu, &busy.iter().copied().collect())
    }

    #[test]
    fn the_slot_is_the_limit_of_one_gpu_and_the_uplink_of_several() {
        let machine = two_sockets();
        let alone = of(&machine, 0, &[]).unwrap();
        assert!(
            (alone.gbps.0 - 31.5).abs() < 0.1 && alone.hop.starts_with("GPU 0's slot 0000:03:00.0"),
            "{alone:?}"
        );
        let shared = of(&machine, 0, &[0, 1, 2, 3]).unwrap();
        assert!((shared.gbps.0 - 15.75).abs() < 0.1, "{shared:?}");
        assert!(
            shared.hop.contains("above GPU 0, GPU 1") && shared.hop.ends_with("shared by 2 GPUs"),
            "{shared:?}"
        );
        assert_eq!(of(&machine, 0, &[0, 2]).unwrap(), alone, "GPU 2 is below the other socket");
    }

    #[test]
    fn a_narrow_slot_is_named_whoever_else_copies() {
        let machine = two_sockets_with_narrow_gpu();
        for busy in [&[][..], &[0, 1, 2, 3]] {
            let limit = of(&machine, 3, busy).unwrap();
            assert!(
                (limit.gbps.0 - 7.88).abs() < 0.01 && limit.hop.contains("Gen4 x4"),
                "{limit:?}"
            );
        }
    }

    #[test]
    fn nothing_is_known_of_a_link_without_figures_or_of_a_way_beside_pcie() {
        let mut machine = h200_vm(2);
        assert!((of(&machine, 0, &[0, 1]).unwrap().gbps.0 - 63.0).abs() < 0.1);
        machine.gpus[0].c2c = Reading::Known(true);
        assert_eq!(of(&machine, 0, &[]), None);
        function_mut(&mut machine, "0000:00:07.0").width = Reading::failed("empty");
        machine.gpus[1].pcie_width = Reading::failed("empty");
        assert_eq!(of(&machine, 1, &[]), None);
    }

    fn linked(active: u32) -> C2cLinks {
        C2cLinks { count: 10, active, link_mbps: Some(44_712), errors: None }
    }

    #[test]
    fn links_to_the_processor_are_the_limit_of_copies_with_its_memory() {
        let mut machine = h200_vm(2);
        for (gpu, active) in machine.gpus.iter_mut().zip([5, 3]) {
            gpu.c2c = Reading::Known(true);
            gpu.c2c_links = Reading::Known(linked(active));
            gpu.architecture = Reading::Known("Blackwell".into());
        }
        let own = of(&machine, 0, &[0, 1]).unwrap();
        assert!((own.gbps.0 - 223.56).abs() < 0.01 && own.hop.contains("5 links"), "{own:?}");
        assert_eq!(c2c_made(&machine, &machine.gpus[1]), Some(5));
        let (healthy, _) = crate::healthy::of(&machine, &build(&machine), |_| None).unwrap();
        assert_eq!(healthy.gpus[1].c2c_links.get(), Some(linked(5)));
        machine.gpus[1].architecture = Reading::Known("Hopper".into());
        assert_eq!(c2c_made(&machine, &machine.gpus[1]), Some(10));
        let near = host_copy(0, 200.0);
        let far = HostCopy { numa_node: Some(7), ..near.clone() };
        let mut copies = vec![near, far];
        fill(&machine, &build(&machine), &mut copies);
        assert!(copies[0].theoretical_gbps.is_some() && copies[1].theoretical_gbps.is_none());
        // A GPU within the processor has its memory, which is slower than the links.
        machine.gpus[0].memory_total_bytes = Reading::unsupported();
        assert_eq!(of(&machine, 0, &[]), None);
    }

    #[test]
    fn theory_stands_beside_every_figure() {
        let machine = two_sockets();
        let mut copies = vec![host_copy(0, 25.2)];
        copies.extend((0..4).map(|gpu| HostCopy { at_once: 4, ..host_copy(gpu, 12.6) }));
        fill(&machine, &build(&machine), &mut copies);
        assert!(
            copies.iter().all(|copy| (copy.percent.unwrap() - 80.0).abs() < 0.1),
            "{copies:#?}"
        );
        assert_ne!(copies[0].bottleneck, copies[1].bottleneck);
        let once = copies.clone();
        fill(&machine, &build(&machine), &mut copies);
        assert_eq!(once, copies);
    }
}
