use super::*;
use crate::builtin;
use crate::spec::{
    CudaPeerRule, FabricSpec, GpuState, LinkFault, NvLinkErrors, NvLinkFault, NvLinkSpec,
    NvLinkTarget, Pairs, PeerException, PeerRule, Rate,
};
use model::snapshot::{
    CommonAncestor, ComputeMode, FabricState, GpuProcess, P2pStatus, PcieErrors,
};
use model::testing::{generation, lanes, pcie_link};
use model::units::PcieLink;
use serde_json::{Value, json};

fn open(name: &str) -> SimTelemetry {
    SimTelemetry::new(builtin::get(name).unwrap())
}

fn gpu(machine: &SimTelemetry, index: u32) -> Gpu {
    let mut gpu = Gpu::unread(index, &Unknown::Failed("not read yet".into()));
    for group in GpuGroup::ALL {
        machine.read_gpu(group, &mut gpu);
    }
    gpu
}

/// Returns what NVML reports for a pair, except atomics.
fn with_access(machine: &SimTelemetry, source: u32, destination: u32) -> GpuPair {
    let mut pair = machine.read_pair(source, destination);
    machine.read_access(&mut pair);
    pair
}

#[test]
fn the_h200_server_reads_as_it_was_recorded() {
    let machine = open("h200x8");
    insta::assert_json_snapshot!("h200x8-gpu", gpu(&machine, 1));
    insta::assert_json_snapshot!("h200x8-pair", with_access(&machine, 0, 7));
}

#[test]
fn the_level_that_a_pair_with_nvlink_shares_is_asked_about_late() {
    let machine = open("h200x8");
    let mut pair = machine.read_pair(0, 7);
    assert_eq!(pair.common_ancestor.unknown(), Some(&GpuPair::ancestor_not_asked()));
    machine.read_atomics(&mut pair);
    assert_eq!(pair.common_ancestor, Reading::Known(CommonAncestor::HostBridge));
    assert!(
        open("pcie16").read_pair(0, 7).common_ancestor.known().is_some(),
        "its class is the route's"
    );
}

#[test]
fn the_narrow_link_of_the_demo_machine_shows_at_both_ends_and_in_samples() {
    let machine = open("demo");
    let tree = machine.pci_tree();
    for index in 0..8 {
        let gpu = gpu(&machine, index);
        let width = lanes(if index == 5 { 4 } else { 16 });
        assert_eq!(
            (gpu.pcie_width, gpu.pcie_width_max),
            (width.clone(), lanes(16)),
            "both ends can do more"
        );
        assert_eq!(machine.sample(index).width, width.get());
        let endpoint =
            tree.functions.iter().find(|function| Some(function.address) == gpu.pci.get()).unwrap();
        let port = tree
            .functions
            .iter()
            .find(|function| Some(function.address) == endpoint.parent)
            .unwrap();
        assert_eq!([&endpoint.width, &port.width], [&width; 2]);
        assert_eq!([&endpoint.width_max, &port.width_max], [&lanes(16); 2]);
    }
}

#[test]
fn a_lost_gpu_is_counted_and_every_reading_of_it_fails() {
    let machine = open("gpu-lost");
    assert_eq!(machine.gpu_count(), Ok(4));
    let lost = gpu(&machine, 1);
    assert!(lost.pci.unknown().is_some() && lost.memory_total_bytes.unknown().is_some());
    assert!(machine.read_pair(0, 1).p2p_read.unknown().is_some());
    assert_eq!(machine.sample(1), LinkSample::default());
    assert!(gpu(&machine, 2).pci.known().is_some());
}

#[test]
fn a_fabric_that_is_down_shows_while_nvml_works() {
    assert_eq!(gpu(&open("fabric-down"), 0).fabric.known().unwrap().state, FabricState::InProgress);
}

/// Returns the L40S box with all changeable facts of GPU 0 changed.
#[allow(clippy::needless_update, reason = "a key to come needs no value here")]
fn changed() -> SimTelemetry {
    let mut spec = builtin::get("pair-hangs").unwrap();
    spec.gpus[0].state = GpuState {
        power_state: 8,
        persistence: false,
        ecc: None,
        ecc_uncorrected: 3,
        ecc_uncorrected_under_load: 2,
        temperature_c: 31,
        temperature_under_load_c: 55,
        power_under_load_w: Some(310),
        power_limit_w: Some(700),
        remapping_pending: true,
        remapping_failed: true,
        throttle_reasons: vec!["sw-power-cap".into()],
        throttle_under_load: vec!["hw-thermal".into()],
        mig: Some(true),
        mig_instance: false,
        vgpu: false,
        compute_mode: ComputeMode::Prohibited,
        processes: vec![GpuProcess { pid: 77, name: None, memory_bytes: None }],
        vbios: "95.02.66.00.01".into(),
        ..GpuState::default()
    };
    spec.gpus[1].state.ecc_uncorrected = 5;
    spec.gpus[1].state.remapping_pending = true;
    let bridge = |version: &str, link_gbps, active| NvLinkSpec {
        count: 2,
        active,
        version: version.into(),
        remote: NvLinkTarget::Gpu(1),
        link_gbps,
        errors: NvLinkErrors { crc: 7, replay: 8, recovery: 9, ..NvLinkErrors::default() },
    };
    spec.gpus[0].nvlinks = vec![
        bridge("3.1", Some(Rate(14.0625)), true),
        bridge("3.1", None, true),
        bridge("4.0", None, false),
    ];
    spec.gpus[0].fabric = Some(FabricSpec {
        state: FabricState::InProgress,
        status: 6,
        health_mask: Some(1),
        clique_id: 2,
        cluster_uuid: "ab".repeat(16),
    });
    let address = spec.gpus[0].pci;
    let function = spec.pci.iter_mut().find(|function| function.address == address).unwrap();
    function.idle = Some(pcie_link(1, 16));
    function.errors = PcieErrors { correctable: 10, non_fatal: 20, fatal: 30 };
    let rule = PeerRule {
        nvml: P2pStatus::Ok,
        nvml_write: Some(P2pStatus::GpuNotSupported),
        cuda: CudaPeerRule::Granted,
    };
    spec.peers.exceptions.push(PeerException { pairs: Pairs::Ordered(0, 2), rule });
    spec.faults.links.push(LinkFault {
        function: address,
        trains_down_to: Some(pcie_link(4, 8)),
        replays: 40,
        errors: PcieErrors { correctable: 1, non_fatal: 2, fatal: 3 },
        only_under_load: false,
    });
    let errors = NvLinkErrors { crc: 100, replay: 0, recovery: 1, ..NvLinkErrors::default() };
    spec.faults.nvlinks.push(NvLinkFault::new(0, 3, errors));
    SimTelemetry::new(spec)
}

