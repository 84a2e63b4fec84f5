//! Plans of copies beside kernels. The profile of the overlap says if they are measured.

use crate::plan::one_gpu;
use crate::plan::slot::Slot;
use crate::{Group, Request, Task};
use model::contention::KernelNeed;
use model::flow::{HostMemory, Setup};
use model::placement::{Engine, Pair, Side};

/// Samples of a figure. Chosen: the kernel is as long as several copies.
const SAMPLES: u32 = 2;

/// Returns all tasks with this setup.
fn of_setup(setup: Setup) -> impl Iterator<Item = Task> {
    KernelNeed::ALL
        .into_iter()
        .map(move |kernel| Task::new(setup, super::Contention { samples: SAMPLES, kernel }))
}

/// Returns the tasks of a pair: kernels on either GPU, which issues the copies.
pub(crate) fn tasks(request: &Request<'_>, pair: Pair) -> Vec<Task> {
    let profile = &request.profile.overlap;
    if !is_asked(request) || !request.has_every_stream(pair) {
        return Vec::new();
    }
    let setup = Setup::REFERENCE.with_bytes(profile.bytes);
    let both = Side::ALL.into_iter().flat_map(|issuer| Engine::ALL.map(|engine| (issuer, engine)));
    both.flat_map(|(issuer, engine)| of_setup(setup.with_issuer(issuer).with_engine(engine)))
        .collect()
}

/// Plans the rounds of a single GPU, which has no other to copy with: with the host.
pub(crate) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    let bytes = request.profile.overlap.bytes;
    match one_gpu::buffers(request).as_slice() {
        [(gpu, most)] if is_asked(request) => {
            let flows = one_gpu::host_flows(request, *gpu, HostMemory::Pinned).into_iter();
            let setup = Setup::REFERENCE.with_bytes(bytes.min(model::units::Bytes(*most)));
            flows
                .flat_map(|flow| of_setup(setup).map(move |task| Slot::one(task, vec![flow])))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn is_asked(request: &Request<'_>) -> bool {
    let profile = &request.profile.overlap;
    request.groups.contains(&Group::Overlap) && profile.samples > 0 && profile.every_stream
}
