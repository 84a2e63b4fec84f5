//! The advice of rules against its facts: facts in, steps that must, may and must not come out.

use std::collections::BTreeSet;

use super::testing::prelude::*;
use super::testing::{cell, with_host};
use crate::model::finding::Finding;
use crate::model::measurement::{Measurements, Status, Verified};
use crate::model::placement::{Pair, Path};
use crate::model::reading::Unknown;
use crate::model::snapshot::Snapshot;

/// What a technician is told to do, or to look at. Each is known by words that only it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    DisablePeers,
    NearPeersOnly,
    LeaveGpuOut,
    OutOfService,
    PassThrough,
    LookAtIommu,
    ClearAcs,
    AskHost,
    RunAsRoot,
    OwnDriver,
    TestMemory,
    Swap,
    Reseat,
    Slot,
    Riser,
    Xid,
    PowerCycle,
    ReloadDriver,
    FabricManager,
    SwitchTrays,
    Extenders,
    Bifurcation,
    PcieSwitch,
    LinkErrors,
}

const WORDS: [(Step, &[&str]); 24] = [
    (Step::DisablePeers, &["NCCL_P2P_DISABLE=1"]),
    (Step::NearPeersOnly, &["NCCL_P2P_LEVEL="]),
    (Step::LeaveGpuOut, &["or leave GPU"]),
    (Step::OutOfService, &["out of service"]),
    (Step::PassThrough, &["boot with iommu=pt", "boot once with iommu=pt", "pass-through (iommu=pt)"]),
    (Step::LookAtIommu, &["look whether the IOMMU translates"]),
    (Step::ClearAcs, &["setpci"]),
    (Step::AskHost, &["whoever runs the host", "whoever runs its host"]),
    (Step::RunAsRoot, &["run the check as root"]),
    (Step::OwnDriver, &["NVIDIA's own driver"]),
    (Step::TestMemory, &["memory test", "test the memory"]),
    (Step::Swap, &["swap "]),
    (Step::Reseat, &["eseat"]),
    (Step::Slot, &["the slot", "slot,"]),
    (Step::Riser, &["riser"]),
    (Step::Xid, &["Xid"]),
    (Step::PowerCycle, &["ower-cycle"]),
    (Step::ReloadDriver, &["Reload the driver"]),
    (Step::FabricManager, &["systemctl status nvidia-fabricmanager"]),
    (Step::SwitchTrays, &["switch trays"]),
    (Step::Extenders, &["extender"]),
    (Step::Bifurcation, &["bifurcation", "splits the slot"]),
    (Step::PcieSwitch, &["PCIe switch"]),
    (Step::LinkErrors, &["nvlink -e"]),
];

/// The steps of a finding, by what it says to do and to suspect.
fn steps(finding: &Finding) -> BTreeSet<Step> {
    let suspects = finding.suspects.iter().flat_map(|suspect| [suspect.cause.as_str(), suspect.test.as_str()]);
    let text = [finding.next_step.as_str()].into_iter().chain(suspects).collect::<Vec<_>>().join(" | ");
    WORDS.iter().filter(|(_, words)| words.iter().any(|words| text.contains(words))).map(|(step, _)| *step).collect()
}

/// Facts, the rule, and the steps that must and may come out; all others must not.
struct Row {
    facts: &'static str,
    rule: &'static str,
    machine: (Snapshot, Measurements),
    must: &'static [Step],
    may: &'static [Step],
}

/// A machine whose settings are known to be off, and what was measured on it.
fn sound(machine: Snapshot) -> (Snapshot, Measurements) {
    let mut machine = machine;
    machine.host.iommu_translating = Reading::Known(false);
    let mut measurements = measured(&machine, 0.84);
    for pair in measurements.peer.iter().map(|cell| cell.pair).collect::<Vec<_>>() {
        measurements.peer.push(cell(pair, Path::Staged, 20.0));
    }
    (machine, measurements)
}

/// [`sound`], with the bytes of these pairs wrong on this path.
fn wrong(machine: Snapshot, path: Path, is_bad: impl Fn(Pair) -> bool) -> (Snapshot, Measurements) {
    let (machine, mut measurements) = sound(machine);
    for cell in measurements.peer.iter_mut().filter(|cell| cell.setup.path == path && is_bad(cell.pair)) {
        (cell.verified, cell.status, cell.achieved_gbps) = (Verified::Corrupt, Status::Failed, None);
    }
    (machine, measurements)
}

/// The same with copies that never end.
fn hung(machine: Snapshot, is_bad: impl Fn(Pair) -> bool) -> (Snapshot, Measurements) {
    let (machine, mut measurements) = sound(machine);
    for cell in measurements.peer.iter_mut().filter(|cell| cell.setup.path == Path::Direct && is_bad(cell.pair)) {
        (cell.verified, cell.status, cell.achieved_gbps) = (Verified::Skipped, Status::Hung, None);
    }
    (machine, measurements)
}

fn near(pair: Pair) -> bool {
    pair.unordered() == (0, 1)
}

fn far(pair: Pair) -> bool {
    pair.source / 2 != pair.destination / 2
}

