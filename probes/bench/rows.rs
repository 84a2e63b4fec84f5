//! Rows of copies: their events, their gate, and the order in which they are enqueued.
//!
//! A row is plain: an event before its first copy, one after its last, and none between. Every event between two copies
//! costs time (2.9 µs on H200, docs/dev/method.md). The gate is shut while the row is enqueued, so that the host's
//! launch speed is never timed. A copy before the first event takes the start-up of the copy engine.
//!
//! Rows of staged copies and of pageable memory are not gated. Their calls block the host until the bytes are moved, so
//! behind a closed gate they would never return.

use std::collections::HashMap;

use crate::bench::row::{Row, Span};
use crate::bench::transfer::Transfer;
use crate::bench::{Bench, Origin};
use hardware::{Device, Event, HardwareError, SteadyCopies};
use model::units::MIB;

/// Bytes of the copy before a row's first event.
const WARM_BYTES: u64 = MIB;

/// The way in which rows are timed.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    /// True if a gate holds the streams until all rows are enqueued.
    pub(crate) gated: bool,
    /// Bytes of the copy before the first event of a gated row. Without a gate it is as large as the others: it must
    /// last until they are enqueued. None leaves the copy out.
    pub(crate) warm: Option<u64>,
    /// True if an event follows each copy, and not only the last.
    pub(crate) marked: bool,
    /// True if the copies of all flows are enqueued in turn, so that no flow is late only because it was enqueued last.
    pub(crate) in_turn: bool,
    /// True if the host's time includes the wait for the end of the copies.
    pub(crate) blocking: bool,
    /// True for rows of seconds, whose copies are enqueued evenly: no stream takes thousands at once.
    pub(crate) steady: bool,
}

impl Timing {
    /// Plain rows behind a gate.
    pub(crate) const PLAIN: Self = Self {
        gated: true,
        warm: Some(WARM_BYTES),
        marked: false,
        in_turn: false,
        blocking: false,
        steady: false,
    };

    /// Rows of seconds. No gate: it would open by itself, and the enqueueing is short beside the copies.
    pub(crate) const STEADY: Self = Self { gated: false, warm: None, steady: true, ..Self::PLAIN };
}

/// The times of one flow's row.
pub(crate) struct Timed {
    /// The row, or its single copies if they are marked.
    pub(crate) spans: Vec<Span>,
    /// Nanoseconds of host time for one copy with its ordering.
    pub(crate) host_ns: f64,
    /// Bytes copied, including those of rows that are void.
    pub(crate) copied: u64,
}

/// A row that is being enqueued.
struct Enqueued<'t> {
    transfer: &'t Transfer,
    /// Events before the first copy, and after each marked copy.
    marks: Vec<Event>,
    /// Event of the partner's work before the copy.
    ready: Option<Event>,
    /// Host time of calls before and after the copies, nanoseconds.
    around_ns: f64,
    /// Host time of the copies, nanoseconds.
    copies_ns: f64,
}

