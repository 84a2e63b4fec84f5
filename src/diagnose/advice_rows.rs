//! More rows of the table of advice: links, settings, lost GPUs, and parts that several GPUs share.

use super::advice_steps::Step;
use super::advice_tests::{Row, bare_h200, but, guest, named, near, sound};
use super::testing::prelude::*;
use super::testing::with_host;
use model::measurement::{LinkUnderLoad, Measurements, Verified};
use model::placement::Path;
use model::reading::Unknown;
use model::snapshot::{NvSwitch, Snapshot};

pub(super) fn all() -> Vec<Row> {
    [link_rows(), setting_rows(), lost_rows(), shared_rows()]
        .into_iter()
        .flatten()
        .collect()
}

/// Makes the machine a guest whose host runs the fabric.
fn guest_of_host(machine: &mut Snapshot) {
    guest(machine);
    named(machine, "NVIDIA H200", "Hopper");
}

fn guest_with_switches(machine: &mut Snapshot) {
    guest(machine);
    machine.nvswitches = vec![NvSwitch::unread(pci("0000:c0:00.0"), &Unknown::Unsupported)];
}

/// Returns [`two_sockets`] with these GPUs' links at one lane, or at eight.
fn narrow(gpus: &[usize], to: u8) -> (Snapshot, Measurements) {
    let mut machine = two_sockets();
    for (gpu, port, address) in [
        (0, "0000:02:00.0", "0000:03:00.0"),
        (1, "0000:02:01.0", "0000:04:00.0"),
        (2, "0000:82:00.0", "0000:83:00.0"),
        (3, "0000:82:01.0", "0000:84:00.0"),
    ] {
        if gpus.contains(&gpu) {
            [port, address]
                .iter()
                .for_each(|at| function_mut(&mut machine, at).width = lanes(to));
            machine.gpus[gpu].pcie_width = lanes(to);
        }
    }
    let measurements = measured(&machine, 0.84);
    (machine, measurements)
}

fn link_rows() -> Vec<Row> {
    use Step::{
        AskHost, Bifurcation, Extenders, FabricManager, PassThrough, PowerCycle, ReloadDriver,
        Reseat, Riser, Slot, Swap, SwitchTrays, Xid,
    };
    let host_wrong = |translating| {
        let mut machine = bare_h200();
        machine.host.iommu_translating = Reading::Known(translating);
        let mut measurements = with_host(&machine, &[55.0; 4]);
        measurements.host[1].verified = Verified::Corrupt;
        (machine, measurements)
    };
    let refused = |change: fn(&mut Snapshot)| {
        let mut machine = bare_h200();
        change(&mut machine);
        for gpu in &mut machine.gpus {
            let Reading::Known(fabric) = &mut gpu.fabric else {
                continue;
            };
            fabric.state = model::snapshot::FabricState::NotStarted;
        }
        let measurements = measured(&machine, 0.84);
        (machine, measurements)
    };
    let tray = |machine: &mut Snapshot| named(machine, "NVIDIA GB200", "Blackwell");
    let row = |facts, rule, machine, must, may| Row {
        facts,
        rule,
        machine,
        must,
        may,
    };
    vec![
        row(
            "one of four",
            "pcie-narrow",
            narrow(&[2], 8),
            &[Reseat, Riser, Swap, Slot, Bifurcation],
            &[Step::Replace],
        ),
        row(
            "three alike",
            "pcie-narrow",
            narrow(&[0, 1, 3], 8),
            &[Riser, Bifurcation],
            &[Slot],
        ),
        row(
            "all at one lane",
            "pcie-narrow",
            narrow(&[0, 1, 2, 3], 1),
            &[Extenders, Riser, Bifurcation],
            &[Slot],
        ),
        row(
            "the IOMMU is off",
            "host-data-wrong",
            host_wrong(false),
            &[Step::OutOfService, Xid, Swap],
            &[],
        ),
        row(
            "it translates",
            "host-data-wrong",
            host_wrong(true),
            &[Step::OutOfService, Xid, Swap, PassThrough],
            &[],
        ),
        row(
            "not started",
            "fabric-not-ready",
            refused(|_| ()),
            &[FabricManager, PowerCycle],
            &[],
        ),
        row(
            "in a guest without NVSwitches",
            "fabric-not-ready",
            refused(guest_of_host),
            &[AskHost, ReloadDriver],
            &[],
        ),
        row(
            "in a guest with them",
            "fabric-not-ready",
            refused(guest_with_switches),
            &[FabricManager, PowerCycle],
            &[],
        ),
        row(
            "on a tray",
            "fabric-not-ready",
            refused(tray),
            &[SwitchTrays],
            &[Step::ResetGpu],
        ),
    ]
}

