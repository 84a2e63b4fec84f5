//! Plans of kernels that talk to each other while they run, and of loads that follow pointers.

use serde::Deserialize;

use crate::plan::one_gpu;
use crate::plan::slot::Slot;
use crate::{Action, Group, Request, Task};
use model::flow::{Flow, HostMemory, Setup};
use model::placement::{Direction, Engine, Pair};
use model::units::Bytes;

/// Kernels that talk to each other while they run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Rounds of each phase of a talk. 0 leaves the probes out.
    pub rounds: u32,
    /// Loads of a pointer chase that are timed.
    #[serde(default = "loads")]
    pub loads: u32,
}

/// A round of loads takes some 0.001 ms between GPUs, so 1000 take a millisecond.
const fn loads() -> u32 {
    1000
}

/// Plans a talk of every two GPUs that reach each other, those that share nothing at once. With a single GPU two of its own
/// kernels talk. Then the latency of loads: from other GPUs, from own memory, and from the host.
pub(crate) fn rounds(request: &Request<'_>, heats: &[Vec<Pair>]) -> Vec<Slot> {
    let Parameters { rounds, loads } = request.profile.live;
    if !request.groups.contains(&Group::Live) || rounds == 0 {
        return Vec::new();
    }
    let setup = Setup { engine: Engine::Kernel, ..Setup::REFERENCE.with_bytes(Bytes(0)) };
    let between = Setup { direction: Direction::BothWays, ..setup };
    let talk = Action::from(super::Live { rounds, trial: None });
    let chase = super::Chase { loads }.into();
    let mut planned = Vec::new();
    for action in [talk, chase] {
        let both = |pair: &Pair| vec![(*pair).into(), pair.reversed().into()];
        planned.extend(heats.iter().map(|pairs| Slot {
            task: Task::new(between, action),
            of: pairs.iter().map(both).collect(),
        }));
    }
    let gpus = one_gpu::buffers(request);
    if let ([only], [_]) = (gpus.as_slice(), request.gpus) {
        let task = Task::new(between, talk);
        planned.push(Slot::one(task, vec![Flow::inside(only.0)]));
    }
    for (gpu, _) in gpus {
        let from_host = one_gpu::host_flows(request, gpu, HostMemory::Pinned)[0];
        let task = Task::new(setup, chase);
        // Memory of the host that cannot be page-locked costs its own loads only.
        planned.extend([Flow::inside(gpu), from_host].map(|flow| Slot::one(task, vec![flow])));
    }
    planned
}
