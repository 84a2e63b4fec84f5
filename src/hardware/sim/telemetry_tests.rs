use super::*;
use crate::hardware::sim::builtin;
use crate::model::snapshot::{CommonAncestor, PciKind};

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

#[test]
fn the_h200_server_reads_as_it_was_recorded() {
    let machine = open("h200x8");
    assert_eq!(machine.gpu_count(), Ok(8));
    let gpu = gpu(&machine, 1);
    assert_eq!(gpu.pci.get().unwrap().to_string(), "0000:00:07.0");
    assert_eq!(gpu.uuid.known().unwrap(), "GPU-00000000-0000-0000-0000-000000000001");
    assert_eq!(gpu.pcie_link().unwrap().to_string(), "Gen5 x16");
    assert_eq!(gpu.numa_node, Reading::unsupported());
    let links = gpu.nvlinks.known().unwrap();
    assert_eq!(links.len(), 18);
    for link in links {
        assert_eq!(link.version.known().unwrap(), "4.0");
        assert_eq!(link.speed_mbps.get(), Some(26_562));
        assert_eq!(link.remote.get(), Some(NvLinkRemote::Switch));
        assert_eq!(link.remote_pci, Reading::unsupported());
    }
    assert_eq!(gpu.fabric.known().unwrap().state, FabricState::Completed);
    let pair = machine.read_pair(0, 7);
    assert_eq!(pair.common_ancestor.get(), Some(CommonAncestor::HostBridge));
    assert_eq!(pair.p2p_write.get(), Some(P2pStatus::Ok));
    assert_eq!(pair.p2p_nvlink.get(), Some(P2pStatus::Ok));
    assert!(machine.pci_tree().functions.iter().all(|function| function.parent.is_none()));
}

#[test]
fn the_demo_machine_has_one_narrow_link_and_one_pair_without_access() {
    let machine = open("demo");
    let tree = machine.pci_tree();
    for index in 0..8 {
        let gpu = gpu(&machine, index);
        let width = if index == 5 { 4 } else { 16 };
        assert_eq!(gpu.pcie_width.get(), Some(width));
        assert_eq!(gpu.pcie_width_max.get(), Some(16), "both ends can do more");
        assert_eq!(machine.sample(index).width, Some(width));
        let endpoint = tree.functions.iter().find(|function| Some(function.address) == gpu.pci.get()).unwrap();
        let port = tree.functions.iter().find(|function| Some(function.address) == endpoint.parent).unwrap();
        assert_eq!(port.kind, PciKind::SwitchDownstream);
        assert_eq!((endpoint.width.get(), port.width.get()), (Some(width), Some(width)));
        assert_eq!((endpoint.width_max.get(), port.width_max.get()), (Some(16), Some(16)));
        assert_eq!(gpu.numa_node.get(), Some(index / 4));
        for other in (0..8).filter(|other| *other != index) {
            let refused = matches!((index, other), (1, 6) | (6, 1));
            let expected = if refused { P2pStatus::ChipsetNotSupported } else { P2pStatus::Ok };
            assert_eq!(machine.read_pair(index, other).p2p_write.get(), Some(expected));
        }
    }
    let ancestor = |a, b| machine.read_pair(a, b).common_ancestor.get();
    assert_eq!(ancestor(0, 1), Some(CommonAncestor::SingleSwitch));
    assert_eq!(ancestor(0, 2), Some(CommonAncestor::NumaNode));
    assert_eq!(ancestor(0, 4), Some(CommonAncestor::System));
    assert_eq!(tree.adapters.len(), 2);
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
    assert_eq!(gpu(&open("fabric-down"), 0).fabric.known().unwrap().state, FabricState::NotStarted);
}
