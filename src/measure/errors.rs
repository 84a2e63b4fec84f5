//! Error counters of NVLinks and PCI functions, read on threads of their own: NVML and the kernel can block for minutes.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::hardware::{GpuGroup, Telemetry};
use crate::model::reading::Reading;
use crate::model::snapshot::{Gpu, NvLink, PciFunction};

/// A GPU by its index, with its active NVLinks.
pub(super) type Links = (u32, Vec<NvLink>);

/// Starts reading the error counters of active NVLinks, each GPU on a thread of its own.
pub(super) fn read_links(telemetry: &Arc<dyn Telemetry>, gpus: &[Gpu]) -> mpsc::Receiver<Links> {
    let (answer, inbox) = mpsc::channel();
    for gpu in gpus {
        let mut gpu = gpu.clone();
        let Reading::Known(links) = &mut gpu.nvlinks else {
            continue;
        };
        links.retain(|link| link.active.get() == Some(true));
        if links.is_empty() {
            continue;
        }
        let (telemetry, answer) = (Arc::clone(telemetry), answer.clone());
        // Where it cannot be started, the counters are not read, which the report has with its reason.
        let _ = std::thread::Builder::new().spawn(move || {
            telemetry.read_gpu(GpuGroup::LinkErrors, &mut gpu);
            if let Reading::Known(links) = gpu.nvlinks {
                // Nobody listens any more when it took too long.
                let _ = answer.send((gpu.index, links));
            }
        });
    }
    inbox
}

/// What was read in time.
pub(super) fn collect_links(
    inbox: &mpsc::Receiver<Links>,
    patience: Duration,
) -> HashMap<u32, Vec<NvLink>> {
    let until = Instant::now() + patience;
    let next = || {
        inbox
            .recv_timeout(until.saturating_duration_since(Instant::now()))
            .ok()
    };
    std::iter::from_fn(next).collect()
}

/// Starts reading the PCI tree with its AER counters, on a thread of its own.
pub(super) fn read_functions(telemetry: &Arc<dyn Telemetry>) -> mpsc::Receiver<Vec<PciFunction>> {
    let telemetry = Arc::clone(telemetry);
    let (answer, inbox) = mpsc::channel();
    // Where it cannot be started, nobody answers.
    let _ = std::thread::Builder::new().spawn(move || {
        // Nobody listens any more when it took too long.
        let _ = answer.send(telemetry.pci_tree().functions);
    });
    inbox
}
