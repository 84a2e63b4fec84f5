//! Measures copies within one GPU, from its send buffer to its receive buffer: the figure of its memory, without any
//! link.
//!
//! A plain row behind a gate: one copy that is not timed, an event, [`LOCAL_COPIES`], an event.

use super::Outcome;
use super::bench::{Bench, Origin};
use super::figures::{count, no_samples, without_figures};
use super::statistics::{median, spread_percent};
use hardware::{ErrorKind, HardwareError};
use model::flow::Setup;
use model::measurement::LocalCopy;
use model::placement::{Pair, Side};
use model::units::GbPerSecond;
use plan::LOCAL_COPIES;

impl Bench<'_> {
    /// Times rows of copies within a GPU, each behind a gate of its own.
    pub(super) fn local(
        &self,
        gpu: u32,
        setup: Setup,
        samples: u32,
    ) -> Result<Outcome, HardwareError> {
        let open_gpu = self.open_gpu(gpu)?;
        let within = Pair {
            source: gpu,
            destination: gpu,
        };
        let stream = self.current_stream(within, setup.placement, Side::Source)?;
        let events = self.events(open_gpu.device, 2)?;
        let copy = || {
            self.driver
                .copy(stream, open_gpu.receive, open_gpu.send, setup.bytes.0)
        };
        let mut rows = Vec::new();
        for _ in 0..samples {
            let (began, mut gated) = (self.driver.now(), false);
            self.gated(|| {
                // If streams cannot be held, the first copy takes longer than enqueueing the others.
                match self.close_gate(gpu) {
                    Err(error) if error.kind == ErrorKind::Unsupported => {}
                    opened => {
                        self.driver.wait(stream, opened?)?;
                        gated = true;
                    }
                }
                copy()?;
                self.driver.record(events[0], stream)?;
                (0..LOCAL_COPIES).try_for_each(|_| copy())?;
                self.driver.record(events[1], stream)
            })?;
            self.driver.synchronize(stream)?;
            self.gates_held()?;
            let origin = if gated {
                self.opening(open_gpu.opened)
            } else {
                Origin {
                    event: events[0],
                    at: began,
                }
            };
            rows.extend(self.spans(origin, &events)?);
        }
        Ok(Outcome::Within { rows })
    }
}

/// Returns the cell of a round.
pub(super) fn cell(gpu: u32, setup: Setup, outcome: &Outcome) -> LocalCopy {
    let mut cell = LocalCopy::blank(gpu, setup.bytes);
    let Outcome::Within { rows } = outcome else {
        cell.ending = without_figures(outcome);
        return cell;
    };
    let bytes = setup.bytes.0.saturating_mul(u64::from(LOCAL_COPIES));
    let gbps: Vec<_> = rows
        .iter()
        .map(|row| GbPerSecond::of(bytes, row.length_ns()).0)
        .collect();
    cell.achieved_gbps = median(&gbps).map(GbPerSecond);
    cell.samples = count(&gbps);
    cell.spread_percent = spread_percent(&gbps);
    if cell.achieved_gbps.is_none() {
        cell.ending = no_samples();
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;
    use model::status::Status;
    use model::units::{Bytes, MIB};

    #[test]
    fn bytes_are_counted_once_and_the_rows_give_the_spread() {
        let bytes = 128 * MIB;
        let row = |gbps: f64| {
            #[allow(clippy::cast_precision_loss, reason = "a small size")]
            let end_ns = f64::from(LOCAL_COPIES) * bytes as f64 / gbps;
            Span {
                start_ns: 0.0,
                end_ns,
            }
        };
        let outcome = Outcome::Within {
            rows: vec![row(2000.0), row(2100.0), row(2050.0)],
        };
        let cell = cell(3, Setup::REFERENCE.with_bytes(Bytes(bytes)), &outcome);
        assert!(
            (cell.achieved_gbps.unwrap().0 - 2050.0).abs() < 1e-6,
            "{cell:?}"
        );
        assert_eq!(
            (cell.gpu, cell.samples, cell.ending.status),
            (3, 3, Status::Measured)
        );
        assert!(cell.spread_percent.unwrap() > 4.0);
    }

    #[test]
    fn without_rows_there_is_a_reason() {
        let setup = Setup::REFERENCE.with_bytes(Bytes(MIB));
        for (outcome, status) in [
            (Outcome::Within { rows: Vec::new() }, Status::Failed),
            (
                Outcome::Lost {
                    status: Status::Hung,
                    reason: "late".into(),
                },
                Status::Hung,
            ),
            (Outcome::Rows { rows: Vec::new() }, Status::Failed),
        ] {
            let cell = cell(0, setup, &outcome);
            assert_eq!(cell.ending.status, status);
            assert!(cell.ending.reason.is_some() && cell.achieved_gbps.is_none());
        }
    }
}
