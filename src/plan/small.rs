//! Plans of scattered copies: blocks of each size, between GPUs and with the host.

use serde::Deserialize;

use super::host::node_of;
use super::wanted::{Slot, Wanted};
use super::{Action, Group, Request, Task, budget, is_direct, one_gpu};
use model::flow::{Flow, HostMemory, Setup};
use model::units::{Bytes, KIB, MIB};

/// Sizes of blocks: a page of 4 KiB up to a huge one.
const SIZES: [u64; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 2 * MIB];
/// Most blocks behind a gate: a stream does not hold more than about a thousand operations.
const MOST_BLOCKS: u64 = 256;
/// Bytes of all blocks of a row. Chosen: 16 of the largest, so that memory of the host is pinned fast.
const MOST_BYTES: u64 = 32 * MIB;
/// Fewest blocks that are scattered at all.
const FEWEST_BLOCKS: u64 = 4;

/// Copies of small, scattered blocks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Small {
    /// Rows of each way. 0 leaves the probe out.
    pub samples: u32,
    /// True if it is measured unless it is left out; false if only by name.
    #[serde(default)]
    pub unasked: bool,
}

/// Returns a task for each size that fits into buffers of so many bytes.
fn tasks(samples: u32, most: u64) -> Vec<Task> {
    let task = |bytes: &u64| {
        let room = most.min(MOST_BYTES) / bytes;
        // A power of two, which the order of the blocks needs.
        let blocks = MOST_BLOCKS.min(1 << room.checked_ilog2()?);
        let blocks = u32::try_from(blocks).ok()?;
        (u64::from(blocks) >= FEWEST_BLOCKS).then(|| Task {
            setup: Setup::REFERENCE.with_bytes(Bytes(*bytes)),
            action: Action::Small { samples, blocks },
        })
    };
    SIZES.iter().filter_map(task).collect()
}

/// Plans the rounds. A single GPU copies within itself, and with the host.
pub(super) fn rounds(request: &Request<'_>, wanted: &Wanted<'_>) -> Vec<Slot> {
    let samples = request.profile.small.samples;
    if !request.groups.contains(&Group::Small) || samples == 0 {
        return Vec::new();
    }
    let mut flows = Vec::new();
    for &pair in &wanted.in_full() {
        if let Some(most) = budget(request.driver, pair).filter(|_| is_direct(request.driver, pair))
        {
            flows.push((Flow::from(pair), most));
        }
    }
    let gpus = one_gpu::buffers(request);
    if let [(gpu, most)] = gpus.as_slice() {
        flows.push((Flow::inside(*gpu), *most));
    }
    for (gpu, most) in gpus {
        let up = Flow::from_host(node_of(request, gpu), HostMemory::Pinned, gpu);
        flows.extend([(up, most), (up.reversed(), most)]);
    }
    let slots = |(flow, most): (Flow, u64)| {
        tasks(samples, most)
            .into_iter()
            .map(move |task| Slot::one(task, vec![flow]))
    };
    flows.into_iter().flat_map(slots).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_a_power_of_two_and_fit() {
        let of = |most: u64| -> Vec<(u64, u32)> {
            let all = tasks(3, most).into_iter();
            all.map(|task| match task.action {
                Action::Small { blocks, .. } => (task.setup.bytes.0, blocks),
                _ => panic!("{task:?}"),
            })
            .collect()
        };
        let whole = of(1 << 30);
        assert_eq!(whole.len(), SIZES.len());
        for (bytes, blocks) in &whole {
            assert!(blocks.is_power_of_two() && u64::from(*blocks) <= MOST_BLOCKS);
            assert!(bytes * u64::from(*blocks) <= MOST_BYTES);
        }
        assert_eq!(whole[4], (2 * MIB, 16));
        assert_eq!(
            of(MIB),
            [
                (4 * KIB, 256),
                (16 * KIB, 64),
                (64 * KIB, 16),
                (256 * KIB, 4)
            ]
        );
        assert_eq!(of(KIB), []);
    }
}
