//! # What it means
//!
//! Network adapters beside GPUs cannot write into their memory (GPUDirect RDMA), or not well. Traffic with other
//! machines then goes through host memory, at a fraction of the rate.
//!
//! # What to do
//!
//! `modprobe nvidia-peermem`, or NVIDIA's open kernel modules on Linux 5.12 or later, which share memory through dma-buf.
//! ACS: see `acs-redirect`. A BAR1 window below the memory: Resizable BAR in BIOS.
//!
//! # How it is detected
//!
//! GPUs are judged that have an RDMA adapter at PIX or PXB and are no GeForce boards. It is a warning if nvidia_peermem
//! is not loaded and dma-buf is not possible: CUDA says so, or the kernel modules are not the open ones, or Linux is
//! older. ACS between the two where nvidia_peermem is not loaded, and windows smaller than the memory, are information.
//!
//! # Sources
//!
//! NVIDIA GPUDirect RDMA documentation; NVIDIA GPU Operator, GPUDirect RDMA; NCCL issue 897.

use super::acs_redirect;
use super::prelude::*;

rule! {
    "gpudirect-rdma-incomplete", Warning, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let host = &evidence.snapshot.host;
    let devices = &evidence.measured().driver.devices;
    let asked = |gpu: u32| devices.iter().find(|device| device.index == gpu)?.rdma.as_ref();
    let mut near = links::near_adapters(evidence);
    near.retain(|gpu, _| {
        let name = evidence.snapshot.gpu(*gpu).and_then(|gpu| gpu.name.known());
        name.is_some_and(|name| !name.contains("GeForce"))
            && asked(*gpu).and_then(|rdma| rdma.gpu_direct.get()) != Some(false)
    });
    let gpus: Vec<u32> = near.keys().copied().collect();
    let names = words::unique(near.values().flatten().map(|adapter| adapter.name.clone()));
    let module = host.peer_memory_module.get();
    let by_cuda = gpus.iter().find_map(|gpu| asked(*gpu)?.dma_buf.get());
    let closed = module == Some(false) && by_cuda.or_else(|| host.dma_buf()) == Some(false);
    let mut lacks = Vec::new();
    let mut plan = Plan::default();
    if closed {
        lacks.push("nvidia_peermem is not loaded, and dma-buf is not possible".to_owned());
        plan = plan.then([Step::PeerMemory]);
    }
    let mut ports = Vec::new();
    if module == Some(false) {
        let beside = acs_redirect::beside_adapters(evidence);
        ports = words::unique(beside.into_iter().flat_map(|beside| beside.ports));
    }
    if !ports.is_empty() {
        lacks.push(format!("ACS redirects at {}", words::first(&ports, 2)));
        let above = suspects::redirecting_ports(evidence, &near.keys().copied().collect());
        plan = plan.then([Step::ClearAcs(AcsOf(above))]);
    }
    let small = |gpu: &u32| {
        let gpu = evidence.snapshot.gpu(*gpu)?;
        Some(gpu.bar1_total_bytes.get()? < gpu.memory_total_bytes.get()?)
    };
    let small: Vec<u32> = gpus.iter().copied().filter(|gpu| small(gpu) == Some(true)).collect();
    if !small.is_empty() {
        let of = evidence.named(&small);
        lacks.push(format!("the BAR1 window of {of} is smaller than the memory"));
        plan = plan.then([Step::LargerBar(all(&small))]);
    }
    if lacks.is_empty() || gpus.is_empty() {
        return None;
    }
    let is = if closed { "is off" } else { "may be slow" };
    let message = format!("GPUDirect RDMA {is}: {}", lacks.join("; "));
    let found = RULE.on_machine(message, plan.then([Step::CheckAgain])).fact("adapters", names);
    Some(found.at_if(!closed, Severity::Info))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    /// Returns [`two_sockets`] with an adapter below the switch of GPU 0 and GPU 1, and one below the other.
    fn machine() -> Snapshot {
        let mut machine = two_sockets();
        for (switch, card) in [("0000:01:00.0", "0000:05:00.0"), ("0000:81:00.0", "0000:85:00.0")] {
            let above = function(card, Some(switch), PciKind::Endpoint, (4, 16), (4, 16));
            machine.pci.push(above);
            let (name, at) = (format!("mlx5 {card}"), pci(card));
            machine.adapters.push(Adapter::unread(
                name,
                AdapterKind::Rdma,
                at,
                &Unknown::Unsupported,
            ));
        }
        machine.host.peer_memory_module = Reading::Known(false);
        machine.host.open_kernel_module = Reading::Known(false);
        machine
    }

    #[test]
    fn one_of_two_ways_is_enough_and_geforce_has_none() {
        let found = findings(&machine(), None);
        only(&found, "gpudirect-rdma-incomplete", Severity::Warning);
        let healthy = |change: fn(&mut Snapshot)| {
            let mut machine = machine();
            change(&mut machine);
            assert_eq!(findings(&machine, None), []);
        };
        healthy(|machine| machine.host.peer_memory_module = Reading::Known(true));
        healthy(|machine| machine.host.peer_memory_module = Reading::unsupported());
        healthy(|machine| machine.host.open_kernel_module = Reading::unsupported());
        healthy(|machine| {
            machine.host.open_kernel_module = Reading::Known(true);
            machine.host.kernel_version = Reading::Known("6.8.0".into());
        });
        healthy(|machine| machine.host.virtual_machine = Reading::Known(true));
        healthy(|machine| {
            let geforce = "NVIDIA GeForce RTX 3090";
            machine.gpus.iter_mut().for_each(|gpu| gpu.name = Reading::Known(geforce.into()));
        });
    }

    #[test]
    fn small_windows_are_information() {
        let mut machine = machine();
        machine.host.peer_memory_module = Reading::Known(true);
        machine.gpus[1].bar1_total_bytes = Reading::Known(Bytes(256 << 20));
        let found = findings(&machine, None);
        let found = only(&found, "gpudirect-rdma-incomplete", Severity::Info);
        assert!(found.message.contains("BAR1 window of GPU 1"), "{}", found.message);
    }
}
