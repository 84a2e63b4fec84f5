//! Plans of copies into memory that is mapped for two GPUs without peer access between them.

use serde::Deserialize;

use super::wanted::Slot;
use super::{Action, Group, Request, Task, budget, is_direct, overlap};
use model::flow::{Flow, Setup};
use model::placement::{Engine, Pair};
use model::units::{Bytes, MIB};

/// Copies into mapped memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapped {
    /// Rows of each kind: into mapped and into plain memory.
    pub rows: u32,
    /// Bytes of a copy, more than the caches hold.
    #[serde(deserialize_with = "overlap::bytes")]
    pub bytes: Bytes,
}

/// Plans a round for each pair of neighbours in a ring of the usable GPUs, by copy engine and by kernel. Without such a
/// pair, the copies stay within a GPU.
pub(super) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    let asked = request.profile.mapped.as_ref();
    let Some(&Mapped { rows, bytes }) = asked.filter(|_| request.groups.contains(&Group::Share))
    else {
        return Vec::new();
    };
    let slot = |pair: Pair, most: u64| {
        // Beside the buffers that the budget is for.
        let bytes = Bytes(bytes.0.min(most / 2 / (2 * MIB) * (2 * MIB)));
        [Engine::Copy, Engine::Kernel].map(|engine| {
            let setup = Setup { engine, ..Setup::REFERENCE };
            let task = Task { setup: setup.with_bytes(bytes), action: Action::Mapped { rows } };
            Slot::one(task, vec![Flow::from(pair)])
        })
    };
    let of_ring =
        neighbours(request).filter_map(|pair| Some((pair, budget(request.driver, pair)?)));
    let mut slots: Vec<Slot> = of_ring.flat_map(|(pair, most)| slot(pair, most)).collect();
    if slots.is_empty() {
        let first =
            request.usable().find_map(|device| Some((device.index, device.budget_bytes?.0 / 2)));
        slots.extend(first.into_iter().flat_map(|(gpu, most)| slot(within(gpu), most)));
    }
    slots
}

/// Returns the pairs of neighbours in a ring of the usable GPUs, as far as they have peer access.
fn neighbours(request: &Request<'_>) -> impl Iterator<Item = Pair> {
    let gpus: Vec<u32> = request.usable().map(|device| device.index).collect();
    let next = gpus.iter().copied().cycle().skip(1);
    let pairs: Vec<Pair> = gpus
        .iter()
        .zip(next)
        .map(|(&source, destination)| Pair { source, destination })
        .filter(|pair| pair.source != pair.destination && is_direct(request.driver, *pair))
        .collect();
    pairs.into_iter()
}

/// Returns a GPU as both ends.
pub(super) const fn within(gpu: u32) -> Pair {
    Pair { source: gpu, destination: gpu }
}
