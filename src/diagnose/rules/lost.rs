//! Facts on the place of a GPU that does not answer: its power, the port above it and the errors that the port has
//! counted, the driver's log, and if it is attached by a cable. Also the next steps there.

use super::nvlink_missing;
use super::prelude::*;
use crate::external::{self, External};
use model::snapshot::{OFF_THE_BUS, PciPower};

/// Returns the lowest port above this GPU below which there are several GPUs and none answers, with these GPUs. What
/// they share is lost.
pub(super) fn shared_port(
    evidence: &Evidence<'_>,
    lost: &[u32],
    gpu: u32,
) -> Option<(PciAddress, Vec<u32>)> {
    let snapshot = evidence.snapshot;
    let chain = |gpu: u32| Some(pcie::chain(snapshot, snapshot.address_of(gpu)?));
    let own: Vec<&PciFunction> = chain(gpu)?;
    let mut best: Option<(PciAddress, Vec<u32>)> = None;
    for port in own.iter().skip(1) {
        let below = snapshot.gpus_with(|gpu| {
            let mut above = chain(gpu.index).into_iter().flatten();
            above.any(|function: &PciFunction| function.address == port.address)
        });
        if !below.iter().all(|gpu| lost.contains(gpu)) {
            break;
        }
        if below.len() > best.as_ref().map_or(1, |(_, known)| known.len()) {
            best = Some((port.address, below));
        }
    }
    best
}

/// Returns the steps for one GPU that does not answer.
pub(super) fn plan(evidence: &Evidence<'_>, index: u32) -> Plan {
    let lost = || gpu(index);
    if evidence.virtual_machine() {
        return Plan::now([Step::Xid, Step::RestartGuest]).if_it_stays([Step::AskHost(Ask::Parts)]);
    }
    if is_module(evidence, index) {
        return Plan::now([Step::Xid, Step::Bmc, Step::PowerCycle]).if_it_stays([
            Step::Cooling,
            Step::Swap(Part::Module(lost())),
            Step::Replace(Part::ModuleOrBoard),
        ]);
    }
    match external::of(evidence, index) {
        Some(External::Thunderbolt) => Plan::now([Step::Xid, Step::RestartDock]).if_it_stays([
            Step::Exchange(Part::Cable),
            Step::Exchange(Part::Dock),
            Step::Replace(Part::Gpu(lost())),
        ]),
        Some(External::FewLanes) => Plan::now([Step::Xid, Step::PowerCycle]).if_it_stays([
            Step::Exchange(Part::Cable),
            Step::SlowerSlot,
            Step::Exchange(Part::Dock),
            Step::PowerCables(lost()),
            Step::Reseat(Part::Gpu(lost())),
            Step::Replace(Part::Gpu(lost())),
        ]),
        None => Plan::now([Step::Xid, Step::PowerCycle]).if_it_stays([
            Step::PowerCables(lost()),
            Step::Cooling,
            Step::Reseat(Part::Gpu(lost())),
            Step::Replace(Part::Gpu(lost())),
        ]),
    }
}

/// Returns true if this GPU is a module on a board (SXM), judged by its own name or by the names of the others.
fn is_module(evidence: &Evidence<'_>, gpu: u32) -> bool {
    let name = |gpu: &Gpu| gpu.name.known().map(|name| nvlink_missing::is_sxm(name));
    let own = evidence.snapshot.gpu(gpu).and_then(name);
    own.unwrap_or_else(|| {
        let mut others = evidence.snapshot.gpus.iter().filter_map(name).peekable();
        others.peek().is_some() && others.all(|is_sxm| is_sxm)
    })
}

/// Returns the port above a function: a root port or a port of a switch.
pub(super) fn port_above<'a>(
    evidence: &Evidence<'a>,
    address: PciAddress,
) -> Option<&'a PciFunction> {
    let is_port = |function: &&&PciFunction| {
        matches!(function.kind, PciKind::RootPort | PciKind::SwitchDownstream | PciKind::Bridge)
    };
    let chain = pcie::chain(evidence.snapshot, address);
    chain.iter().skip(1).find(is_port).copied()
}

