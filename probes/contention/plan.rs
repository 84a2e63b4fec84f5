//! Plans of copies beside kernels. The profile of the overlap says if they are measured.

use crate::plan::one_gpu;
use crate::plan::slot::Slot;
use crate::{Group, Request, Task};
use model::contention::KernelNeed;
use model::flow::{HostMemory, Setup};
use model::placement::{Engine, Pair, Side};
use model::units::{Bytes, MIB};

/// Samples of a figure, of which the fastest counts. Chosen.
const SAMPLES: u32 = 3;

/// Smallest memory of a GPU that a kernel reads, bytes: more than caches hold (96 MB on L40S, 50 MB on H200).
const LEAST_READ: u64 = 128 * MIB;

/// Returns all tasks with this setup, where each GPU has a buffer of `most` bytes.
fn of_setup(setup: Setup, most: u64) -> impl Iterator<Item = Task> {
    let setup = setup.with_bytes(setup.bytes.min(Bytes(most)));
    let is_meant = move |kernel: &KernelNeed| *kernel != KernelNeed::Memory || most >= LEAST_READ;
    KernelNeed::ALL
        .into_iter()
        .filter(is_meant)
        .map(move |kernel| Task::new(setup, super::Contention { samples: SAMPLES, kernel }))
}

/// Returns the tasks of a pair: kernels on either GPU, which issues the copies.
pub(crate) fn tasks(request: &Request<'_>, pair: Pair, most: u64) -> Vec<Task> {
    if !is_asked(request) || !request.has_every_stream(pair) {
        return Vec::new();
    }
    let setup = Setup::REFERENCE.with_bytes(request.profile.overlap.bytes);
    let both = Side::ALL.into_iter().flat_map(|issuer| Engine::ALL.map(|engine| (issuer, engine)));
    both.flat_map(|(issuer, engine)| of_setup(setup.with_issuer(issuer).with_engine(engine), most))
        .collect()
}

/// Plans the rounds of one GPU where no copies between GPUs are direct: with the host.
pub(crate) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    let is_direct = |pair: &Pair| request.driver.is_direct(*pair);
    if !is_asked(request) || Pair::ordered(request.gpus).iter().any(is_direct) {
        return Vec::new();
    }
    let setup = Setup::REFERENCE.with_bytes(request.profile.overlap.bytes);
    let first = one_gpu::buffers(request).into_iter().take(1);
    let with_host = |(gpu, most)| {
        let flows = one_gpu::host_flows(request, gpu, HostMemory::Pinned).into_iter();
        flows.flat_map(move |flow| {
            of_setup(setup, most).map(move |task| Slot::one(task, vec![flow]))
        })
    };
    first.flat_map(with_host).collect()
}

fn is_asked(request: &Request<'_>) -> bool {
    let profile = &request.profile.overlap;
    request.groups.contains(&Group::Overlap) && profile.samples > 0 && profile.every_stream
}
