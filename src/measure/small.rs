//! Measures copies of scattered blocks: a loop of copies, one batch call, one gather kernel.
//!
//! Each way copies the same blocks in the same shuffled order, each to the same offset at the destination, so that the check
//! of the bytes is that of one large copy. A row is timed behind a gate, after a copy of one block that takes the start-up;
//! the host's time in the calls is measured beside it. The bytes of the last row are checked.

use serde::{Deserialize, Serialize};

use super::Outcome;
use super::bench::Bench;
use super::contents::Check;
use super::figures::{count, no_samples, without_figures};
use super::rows::Timing;
use super::statistics::{median, spread_percent};
use super::transfer::Transfer;
use hardware::{Blocks, ErrorKind, HardwareError};
use model::flow::{Flow, Setup};
use model::placement::{Engine, Path, StreamKind};
use model::small::{BlockWay, SmallCopy};
use model::status::{Ending, Status};
use model::units::GbPerSecond;
use plan::{Action, Round};

/// The times of one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockTimes {
    pub way: BlockWay,
    /// Each row, nanoseconds.
    pub rows_ns: Vec<f64>,
    /// Host time of the calls of each row, nanoseconds.
    pub calls_ns: Vec<f64>,
    /// Check of the bytes; none if they cannot be checked.
    pub check: Option<Check>,
    /// Reason why the driver or the GPU does not have this way.
    pub lacks: Option<String>,
}

impl Bench<'_> {
    /// Times the blocks of a round in every way.
    pub(super) fn small(
        &self,
        round: &Round,
        samples: u32,
        blocks: u32,
    ) -> Result<Outcome, HardwareError> {
        let Some(&flow) = round.flows.first() else {
            return Err(HardwareError::new(ErrorKind::Other, "a round without a flow"));
        };
        if let Some(pair) = flow.pair() {
            self.set_path(pair, Path::Direct)?;
        }
        let blocks = Blocks { bytes: round.task.setup.bytes.0, count: blocks };
        let transfer = self.transfer(flow, Engine::Copy, blocks.total(), &[])?;
        // The batch call does not take the legacy default stream. Of a GPU's buffer, which is larger by far, only what the
        // blocks reach is poisoned.
        let transfer = Transfer {
            stream: self.stream(transfer.issuer, StreamKind::Side)?,
            to: match transfer.to.device() {
                Some(_) => self.driver.part(transfer.to, 0, blocks.total())?,
                None => transfer.to,
            },
            ..transfer
        };
        let mut ways = Vec::new();
        for way in BlockWay::ALL {
            ways.push(match self.lacks(way, &transfer) {
                Some(lacks) => BlockTimes {
                    way,
                    rows_ns: Vec::new(),
                    calls_ns: Vec::new(),
                    check: None,
                    lacks: Some(lacks),
                },
                None => self.in_way(way, transfer, blocks, samples)?,
            });
        }
        Ok(Outcome::Small { ways })
    }

    /// Returns why a way is not there.
    fn lacks(&self, way: BlockWay, transfer: &Transfer) -> Option<String> {
        match way {
            BlockWay::Loop => None,
            BlockWay::Batch if self.driver.has_batches() => None,
            BlockWay::Batch => {
                Some("the driver has no cuMemcpyBatchAsync, which came with CUDA 12.8".to_owned())
            }
            BlockWay::Gather => {
                let failure = self.facts().kernels_failure_of(transfer.issuer)?;
                Some(format!("the GPU kernels could not be loaded: {failure}"))
            }
        }
    }

    fn in_way(
        &self,
        way: BlockWay,
        mut transfer: Transfer,
        blocks: Blocks,
        samples: u32,
    ) -> Result<BlockTimes, HardwareError> {
        let Transfer { from, to, stream, .. } = transfer;
        let scatter = || self.driver.scatter(way, stream, (to, from), blocks);
        // The first row is not counted: it has no gate, as the driver may wait while it sets up a channel.
        scatter()?;
        self.driver.synchronize(stream)?;
        let events = self.events(stream.device, 2)?;
        let (mut rows_ns, mut calls_ns) = (Vec::new(), Vec::new());
        for row in 1..=samples {
            if row == samples {
                // What earlier rows have written would hide that a block of the last one is lost.
                self.prepare(&mut transfer)?;
            }
            let called = self.gated(|| {
                self.shut(&[transfer], Timing::PLAIN)?;
                self.driver.copy(Engine::Copy, stream, to, from, blocks.bytes)?;
                self.driver.record(events[0], stream)?;
                let called = self.timed(scatter)?;
                self.driver.record(events[1], stream)?;
                Ok(called)
            })?;
            self.driver.synchronize(stream)?;
            self.gates_held()?;
            rows_ns.push(self.driver.elapsed_ns(events[0], events[1])?);
            calls_ns.push(called);
        }
        let check = self.arrived(&transfer)?;
        Ok(BlockTimes { way, rows_ns, calls_ns, check, lacks: None })
    }
}

