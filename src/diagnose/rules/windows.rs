//! Windows into the memory of GPUs (BAR1) that do not hold all of it. NVIDIA's own driver needs no such window between
//! boards that it allows peer access; patched drivers reach the peer through it.

use super::prelude::*;
use crate::suspects::gpus_of;

/// GPUs whose window is smaller than their memory.
pub(super) struct Small {
    gpus: Vec<u32>,
    window: Bytes,
    memory: Bytes,
    /// The size that all of them offer, if it would be enough.
    possible: Option<Bytes>,
}

/// Returns those GPUs of these pairs whose window is known to be too small.
pub(super) fn small(evidence: &Evidence<'_>, pairs: &[Pair]) -> Option<Small> {
    let too_small = |gpu: &Gpu| {
        let (window, memory) = (gpu.bar1_total_bytes.get()?, gpu.memory_total_bytes.get()?);
        (window < memory).then_some((
            gpu.index,
            window,
            memory,
            largest(evidence, gpu).filter(|most| *most >= memory),
        ))
    };
    let gpus = gpus_of(pairs);
    let found: Vec<_> =
        gpus.iter().filter_map(|gpu| too_small(evidence.snapshot.gpu(*gpu)?)).collect();
    let (_, window, memory, possible) = *found.first()?;
    let all = found.iter().all(|(.., possible)| possible.is_some());
    Some(Small {
        gpus: found.iter().map(|(gpu, ..)| *gpu).collect(),
        window,
        memory,
        possible: possible.filter(|_| all),
    })
}

fn largest(evidence: &Evidence<'_>, gpu: &Gpu) -> Option<Bytes> {
    let function = evidence.snapshot.function(evidence.snapshot.address_of(gpu.index)?)?;
    function.bars.known()?.iter().filter_map(|bar| bar.largest_bytes).max()
}

impl Small {
    /// Returns words for a message.
    pub(super) fn says(&self) -> String {
        format!(
            "; the BAR1 window of {} is {}, for {} of memory",
            words::gpus(&self.gpus),
            self.window,
            self.memory
        )
    }

    /// Returns the windows as a suspect.
    pub(super) fn suspect(&self) -> Suspect {
        suspect(Cause::SmallWindow, [self.step(), Step::CheckAgain])
    }

    /// Returns the step that enlarges the windows.
    pub(super) fn step(&self) -> Step {
        let gpus = all(&self.gpus);
        match self.possible {
            Some(most) => Step::ResizableBar(gpus, most.to_string(), self.window.to_string()),
            None => Step::LargerBar(gpus),
        }
    }
}
