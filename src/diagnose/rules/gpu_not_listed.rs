//! # What it means
//!
//! An NVIDIA GPU on the PCI bus is not listed by the driver. No program can use it.
//!
//! # What to do
//!
//! Look for the address in the kernel's log (`dmesg | grep -iE 'nvrm|xid'`).
//!
//! - "RmInitAdapter failed", "probe routine failed": the GPU does not start. Xid 79: it has fallen off the bus.
//! - "not supported by the NVIDIA driver": the board is too old or too new for this version.
//! - nouveau has it: blacklist it (`blacklist nouveau` in /etc/modprobe.d), write the initial RAM disk again, reboot.
//!   No driver: `modprobe nvidia`.
//!
//! Then power the machine off and on; check power cables and seat; swap the GPU: does the fault move?
//!
//! # How it is detected
//!
//! Display functions of vendor 10de in /sys/bus/pci are compared with NVML's GPUs. In the kernel's log, the driver could
//! not start one (`RmInitAdapter failed`, `FSP command timed out`, `BAR1 is 0M`: no address space, look for Above 4G
//! Decoding in BIOS), and nothing shows that it runs.
//!
//! Information: vfio-pci or nvgrace-gpu-vfio-pci gives it to a virtual machine, a parameter of the driver excludes
//! it, or it is a display card (class 0300) of another model without NVIDIA's driver. Not reported: a GPU kept from
//! this process (device file not usable, missing in /proc/driver/nvidia/gpus, or `snapshot.host.container`); without
//! such a sign it is `devices-hidden`. GPUs that NVML counts and cannot identify are `gpu-unreachable`.
//!
//! # Sources
//!
//! NVIDIA driver README, "The /proc interface" and `NVreg_ExcludedGpus`; NVIDIA's Xid errors page.

use super::lost;
use super::prelude::*;
use model::pasted::{PastedFault, PastedFaultKind};
use model::pcie::VGA;
use model::snapshot::BoundDriver;

rule! {
    "gpu-not-listed", Error, All(judge);
}

/// Reasons why NVML does not list a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// The function is given to a virtual machine.
    Given,
    /// The administrator excluded it.
    Excluded,
    /// This process may not use it, as in a container that was not given it.
    Hidden,
    /// It is kept from this process, or it does not work: nothing shows which (`devices-hidden`).
    Open,
    /// A display card of another model.
    Console,
    /// NVML should list it.
    Missing,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let snapshot = evidence.snapshot;
    let functions = snapshot.unlisted_gpus.iter().filter(|function| function.gpu.is_none());
    let mut by_reason =
        words::grouped(functions.map(|function| (why(snapshot, function), function)));
    by_reason.remove(&Why::Missing);
    by_reason.remove(&Why::Open);
    let missing = missing(snapshot);
    let some_of = (missing.open.len() > missing.lost).then(|| some_of(&missing));
    let faults = missing.certain.into_iter().map(|function| fault(evidence, function));
    let by_design = by_reason.iter().map(|(why, functions)| by_design(*why, functions));
    faults.chain(some_of).chain(by_design).collect()
}

/// The functions that NVML should list and does not.
pub struct Missing<'a> {
    /// Functions that certainly should be listed.
    certain: Vec<&'a DisplayFunction>,
    /// Other functions; `lost` of them are GPUs that NVML counts and does not identify.
    open: Vec<&'a DisplayFunction>,
    /// Number of GPUs that NVML counts without an address.
    lost: usize,
}

impl<'a> Missing<'a> {
    /// Returns the number of missing GPUs.
    pub fn number(&self) -> usize {
        self.certain.len() + self.open.len().saturating_sub(self.lost)
    }

    /// Returns all functions that may be missing GPUs.
    pub fn functions(&self) -> impl Iterator<Item = &'a DisplayFunction> {
        self.certain.iter().chain(&self.open).copied()
    }
}

