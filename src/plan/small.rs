//! Plans of scattered copies: blocks of each size, between GPUs and with the host.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::host::node_of;
use super::wanted::{Slot, Wanted};
use super::{Action, Group, Request, Task, budget, is_direct, one_gpu, overlap};
use model::flow::{Flow, HostMemory, Setup};
use model::placement::Pair;
use model::units::{Bytes, KIB, MIB};

/// Sizes of blocks: a page of 4 KiB up to a huge one.
const SIZES: [u64; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 2 * MIB];
/// Fewest blocks that are scattered at all.
const FEWEST_BLOCKS: u64 = 4;

/// The flows of the blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Among {
    /// Between every pair that is measured in full, and between each GPU and the host.
    #[default]
    Pairs,
    /// From each GPU to the next one that it reaches, and between one GPU of each NUMA node and the host.
    Ring,
}

/// Copies of small, scattered blocks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Small {
    /// Rows of each way. 0 leaves the probe out.
    pub samples: u32,
    /// True if it is measured unless it is left out; false if only by name.
    #[serde(default)]
    pub unasked: bool,
    /// The flows, unless the group is named: then it is all of them.
    #[serde(default)]
    pub among: Among,
    /// Most blocks of a row, a power of two.
    #[serde(default = "row_blocks")]
    pub blocks: u32,
    /// Most bytes of all blocks of a row, unless the fewest blocks have more. The host fills, poisons and compares those in its memory by itself.
    #[serde(default = "row_bytes", deserialize_with = "overlap::bytes")]
    pub bytes: Bytes,
}

/// A stream does not hold more than about a thousand operations behind a gate.
const fn row_blocks() -> u32 {
    256
}

/// Chosen: 16 blocks of the largest size.
const fn row_bytes() -> Bytes {
    Bytes(32 * MIB)
}

/// Returns a task for each size that fits into rows of so many bytes.
fn tasks(small: &Small, most: u64) -> Vec<Task> {
    let samples = small.samples;
    let task = |bytes: &u64| {
        let room = most.min(small.bytes.0.max(FEWEST_BLOCKS * bytes)) / bytes;
        // A power of two, which the order of the blocks needs.
        let room = u64::from(small.blocks).min(room).checked_ilog2()?;
        let blocks = 1_u32.checked_shl(room)?;
        (u64::from(blocks) >= FEWEST_BLOCKS).then(|| Task {
            setup: Setup::REFERENCE.with_bytes(Bytes(*bytes)),
            action: Action::Small { samples, blocks },
        })
    };
    SIZES.iter().filter_map(task).collect()
}

/// Plans blocks between GPUs, and within a single GPU.
pub(super) fn between(request: &Request<'_>, wanted: &Wanted<'_>) -> Vec<Slot> {
    let mut pairs = wanted.in_full();
    pairs.retain(|pair| is_direct(request.driver, *pair));
    if request.profile.small.among == Among::Ring {
        pairs = ring(&pairs);
    }
    let between = |pair: Pair| Some((Flow::from(pair), budget(request.driver, pair)?));
    let mut flows: Vec<_> = pairs.into_iter().filter_map(between).collect();
    if let [(gpu, most)] = one_gpu::buffers(request).as_slice() {
        flows.push((Flow::inside(*gpu), *most));
    }
    slots(request, flows)
}

/// Plans blocks between GPUs and pinned memory of the host near them.
pub(super) fn with_host(request: &Request<'_>) -> Vec<Slot> {
    let mut nodes = BTreeSet::new();
    let mut flows = Vec::new();
    for (gpu, most) in one_gpu::buffers(request) {
        let node = node_of(request, gpu);
        if nodes.insert(node) || request.profile.small.among == Among::Pairs {
            let up = Flow::from_host(node, HostMemory::Pinned, gpu);
            flows.extend([(up, most), (up.reversed(), most)]);
        }
    }
    slots(request, flows)
}

/// Returns the rounds of flows whose buffers have so many bytes.
fn slots(request: &Request<'_>, flows: Vec<(Flow, u64)>) -> Vec<Slot> {
    let small = &request.profile.small;
    if !request.groups.contains(&Group::Small) || small.samples == 0 {
        return Vec::new();
    }
    let of_each_size = |(flow, most): (Flow, u64)| {
        let slot = move |task| Slot::one(task, vec![flow]);
        tasks(small, most).into_iter().map(slot)
    };
    flows.into_iter().flat_map(of_each_size).collect()
}

/// Returns for each GPU that sends the pair with the next GPU that it reaches; the first one comes after the last.
fn ring(pairs: &[Pair]) -> Vec<Pair> {
    let mut of: BTreeMap<u32, Pair> = BTreeMap::new();
    let after = |pair: &Pair| (pair.destination < pair.source, pair.destination);
    for pair in pairs {
        let nearest = of.entry(pair.source).or_insert(*pair);
        if after(pair) < after(nearest) {
            *nearest = *pair;
        }
    }
    of.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_ring_each_gpu_sends_to_the_next_that_it_reaches() {
        let of = |pairs: &[(u32, u32)]| -> Vec<(u32, u32)> {
            let pair = |&(source, destination): &(u32, u32)| Pair { source, destination };
            let pairs: Vec<Pair> = pairs.iter().map(pair).collect();
            let ring = ring(&pairs).into_iter();
            ring.map(|pair| (pair.source, pair.destination)).collect()
        };
        let all = Pair::ordered(&[0, 1, 3]).into_iter();
        let all: Vec<_> = all.map(|pair| (pair.source, pair.destination)).collect();
        assert_eq!(of(&all), [(0, 1), (1, 3), (3, 0)]);
        assert_eq!(of(&[(0, 1), (1, 0)]), [(0, 1), (1, 0)]);
        // GPU 2 reaches only GPUs before it, and GPU 0 not the next one.
        assert_eq!(of(&[(0, 2), (2, 1), (2, 0)]), [(0, 2), (2, 0)]);
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn blocks_are_a_power_of_two_and_fit() {
        let small = Small {
            samples: 3,
            unasked: false,
            among: Among::Pairs,
            blocks: row_blocks(),
            bytes: row_bytes(),
        };
        let of = |most: u64| -> Vec<(u64, u32)> {
            let all = tasks(&small, most).into_iter();
            all.map(|task| match task.action {
                Action::Small { blocks, .. } => (task.setup.bytes.0, blocks),
                _ => panic!("{task:?}"),
            })
            .collect()
        };
        let whole = of(1 << 30);
        assert_eq!(whole.len(), SIZES.len());
        for (bytes, blocks) in &whole {
            assert!(blocks.is_power_of_two() && *blocks <= row_blocks());
            assert!(bytes * u64::from(*blocks) <= row_bytes().0);
        }
        assert_eq!(whole[4], (2 * MIB, 16));
        assert_eq!(of(MIB), [(4 * KIB, 256), (16 * KIB, 64), (64 * KIB, 16), (256 * KIB, 4)]);
        assert_eq!(of(KIB), []);
    }
}