#[test]
fn the_state_of_a_gpu_is_what_its_description_says() {
    let machine = changed();
    insta::assert_json_snapshot!("changed-gpus", [gpu(&machine, 0), gpu(&machine, 1)]);
    insta::assert_json_snapshot!("changed-pair", with_access(&machine, 0, 2));
}

/// Values of keys, one of which is another than the default of any key.
fn values() -> [Value; 6] {
    [
        json!(true),
        json!(false),
        json!(7),
        json!(["sw-power-cap"]),
        json!("prohibited"),
        json!("any text"),
    ]
}

/// Keys that make another machine of the GPU, with tests of their own.
const OTHER_GPUS: [&str; 2] = ["mig_instance", "vgpu"];

#[test]
fn a_key_that_is_no_fact_by_itself_is_changed_above() {
    let usual = json!(GpuState::default());
    let state = json!(changed().spec.gpus[0].state);
    for (key, value) in usual.as_object().unwrap() {
        let is_fact = GpuState::FACTS.iter().any(|(fact, _)| fact == key);
        if !is_fact && !OTHER_GPUS.contains(&key.as_str()) {
            assert_ne!(state[key], *value, "changed() has no value of {key}");
        }
    }
}

#[test]
fn a_key_that_is_a_fact_gives_that_fact() {
    let facts = |state: &GpuState| {
        let mut spec = builtin::get("single").unwrap();
        spec.gpus[0].state = state.clone();
        serde_json::to_value(gpu(&SimTelemetry::new(spec), 0)).unwrap()
    };
    let usual = json!(GpuState::default());
    for (key, _) in GpuState::FACTS {
        let other = values().into_iter().find_map(|value| {
            let mut state = usual.clone();
            state[key] = value.clone();
            let state = serde_json::from_value(state).ok()?;
            (usual[key] != value).then_some((value, state))
        });
        let (value, state) = other.unwrap_or_else(|| panic!("values() has none for {key}"));
        assert_eq!(facts(&state)[key], value, "{key}");
        assert_ne!(facts(&GpuState::default())[key], value, "{key}");
    }
}

#[test]
fn an_idle_link_wakes_under_load_and_then_trains_down() {
    let machine = changed();
    let link = |link: &LinkSample| PcieLink {
        generation: link.generation.unwrap(),
        width: link.width.unwrap(),
    };
    assert_eq!(gpu(&machine, 0).pcie_generation, generation(1));
    let tree = machine.pci_tree();
    let function = tree
        .functions
        .iter()
        .find(|function| Some(function.address) == gpu(&machine, 0).pci.get())
        .unwrap();
    let port = tree.functions.iter().find(|port| Some(port.address) == function.parent).unwrap();
    assert_eq!([&function.generation, &port.generation], [&generation(1); 2], "both ends");
    assert_eq!((function.aer_correctable.get(), function.aer_fatal.get()), (Some(10), Some(30)));
    let (first, second) = (machine.sample(0), machine.sample(0));
    assert_eq!([link(&first), link(&second)], [pcie_link(4, 16), pcie_link(4, 8)]);
    assert_eq!(
        (first.replays, second.replays, machine.sample(0).replays),
        (Some(0), Some(40), Some(40))
    );
    assert_eq!(first.pcie_errors, gpu(&machine, 0).pcie_errors.get());
    assert_eq!(second.pcie_errors, Some(PcieErrors { correctable: 11, non_fatal: 22, fatal: 33 }));
    assert_eq!(first.throttle_reasons, ["hw-thermal"]);
    assert_eq!(link(&machine.sample(1)), pcie_link(4, 16), "the other GPUs are not touched");
}

#[test]
fn nvlinks_count_errors_while_copies_run() {
    let machine = changed();
    let errors = |number: usize| {
        let gpu = gpu(&machine, 0);
        let link = &gpu.nvlinks.known().unwrap()[number];
        [link.crc_errors.get(), link.replay_errors.get(), link.recovery_errors.get()]
    };
    assert_eq!((errors(3), errors(4)), ([Some(7), Some(8), Some(9)], [None; 3]));
    machine.sample(0);
    assert_eq!(
        (errors(2), errors(3)),
        ([Some(7), Some(8), Some(9)], [Some(107), Some(8), Some(10)])
    );
}
