//! Common parts of the rounds on one GPU.

use crate::host::plan::node_of;
use crate::plan::in_full::gpus_in_full;
use crate::plan::slot::Slot;
use crate::{Action, Request, Task};
use model::flow::{Flow, HostMemory, Setup};
use model::units::{Bytes, MIB};

/// Host buffers that a round uses at the same time, together with those that are kept.
const HOST_BUFFERS: u64 = 4;

/// Returns the usable GPUs, or some of them if there are many. Each comes with the most bytes that one of its
/// buffers, or of the host's, may have.
pub(crate) fn buffers(request: &Request<'_>) -> Vec<(u32, u64)> {
    let of_host = request
        .driver
        .host_budget_bytes
        .map_or(u64::MAX, |budget| budget.0 / HOST_BUFFERS / MIB * MIB);
    // If less memory may be used, the worker reports it.
    let of_host = of_host.max(MIB);
    let in_full = gpus_in_full(request.gpus);
    request
        .usable()
        .filter(|device| in_full.contains(&device.index))
        .filter_map(|device| Some((device.index, (device.budget_bytes?.0 / 2).min(of_host))))
        .collect()
}

/// Returns a round with copies of this size, or of the largest that is possible.
pub(crate) fn slot(flows: Vec<Flow>, bytes: Bytes, most: u64, action: impl Into<Action>) -> Slot {
    let setup = Setup::REFERENCE.with_bytes(Bytes(bytes.0.min(most)));
    Slot::one(Task::new(setup, action), flows)
}

/// Returns the flows to a GPU from host memory near it, and back.
pub(crate) fn host_flows(request: &Request<'_>, gpu: u32, memory: HostMemory) -> Vec<Flow> {
    let up = Flow::from_host(node_of(request, gpu), memory, gpu);
    vec![up, up.reversed()]
}