impl Bench<'_> {
    /// Times this many rows of one flow.
    pub(crate) fn rows_of(
        &self,
        transfer: &Transfer,
        timing: Timing,
        rows: u32,
    ) -> Result<Row, HardwareError> {
        let mut found = [transfer.row(1)];
        self.rows_until(std::slice::from_ref(transfer), timing, rows, &mut found, |_, _| false)?;
        let [row] = found;
        Ok(row)
    }

    /// Adds rows until all flows have enough, at most `most`.
    pub(crate) fn rows_until(
        &self,
        transfers: &[Transfer],
        timing: Timing,
        most: u32,
        found: &mut [Row],
        is_enough: impl Fn(&Transfer, &Row) -> bool,
    ) -> Result<(), HardwareError> {
        for _ in 0..most {
            let mut all = transfers.iter().zip(&*found);
            if all.all(|(transfer, row)| is_enough(transfer, row)) {
                break;
            }
            for (row, timed) in found.iter_mut().zip(self.row(transfers, timing)?) {
                row.rows.extend(timed.spans);
                row.host_ns.push(timed.host_ns);
            }
        }
        Ok(())
    }

    /// Times one row of each flow, all at once.
    pub(crate) fn row(
        &self,
        transfers: &[Transfer],
        timing: Timing,
    ) -> Result<Vec<Timed>, HardwareError> {
        let mut rows = self.with_events(transfers, timing)?;
        let (began, mut gated, mut tries) = (self.driver.now(), false, 0);
        self.gated(|| {
            tries += 1;
            gated = timing.gated && self.shut(transfers, timing)?;
            // Enqueue in passes, since the framework's ordering ties a copy to the other device's current stream. One
            // flow after the other, the second would wait for the first.
            for row in &mut rows {
                if let (Some((_, partner)), Some(ready)) = (row.transfer.partner, row.ready) {
                    row.around_ns = self.timed(|| {
                        self.driver.record(ready, partner)?;
                        self.driver.wait(row.transfer.stream, ready)
                    })?;
                }
            }
            if timing.steady {
                return self.enqueue_steadily(&rows);
            }
            if timing.in_turn {
                return self.enqueue_in_turn(&rows, timing, gated);
            }
            for row in &mut rows {
                self.warm_up(row.transfer, timing, gated)?;
                row.copies_ns = self.enqueue(row, timing)?;
            }
            Ok(())
        })?;
        self.wait_for_copies(&mut rows, timing)?;
        self.gates_held()?;
        let times = |row: &Enqueued<'_>| {
            let transfer = row.transfer;
            let origin = match gated {
                true => self.opening(self.open_gpu(transfer.issuer)?.opened),
                false => Origin { event: row.marks[0], at: began },
            };
            let (warm, copies) = (warm_bytes(transfer, timing, gated), transfer.copies);
            Ok(Timed {
                spans: self.spans(origin, &row.marks)?,
                host_ns: row.around_ns + row.copies_ns / f64::from(copies),
                copied: tries * (warm.unwrap_or(0) + transfer.bytes * u64::from(copies)),
            })
        };
        rows.iter().map(times).collect()
    }

    /// Finds events for rows. Flows of one GPU have different ones.
    fn with_events<'t>(
        &self,
        transfers: &'t [Transfer],
        timing: Timing,
    ) -> Result<Vec<Enqueued<'t>>, HardwareError> {
        let mut taken: HashMap<Device, usize> = HashMap::new();
        let mut take = |device, count: usize| {
            let first = taken.entry(device).or_default();
            let events = self.events(device, *first + count)?;
            let own = events[*first..].to_vec();
            *first += count;
            Ok::<_, HardwareError>(own)
        };
        let mut rows = Vec::new();
        for transfer in transfers {
            let spans = if timing.marked { transfer.copies } else { 1 };
            rows.push(Enqueued {
                transfer,
                marks: take(transfer.stream.device, spans as usize + 1)?,
                ready: None,
                around_ns: 0.0,
                copies_ns: 0.0,
            });
        }
        for row in &mut rows {
            if let Some((_, stream)) = row.transfer.partner {
                row.ready = take(stream.device, 1)?.pop();
            }
        }
        Ok(rows)
    }

    /// Closes the gates of the issuers, and lets all their streams wait. Returns false if streams cannot be held and
    /// there is only one flow, with a copy before its row: that copy takes longer than enqueueing the others. Several
    /// flows could not be compared.
    pub(crate) fn shut(
        &self,
        transfers: &[Transfer],
        timing: Timing,
    ) -> Result<bool, HardwareError> {
        let mut shut = Vec::new();
        for Transfer { issuer, .. } in transfers {
            if shut.contains(issuer) {
                continue;
            }
            shut.push(*issuer);
            let opened = match self.close_gate(*issuer) {
                Err(error)
                    if error.kind.is_lack() && transfers.len() == 1 && timing.warm.is_some() =>
                {
                    return Ok(false);
                }
                opened => opened?,
            };
            for transfer in transfers {
                if transfer.issuer == *issuer {
                    self.driver.wait(transfer.stream, opened)?;
                }
                if let Some((gpu, stream)) = transfer.partner
                    && gpu == *issuer
                {
                    self.driver.wait(stream, opened)?;
                }
            }
        }
        Ok(true)
    }

    fn warm_up(
        &self,
        transfer: &Transfer,
        timing: Timing,
        gated: bool,
    ) -> Result<(), HardwareError> {
        let warm = warm_bytes(transfer, timing, gated);
        warm.map_or(Ok(()), |bytes| self.copy_once(transfer, bytes))
    }

    /// Enqueues the copies of a row, with their marks. Returns the host's nanoseconds. A framework's call records
    /// events too.
    fn enqueue(&self, row: &Enqueued<'_>, timing: Timing) -> Result<f64, HardwareError> {
        let Enqueued { transfer, marks, .. } = row;
        let record = |mark: &Event| self.driver.record(*mark, transfer.stream);
        let (mut copies_ns, mut left) = (0.0, transfer.copies);
        let all_ns = self.timed(|| {
            record(&marks[0])?;
            for mark in &marks[1..] {
                let copies = if timing.marked { 1 } else { left };
                left -= copies;
                copies_ns += self.timed(|| {
                    (0..copies).try_for_each(|_| self.copy_once(transfer, transfer.bytes))
                })?;
                record(mark)?;
            }
            Ok(())
        })?;
        Ok(if transfer.partner.is_some() { all_ns } else { copies_ns })
    }

    /// Enqueues the copies of all rows, one of each flow at a time.
    fn enqueue_in_turn(
        &self,
        rows: &[Enqueued<'_>],
        timing: Timing,
        gated: bool,
    ) -> Result<(), HardwareError> {
        for row in rows {
            self.warm_up(row.transfer, timing, gated)?;
        }
        let most = rows.iter().map(|row| row.transfer.copies).max();
        for copy in 0..=most.unwrap_or(0) {
            for Enqueued { transfer, marks, .. } in rows {
                if copy > 0 && copy <= transfer.copies {
                    self.copy_once(transfer, transfer.bytes)?;
                }
                if let Some(mark) = marks.get(copy as usize) {
                    self.driver.record(*mark, transfer.stream)?;
                }
            }
        }
        Ok(())
    }

    /// Enqueues the copies of all rows evenly.
    fn enqueue_steadily(&self, rows: &[Enqueued<'_>]) -> Result<(), HardwareError> {
        rows.iter().try_for_each(|row| self.driver.record(row.marks[0], row.transfer.stream))?;
        let steady = |row: &Enqueued<'_>| self.steady(row.transfer);
        let flows: Vec<SteadyCopies> = rows.iter().map(steady).collect::<Result<_, _>>()?;
        self.driver.copy_steadily(&flows)?;
        rows.iter().try_for_each(|row| self.driver.record(row.end(), row.transfer.stream))
    }

    fn wait_for_copies(
        &self,
        rows: &mut [Enqueued<'_>],
        timing: Timing,
    ) -> Result<(), HardwareError> {
        let tied = |row: &&mut Enqueued<'_>| row.transfer.partner.is_some();
        // All waits count from the same moment: each flow waits for its own copies.
        let mut waited = 0.0;
        for row in rows.iter_mut().filter(tied) {
            waited += self.timed(|| self.driver.synchronize_event(row.end()))?;
            if timing.blocking {
                row.copies_ns += waited;
            }
        }
        // Enqueue these waits only after the copies have ended. On H200 a waiting stream of the source alone makes each
        // copy that the destination issues 3.4 µs longer (docs/dev/method.md). Figures of other tools do not contain
        // that.
        for row in rows.iter_mut() {
            if let Some((_, partner)) = row.transfer.partner {
                row.around_ns += self.timed(|| self.driver.wait(partner, row.end()))?;
            }
        }
        for Enqueued { transfer, .. } in rows {
            self.driver.synchronize(transfer.stream)?;
            if let Some((_, partner)) = transfer.partner {
                self.driver.synchronize(partner)?;
            }
        }
        Ok(())
    }
}

impl Enqueued<'_> {
    /// Returns the event after the last copy.
    fn end(&self) -> Event {
        self.marks[self.marks.len() - 1]
    }
}

/// Returns the bytes of the copy before a row's first event; none if there is no such copy.
fn warm_bytes(transfer: &Transfer, timing: Timing, gated: bool) -> Option<u64> {
    let warm = timing.warm?;
    Some(if gated { warm.min(transfer.bytes) } else { transfer.bytes })
}