fn setting_rows() -> Vec<Row> {
    use Step::{
        AskHost, ClearAcs, DisablePeers, FabricManager, OwnDriver, PassThrough, ReloadDriver, Slot,
    };
    let slower = |change: fn(&mut Snapshot)| {
        let (mut machine, mut measurements) = sound(two_sockets());
        change(&mut machine);
        set(&mut measurements, 6.0, |cell| {
            near(cell.pair) && cell.setup.path == Path::Direct
        });
        (machine, measurements)
    };
    let links_down = |change: fn(&mut Snapshot)| {
        let mut machine = h200_vm(4);
        crate::tests::with_links_down(&mut machine, &[0, 1, 2, 3], 0..18);
        change(&mut machine);
        let measurements = measured(&machine, 0.84);
        (machine, measurements)
    };
    let redirected = |machine: &mut Snapshot| {
        function_mut(machine, "0000:82:00.0").acs_redirect = Reading::Known(true);
        function_mut(machine, "0000:80:01.0").acs_redirect = Reading::Known(true);
    };
    let translated = |machine: &mut Snapshot| machine.host.iommu_translating = Reading::Known(true);
    let patched = |machine: &mut Snapshot| named(machine, "NVIDIA GeForce RTX 4090", "Ada");
    let row = |facts, rule, machine, must, may| Row {
        facts,
        rule,
        machine,
        must,
        may,
    };
    vec![
        row(
            "settings off",
            "direct-slower-than-staged",
            slower(|_| ()),
            &[DisablePeers],
            &[Slot],
        ),
        row(
            "IOMMU on",
            "direct-slower-than-staged",
            slower(translated),
            &[DisablePeers, PassThrough],
            &[Slot],
        ),
        row(
            "policy refuses",
            "direct-slower-than-staged",
            slower(patched),
            &[DisablePeers, OwnDriver],
            &[Slot],
        ),
        row(
            "in a guest",
            "direct-slower-than-staged",
            slower(guest),
            &[DisablePeers, AskHost],
            &[],
        ),
        row(
            "two ports",
            "acs-redirect",
            but(sound(two_sockets()), redirected),
            &[ClearAcs],
            &[],
        ),
        row(
            "all links of a guest down",
            "nvlink-inactive",
            links_down(|_| ()),
            &[ReloadDriver, AskHost],
            &[FabricManager, Step::Reboot],
        ),
    ]
}

/// Returns a machine whose driver gets no answer from these GPUs.
fn lost(mut machine: Snapshot, gpus: &[usize]) -> (Snapshot, Measurements) {
    fn none<T>() -> Reading<T> {
        Reading::failed("the GPU is lost")
    }
    for gpu in gpus {
        let gpu = &mut machine.gpus[*gpu];
        (gpu.memory_total_bytes, gpu.pcie_generation, gpu.pcie_width) = (none(), none(), none());
        (
            gpu.nvlinks,
            gpu.compute_mode,
            gpu.power_state,
            gpu.sm_clock_mhz,
        ) = (none(), none(), none(), none());
    }
    let mut measurements = measured(&machine, 0.84);
    measurements.peer.retain(|cell| {
        !gpus
            .iter()
            .any(|gpu| cell.pair.touches(u32::try_from(*gpu).unwrap_or(u32::MAX)))
    });
    (machine, measurements)
}