/// Changes the facts of a machine.
fn but(
    (mut machine, measurements): (Snapshot, Measurements),
    change: impl FnOnce(&mut Snapshot),
) -> (Snapshot, Measurements) {
    change(&mut machine);
    (machine, measurements)
}

fn named(machine: &mut Snapshot, name: &str, architecture: &str) {
    for gpu in &mut machine.gpus {
        (gpu.name, gpu.architecture) = (Reading::Known(name.into()), Reading::Known(architecture.into()));
    }
}

fn guest(machine: &mut Snapshot) {
    machine.host.virtual_machine = Reading::Known(true);
}

fn bare_h200() -> Snapshot {
    let mut machine = h200_vm(4);
    machine.host.virtual_machine = Reading::Known(false);
    machine
}

fn data_rows() -> Vec<Row> {
    use Step::{
        AskHost, ClearAcs, DisablePeers, LeaveGpuOut, LinkErrors, LookAtIommu, NearPeersOnly, OutOfService, OwnDriver,
        PassThrough, PcieSwitch, RunAsRoot, Swap, TestMemory, Xid,
    };
    let row = |facts, machine, must, may| Row { facts, rule: "peer-data-wrong", machine, must, may };
    let pair = || wrong(two_sockets(), Path::Direct, near);
    let ecc = |machine: &mut Snapshot| machine.gpus.iter_mut().for_each(|gpu| gpu.ecc = Reading::Known(true));
    vec![
        row("IOMMU and ACS off", pair(), &[DisablePeers, TestMemory, Swap, PcieSwitch], &[]),
        row("the same with ECC", but(pair(), ecc), &[DisablePeers, Swap, PcieSwitch], &[]),
        row(
            "the IOMMU translates",
            but(pair(), |machine| machine.host.iommu_translating = Reading::Known(true)),
            &[DisablePeers, PassThrough, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "whether it does is not known",
            but(pair(), |machine| machine.host.iommu_translating = Reading::failed("no such file")),
            &[DisablePeers, LookAtIommu, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "a port redirects",
            but(pair(), |machine| function_mut(machine, "0000:02:01.0").acs_redirect = Reading::Known(true)),
            &[DisablePeers, ClearAcs, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "only root may read ACS",
            but(pair(), |machine| {
                let denied = Reading::Unknown(Unknown::Denied("needs root".into()));
                function_mut(machine, "0000:02:01.0").acs_redirect = denied;
            }),
            &[DisablePeers, RunAsRoot, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row("a guest", but(pair(), guest), &[DisablePeers, AskHost, TestMemory, Swap], &[PcieSwitch]),
        row(
            "boards that the policy refuses",
            but(pair(), |machine| named(machine, "NVIDIA GeForce RTX 4090", "Ada")),
            &[DisablePeers, OwnDriver, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "far pairs alone",
            wrong(two_sockets(), Path::Direct, far),
            &[NearPeersOnly, TestMemory, Swap],
            &[PcieSwitch],
        ),
        row(
            "all pairs of one GPU",
            wrong(two_sockets(), Path::Direct, |pair| pair.touches(3)),
            &[DisablePeers, LeaveGpuOut, TestMemory, Swap],
            &[PcieSwitch],
        ),
        row(
            "copies through the host too",
            wrong(two_sockets(), Path::Staged, near),
            &[OutOfService, TestMemory, Swap],
            &[PcieSwitch],
        ),
        row(
            "over NVLink",
            wrong(bare_h200(), Path::Direct, |pair| pair.touches(2)),
            &[DisablePeers, LeaveGpuOut, Xid, LinkErrors, Swap],
            &[],
        ),
    ]
}

fn hang_rows() -> Vec<Row> {
    use Step::{AskHost, ClearAcs, DisablePeers, LinkErrors, OwnDriver, PassThrough, PowerCycle, Swap, Xid};
    const USUAL: [Step; 4] = [DisablePeers, Xid, PowerCycle, Swap];
    let row = |facts, machine, must, may| Row { facts, rule: "peer-copy-hung", machine, must, may };
    let pair = || hung(two_sockets(), near);
    vec![
        row("IOMMU and ACS off", pair(), &USUAL, &[]),
        row(
            "the IOMMU translates",
            but(pair(), |machine| machine.host.iommu_translating = Reading::Known(true)),
            &[DisablePeers, Xid, PowerCycle, Swap, PassThrough],
            &[],
        ),
        row(
            "a root port redirects",
            but(pair(), |machine| function_mut(machine, "0000:00:01.0").acs_redirect = Reading::Known(true)),
            &[DisablePeers, Xid, PowerCycle, Swap, ClearAcs],
            &[],
        ),
        row("a guest", but(pair(), guest), &[DisablePeers, Xid, PowerCycle, Swap, AskHost], &[]),
        row(
            "boards that the policy refuses",
            but(pair(), |machine| named(machine, "NVIDIA GeForce RTX 5090", "Blackwell")),
            &[DisablePeers, Xid, PowerCycle, Swap, OwnDriver],
            &[],
        ),
        row("over NVLink", hung(bare_h200(), near), &[DisablePeers, Xid, PowerCycle, Swap, LinkErrors], &[]),
    ]
}

/// [`two_sockets`] with these GPUs' links at one lane, or at eight.
fn narrow(gpus: &[usize], to: u8) -> (Snapshot, Measurements) {
    let mut machine = two_sockets();
    for (gpu, port, address) in [
        (0, "0000:02:00.0", "0000:03:00.0"),
        (1, "0000:02:01.0", "0000:04:00.0"),
        (2, "0000:82:00.0", "0000:83:00.0"),
        (3, "0000:82:01.0", "0000:84:00.0"),
    ] {
        if gpus.contains(&gpu) {
            [port, address].iter().for_each(|at| function_mut(&mut machine, at).width = lanes(to));
            machine.gpus[gpu].pcie_width = lanes(to);
        }
    }
    let measurements = measured(&machine, 0.84);
    (machine, measurements)
}

fn link_rows() -> Vec<Row> {
    use Step::{
        AskHost, Bifurcation, Extenders, FabricManager, LinkErrors, PassThrough, PowerCycle, Reseat, Riser, Slot, Swap,
        SwitchTrays, Xid,
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
            let Reading::Known(fabric) = &mut gpu.fabric else { continue };
            fabric.state = crate::model::snapshot::FabricState::NotStarted;
        }
        let measurements = measured(&machine, 0.84);
        (machine, measurements)
    };
    let tray = |machine: &mut Snapshot| named(machine, "NVIDIA GB200", "Blackwell");
    let row = |facts, rule, machine, must, may| Row { facts, rule, machine, must, may };
    vec![
        row("one of four", "pcie-narrow", narrow(&[2], 8), &[Reseat, Riser, Swap, Slot, Bifurcation], &[]),
        row("three alike", "pcie-narrow", narrow(&[0, 1, 3], 8), &[Riser, Bifurcation], &[Slot]),
        row("all at one lane", "pcie-narrow", narrow(&[0, 1, 2, 3], 1), &[Extenders, Riser, Bifurcation], &[Slot]),
        row("the IOMMU is off", "host-data-wrong", host_wrong(false), &[Step::OutOfService, Xid, Swap], &[]),
        row("it translates", "host-data-wrong", host_wrong(true), &[Step::OutOfService, Xid, Swap, PassThrough], &[]),
        row("not started", "fabric-not-ready", refused(|_| ()), &[FabricManager, PowerCycle], &[]),
        row("in a guest", "fabric-not-ready", refused(guest), &[FabricManager, AskHost], &[]),
        row("on a tray", "fabric-not-ready", refused(tray), &[SwitchTrays], &[FabricManager, LinkErrors]),
    ]
}

fn setting_rows() -> Vec<Row> {
    use Step::{AskHost, ClearAcs, DisablePeers, FabricManager, OwnDriver, PassThrough, ReloadDriver, Slot};
    let slower = |change: fn(&mut Snapshot)| {
        let (mut machine, mut measurements) = sound(two_sockets());
        change(&mut machine);
        set(&mut measurements, 6.0, |cell| near(cell.pair) && cell.setup.path == Path::Direct);
        (machine, measurements)
    };
    let links_down = |change: fn(&mut Snapshot)| {
        let mut machine = h200_vm(4);
        crate::diagnose::tests::with_links_down(&mut machine, &[0, 1, 2, 3], 0..18);
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
    let row = |facts, rule, machine, must, may| Row { facts, rule, machine, must, may };
    vec![
        row("settings off", "direct-slower-than-staged", slower(|_| ()), &[DisablePeers], &[Slot]),
        row("IOMMU on", "direct-slower-than-staged", slower(translated), &[DisablePeers, PassThrough], &[Slot]),
        row("policy refuses", "direct-slower-than-staged", slower(patched), &[DisablePeers, OwnDriver], &[Slot]),
        row("in a guest", "direct-slower-than-staged", slower(guest), &[DisablePeers, AskHost], &[]),
        row("two ports", "acs-redirect", but(sound(two_sockets()), redirected), &[ClearAcs], &[]),
        row(
            "all links of a guest down",
            "nvlink-inactive",
            links_down(|_| ()),
            &[ReloadDriver, AskHost],
            &[FabricManager],
        ),
    ]
}

#[test]
fn steps_follow_from_facts() {
    let mut complaints = Vec::new();
    for Row { facts, rule, machine: (machine, measurements), must, may } in
        [data_rows(), hang_rows(), link_rows(), setting_rows()].into_iter().flatten()
    {
        let found = findings(&machine, Some(&measurements));
        let Some(finding) = found.iter().find(|finding| &*finding.code == rule) else {
            complaints.push(format!("{rule}, {facts}: not found"));
            continue;
        };
        let steps = steps(finding);
        let missing: Vec<_> = must.iter().filter(|step| !steps.contains(step)).collect();
        let wrong: Vec<_> = steps.iter().filter(|step| !must.contains(step) && !may.contains(step)).collect();
        if !missing.is_empty() || !wrong.is_empty() {
            complaints.push(format!(
                "{rule}, {facts}: lacks {missing:?}, must not have {wrong:?}: {} {:#?}",
                finding.next_step, finding.suspects
            ));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
