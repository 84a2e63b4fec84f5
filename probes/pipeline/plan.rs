//! Plans of pipelines of copies and kernels on each GPU, and of copies that run at the same time.

use serde::Deserialize;

use crate::plan::one_gpu;
use crate::plan::slot::Slot;
use crate::plan::slot::size;
use crate::{Action, Group, Request};
use model::flow::HostMemory;
use model::units::{Bytes, MIB};

/// Pipelines of copies and kernels.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Samples in one stream, and as many in several. 0 leaves the probes out.
    pub samples: u32,
    /// Batches of a pipeline.
    #[serde(default = "batches")]
    pub batches: u32,
    /// Bytes of a batch in each direction.
    #[serde(default = "batch_bytes", deserialize_with = "size")]
    pub bytes: Bytes,
    /// Bytes of a copy that is tested for running beside another.
    #[serde(default = "engine_bytes", deserialize_with = "size")]
    pub engine_bytes: Bytes,
    /// Numbers of streams, each compared with one stream.
    #[serde(default = "streams")]
    pub streams: Vec<u32>,
    /// True if pipelines from and to pageable memory are measured too.
    #[serde(default)]
    pub pageable: bool,
}

const fn batches() -> u32 {
    8
}

/// Takes about 0.15 ms each way on Gen5 x16, far more than a launch.
const fn batch_bytes() -> Bytes {
    Bytes(8 * MIB)
}

const fn engine_bytes() -> Bytes {
    Bytes(16 * MIB)
}

fn streams() -> Vec<u32> {
    vec![3]
}

/// Plans the rounds for each usable GPU.
pub(crate) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    let Parameters { samples, batches, bytes, engine_bytes, ref streams, pageable } =
        request.profile.pipeline;
    if !request.groups.contains(&Group::Pipeline) || samples == 0 {
        return Vec::new();
    }
    let mut planned = Vec::new();
    for (gpu, most) in one_gpu::buffers(request) {
        let mut plan = |memory, bytes, action: Action| {
            let flows = one_gpu::host_flows(request, gpu, memory);
            planned.push(one_gpu::slot(flows, bytes, most, action));
        };
        plan(HostMemory::Pinned, engine_bytes, super::Engines { samples }.into());
        let memories = [HostMemory::Pinned, HostMemory::Pageable];
        for memory in memories.into_iter().take(1 + usize::from(pageable)) {
            for &streams in streams {
                let action = super::Pipeline { samples, batches, streams }.into();
                plan(memory, bytes, action);
            }
        }
    }
    planned
}
