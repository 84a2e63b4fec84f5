//! Selects the GPUs that a check opens, and reads their facts before and while it does.

use std::sync::Arc;
use std::time::Duration;

use super::{DISCOVERY_LIMIT, select};
use hardware::{HardwareError, Machine, Telemetry};
use model::measurement::CudaDevice;
use model::snapshot::{ConfidentialComputing, Gpu, SlowFact, Snapshot};
use probes::Selection;
use run::discover::{self, Late};
use run::worker::environment;

/// The source of a machine's facts, and the time limit for reading them.
pub(super) struct Facts {
    telemetry: Result<Arc<dyn Telemetry>, HardwareError>,
    limit: Duration,
    /// The limit that was asked for.
    pub given: Option<Duration>,
}

impl Facts {
    /// Opens the telemetry.
    pub(super) fn open(machine: &Arc<dyn Machine>, given: Option<Duration>) -> Self {
        let limit = given.unwrap_or(DISCOVERY_LIMIT);
        Self { telemetry: discover::open(machine, limit), limit, given }
    }

    /// Returns the mask with which CUDA shows only the wanted GPUs; see [`environment::mask`].
    pub(super) fn mask(&self, wanted: &[String]) -> Option<String> {
        let named = discover::identified(self.telemetry.as_ref().ok()?, self.limit);
        let there = named.gpus.len();
        // A name that fits no GPU is reported later, once all facts are known.
        let (chosen, _) = select::select(named, wanted).ok()?;
        environment::mask(&selections(&chosen), there)
    }

    /// Reads the facts. A machine without NVML gives a snapshot without GPUs that contains the reason.
    pub(super) fn read(&self, slow: &'static [SlowFact]) -> Snapshot {
        match &self.telemetry {
            Ok(telemetry) => discover::discover(Arc::clone(telemetry), slow, self.limit),
            Err(error) => discover::without_telemetry(error),
        }
    }

    /// Begins to read the facts that were left out.
    pub(super) fn read_late(&self, snapshot: &Snapshot) -> Option<Late> {
        Some(Late::begin(self.telemetry()?, snapshot, self.limit))
    }

    /// Returns the telemetry, if it could be opened.
    pub(super) fn telemetry(&self) -> Option<&Arc<dyn Telemetry>> {
        self.telemetry.as_ref().ok()
    }
}

/// Returns the GPUs that the worker must open: those that could be identified.
pub(super) fn selections(snapshot: &Snapshot) -> Vec<Selection> {
    let identified = snapshot.gpus.iter().map(|gpu| Selection {
        index: gpu.index,
        uuid: gpu.uuid.known().cloned(),
        pci: gpu.pci.get(),
        shared: gpu.processes.known().is_some_and(|processes| !processes.is_empty()),
        split: gpu.mig.get() == Some(true),
        confidential: matches!(
            snapshot.host.confidential_computing.get(),
            Some(ConfidentialComputing::On | ConfidentialComputing::DevTools)
        ),
        processors: processors(snapshot, gpu),
    });
    identified.filter(|selection| selection.uuid.is_some() || selection.pci.is_some()).collect()
}

/// Returns the processors near a GPU, if others are farther away.
fn processors(snapshot: &Snapshot, gpu: &Gpu) -> Vec<usize> {
    let near = |node| snapshot.numa_nodes.iter().find(|there| there.node == node);
    let node = gpu.numa_node.get().and_then(near).filter(|_| snapshot.host_nodes().count() > 1);
    node.map(|node| node.processors()).unwrap_or_default()
}

/// Adds the GPUs that could not be identified to the devices that CUDA reported.
pub(super) fn with_unidentified(
    mut devices: Vec<CudaDevice>,
    snapshot: &Snapshot,
) -> Vec<CudaDevice> {
    for gpu in &snapshot.gpus {
        if devices.iter().all(|device| device.index != gpu.index) {
            let why = gpu.uuid.unknown().map(ToString::to_string).unwrap_or_default();
            let failure = Some(format!("it could not be identified ({why})"));
            devices.push(CudaDevice { index: gpu.index, failure, ..CudaDevice::default() });
        }
    }
    devices.sort_by_key(|device| device.index);
    devices
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::reading::Reading;
    use model::snapshot::{GpuProcess, NumaNode};
    use model::testing::h200_vm;
    use model::units::Bytes;

    #[test]
    fn gpus_are_opened_with_what_surrounds_them() {
        let mut machine = h200_vm(2);
        machine.gpus[0].processes =
            Reading::Known(vec![GpuProcess { pid: 7, name: None, memory_bytes: None }]);
        machine.gpus[1].processes = Reading::Known(Vec::new());
        let node = |node, cpus: &str| NumaNode { node, cpus: cpus.into(), memory_bytes: Bytes(1) };
        machine.gpus[1].numa_node = Reading::Known(1);
        machine.numa_nodes = vec![node(1, "4-5")];
        let of = |machine: &Snapshot| {
            selections(machine)
                .into_iter()
                .map(|gpu| (gpu.shared, gpu.processors))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(&machine),
            [(true, Vec::new()), (false, Vec::new())],
            "one node is near to all"
        );
        machine.numa_nodes.push(node(0, "0-3"));
        assert_eq!(of(&machine), [(true, Vec::new()), (false, vec![4, 5])]);
    }
}
