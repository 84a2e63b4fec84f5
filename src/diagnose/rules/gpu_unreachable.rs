//! # What it means
//!
//! The driver lists a GPU but gets no answer from it. Programs on all GPUs fail.
//!
//! # What to do
//!
//! Look for Xids (`dmesg | grep -i xid`); Xid 79: it has fallen off the bus. Power off and on, not only reboot. If it
//! is lost again: check power cables and cooling, reseat it, then replace it.
//!
//! - Fatal errors of the port above (AER, in the message): seat, riser or cable.
//! - D3cold: the kernel switched it off. Configuration space all ones: off the bus.
//! - Module (SXM): the management controller's log.
//! - Outside (Thunderbolt, OCuLink): another cable, then another dock.
//! - Virtual machine: its host must look.
//! - All GPUs below one port: its link, its cable, the power of their board.
//!
//! # How it is detected
//!
//! NVML gives an error, or no answer in time, for every reading of links, memory and state. Without an address from
//! NVML, it is the only function left over on the PCI bus.
//!
//! # Sources
//!
//! NVIDIA's Xid errors page; NVML's `NVML_ERROR_GPU_IS_LOST`.

use super::prelude::*;
use super::{lost, shared};

rule! {
    "gpu-unreachable", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let gpus = evidence.snapshot.gpus.iter();
    let silent: Vec<(&Gpu, String)> = gpus.filter_map(|gpu| Some((gpu, no_answer(gpu)?))).collect();
    let lost: Vec<u32> = silent.iter().map(|(gpu, _)| gpu.index).collect();
    let mut ports: BTreeMap<PciAddress, (Vec<u32>, &str)> = BTreeMap::new();
    let mut alone = Vec::new();
    for (gpu, why) in &silent {
        match lost::shared_port(evidence, &lost, gpu.index) {
            Some((port, gpus)) => {
                ports.insert(port, (gpus, why.as_str()));
            }
            None => alone.push(of_one(evidence, gpu, why)),
        }
    }
    let together = ports.into_iter().map(|(port, (gpus, why))| of_port(evidence, port, &gpus, why));
    let found = together.chain(alone);
    // All of them together explain what was not tested.
    found.map(|finding| finding.about_gpus(&lost)).collect()
}

/// Returns one finding for all GPUs below a port: what they share is lost, and no GPU is faulty by itself.
fn of_port(evidence: &Evidence<'_>, port: PciAddress, gpus: &[u32], why: &str) -> Finding {
    let board = || Part::BoardOf(all(gpus));
    let plan = if evidence.virtual_machine() {
        Plan::now([Step::Xid, Step::RestartGuest]).if_it_stays([Step::AskHost(Ask::Parts)])
    } else {
        let shared = Step::WhatIsShared(SharedParts::AbovePort);
        Plan::now([Step::Xid, shared, Step::PowerCycle])
            .if_it_stays([Step::Reseat(board()), Step::Replace(board())])
    };
    let names = shared::names(evidence, gpus);
    let message = format!("{names}, all below {port}, do not answer; {why}");
    let found = RULE
        .finding(Subject::PcieLink { address: port }, message, plan)
        .fact("error", why.to_owned())
        .fact("gpus_behind", Fact::Gpus(gpus.to_vec()));
    lost::with_port(with_reason(found, evidence, why), evidence, port)
}

fn of_one(evidence: &Evidence<'_>, gpu: &Gpu, why: &str) -> Finding {
    let address = evidence.snapshot.address_of(gpu.index);
    let index = gpu.index;
    let message = format!("{} does not answer; {why}", evidence.name(index));
    let by_elimination = gpu.pci.get().is_none() && address.is_some();
    let found = RULE
        .finding(Subject::Gpu { index }, message, lost::plan(evidence, index))
        .fact("error", why.to_owned())
        .fact("address", address)
        .fact("address_by_elimination", by_elimination.then_some(true))
        .fact("uuid", gpu.uuid.known());
    lost::with_place(with_reason(found, evidence, why), evidence, address)
}

/// Adds the reason to the short sentence where the reason is all that the input says.
fn with_reason(found: Finding, evidence: &Evidence<'_>, why: &str) -> Finding {
    let short = found.short().to_owned();
    match evidence.read_from {
        Some(_) => found.in_short(format!("{short}: {why}")),
        None => found,
    }
}

/// Returns the reason why none of the facts that every GPU has could be read; `None` if any could. Identity does not
/// count: the driver knows it even of a GPU that has long been lost.
pub(super) fn no_answer(gpu: &Gpu) -> Option<String> {
    let readings = [
        gpu.memory_total_bytes.unknown(),
        gpu.pcie_generation.unknown(),
        gpu.pcie_width.unknown(),
        gpu.nvlinks.unknown(),
        gpu.compute_mode.unknown(),
        gpu.power_state.unknown(),
        gpu.sm_clock_mhz.unknown(),
    ];
    let reasons: Vec<_> = readings.into_iter().collect::<Option<_>>()?;
    reasons.into_iter().find_map(|unknown: &Unknown| match unknown {
        Unknown::Failed(why) => Some(why.clone()),
        _ => None,
    })
}