/// Adds all of these facts to a finding.
pub(super) fn with_place(
    found: Finding,
    evidence: &Evidence<'_>,
    address: Option<PciAddress>,
) -> Finding {
    let Some(address) = address else { return found };
    let found = with_power(found, evidence, address);
    let found = with_port(found, evidence, address);
    let found = with_xids(found, evidence, address);
    with_cable(found, evidence, address)
}

/// Adds the power state of the function, and if it answers.
fn with_power(mut found: Finding, evidence: &Evidence<'_>, address: PciAddress) -> Finding {
    let Some(function) = evidence.snapshot.function(address) else {
        return found;
    };
    if function.power_state.get() == Some(PciPower::D3Cold) {
        found.message += "; the kernel has switched it off (power state D3cold)";
        let keep = Step::KeepPowered(At(vec![address]));
        let later = std::mem::take(&mut found.steps);
        let plan = Plan::now([keep, Step::ReloadDriver, Step::CheckAgain]).before(later);
        found = found.steps(plan);
    } else if function.answers.get() == Some(false) {
        found.message += "; its configuration space reads all ones: it is off the bus";
    }
    found
}

/// Adds the port above, and a sentence on the errors that it has counted.
pub(super) fn with_port(
    mut found: Finding,
    evidence: &Evidence<'_>,
    address: PciAddress,
) -> Finding {
    let Some(port) = port_above(evidence, address) else {
        return found;
    };
    let counted = [
        (port.aer_fatal.get(), "fatal"),
        (port.aer_nonfatal.get(), "uncorrected"),
        (port.aer_correctable.get(), "corrected"),
    ];
    let some =
        counted.iter().filter_map(|(number, kind)| Some((number.filter(|one| *one > 0)?, kind)));
    let some: Vec<_> = some.map(|(number, kind)| format!("{number} {kind}")).collect();
    let errors = match some.as_slice() {
        _ if counted.iter().all(|(number, _)| number.is_none()) => {
            "whose error counters (AER) cannot be read here".to_owned()
        }
        [] => "which has counted no error since boot".to_owned(),
        some => format!("which has counted errors since boot: {}", some.join(", ")),
    };
    found.message += &format!("; the port above is {}, {errors}", port.address);
    found.fact("port_address", port.address)
}

/// Adds the GPU's last Xid message from the driver's log, and the Xids before it.
fn with_xids(mut found: Finding, evidence: &Evidence<'_>, address: PciAddress) -> Finding {
    let xids = &evidence.snapshot.host.xids;
    let Some(all) = xids.known() else {
        return found.fact("xids_unknown", xids.unknown().map(ToString::to_string));
    };
    // A message names the device; a GPU is function 0 of it.
    let own: Vec<&Xid> = all.iter().filter(|xid| xid.pci.is_same_device(address)).collect();
    // What comes after the loss is its consequence.
    let loss = own.iter().rfind(|xid| xid.code == OFF_THE_BUS);
    let said = match loss.or(own.last()) {
        None => "; the kernel's log has no Xid message of it".to_owned(),
        Some(last) => {
            let text = words::in_brackets(Some(&last.text));
            let before = own.iter().map(|xid| xid.code).filter(|code| *code != last.code);
            let before = words::first(&words::unique(before), usize::MAX);
            let before = words::after(", beside Xid ", Some(before));
            let hours =
                last.seconds_since_boot.map(|seconds| format!("{} h after boot", seconds / 3600));
            let time = words::after(", ", hours);
            format!("; its Xid is {}{text}{time}{before}", last.code)
        }
    };
    found.message += &said;
    found
}

/// Adds a fact if the link goes through a cable or a dock.
fn with_cable(mut found: Finding, evidence: &Evidence<'_>, address: PciAddress) -> Finding {
    let way = pcie::chain(evidence.snapshot, address);
    if !way.iter().any(|function| function.removable.get() == Some(true)) {
        return found;
    }
    found.message += "; it is on an external link";
    // The next step already covers a Thunderbolt dock.
    let is_said = |gpu| external::of(evidence, gpu) == Some(External::Thunderbolt);
    if !matches!(found.subject, Subject::Gpu { index } if is_said(index)) {
        let others = std::mem::take(&mut found.steps);
        found = found.steps(Plan::now([Step::CableAndDock]).beside(others));
    }
    found
}
