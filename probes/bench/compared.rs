//! Copies of which every byte is compared while the next ones run: the strongest statement about a link that copies can make.
//!
//! The copies of a flow go to two places of the destination in turn. A kernel there compares the bytes of one, and poisons
//! them, while the other one is written. It costs copies 0.3 to 0.4% on 2 x H200 (docs/dev/facts.md). Where it costs more than
//! [`MOST_SLOWED_PERCENT`], the kernel and not the link would decide the rate; the last copy of each row is compared there.

use std::time::Duration;

use super::Bench;
use super::row::Span;
use super::rows::Timing;
use super::transfer::Transfer;
use hardware::{Comparison, HardwareError, MOST_TALLIES, PatternCheck, Sent, SteadyCopies};

/// Places at the destination for each flow, so that one is compared while the other is written.
pub(crate) const PLACES: u64 = 2;
/// Most that comparing may slow copies, per cent.
pub(crate) const MOST_SLOWED_PERCENT: f64 = 2.0;
/// Length of the rows that show it.
pub(crate) const TRIAL: Duration = Duration::from_millis(100);
/// Most copies of a flow in a row, far more than a row of seconds has.
const MOST_COPIES: f64 = 1e6;

impl Bench<'_> {
    /// Lets every copy of these flows be compared, where there are kernels and room for it. Poisons the places; a kernel that
    /// does not see the poison compares nothing. The sources are filled.
    pub(crate) fn compare_all(&self, transfers: &mut [Transfer]) -> Result<(), HardwareError> {
        let number = transfers.len();
        for (place, transfer) in transfers.iter_mut().enumerate() {
            transfer.comparison = None;
            let (Some(to), Some(spare), Some(seed)) =
                (transfer.to.device(), transfer.spare, self.seed_in(transfer.from))
            else {
                continue;
            };
            let tally = u32::try_from(place).unwrap_or(MOST_TALLIES);
            if tally >= MOST_TALLIES || !transfer.kernels || transfer.from.device() == Some(to) {
                continue;
            }
            let (first, second) = (self.turn(transfer, 0)?, self.turn(transfer, 1)?);
            let sent = |from, before| Sent { seed, from, before };
            let streams = self.streams(to, 2 * number + 1)?;
            let compared = Comparison {
                sent: [sent(first.1, second.1), sent(second.1, first.1)],
                // Behind those of copies and of kernels that heat.
                stream: streams[number + 1 + place],
                tally,
                arrived: self.order_events(transfer.stream.device, place)?,
                poisoned: self.order_events(to, number + place)?,
            };
            let mut poisoned = 0;
            for turn in [1, 3] {
                for (at, buffer) in [transfer.to, spare].into_iter().enumerate() {
                    let (stream, sent) = (compared.stream, compared.sent[at]);
                    let counts = (tally, turn + u32::from(at > 0));
                    self.driver.compare(stream, buffer, transfer.bytes, sent, counts)?;
                }
                poisoned = self.driver.compared(compared.stream, tally)?.poisoned;
            }
            let words = PLACES * (transfer.bytes / 8);
            transfer.poisoned = Some(PatternCheck { words, poisoned, ..PatternCheck::NONE });
            transfer.comparison = (poisoned == words).then_some(compared);
        }
        Ok(())
    }

    /// Returns the copies of a row of seconds.
    pub(crate) fn steady(&self, transfer: &Transfer) -> Result<SteadyCopies, HardwareError> {
        let Transfer { engine, stream, to, bytes, copies, comparison, .. } = *transfer;
        let (sources, places) = match comparison {
            Some(_) => {
                let spare = transfer.spare.unwrap_or(to);
                ([self.turn(transfer, 0)?.0, self.turn(transfer, 1)?.0], [to, spare])
            }
            None => (self.sources(transfer, bytes, copies)?, [to; 2]),
        };
        Ok(SteadyCopies { engine, stream, sources, places, bytes, copies, compared: comparison })
    }

    /// Waits for the comparison of a row of copies with so many bytes in all. Returns what it counted; none if they are not compared.
    pub(crate) fn compared_check(
        &self,
        transfer: &Transfer,
        bytes: u64,
    ) -> Result<Option<PatternCheck>, HardwareError> {
        let Some(compared) = transfer.comparison else { return Ok(None) };
        let counted = self.driver.compared(compared.stream, compared.tally)?;
        Ok(Some(PatternCheck { words: bytes / 8, ..counted }))
    }

    /// Lets every copy of these flows be compared, and measures what that costs them, per cent. Returns also what it counted
    /// meanwhile; none for those that are not compared.
    pub(crate) fn slowed_by_comparing(
        &self,
        transfers: &mut [Transfer],
        each_ns: &[f64],
    ) -> Result<Vec<Option<(f64, PatternCheck)>>, HardwareError> {
        copies_for(transfers, TRIAL, each_ns);
        let plain = self.row(transfers, Timing::STEADY)?;
        self.compare_all(transfers)?;
        let compared = self.row(transfers, Timing::STEADY)?;
        let mut slowed = Vec::new();
        for ((transfer, plain), compared) in transfers.iter().zip(plain).zip(compared) {
            let length = |spans: &[Span]| spans.first().map_or(f64::NAN, |span| span.length_ns());
            let percent = (length(&compared.spans) / length(&plain.spans) - 1.0) * 100.0;
            let bytes = transfer.bytes.saturating_mul(u64::from(transfer.copies));
            let counted = self.compared_check(transfer, bytes)?;
            slowed.push(counted.map(|counted| (percent, counted)));
        }
        Ok(slowed)
    }
}

/// Gives each flow as many copies as fit into a time, one at least.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a clamped, positive count"
)]
pub(crate) fn copies_for(transfers: &mut [Transfer], time: Duration, each_ns: &[f64]) {
    for (transfer, ns) in transfers.iter_mut().zip(each_ns) {
        let fit = time.as_secs_f64() * 1e9 / ns.max(1.0);
        transfer.copies = fit.clamp(1.0, MOST_COPIES) as u32;
    }
}
