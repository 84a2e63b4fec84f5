//! Reads error counters of NVLinks and PCI functions on threads of their own: NVML and the kernel can block for
//! minutes.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use hardware::{GpuGroup, Telemetry};
use model::reading::Reading;
use model::snapshot::{Gpu, NvLink, PciFunction};

/// A GPU by its index, with its active NVLinks.
pub(crate) type Links = (u32, Vec<NvLink>);

/// Starts reading the error counters of active NVLinks, each GPU on a thread of its own.
pub(crate) fn read_links(telemetry: &Arc<dyn Telemetry>, gpus: &[Gpu]) -> mpsc::Receiver<Links> {
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
        // If the thread cannot start, the counters are not read, and the report contains the reason.
        let _ = std::thread::Builder::new().spawn(move || {
            telemetry.read_gpu(GpuGroup::LinkErrors, &mut gpu);
            if let Reading::Known(links) = gpu.nvlinks {
                // The receiver is gone if the reading took too long.
                let _ = answer.send((gpu.index, links));
            }
        });
    }
    inbox
}

/// Returns the counters that were read in time.
pub(crate) fn collect_links(
    inbox: &mpsc::Receiver<Links>,
    patience: Duration,
) -> HashMap<u32, Vec<NvLink>> {
    let until = Instant::now() + patience;
    let next = || inbox.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).collect()
}

/// Starts reading the PCI tree with its AER counters, on a thread of its own.
pub(crate) fn read_functions(telemetry: &Arc<dyn Telemetry>) -> mpsc::Receiver<Vec<PciFunction>> {
    let telemetry = Arc::clone(telemetry);
    let (answer, inbox) = mpsc::channel();
    // If the thread cannot start, no answer comes.
    let _ = std::thread::Builder::new().spawn(move || {
        // The receiver is gone if the reading took too long.
        let _ = answer.send(telemetry.pci_tree().functions);
    });
    inbox
}
