//! # What it means
//!
//! The driver lists a GPU but gets no answer from it.
//!
//! # How it is detected
//!
//! NVML gives an error, or no answer in time, for every reading of its links, memory and state. Where
//! NVML does not give its address either, it is the one function on the PCI bus that is left when all
//! GPUs that answer have theirs.
//!
//! # Why it matters
//!
//! The GPU cannot be used, and programs that start on all GPUs fail.
//!
//! # What to do
//!
//! Look for Xid messages in the kernel's log (`dmesg | grep -i xid`); Xid 79 means that the GPU has
//! fallen off the bus. Where the log may be read, the message has the last one. It names the port above the GPU and the errors
//! that this port has counted since boot (AER): fatal ones speak for the link, so for seat, riser or cable. A GPU in
//! power state D3cold was switched off by the kernel; one whose configuration space reads all ones is off the bus. At an
//! external link look at cable and dock first. Power the machine off and on again, not only a reboot. If it comes back and
//! is lost again: check its power cables and cooling, reseat it, then replace it.
//!
//! # Sources
//!
//! NVIDIA's Xid errors page; NVML's `NVML_ERROR_GPU_IS_LOST`.

use super::lost;
use super::prelude::*;
use crate::model::reading::Unknown;
use crate::topology::pcie;

/// The rule.
pub const RULE: Rule = Rule::new("gpu-unreachable", Severity::Error, include_str!("gpu_unreachable.rs"), judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let silent = |gpu: &Gpu| {
        let why = no_answer(gpu)?;
        let address = evidence.snapshot.address_of(gpu.index);
        let on_the_bus = evidence.snapshot.unlisted_gpus.iter().find(|function| function.gpu == Some(gpu.index));
        let driver = on_the_bus.and_then(|function| function.driver.known());
        let found = RULE
            .finding(
                Subject::Gpu { index: gpu.index },
                format!("{} does not answer: {why}", words::gpu(evidence.snapshot, gpu.index)),
                "Look for Xid messages (dmesg | grep -i xid). Power the machine off and on again; if the GPU is lost \
                 again, check its power cables and cooling, reseat it, then replace it",
            )
            .fact("error", why)
            .fact("address", address)
            .fact("address_by_elimination", (gpu.pci.get().is_none() && address.is_some()).then_some(true))
            .fact("slot", address.and_then(|address| pcie::slot(evidence.snapshot, address)))
            .fact("bound_driver", driver.map(ToString::to_string))
            .fact("uuid", gpu.uuid.known());
        Some(lost::with_place(found, evidence, address))
    };
    let mut found: Vec<_> = evidence.snapshot.gpus.iter().filter_map(silent).collect();
    // What was not tested is explained by all of them together.
    let gpus: Vec<_> = found.iter().flat_map(|finding| finding.scope.gpus.clone()).collect();
    found.iter_mut().for_each(|finding| finding.scope.gpus.clone_from(&gpus));
    found
}

/// The reason why none of what every GPU has could be read; `None` where anything could. Identity
/// does not count: the driver knows it of a GPU that has long been lost.
fn no_answer(gpu: &Gpu) -> Option<String> {
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
        Unknown::Unsupported | Unknown::Denied(_) | Unknown::Limited(_) | Unknown::NotRead(_) => None,
    })
}
