use super::{build, class, with_cuda};
use model::measurement::{CudaDevice, CudaPeerAccess, DriverFacts};
use model::node::NodeId;
use model::pcie::Narrow;
use model::placement::Pair;
use model::reading::{Reading, Unknown};
use model::snapshot::{
    Adapter, AdapterKind, CommonAncestor, FabricState, Gpu, NvLinkBond, P2pStatus, PciKind,
    Snapshot,
};
use model::testing::{
    all_pairs, empty, function, function_mut, generation, gpu, h200_vm, lanes, nvlink_bridge,
    nvlinks, pci, two_sockets, two_sockets_with_narrow_gpu,
};
use model::topology::{LinkClass, LinkKind, NodeKind, PairRoute, Topology};

fn route(snapshot: &Snapshot, source: u32, destination: u32) -> PairRoute {
    build(snapshot).route(Pair { source, destination }).unwrap().clone()
}

fn close(rate: Option<model::units::GbPerSecond>, expected: f64) -> bool {
    rate.is_some_and(|rate| (rate.0 - expected).abs() < 0.02)
}

fn link_to<'a>(topology: &'a Topology, lower: &str) -> &'a model::topology::Link {
    topology.links.iter().find(|link| link.lower == lower.parse().unwrap()).unwrap()
}

#[test]
fn classes_follow_the_tree_where_nvml_says_nothing() {
    let machine = two_sockets();
    assert_eq!(route(&machine, 0, 1).class.to_string(), "PIX");
    assert_eq!(route(&machine, 2, 3).class.to_string(), "PIX");
    assert_eq!(route(&machine, 0, 2).class.to_string(), "SYS");

    let mut one_socket = machine;
    for function in &mut one_socket.pci {
        function.numa_node = Reading::Known(0);
    }
    assert_eq!(route(&one_socket, 1, 3).class.to_string(), "NODE");
    for function in &mut one_socket.pci {
        function.numa_node = Reading::unsupported();
    }
    assert_eq!(route(&one_socket, 1, 3).class.to_string(), "?");
}

#[test]
fn nvml_s_common_ancestor_outranks_the_tree() {
    let mut machine = two_sockets();
    machine.pairs = all_pairs(4, Some(CommonAncestor::MultipleSwitches), P2pStatus::NotSupported);
    assert_eq!(route(&machine, 0, 1).class.to_string(), "PXB");
}

#[test]
fn an_idle_generation_is_no_limit() {
    let route = route(&two_sockets(), 0, 2);
    assert!(close(route.theoretical_gbps, 31.51), "{route:?}");
    assert!(close(route.staged_theoretical_gbps, 31.51));
    assert!(route.theoretical_source.contains("PCIe Gen4 x16"), "{}", route.theoretical_source);
}

#[test]
fn lanes_count_as_trained() {
    let machine = two_sockets_with_narrow_gpu();
    let narrow = route(&machine, 0, 3);
    assert!(close(narrow.theoretical_gbps, 7.88), "{narrow:?}");
    assert_eq!(
        narrow.bottleneck.as_deref(),
        Some("GPU 3's slot 0000:84:00.0, labelled 4 (Gen4 x4)")
    );
    assert!(close(narrow.staged_theoretical_gbps, 7.88));
    assert!(close(route(&machine, 0, 1).theoretical_gbps, 31.51));
    let topology = build(&machine);
    let link = link_to(&topology, "gpu3");
    assert!(close(link.possible_gbps, 31.51));
    assert_eq!(link.label, "Gen4 x4");
}

#[test]
fn both_ends_count_and_a_disagreement_is_noted() {
    let mut machine = two_sockets();
    function_mut(&mut machine, "0000:02:00.0").width = lanes(8);
    let route = route(&machine, 0, 1);
    assert!(close(route.theoretical_gbps, 15.75));
    assert!(
        route.theoretical_source.contains("the port above says x8"),
        "{}",
        route.theoretical_source
    );
}

#[test]
fn speed_and_width_count_together() {
    // A Gen3 x16 uplink (15.75) is narrower than a Gen5 x8 slot (31.5), and wider than a Gen5 x2.
    let mut machine = two_sockets();
    function_mut(&mut machine, "0000:01:00.0").generation = generation(3);
    let narrow = route(&machine, 0, 2);
    assert!(close(narrow.theoretical_gbps, 15.75));
    assert_eq!(
        narrow.bottleneck.as_deref(),
        Some("link from 0000:00:01.0 to 0000:01:00.0 above GPU 0, GPU 1 (Gen3 x16)")
    );
    // Below the switch, the uplink is not on the way.
    assert!(close(route(&machine, 0, 1).theoretical_gbps, 31.51));
}

