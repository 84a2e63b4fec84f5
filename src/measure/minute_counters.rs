//! Counters and programs, read at the end of each minute under load.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::errors::{collect_links, read_functions, read_links};
use hardware::{GpuGroup, Telemetry};
use model::reading::Reading;
use model::snapshot::{Gpu, GpuProcess, NvLink, PciFunction, Snapshot};

/// Longest wait for counters at the end of a minute. Copies go on meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// The counters and programs of a machine at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    pub(super) links: HashMap<u32, Vec<NvLink>>,
    pub(super) functions: Vec<PciFunction>,
    /// Programs other than this one, by GPU. A GPU that did not answer is missing.
    pub(super) programs: BTreeMap<u32, Vec<GpuProcess>>,
}

impl Counted {
    /// Reads them now.
    pub fn now(telemetry: &Arc<dyn Telemetry>, snapshot: &Snapshot) -> Self {
        let links = read_links(telemetry, &snapshot.gpus);
        let functions = read_functions(telemetry);
        let programs = read_programs(telemetry, &snapshot.gpus);
        let patience = telemetry.patience(PATIENCE);
        let until = Instant::now() + patience;
        let next = || {
            programs
                .recv_timeout(until.saturating_duration_since(Instant::now()))
                .ok()
        };
        Self {
            programs: std::iter::from_fn(next).collect(),
            links: collect_links(&links, patience),
            functions: functions.recv_timeout(patience).unwrap_or_default(),
        }
    }
}

/// Starts reading the programs of each GPU on a thread of its own.
fn read_programs(
    telemetry: &Arc<dyn Telemetry>,
    gpus: &[Gpu],
) -> mpsc::Receiver<(u32, Vec<GpuProcess>)> {
    let (answer, inbox) = mpsc::channel();
    for gpu in gpus {
        let (telemetry, answer, mut gpu) = (Arc::clone(telemetry), answer.clone(), gpu.clone());
        // If the thread cannot start, no program is seen to begin or to end.
        let _ = std::thread::Builder::new().spawn(move || {
            telemetry.read_gpu(GpuGroup::State, &mut gpu);
            if let Reading::Known(processes) = gpu.processes {
                // The receiver is gone if the reading took too long.
                let _ = answer.send((gpu.index, processes));
            }
        });
    }
    inbox
}