fn lost_rows() -> Vec<Row> {
    use Step::{
        AskHost, Bmc, Cable, Dock, PowerCables, Reseat, RestartGuest, Swap, WhatIsShared, Xid,
    };
    let thunderbolt = |machine: &mut Snapshot| {
        let port = function_mut(machine, "0000:80:01.0");
        (port.vendor, port.device_id) = (Reading::Known(0x8086), Reading::Known(0x15ef));
    };
    let few = |machine: &mut Snapshot| function_mut(machine, "0000:01:01.0").width_max = lanes(4);
    let modules = |machine: &mut Snapshot| named(machine, "NVIDIA H100 80GB HBM3", "Hopper");
    let row = |facts, machine, must, may| Row {
        facts,
        rule: "gpu-unreachable",
        machine,
        must,
        may,
    };
    vec![
        row(
            "a card",
            lost(two_sockets(), &[2]),
            &[Xid, PowerCables, Reseat],
            &[Step::Cooling, Step::Replace],
        ),
        row(
            "a guest's",
            but(lost(two_sockets(), &[2]), guest),
            &[Xid, RestartGuest, AskHost],
            &[],
        ),
        row(
            "a module",
            but(lost(two_sockets(), &[2]), modules),
            &[Xid, Bmc, Swap],
            &[Step::Replace],
        ),
        row(
            "on Thunderbolt",
            but(lost(two_sockets(), &[2]), thunderbolt),
            &[Xid, Cable, Dock],
            &[Step::PowerSupply],
        ),
        row(
            "at a port of four lanes",
            but(lost(with_own_port(), &[0]), few),
            &[Xid, Cable, Dock, PowerCables],
            &[Step::PowerSupply, Step::Replace, Step::Cooling],
        ),
        row(
            "all below a switch",
            lost(two_sockets(), &[2, 3]),
            &[WhatIsShared, Reseat],
            &[Step::Replace],
        ),
    ]
}

/// Returns a machine whose first GPU sits at its own root port.
fn with_own_port() -> Snapshot {
    let mut machine = two_sockets();
    let mut port = machine.function(pci("0000:00:01.0")).unwrap().clone();
    port.address = pci("0000:01:01.0");
    machine.pci.push(port);
    function_mut(&mut machine, "0000:03:00.0").parent = Some(pci("0000:01:01.0"));
    machine
}

fn shared_rows() -> Vec<Row> {
    use Step::{CheckAgainIdle, LinkErrors, Retraining, Riser, Slot, Swap, WhatIsShared};
    let replays = |gpus: &[u32]| {
        let (machine, mut measurements) = sound(two_sockets());
        let counted = |index| LinkUnderLoad {
            index,
            readings: 30,
            replays_added: Some(4000),
            ..LinkUnderLoad::default()
        };
        measurements.links = gpus.iter().copied().map(counted).collect();
        (machine, measurements)
    };
    let stalls = |machine: Snapshot| {
        let (machine, mut measurements) = sound(machine);
        let own = measurements
            .peer
            .iter()
            .filter(|cell| near(cell.pair) && cell.setup.path == Path::Direct);
        let more: Vec<_> = own.cloned().collect();
        measurements.peer.extend(more);
        for cell in measurements
            .peer
            .iter_mut()
            .filter(|cell| near(cell.pair) && cell.setup.path == Path::Direct)
        {
            cell.spread_percent = Some(120.0);
        }
        (machine, measurements)
    };
    let row = |facts, rule, machine, must, may| Row {
        facts,
        rule,
        machine,
        must,
        may,
    };
    vec![
        row(
            "one link replays",
            "pcie-errors-rose",
            replays(&[1]),
            &[Riser, Swap, CheckAgainIdle],
            &[Slot, Step::Reseat],
        ),
        row(
            "three alike",
            "pcie-errors-rose",
            replays(&[0, 1, 3]),
            &[WhatIsShared, Riser, CheckAgainIdle],
            &[Slot],
        ),
        row(
            "copies stall over PCIe",
            "unstable-measurement",
            stalls(two_sockets()),
            &[Retraining, CheckAgainIdle, LinkErrors, Swap],
            &[Riser, Slot, Step::OtherSlot],
        ),
        row(
            "copies stall over NVLink",
            "unstable-measurement",
            stalls(bare_h200()),
            &[Retraining, CheckAgainIdle, LinkErrors, Swap],
            &[],
        ),
    ]
}