/// Returns the functions that NVML should list and does not.
pub fn missing(snapshot: &Snapshot) -> Missing<'_> {
    let is_missing = |function: &&DisplayFunction| {
        function.gpu.is_none() && why(snapshot, function) == Why::Missing
    };
    let functions = snapshot.unlisted_gpus.iter().filter(is_missing);
    // Output of other tools may leave addresses out.
    let is_left_out = |gpu: &Gpu| matches!(gpu.pci.unknown(), Some(Unknown::NotRead(_)));
    let lost = |gpu: &Gpu| snapshot.address_of(gpu.index).is_none() && !is_left_out(gpu);
    let lost = snapshot.gpus_with(lost).len();
    let (open, certain) = functions.partition(|function| lost > 0 && function.is_for_us());
    Missing { certain, open, lost }
}

/// Returns why NVML does not list this function.
pub(super) fn why(snapshot: &Snapshot, display: &DisplayFunction) -> Why {
    match display.driver.known() {
        Some(driver) if driver.gives_to_guests() => Why::Given,
        Some(BoundDriver::Nvidia) if display.excluded.get() == Some(true) => Why::Excluded,
        Some(BoundDriver::Nvidia) if display.device_file.get() == Some(DeviceFile::Usable) => {
            Why::Missing
        }
        Some(BoundDriver::Nvidia) if is_hidden(snapshot, display) => Why::Hidden,
        Some(BoundDriver::Nvidia) => Why::Open,
        _ if is_other_display_card(snapshot, display) => Why::Console,
        _ => Why::Missing,
    }
}

/// Returns true if something shows that this GPU is kept from this process. A missing file shows it in a container
/// only, and a failed reading shows nothing.
fn is_hidden(snapshot: &Snapshot, display: &DisplayFunction) -> bool {
    let left_out = display.in_driver_list.get() == Some(false);
    let missing = match &display.device_file {
        Reading::Known(DeviceFile::Refused) => return true,
        Reading::Known(DeviceFile::Missing) | Reading::Unknown(Unknown::Unsupported) => true,
        Reading::Known(DeviceFile::Usable) | Reading::Unknown(_) => false,
    };
    left_out || (missing && snapshot.host.container.get() == Some(true))
}

/// Returns true if it is a display card of a model that none of the listed GPUs is, as for a console. Unknown models
/// may be the same.
fn is_other_display_card(snapshot: &Snapshot, display: &DisplayFunction) -> bool {
    let model = |address: PciAddress| snapshot.function(address)?.device_id.get();
    let own = model(display.address);
    let class = snapshot.function(display.address).and_then(|function| function.class.get());
    let is_vga = class.map(|class| class >> 8) == Some(VGA);
    let mut listed = snapshot.gpus.iter();
    let is_other = |gpu: &Gpu| {
        let listed = snapshot.address_of(gpu.index).and_then(model);
        listed.is_some() && listed != own
    };
    own.is_some() && is_vga && !snapshot.gpus.is_empty() && listed.all(is_other)
}