/// Returns the cells of a round, one for each way.
pub(super) fn cells(round: &Round, setup: Setup, outcome: &Outcome) -> Vec<SmallCopy> {
    let Action::Small { blocks, .. } = round.task.action else {
        return Vec::new();
    };
    let Some(&flow) = round.flows.first() else {
        return Vec::new();
    };
    BlockWay::ALL
        .iter()
        .map(|way| {
            let mut cell = blank(flow, *way, setup);
            cell.blocks = blocks;
            match outcome {
                Outcome::Small { ways } => match ways.iter().find(|times| times.way == *way) {
                    Some(times) => fill(&mut cell, times),
                    None => cell.ending = no_samples(),
                },
                other => cell.ending = without_figures(other),
            }
            cell
        })
        .collect()
}

fn blank(flow: Flow, way: BlockWay, setup: Setup) -> SmallCopy {
    let node = flow.ends().into_iter().find_map(|end| end.node()).flatten();
    SmallCopy::blank(flow.from.gpu(), flow.to.gpu(), node, way, setup.bytes)
}

fn fill(cell: &mut SmallCopy, times: &BlockTimes) {
    if let Some(lacks) = &times.lacks {
        cell.ending =
            Ending { not_supported: true, ..Ending::without(Status::Skipped, Some(lacks.clone())) };
        return;
    }
    let bytes = cell.bytes.0.saturating_mul(cell.blocks.into());
    let each = |ns: f64| ns / 1e3 / f64::from(cell.blocks.max(1));
    let sane: Vec<f64> = times.rows_ns.iter().copied().filter(|ns| *ns > 0.0).collect();
    let row = median(&sane);
    cell.achieved_gbps = row.map(|ns| GbPerSecond::of(bytes, ns));
    cell.block_us = row.map(each);
    cell.call_us = median(&times.calls_ns).map(each);
    cell.samples = count(&sane);
    cell.spread_percent = spread_percent(&sane);
    if let Some(check) = &times.check {
        (cell.verified, cell.verification_detail) = (check.verified, check.detail.clone());
    }
    if cell.achieved_gbps.is_none() {
        cell.ending = no_samples();
    }
}

#[cfg(test)]
#[path = "small_tests.rs"]
mod over_machines;

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::{Bytes, KIB};

    fn times(way: BlockWay) -> BlockTimes {
        BlockTimes {
            way,
            rows_ns: vec![1e6, 2e6, 1.5e6],
            calls_ns: vec![4e5],
            check: Some(Check::OK),
            lacks: None,
        }
    }

    #[test]
    fn a_row_is_divided_by_its_blocks() {
        let mut cell = SmallCopy::blank(Some(0), None, Some(1), BlockWay::Loop, Bytes(4 * KIB));
        cell.blocks = 256;
        fill(&mut cell, &times(BlockWay::Loop));
        assert_eq!(cell.samples, 3);
        let us = |figure: Option<f64>| figure.unwrap();
        assert!((us(cell.block_us) - 5.859_375).abs() < 1e-9, "{cell:?}");
        assert!((us(cell.call_us) - 1.5625).abs() < 1e-9, "{cell:?}");
        let rate = cell.achieved_gbps.unwrap().0;
        assert!((rate - 1_048_576.0 / 1.5e6).abs() < 1e-9, "{cell:?}");
    }

    #[test]
    fn a_way_that_is_not_there_is_not_untested() {
        let mut cell = SmallCopy::blank(Some(0), Some(1), None, BlockWay::Batch, Bytes(4 * KIB));
        let lacks = BlockTimes {
            lacks: Some("no such call".into()),
            rows_ns: Vec::new(),
            ..times(BlockWay::Batch)
        };
        fill(&mut cell, &lacks);
        assert!(cell.ending.not_supported && cell.achieved_gbps.is_none(), "{cell:?}");
    }
}
