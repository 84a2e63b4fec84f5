//! Measures copies within one GPU, from its send buffer to its receive buffer: the figure of its memory, without any
//! link.
//!
//! A plain row behind a gate: one copy that is not timed, an event, [`LOCAL_COPIES`], an event. The received bytes are checked
//! afterwards.

use crate::bench::Bench;
use crate::bench::rows::Timing;
use crate::bench::transfer::Transfer;
use crate::figures::{count, no_samples, without_figures};
use crate::local::plan::LOCAL_COPIES;
use crate::statistics::{median, spread_percent};
use crate::{Outcome, Row};
use hardware::HardwareError;
use model::flow::{Endpoint, Flow, Setup};
use model::measurement::LocalCopy;
use model::placement::{Engine, Side};
use model::units::GbPerSecond;

impl Bench<'_> {
    /// Times rows of copies within a GPU, each behind a gate of its own.
    pub(crate) fn local(
        &self,
        gpu: u32,
        setup: Setup,
        samples: u32,
    ) -> Result<Outcome, HardwareError> {
        let end = Endpoint::Gpu(gpu);
        let within = Flow { from: end, to: end };
        let mut transfer = Transfer {
            stream: self.stream(gpu, setup.placement.stream_of(Side::Source))?,
            copies: LOCAL_COPIES,
            ..self.transfer(within, Engine::Copy, setup.bytes.0, &[])?
        };
        self.prepare(&mut transfer)?;
        // The copy that is not timed is as large as the others.
        let timing = Timing { warm: Some(u64::MAX), ..Timing::PLAIN };
        let mut row = self.rows_of(&transfer, timing, samples)?;
        row.check = self.arrived(&transfer)?;
        Ok(Outcome::Rows { rows: vec![row] })
    }
}

/// Returns the cell of a round.
pub(crate) fn cell(gpu: u32, setup: Setup, outcome: &Outcome) -> LocalCopy {
    let mut cell = LocalCopy::blank(gpu, setup.bytes);
    let rows = match outcome {
        Outcome::Rows { rows } => rows.as_slice(),
        _ => {
            cell.ending = without_figures(outcome);
            return cell;
        }
    };
    let copies = rows.iter().flat_map(Row::copy_ns);
    let gbps: Vec<_> = copies.map(|ns| GbPerSecond::of(setup.bytes.0, ns).0).collect();
    cell.achieved_gbps = median(&gbps).map(GbPerSecond);
    cell.samples = count(&gbps);
    cell.spread_percent = spread_percent(&gbps);
    if cell.achieved_gbps.is_none() {
        cell.ending = no_samples();
        return cell;
    }
    let check = Row::worst_check(rows);
    (cell.verified, cell.verification_detail) = (check.verified, check.detail);
    cell
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;
    use crate::bench::check::Check;
    use model::measurement::Verified;
    use model::status::Status;
    use model::units::{Bytes, MIB};

    #[test]
    fn bytes_are_counted_once_and_the_rows_give_the_spread() {
        let bytes = 128 * MIB;
        let row = |gbps: f64| {
            #[allow(clippy::cast_precision_loss, reason = "a small size")]
            let end_ns = f64::from(LOCAL_COPIES) * bytes as f64 / gbps;
            Span { start_ns: 0.0, end_ns }
        };
        let rows = vec![row(2000.0), row(2100.0), row(2050.0)];
        let row = Row { copies: LOCAL_COPIES, rows, check: Some(Check::OK), ..Row::default() };
        let outcome = Outcome::Rows { rows: vec![row] };
        let cell = cell(3, Setup::REFERENCE.with_bytes(Bytes(bytes)), &outcome);
        assert!((cell.achieved_gbps.unwrap().0 - 2050.0).abs() < 1e-6, "{cell:?}");
        assert_eq!((cell.gpu, cell.samples, cell.ending.status), (3, 3, Status::Measured));
        assert!(cell.spread_percent.unwrap() > 4.0);
        assert_eq!(cell.verified, Verified::Ok);
    }

    #[test]
    fn without_rows_there_is_a_reason() {
        let setup = Setup::REFERENCE.with_bytes(Bytes(MIB));
        for (outcome, status) in [
            (Outcome::Noted, Status::Failed),
            (Outcome::Lost { status: Status::Hung, reason: "late".into() }, Status::Hung),
            (Outcome::Rows { rows: Vec::new() }, Status::Failed),
        ] {
            let cell = cell(0, setup, &outcome);
            assert_eq!(cell.ending.status, status);
            assert!(cell.ending.reason.is_some() && cell.achieved_gbps.is_none());
        }
    }
}
