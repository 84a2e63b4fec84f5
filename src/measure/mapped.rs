//! Measures copies into memory that is mapped for both GPUs of a pair while neither has peer access, beside copies into
//! plain memory with peer access.
//!
//! Rows behind a gate as within a GPU: one copy that is not timed, an event, [`LOCAL_COPIES`], an event.

use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::figures::{count, no_samples, without_figures};
use super::rows::Timing;
use super::statistics::{median, spread_percent};
use super::transfer::Transfer;
use super::{Outcome, Row};
use hardware::{ErrorKind, HardwareError};
use model::flow::Setup;
use model::measurement::{Mapped, Verified};
use model::placement::{Pair, Path, Side};
use model::status::{Ending, Status};
use model::units::GbPerSecond;
use plan::{LOCAL_COPIES, Round};

/// Rows into mapped and into plain memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MappedTimes {
    pub mapped: Row,
    pub plain: Row,
    /// Microseconds to create the memory, map it and give access to it.
    pub map_us: f64,
}

/// Returns the pair of a round; the same GPU twice for a flow within it.
fn pair_of(round: &Round) -> Option<Pair> {
    let flow = round.flows.first()?;
    Some(Pair { source: flow.from.gpu()?, destination: flow.to.gpu()? })
}

impl Bench<'_> {
    /// Times rows into mapped memory and into plain memory.
    pub(super) fn mapped(&self, round: &Round, rows: u32) -> Result<Outcome, HardwareError> {
        let pair = pair_of(round).map_or_else(|| Ok(self.pairs(round)?[0]), Ok)?;
        let setup = round.task.setup;
        let plain = Transfer {
            stream: self.current_stream(pair, setup.placement, Side::Source)?,
            copies: LOCAL_COPIES,
            ..self.transfer(pair.into(), setup.engine, setup.bytes.0, &[])?
        };
        let (source, destination) =
            (self.open_gpu(pair.source)?.device, self.open_gpu(pair.destination)?.device);
        let mut reached_by = vec![destination];
        if source != destination {
            reached_by.push(source);
            self.set_path(pair, Path::Staged)?;
        }
        let began = self.driver.now();
        let memory = self.driver.map(destination, &reached_by, setup.bytes.0)?;
        let map_us = self.driver.now().saturating_sub(began).as_secs_f64() * 1e6;
        let mapped = self.rows_checked(Transfer { to: memory, ..plain }, rows);
        // Nothing holds a pattern at this number any more.
        self.holds(memory, None);
        let freed = self.driver.free(memory);
        let mapped = mapped?;
        freed?;
        if source != destination {
            self.set_path(pair, Path::Direct)?;
        }
        let plain = self.rows_checked(plain, rows)?;
        Ok(Outcome::Mapped { times: Box::new(MappedTimes { mapped, plain, map_us }) })
    }

    /// Times rows of a flow, and checks their bytes.
    fn rows_checked(&self, mut transfer: Transfer, rows: u32) -> Result<Row, HardwareError> {
        // The copy that is not timed is as large as the others.
        let timing = Timing { warm: Some(u64::MAX), ..Timing::PLAIN };
        self.prepare(&mut transfer)?;
        let ungated = Timing { gated: false, ..timing };
        // The driver may set up the way at its first copy, and would wait behind a closed gate.
        self.row(&[transfer.with_copies(1)], ungated)?;
        let row = self.rows_of(&transfer, timing, rows)?;
        let check = self.arrived(&transfer)?;
        Ok(Row { check, ..row })
    }
}

/// Returns the ending of a round without figures. A driver without the functions has no such memory; one that has them and
/// refuses is at fault.
fn without_mapped(outcome: &Outcome) -> Ending {
    let ending = without_figures(outcome);
    match outcome {
        Outcome::Failed { error } if error.kind == ErrorKind::Unsupported => match error.code {
            Some(_) => Ending { status: Status::Failed, ..ending },
            None => Ending { not_supported: true, ..ending },
        },
        _ => ending,
    }
}

/// Returns the cell of a round.
pub(super) fn cell(round: &Round, outcome: &Outcome) -> Option<Mapped> {
    let Setup { engine, bytes, .. } = round.task.setup;
    let mut cell = Mapped::blank(pair_of(round)?, engine, bytes);
    let Outcome::Mapped { times } = outcome else {
        cell.ending = without_mapped(outcome);
        return Some(cell);
    };
    let of_row = bytes.0.saturating_mul(u64::from(LOCAL_COPIES));
    let rates = |row: &Row| -> Vec<f64> {
        let spans = row.rows.iter();
        spans.map(|span| GbPerSecond::of(of_row, span.length_ns()).0).collect()
    };
    let (mapped, plain) = (rates(&times.mapped), rates(&times.plain));
    cell.achieved_gbps = median(&mapped).map(GbPerSecond);
    cell.plain_gbps = median(&plain).map(GbPerSecond);
    cell.percent = median(&mapped)
        .zip(median(&plain))
        .filter(|(_, plain)| *plain > 0.0)
        .map(|(mapped, plain)| mapped / plain * 100.0);
    cell.map_us = Some(times.map_us);
    cell.samples = count(&mapped);
    cell.spread_percent = spread_percent(&mapped);
    let check = times.mapped.check.as_ref();
    cell.verified = check.map_or(Verified::Skipped, |check| check.verified);
    if cell.achieved_gbps.is_none() {
        cell.ending = no_samples();
    }
    Some(cell)
}
