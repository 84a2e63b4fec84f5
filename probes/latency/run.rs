//! Measures the time of one small copy in a row of them, as p2pBandwidthLatencyTest does.

use crate::Outcome;
use crate::bench::Bench;
use crate::bench::rows::Timing;
use crate::bench::transfer::Transfer;
use crate::figures::{count, rates};
use crate::latency::plan::LATENCY_COPIES;
use crate::statistics::{median, spread_percent};
use hardware::HardwareError;
use model::flow::Setup;
use model::measurement::Latency;
use model::placement::{Engine, Pair, Path, Side};

impl Bench<'_> {
    pub(crate) fn latency(
        &self,
        pair: Pair,
        setup: Setup,
        samples: u32,
    ) -> Result<Outcome, HardwareError> {
        self.set_path(pair, setup.path)?;
        let transfer = Transfer {
            stream: self.current_stream(pair, setup.placement, Side::Source)?,
            copies: LATENCY_COPIES,
            ..self.transfer(pair.into(), Engine::Copy, setup.bytes.0, &[])?
        };
        let timing = Timing { gated: setup.path == Path::Direct, warm: None, ..Timing::PLAIN };
        // The first row warms up and is not counted. It has no gate: the driver may set up the channel of the pair at its
        // first copy, and would wait behind a closed one.
        let ungated = Timing { gated: false, ..timing };
        self.row(&[transfer], ungated)?;
        let row = self.rows_of(&transfer, timing, samples)?;
        Ok(Outcome::Rows { rows: vec![row] })
    }
}

/// Returns the cell of a round.
pub(crate) fn cell(pair: Pair, setup: Setup, outcome: &Outcome) -> Latency {
    let mut cell = Latency::blank(pair, setup.path, setup.bytes);
    match rates(outcome, 0) {
        Ok(rates) => {
            cell.latency_us = median(&rates.copy_ns).map(|ns| ns / 1e3);
            cell.samples = count(&rates.copy_ns);
            cell.spread_percent = spread_percent(&rates.copy_ns);
        }
        Err(why) => cell.ending = why,
    }
    cell
}
