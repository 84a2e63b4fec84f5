//! Plans of call times, launch loops, and reads before the end of a copy.

use serde::Deserialize;

use super::{Action, Group, Request, Task, one_gpu, overlap};
use model::flow::{Flow, HostMemory};
use model::units::{Bytes, MIB};

/// Time that calls block the host, launch loops, and reads before the end of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asynchrony {
    /// Samples of each call. 0 leaves the probes out.
    pub samples: u32,
    /// Bytes of a copy whose call is timed.
    #[serde(default = "call_bytes", deserialize_with = "overlap::bytes")]
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
    #[serde(default = "hazard_bytes", deserialize_with = "overlap::bytes")]
    pub hazard_bytes: Bytes,
}

const fn call_bytes() -> Bytes {
    Bytes(8 * MIB)
}

const fn hazard_bytes() -> Bytes {
    Bytes(64 * MIB)
}

/// Plans the rounds for each usable GPU.
pub(super) fn rounds(request: &Request<'_>) -> Vec<(Vec<Flow>, Task)> {
    let Asynchrony {
        samples,
        bytes,
        registered,
        turns,
        hazard_samples,
        hazard_bytes,
    } = request.profile.asynchrony;
    if !request.groups.contains(&Group::Async) || samples == 0 {
        return Vec::new();
    }
    let buffers = one_gpu::buffers(request);
    let mut rounds = Vec::new();
    for (place, &(gpu, most)) in buffers.iter().enumerate() {
        let host = |memory| one_gpu::host_flows(request, gpu, memory);
        let calls = one_gpu::task(bytes, most, Action::Calls { samples });
        rounds.push((vec![one_gpu::within(gpu)], calls));
        let memories = [
            HostMemory::Pinned,
            HostMemory::Pageable,
            HostMemory::Registered,
        ];
        let memories = memories
            .into_iter()
            .filter(|memory| registered || *memory != HostMemory::Registered);
        rounds.extend(memories.map(|memory| (host(memory), calls)));
        if turns > 0 {
            // Wait for this GPU, and for the next one.
            let next = buffers
                .get((place + 1) % buffers.len())
                .map(|(next, _)| *next)
                .filter(|next| *next != gpu);
            let task = one_gpu::task(Bytes(0), most, Action::LaunchLoop { samples, turns });
            for waited_for in std::iter::once(gpu).chain(next) {
                rounds.push((
                    vec![one_gpu::within(gpu), one_gpu::within(waited_for)],
                    task,
                ));
            }
        }
        if hazard_samples > 0 {
            let task = one_gpu::task(
                hazard_bytes,
                most,
                Action::Hazard {
                    samples: hazard_samples,
                },
            );
            for memory in [HostMemory::Pinned, HostMemory::Pageable] {
                rounds.push((host(memory).into_iter().skip(1).collect(), task));
            }
        }
    }
    rounds
}
