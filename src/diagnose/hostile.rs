//! Tests with snapshots that no machine would give: nothing may panic, and the results must make sense.

use proptest::prelude::*;

use topology::{build, class};

use super::{Evidence, judge, verdict};
use model::finding::Severity;
use model::node::NodeId;
use model::reading::{Reading, Unknown};
use model::snapshot::{
    Adapter, AdapterKind, Gpu, NvLink, NvLinkRemote, P2pStatus, PciFunction, PciKind, Snapshot,
};
use model::testing::{all_pairs, empty, generation, gpu, lanes, pci};
use model::units::PciAddress;

/// Returns one of few addresses, so that they collide and loop.
fn address() -> impl Strategy<Value = PciAddress> {
    (0..6_u8).prop_map(|bus| PciAddress { bus, ..pci("0000:00:00.0") })
}

fn reading<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Reading<T>> {
    prop_oneof![value.prop_map(Reading::Known), Just(Reading::failed("no"))]
}

fn kind() -> impl Strategy<Value = PciKind> {
    use PciKind::{Bridge, Endpoint, RootPort, SwitchDownstream, SwitchUpstream};
    prop::sample::select(vec![RootPort, SwitchUpstream, SwitchDownstream, Bridge, Endpoint])
}

prop_compose! {
    fn function()(
        address in address(),
        parent in prop::option::of(address()),
        kind in kind(),
        bridge in prop::sample::select(vec!["", "gpu0", "numa0", "nvswitch", "pci0000:00"]),
        speed in any::<u8>(),
        width in prop::sample::select(vec![0, 4, 16, 63]),
        width_max in prop::sample::select(vec![0, 8, 16, 255]),
        numa_node in reading(0..3_u32),
    ) -> PciFunction {
        let unread = PciFunction::unread(address, parent, bridge.to_owned(), kind, &Unknown::Unsupported);
        PciFunction {
            generation: generation(speed),
            generation_max: generation(speed),
            width: lanes(width),
            width_max: lanes(width_max),
            numa_node,
            ..unread
        }
    }
}

prop_compose! {
    fn any_gpu()(
        index in 0..4_u32,
        address in reading(address()),
        width in any::<u8>(),
        remote in reading(address()),
        kind in reading(prop::sample::select(vec![NvLinkRemote::Gpu, NvLinkRemote::Switch])),
        version in reading(prop::sample::select(vec!["", "3.1", "4.0", "99"])),
        active in prop::collection::vec(any::<bool>(), 0..4),
    ) -> Gpu {
        let link = |(number, active): (u8, bool)| NvLink {
            active: Reading::Known(active),
            remote_pci: remote.clone(),
            remote: kind.clone(),
            version: version.clone().map(str::to_owned),
            ..NvLink::unread(number, &Unknown::Unsupported)
        };
        let nvlinks = (0..).zip(active).map(link).collect();
        Gpu { pci: address, pcie_width: lanes(width), nvlinks: Reading::Known(nvlinks), ..gpu(index, "0000:00:00.0") }
    }
}

prop_compose! {
    fn snapshot()(
        pci in prop::collection::vec(function(), 0..10),
        gpus in prop::collection::vec(any_gpu(), 0..5),
        adapter in address(),
        nvlink in prop::sample::select(vec![P2pStatus::Ok, P2pStatus::Unknown, P2pStatus::NotSupported]),
    ) -> Snapshot {
        let adapters = vec![Adapter::unread("mlx5_0".into(), AdapterKind::Rdma, adapter, &Unknown::Unsupported)];
        Snapshot { pci, gpus, adapters, pairs: all_pairs(3, None, nvlink), ..empty() }
    }
}

proptest! {
    #[test]
    fn no_snapshot_makes_a_panic_or_an_impossible_rate(snapshot in snapshot()) {
        let topology = build(&snapshot);
        for route in &topology.pairs {
            prop_assert!(route.theoretical_gbps.is_none_or(|rate| rate.0.is_finite() && rate.0 > 0.0));
            prop_assert!(!route.theoretical_source.is_empty());
            prop_assert_eq!(route.theoretical_gbps.is_some(), route.bottleneck.is_some());
        }
        for link in &topology.links {
            prop_assert!(topology.nodes.iter().any(|node| node.id == link.upper));
            prop_assert!(topology.nodes.iter().any(|node| node.id == link.lower));
        }
        for gpu in &snapshot.gpus {
            let path = topology.gpu_path(gpu.index);
            prop_assert!(path.iter().all(|id| topology.node(*id).is_some()));
            class(&topology, NodeId::Gpu(gpu.index), NodeId::Pci(pci("0000:00:00.0")));
        }
        let findings = judge(&Evidence { request: &model::request::Request::default(), read_from: None, snapshot: &snapshot, topology: &topology, measurements: None, watched: None, measured_seconds: 0.0, settings: &super::Settings::default(), expectations: None, baseline: None, index: None, beliefs: None });
        verdict(&findings, None, Severity::Error);
    }
}
