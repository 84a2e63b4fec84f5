//! Plans of call times, launch loops, and reads before the end of a copy.

use serde::Deserialize;

use crate::plan::one_gpu;
use crate::plan::slot::Slot;
use crate::plan::slot::size;
use crate::{Action, Group, Request};
use model::flow::{Flow, HostMemory};
use model::units::{Bytes, MIB};

/// Time that calls block the host, launch loops, and reads before the end of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Samples of each call. 0 leaves the probes out.
    pub samples: u32,
    /// Bytes of a copy whose call is timed.
    #[serde(default = "call_bytes", deserialize_with = "size")]
    pub bytes: Bytes,
    /// True if calls on registered memory are timed too.
    #[serde(default)]
    pub registered: bool,
    /// Turns of a launch loop. 0 leaves it out.
    #[serde(default)]
    pub turns: u32,
    /// Samples of reads before the end of a copy. 0 leaves them out.
    #[serde(default)]
    pub hazard_samples: u32,
    /// Bytes of the copy that is read too early. It takes a millisecond on the fastest link, many times as long as
    /// the read.
    #[serde(default = "hazard_bytes", deserialize_with = "size")]
    pub hazard_bytes: Bytes,
}

const fn call_bytes() -> Bytes {
    Bytes(8 * MIB)
}

const fn hazard_bytes() -> Bytes {
    Bytes(64 * MIB)
}

/// Plans the rounds for each usable GPU.
pub(crate) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    let Parameters { samples, bytes, registered, turns, hazard_samples, hazard_bytes } =
        request.profile.asynchrony;
    if !request.groups.contains(&Group::Async) || samples == 0 {
        return Vec::new();
    }
    let buffers = one_gpu::buffers(request);
    let mut planned = Vec::new();
    for (place, &(gpu, most)) in buffers.iter().enumerate() {
        let mut plan = |flows, bytes, action: Action| {
            planned.push(one_gpu::slot(flows, bytes, most, action));
        };
        let host = |memory| one_gpu::host_flows(request, gpu, memory);
        let calls = super::Calls { samples }.into();
        plan(vec![Flow::inside(gpu)], bytes, calls);
        let memories = [HostMemory::Pinned, HostMemory::Pageable, HostMemory::Registered];
        for memory in memories.into_iter().take(2 + usize::from(registered)) {
            plan(host(memory), bytes, calls);
        }
        if turns > 0 {
            // Wait for this GPU, and for the next one.
            let next = buffers
                .get((place + 1) % buffers.len())
                .map(|(next, _)| *next)
                .filter(|next| *next != gpu);
            let action = super::LaunchLoop { samples, turns }.into();
            for waited_for in std::iter::once(gpu).chain(next) {
                let flows = [gpu, waited_for].map(Flow::inside).to_vec();
                plan(flows, Bytes(0), action);
            }
        }
        if hazard_samples > 0 {
            let samples = hazard_samples;
            for memory in [HostMemory::Pinned, HostMemory::Pageable] {
                let down = host(memory).split_off(1);
                plan(down, hazard_bytes, super::Hazard { samples }.into());
            }
        }
    }
    planned
}