fn fault(evidence: &Evidence<'_>, display: &DisplayFunction) -> Finding {
    let address = display.address;
    let at = || At(vec![address]);
    let no_gpu = || OneOf(Vec::new());
    let cables_and_seat = [Step::PowerCables(no_gpu()), Step::Reseat(Part::Gpu(no_gpu()))];
    let is_own = |fault: &&PastedFault| fault.said.pci == Some(address) && fault.kind.is_of_start();
    let said: Vec<_> = evidence.stated().filter(is_own).collect();
    let worst = said.iter().map(|fault| fault.kind).max();
    let (what, plan) = match display.driver.known() {
        _ if worst == Some(PastedFaultKind::NoWindow) => (
            "the firmware left no address space for its memory window (BAR1)".to_owned(),
            Plan::now([Step::Above4G, Step::CheckAgain]),
        ),
        _ if worst == Some(PastedFaultKind::Unsupported) => (
            "this version of the driver does not support it".to_owned(),
            Plan::now([Step::OtherDriver]),
        ),
        Some(BoundDriver::Nvidia) => (
            "the nvidia driver has it, and could not start it or has lost it".to_owned(),
            Plan::now([Step::DriverLogOf(at()), Step::PowerCycle])
                .if_it_stays(cables_and_seat)
                .if_it_stays([Step::Swap(Part::Gpu(no_gpu()))]),
        ),
        Some(BoundDriver::Nouveau) => (
            "the nouveau driver has it".to_owned(),
            Plan::now([Step::NoNouveau, Step::Reboot, Step::CheckAgain]),
        ),
        Some(BoundDriver::None) | None => (
            "no driver has it".to_owned(),
            Plan::now([Step::LoadDriver, Step::StartLogOf(at())])
                .if_it_stays([Step::PowerCycle])
                .if_it_stays(cables_and_seat),
        ),
        Some(name) => (
            format!("another driver, {name}, has it"),
            Plan::now([Step::WhoHasIt(name.to_string(), at()), Step::BindDriver]),
        ),
    };
    let slot = pcie::slot(evidence.snapshot, address);
    let place = words::in_brackets(slot.map(|slot| format!("slot {slot}")));
    let message = match said.first() {
        None => format!("NVML does not list the NVIDIA GPU at {address}{place}; {what}"),
        Some(first) => {
            let lines: Vec<String> = said.iter().map(|fault| fault.said.to_string()).collect();
            let first = first.said.text.rsplit("NVRM: ").next().unwrap_or_default();
            let why = if worst > Some(PastedFaultKind::NotStarted) { &what } else { first };
            let lines = words::spelt(&lines);
            format!("The driver did not start the NVIDIA GPU at {address}{place}: {why}; {lines}")
        }
    };
    let driver = display.driver.known();
    let swap = || [Step::SwapTest(Part::Gpu(no_gpu()))];
    let suspects = [
        suspect_if(Cause::GpuItself, swap(), Sign::FaultMoves),
        suspect_if(Cause::OwnWay, swap(), Sign::FaultStays),
        suspect_if(Cause::StuckDriver, [Step::PowerCycle], Sign::Listed),
    ];
    let may_be = driver == Some(&BoundDriver::Nvidia) && worst <= Some(PastedFaultKind::NotStarted);
    let suspects = suspects.into_iter().filter(|_| may_be);
    let found = RULE
        .finding(Subject::PciFunction { address }, message, plan)
        .fact("address", address)
        .suspecting(suspects.collect())
        // No driver may be bound on purpose.
        .at_if(driver.is_none(), Severity::Warning);
    lost::with_place(found, evidence, Some(address))
}

/// Returns a finding: some of these functions are GPUs that NVML counts and cannot identify, and the others are
/// missing.
fn some_of(missing: &Missing<'_>) -> Finding {
    let addresses: Vec<_> = missing.open.iter().map(|function| function.address).collect();
    let number = missing.open.len() - missing.lost;
    let message = format!(
        "NVML does not list {number} of {}; they are at {}; it counts the others and gets no answer from them",
        words::count(addresses.len(), "NVIDIA GPU"),
        words::addresses(&addresses),
    );
    let log = Step::DriverLogOf(At(addresses.clone()));
    RULE.on_machine(message, [log, Step::PowerCycle, Step::CheckAgain]).fact("addresses", addresses)
}

/// Returns one line for functions that NVML does not list on purpose.
fn by_design(why: Why, functions: &[&DisplayFunction]) -> Finding {
    let addresses: Vec<_> = functions.iter().map(|function| function.address).collect();
    let number = words::count(addresses.len(), "NVIDIA GPU");
    let at = words::addresses(&addresses);
    let (what, plan) = match why {
        Why::Given => (
            "not listed: bound to a driver that gives PCI functions to virtual machines",
            Plan::now([Step::Nothing(Fine::Always), Step::CheckInGuest]),
        ),
        Why::Excluded => (
            "not listed: excluded by a parameter of the driver",
            Plan::now([Step::Nothing(Fine::IfMeant)]).otherwise([Step::ExcludedGpus]),
        ),
        Why::Hidden => (
            "of the host and not given to this container or job",
            Plan::now([Step::Nothing(Fine::Always), Step::CheckOnHost]),
        ),
        Why::Console | Why::Open | Why::Missing => (
            "not listed: for a display (class 0300), of another model and without NVIDIA's driver",
            Plan::now([Step::Nothing(Fine::Always)]),
        ),
    };
    RULE.on_machine(format!("{number} {what}; {at}"), plan)
        .at(Severity::Info)
        .fact("addresses", addresses)
}

#[cfg(test)]
#[path = "../gpu_not_listed_tests.rs"]
mod tests;
