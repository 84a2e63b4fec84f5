//! Copies of small, scattered blocks.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::axis::axes;
use super::cell::{Measurement, Subject, cell};
use super::flow::{Endpoint, Flow, HostMemory, Setup};
use super::status::Verified;
use super::units::{Bytes, GbPerSecond};

/// The way in which scattered blocks are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BlockWay {
    /// A call for each block.
    Loop,
    /// One call for all blocks: `cuMemcpyBatchAsync`.
    Batch,
    /// One kernel, a warp for each block.
    Gather,
}

impl BlockWay {
    pub const ALL: [Self; 3] = [Self::Loop, Self::Batch, Self::Gather];
}

impl fmt::Display for BlockWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Loop => "loop of copies",
            Self::Batch => "batch call",
            Self::Gather => "gather kernel",
        })
    }
}

axes!(BlockWay);

cell! {
    /// Copies of scattered blocks of one size, in one way.
    SmallCopy: Small
    with {
        /// The GPU that the bytes leave, by NVML's index. Null if it is memory of the host.
        source: Option<u32>,
        /// The GPU that the bytes reach, by NVML's index. Null if it is memory of the host.
        destination: Option<u32>,
        /// NUMA node of the host's memory. Null without such memory, or if it is not known.
        numa_node: Option<u32>,
        /// The way in which the blocks are copied.
        way: BlockWay,
        /// Size of one block.
        bytes: Bytes,
    }
    has {
        /// Bytes of all blocks divided by the time of a row of them behind a gate, median over the rows.
        achieved_gbps: Option<GbPerSecond> => main Rate,
        /// The same time divided by the number of blocks, microseconds.
        block_us: Option<f64> => Duration,
        /// Time of the host in the calls, divided by the number of blocks, microseconds.
        call_us: Option<f64> => Amount,
        /// Number of blocks in a row.
        blocks: u32,
        /// Number of rows.
        samples: u32,
        /// (Largest - smallest) / median, per cent.
        spread_percent: Option<f64> => Amount,
        /// Result of checking the bytes after the last row.
        verified: Verified => checked,
        /// Description of the wrong bytes. Null if nothing was wrong.
        #[serde(default)]
        verification_detail: Option<String>,
    }
}

impl SmallCopy {
    /// Returns what programs get of it, microseconds a block: the longer of the copies and the calls for them.
    pub fn costs_us(&self) -> Option<f64> {
        let copies = self.block_us.filter(|_| self.is_sound())?;
        Some(copies.max(self.call_us.unwrap_or(0.0)))
    }

    fn host(&self) -> Endpoint {
        Endpoint::Host { node: self.numa_node, memory: HostMemory::Pinned }
    }
}

impl Subject for SmallCopy {
    fn flow(&self) -> Flow {
        let end = |gpu: Option<u32>| gpu.map_or(self.host(), Endpoint::Gpu);
        Flow { from: end(self.source), to: end(self.destination) }
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!("{} of {}", self.way, self.bytes)
    }
}

/// The best way for a size of blocks, over all flows of a kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    pub bytes: Bytes,
    pub way: BlockWay,
    /// Microseconds a block, median.
    pub costs_us: f64,
}

/// Returns the best way for each size, the smallest first: the one that costs least a block, calls included.
pub fn best<'a>(cells: impl IntoIterator<Item = &'a SmallCopy>) -> Vec<Best> {
    let mut costs: BTreeMap<(Bytes, BlockWay), Vec<f64>> = BTreeMap::new();
    for cell in cells {
        if let Some(us) = cell.costs_us() {
            costs.entry((cell.bytes, cell.way)).or_default().push(us);
        }
    }
    let mut best: BTreeMap<Bytes, Best> = BTreeMap::new();
    for ((bytes, way), mut all) in costs {
        all.sort_by(f64::total_cmp);
        let costs_us = all[all.len() / 2];
        let found = Best { bytes, way, costs_us };
        best.entry(bytes)
            .and_modify(|known| {
                if costs_us < known.costs_us {
                    *known = found;
                }
            })
            .or_insert(found);
    }
    best.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(way: BlockWay, bytes: u64, block_us: f64, call_us: f64) -> SmallCopy {
        SmallCopy {
            achieved_gbps: Some(GbPerSecond(1.0)),
            block_us: Some(block_us),
            call_us: Some(call_us),
            verified: Verified::Ok,
            ..SmallCopy::blank(Some(0), Some(1), None, way, Bytes(bytes))
        }
    }

    #[test]
    fn the_best_way_counts_calls_and_leaves_wrong_bytes_out() {
        let mut wrong = cell(BlockWay::Gather, 4096, 0.1, 0.0);
        wrong.verified = Verified::Corrupt;
        let cells = [
            cell(BlockWay::Loop, 4096, 1.0, 2.7),
            cell(BlockWay::Batch, 4096, 1.1, 0.3),
            wrong,
            cell(BlockWay::Loop, 2 << 20, 5.0, 2.7),
            cell(BlockWay::Batch, 2 << 20, 6.0, 0.3),
        ];
        let best: Vec<_> = best(&cells).iter().map(|best| (best.bytes.0, best.way)).collect();
        assert_eq!(best, [(4096, BlockWay::Batch), (2 << 20, BlockWay::Loop)]);
    }
}
