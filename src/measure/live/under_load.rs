//! Copies that run both ways between the two GPUs of a talk while their kernels talk.

use super::super::Span;
use super::super::bench::Bench;
use super::super::rows::Timing;
use super::super::transfer::Transfer;
use hardware::{ErrorKind, Event, HardwareError};
use model::flow::Flow;
use model::maps::Map;
use model::placement::{Engine, Pair};
use model::units::MIB;

/// Place of the copied bytes in the destination's buffer, behind the mailbox.
const AT: u64 = MIB;
/// Largest copy: some tenths of a millisecond over NVLink, some milliseconds over PCIe. Chosen.
const MOST_BYTES: u64 = 128 * MIB;
/// Time for which copies run at first. 300 rounds of a talk take some 9 ms under load on H200 (docs/dev/facts.md, "Kernels that
/// talk"). Chosen: twice that.
const FIRST_NS: f64 = 2e7;
/// Factor by which they run longer if the talk outlasted them, and the number of tries.
const LONGER: f64 = 4.0;
pub(super) const TRIES: u32 = 3;
/// Most copies in a row: a stream takes some thousand. Chosen.
const MOST_COPIES: f64 = 400.0;

/// Copies of one direction.
pub(super) struct Copies {
    transfer: Transfer,
    /// Time of one.
    ns: f64,
    start: Event,
    end: Event,
}

impl Bench<'_> {
    /// Prepares copies both ways between the GPUs of each pair.
    pub(super) fn copies_beside(&self, pairs: &[Pair]) -> Result<Vec<Copies>, HardwareError> {
        let mut transfers = Vec::new();
        for pair in pairs.iter().flat_map(|pair| [*pair, pair.reversed()]) {
            let flow = Flow::from(pair);
            let mut transfer = self.transfer(flow, Engine::Copy, MIB, &transfers)?;
            let room = transfer.to.bytes.saturating_sub(AT).min(transfer.from.bytes);
            if room < MIB {
                let why = "the buffers have too little memory for copies beside a talk";
                return Err(HardwareError::new(ErrorKind::Unsupported, why));
            }
            transfer.bytes = room.min(MOST_BYTES);
            transfer.compared = transfer.bytes;
            transfer.to = self.driver.part(transfer.to, AT, transfer.bytes)?;
            transfer.stream = self.streams(transfer.stream.device, 1)?[0];
            transfers.push(transfer);
        }
        // How long one takes while all others run.
        let timed = self.row(&transfers, Timing::PLAIN)?;
        let mut copies = Vec::new();
        for (transfer, timed) in transfers.into_iter().zip(timed) {
            // The first events are those of the talk.
            let events = self.events(transfer.stream.device, 6)?;
            copies.push(Copies {
                ns: timed.spans.first().map_or(1.0, |span| span.length_ns().max(1.0)),
                transfer,
                start: events[4],
                end: events[5],
            });
        }
        Ok(copies)
    }

    /// Enqueues copies behind the gates of their GPUs, which this closes if they are open. With each try they run longer.
    pub(super) fn enqueue_beside(
        &self,
        copies: &[Copies],
        number: u32,
        opened: &mut Map<u32, Event>,
    ) -> Result<(), HardwareError> {
        let wanted = FIRST_NS * LONGER.powi(number.try_into().unwrap_or(i32::MAX));
        for Copies { transfer, ns, start, end } in copies {
            let gate = match opened.get(&transfer.issuer) {
                Some(gate) => *gate,
                None => self.close_gate(transfer.issuer)?,
            };
            opened.insert(transfer.issuer, gate);
            self.driver.wait(transfer.stream, gate)?;
            self.driver.record(*start, transfer.stream)?;
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a clamped, positive count"
            )]
            let times = (wanted / ns).ceil().clamp(2.0, MOST_COPIES) as u32;
            let (to, sources) = (transfer.to, self.sources(transfer, transfer.bytes, times)?);
            self.driver.copy_in_turn(
                Engine::Copy,
                transfer.stream,
                to,
                sources,
                transfer.bytes,
                times,
            )?;
            self.driver.record(*end, transfer.stream)?;
        }
        Ok(())
    }

    /// Waits for the copies, and returns the GPU and the time of each row.
    pub(super) fn ran_beside(
        &self,
        copies: &[Copies],
        opened: &Map<u32, Event>,
    ) -> Result<Vec<(u32, Span)>, HardwareError> {
        let mut ran = Vec::new();
        for Copies { transfer, start, end, .. } in copies {
            self.driver.synchronize(transfer.stream)?;
            let opening = self.opening(opened[&transfer.issuer]);
            ran.push((transfer.issuer, self.span(opening, *start, *end)?));
        }
        Ok(ran)
    }
}