#[test]
fn a_chipset_uplink_is_a_hop() {
    // GPU 1 is in a chipset slot: the chipset is a switch on a x4 link to the processor.
    let mut machine = empty();
    machine.pci = vec![
        function("0000:00:01.0", None, PciKind::RootPort, (4, 16), (4, 16)),
        function("0000:01:00.0", Some("0000:00:01.0"), PciKind::Endpoint, (1, 16), (4, 16)),
        function("0000:00:02.0", None, PciKind::RootPort, (3, 4), (4, 4)),
        function("0000:02:00.0", Some("0000:00:02.0"), PciKind::SwitchUpstream, (3, 4), (3, 4)),
        function("0000:03:00.0", Some("0000:02:00.0"), PciKind::SwitchDownstream, (1, 8), (4, 8)),
        function("0000:04:00.0", Some("0000:03:00.0"), PciKind::Endpoint, (1, 8), (4, 16)),
    ];
    machine.gpus = vec![gpu(0, "0000:01:00.0"), gpu(1, "0000:04:00.0")];
    machine.gpus[1].pcie_width = lanes(8);
    machine.gpus[1].pcie_width_max = lanes(8);
    let route = route(&machine, 0, 1);
    assert_eq!(route.class.to_string(), "PHB");
    assert!(close(route.theoretical_gbps, 3.94), "{route:?}");
    assert!(route.bottleneck.unwrap().contains("above GPU 1 (Gen3 x4)"));
    let topology = build(&machine);
    let names: Vec<_> = topology.gpu_path(1).iter().map(ToString::to_string).collect();
    assert_eq!(names, ["pci0000:00", "0000:00:02.0", "0000:02:00.0", "0000:03:00.0", "gpu1"]);
    assert!(topology.pcie_links().all(|link| link.narrow.is_empty()), "both ends can do no more");
}

#[test]
fn a_link_says_what_it_is_what_it_could_be_and_where() {
    let machine = two_sockets_with_narrow_gpu();
    let topology = build(&machine);
    let narrow: Vec<_> = topology.pcie_links().filter(|link| !link.narrow.is_empty()).collect();
    let [link] = narrow.as_slice() else { panic!("{narrow:?}") };
    assert_eq!((link.port, link.below), (Some(pci("0000:82:01.0")), Some(pci("0000:84:00.0"))));
    assert_eq!(
        (link.gpu, link.gpus.as_slice(), link.slot.as_deref()),
        (Some(3), &[3][..], Some("4"))
    );
    assert_eq!(link.narrow, [Narrow::FewerLanes]);
    let shapes = [link.at_rest, link.now, link.possible, link.device_possible]
        .map(|shape| shape.to_string());
    assert_eq!(shapes, ["Gen1 x4", "Gen4 x4", "Gen4 x16", "Gen4 x16"]);
    let uplink = link_to(&topology, "0000:81:00.0").pcie.as_ref().unwrap();
    assert_eq!(uplink.gpus, [2, 3]);
    assert_eq!(uplink.port_possible.to_string(), "Gen5 x16");
    assert!(topology.gpu_path(9).is_empty());
}

#[test]
fn network_adapters_have_a_class_to_every_gpu() {
    let mut machine = two_sockets();
    machine.pci.push(function(
        "0000:02:02.0",
        Some("0000:01:00.0"),
        PciKind::SwitchDownstream,
        (4, 8),
        (4, 8),
    ));
    machine.pci.push(function(
        "0000:05:00.0",
        Some("0000:02:02.0"),
        PciKind::Endpoint,
        (4, 8),
        (4, 16),
    ));
    let adapter = |address| {
        Adapter::unread("mlx5_0".into(), AdapterKind::Rdma, pci(address), &Unknown::Unsupported)
    };
    machine.adapters = vec![adapter("0000:05:00.0"), adapter("0000:ee:00.0")];
    let topology = build(&machine);
    let to =
        |gpu, address| class(&topology, NodeId::Gpu(gpu), NodeId::Pci(pci(address))).to_string();
    assert_eq!(
        [to(0, "0000:05:00.0"), to(2, "0000:05:00.0"), to(0, "0000:ee:00.0")],
        ["PIX", "SYS", "?"]
    );
    let classes = |adapter: usize| -> Vec<_> {
        topology.adapter_paths[adapter]
            .gpus
            .iter()
            .map(|gpu| (gpu.gpu, gpu.class.to_string()))
            .collect()
    };
    let expected = |words: [&str; 4]| -> Vec<_> { (0..).zip(words.map(String::from)).collect() };
    assert_eq!(classes(0), expected(["PIX", "PIX", "SYS", "SYS"]));
    assert_eq!(classes(1), expected(["?"; 4]));
}

#[test]
fn h200_behind_nvswitch_is_nv18_at_450() {
    let machine = h200_vm(8);
    let topology = build(&machine);
    assert_eq!(topology.pairs.len(), 56);
    for route in &topology.pairs {
        assert_eq!(route.class.to_string(), "NV18");
        assert!(close(route.theoretical_gbps, 450.0));
        assert!(close(route.staged_theoretical_gbps, 63.02));
        assert_eq!(route.hops.len(), 2);
        assert!(
            route.theoretical_source.contains("H100 white paper"),
            "{}",
            route.theoretical_source
        );
        assert!(route.bottleneck.as_deref().unwrap().starts_with("18 x NVLink 4.0 of GPU"));
    }
    assert_eq!(
        topology.nodes.iter().filter(|node| node.kind == NodeKind::NvSwitchPlane).count(),
        1
    );
}

#[test]
fn nv_counts_the_fewer_links_of_the_two() {
    let mut machine = h200_vm(2);
    if let Reading::Known(links) = &mut machine.gpus[1].nvlinks {
        links[4].active = Reading::Known(false);
    }
    let route = route(&machine, 0, 1);
    assert_eq!(route.class.to_string(), "NV17");
    assert!(close(route.theoretical_gbps, 425.0));
    let topology = build(&machine);
    let link = topology
        .links
        .iter()
        .find(|link| link.kind == LinkKind::NvLink && link.lower == NodeId::Gpu(1))
        .unwrap();
    assert!(close(link.possible_gbps, 450.0));
}

#[test]
fn a_fabric_that_is_not_set_up_makes_no_nvlink_route() {
    type Change = fn(&mut Snapshot);
    let changes: [Change; 4] = [
        |machine| {
            machine.pairs = all_pairs(2, Some(CommonAncestor::HostBridge), P2pStatus::NotSupported)
        },
        |machine| fabric(machine, |fabric| fabric.state = FabricState::InProgress),
        |machine| fabric(machine, |fabric| fabric.status = 9),
        |machine| fabric(machine, |fabric| fabric.clique_id = 7),
    ];
    for change in changes {
        let mut machine = h200_vm(2);
        change(&mut machine);
        let route = route(&machine, 0, 1);
        assert_eq!(route.class.to_string(), "PHB");
        assert!(close(route.theoretical_gbps, 63.02));
        assert!(route.theoretical_source.contains("virtual machine"));
    }
}

fn fabric(machine: &mut Snapshot, change: fn(&mut model::snapshot::Fabric)) {
    if let Reading::Known(fabric) = &mut machine.gpus[1].fabric {
        change(fabric);
    }
}

#[test]
fn a_bridge_joins_its_two_gpus_and_no_others() {
    let machine = nvlink_bridge();
    let connected = route(&machine, 1, 0);
    assert_eq!(connected.class.to_string(), "NV4");
    assert!(close(connected.theoretical_gbps, 56.25), "{connected:?}");
    assert_eq!(connected.bottleneck.as_deref(), Some("4 x NVLink 3.1 between GPU 1 and GPU 0"));
    assert_eq!(route(&machine, 0, 2).class.to_string(), "SYS");
    assert_eq!(route(&machine, 2, 3).class.to_string(), "PIX");
}

#[test]
fn nvlinks_to_nowhere_known_do_not_borrow_the_pcie_rate() {
    let mut machine = two_sockets();
    machine.pairs = all_pairs(4, None, P2pStatus::Ok);
    for gpu in &mut machine.gpus {
        gpu.nvlinks =
            Reading::Known(nvlinks(4, "3.1", 14062, model::snapshot::NvLinkRemote::Gpu, None));
    }
    let route = route(&machine, 0, 1);
    assert_eq!(route.class.to_string(), "?");
    assert_eq!(route.theoretical_gbps, None);
    assert!(route.theoretical_source.contains("not where the links lead"));
}

#[test]
fn unknown_facts_give_no_figure_and_a_reason() {
    let mut machine = two_sockets();
    machine.gpus[0] = Gpu::unread(0, &Unknown::Failed("GPU is lost".into()));
    let lost = route(&machine, 0, 1);
    assert_eq!(lost.class.to_string(), "?");
    assert_eq!((lost.theoretical_gbps, lost.bottleneck), (None, None));
    assert!(lost.theoretical_source.contains("GPU is lost"), "{}", lost.theoretical_source);

    // Width 0 and width 63 are unknown, not narrow.
    let mut machine = two_sockets();
    function_mut(&mut machine, "0000:03:00.0").width = lanes(63);
    function_mut(&mut machine, "0000:02:00.0").width = lanes(0);
    machine.gpus[0].pcie_width = lanes(0);
    let route = route(&machine, 0, 1);
    assert!(close(route.theoretical_gbps, 31.51));
    assert!(route.theoretical_source.contains("no known rate"), "{}", route.theoretical_source);
}

#[test]
fn a_gpu_outside_the_tree_has_nvml_s_link() {
    let mut machine = two_sockets_with_narrow_gpu();
    machine.pci.clear();
    let route = route(&machine, 0, 3);
    assert_eq!(route.class.to_string(), "?");
    assert!(close(route.theoretical_gbps, 7.88), "{route:?}");
}

#[test]
fn broken_trees_end() {
    let mut machine = two_sockets();
    // A loop, a missing parent, a duplicate address, a duplicate GPU index.
    function_mut(&mut machine, "0000:00:01.0").parent = Some(pci("0000:03:00.0"));
    function_mut(&mut machine, "0000:81:00.0").parent = Some(pci("00ff:ff:1f.7"));
    machine.pci.push(machine.pci[0].clone());
    machine.gpus.push(gpu(3, "0000:84:00.0"));
    machine.gpus.push(gpu(7, "0000:84:00.0"));
    let (name, at) = ("mlx5_0".into(), pci("0000:03:00.0"));
    machine.adapters.push(Adapter::unread(name, AdapterKind::Rdma, at, &Unknown::Unsupported));
    let topology = build(&machine);
    assert_eq!(topology.pairs.len(), 20);
    for gpu in 0..9 {
        assert!(topology.gpu_path(gpu).len() <= machine.pci.len() + 1);
    }
    assert_eq!(build(&empty()), Topology::default());
}

#[test]
fn adapters_are_on_the_graph_with_their_links() {
    let mut machine = two_sockets();
    machine.pci.push(function(
        "0000:02:02.0",
        Some("0000:01:00.0"),
        PciKind::SwitchDownstream,
        (4, 8),
        (4, 8),
    ));
    machine.pci.push(function(
        "0000:05:00.0",
        Some("0000:02:02.0"),
        PciKind::Endpoint,
        (4, 8),
        (4, 16),
    ));
    for (name, kind) in [("mlx5_0", AdapterKind::Rdma), ("eth0", AdapterKind::Ethernet)] {
        let at = pci("0000:05:00.0");
        machine.adapters.push(Adapter::unread(name.into(), kind, at, &Unknown::Unsupported));
    }
    let topology = build(&machine);
    let node =
        topology.nodes.iter().find(|node| node.id == NodeId::Pci(pci("0000:05:00.0"))).unwrap();
    assert_eq!(node.label, "mlx5_0, eth0 (RDMA)");
    assert_eq!(node.kind, NodeKind::Adapter);
    assert_eq!(link_to(&topology, "0000:05:00.0").label, "Gen4 x8");
}

#[test]
fn cuda_s_answer_is_kept_beside_nvml_s() {
    let machine = two_sockets();
    let pair = Pair { source: 0, destination: 1 };
    let driver = DriverFacts {
        devices: vec![CudaDevice {
            index: 2,
            failure: Some("hidden by CUDA_VISIBLE_DEVICES".into()),
            ..CudaDevice::default()
        }],
        peer_access: vec![CudaPeerAccess {
            pair,
            possible: Some(false),
            failure: None,
            failure_code: None,
            hindered: false,
        }],
        ..DriverFacts::default()
    };
    let topology = with_cuda(build(&machine), &driver);
    let access = |source, destination| {
        topology.route(Pair { source, destination }).unwrap().peer_access.clone()
    };
    assert_eq!(access(0, 1).cuda, Some(false));
    assert_eq!(access(1, 0).cuda, None);
    assert_eq!(access(1, 2).cuda_failure.as_deref(), Some("GPU 2: hidden by CUDA_VISIBLE_DEVICES"));

    let failed = DriverFacts { failure: Some("no driver".into()), ..DriverFacts::default() };
    let topology = with_cuda(build(&machine), &failed);
    assert!(
        topology
            .pairs
            .iter()
            .all(|route| route.peer_access.cuda_failure.as_deref() == Some("no driver"))
    );
}

#[test]
fn links_to_switches_that_a_tool_counted_are_those_of_each_pair() {
    let mut machine = h200_vm(3);
    let ends = [(0, 1, 18), (1, 0, 18), (0, 2, 16), (2, 0, 16), (1, 2, 18), (2, 1, 18)];
    machine.bonds = ends
        .map(|(source, destination, links)| NvLinkBond {
            source,
            destination,
            links,
            version: Some("4.0".to_owned()),
            speed_mbps: None,
            over_switches: true,
        })
        .to_vec();
    let listed = machine.clone();
    for gpu in &mut machine.gpus {
        gpu.nvlinks = Reading::Unknown(Unknown::NotRead("not in the input".into()));
    }
    for machine in [machine, listed] {
        let class = |source, destination| route(&machine, source, destination).class;
        assert_eq!(class(0, 1), LinkClass::NvLink(18));
        assert_eq!(class(2, 0), LinkClass::NvLink(16));
        let route = route(&machine, 0, 1);
        assert_eq!(route.hops.len(), 2);
        assert!(close(route.theoretical_gbps, 450.0), "{route:?}");
    }
}
