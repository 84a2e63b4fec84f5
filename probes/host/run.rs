//! Copies between host and GPU: plain rows behind a gate, of one GPU or of several at the same time. The received bytes
//! are checked afterwards.

use crate::Round;
use crate::bench::Bench;
use crate::bench::check::Check;
use crate::bench::gpu_buffers::host_end;
use crate::bench::host_pool::of_host;
use crate::bench::rows::Timing;
use crate::bench::transfer::Transfer;
use crate::statistics::spread_percent;
use crate::{Outcome, Row, Span};
use hardware::{Buffer, ErrorKind, HardwareError};
use model::flow::{Endpoint, Flow, HostMemory, Setup};
use model::host::Allocation;
use model::placement::StreamKind;
use model::status::Verified;

/// Rows whose spread is at most this agree, per cent: further rows would change nothing.
const AGREE_PERCENT: f64 = 0.5;
/// Largest number of rows added if they do not agree.
const MORE_ROWS: u32 = 2;

impl Bench<'_> {
    /// Runs a round of copies between host and GPU.
    pub(crate) fn host(
        &self,
        round: &Round,
        rows: u32,
        copies: u32,
        allocation: Allocation,
    ) -> Result<Outcome, HardwareError> {
        let setup = round.task.setup;
        let rows = match allocation {
            Allocation::Reused => self.host_rows(&round.flows, setup, rows, copies.max(1)),
            _ => self.not_reused(&round.flows, setup, rows, allocation).map(|row| vec![row]),
        };
        Ok(Outcome::Rows { rows: rows? })
    }

    fn host_rows(
        &self,
        flows: &[Flow],
        setup: Setup,
        rows: u32,
        copies: u32,
    ) -> Result<Vec<Row>, HardwareError> {
        let mut transfers = Vec::new();
        for flow in flows {
            transfers.push(Transfer { copies, ..self.host_transfer(*flow, setup, &transfers)? });
        }
        for transfer in &mut transfers {
            self.prepare(transfer)?;
        }
        let pageable = transfers.iter().any(Transfer::is_pageable);
        if !pageable && transfers.iter().any(|one| one.issuer != transfers[0].issuer) {
            return self.of_several(&mut transfers, rows, copies);
        }
        let timing = Timing { gated: !pageable, ..Timing::PLAIN };
        if pageable {
            // The first copy is far slower than the others (9 instead of 15 GB/s to an H200) and is not counted.
            let first: Vec<_> = transfers.iter().map(|one| one.with_copies(1)).collect();
            self.row(&first, timing)?;
        }
        // Copies by the processor scatter, and more of them would not agree either.
        let most = if pageable { rows } else { rows + MORE_ROWS };
        let mut found: Vec<_> = transfers.iter().map(|transfer| transfer.row(1)).collect();
        let is_enough = |_: &Transfer, row: &Row| is_enough(row, rows);
        self.rows_until(&transfers, timing, most, &mut found, is_enough)?;
        for (row, transfer) in found.iter_mut().zip(&transfers) {
            row.check = self.arrived(transfer)?;
        }
        Ok(found)
    }

    /// Times rows of several GPUs at once. Only the time while all of them copy counts: a GPU with a wide link is done
    /// early, and the others would have the rest of their rows for themselves.
    fn of_several(
        &self,
        transfers: &mut [Transfer],
        rows: u32,
        copies: u32,
    ) -> Result<Vec<Row>, HardwareError> {
        let mut copied = vec![0; transfers.len()];
        let samples = self.while_all_run(transfers, rows, copies, &mut copied)?;
        let row = |(at, transfer): (usize, &Transfer)| {
            let mut row = Row { copies: 1, ..transfer.row(1) };
            for (sample, host_ns) in &samples {
                #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
                let end_ns = transfer.bytes as f64 / sample.flows_gbps[at];
                row.rows.push(Span { start_ns: 0.0, end_ns });
                row.host_ns.push(host_ns[at]);
            }
            row.check = self.arrived(transfer)?;
            Ok(row)
        };
        transfers.iter().enumerate().map(row).collect()
    }

    /// Returns copies of a flow between host and GPU.
    fn host_transfer(
        &self,
        flow: Flow,
        setup: Setup,
        in_use: &[Transfer],
    ) -> Result<Transfer, HardwareError> {
        let odd =
            || HardwareError::new(ErrorKind::Other, "these are no copies between host and GPU");
        let gpu = flow.with_host().ok_or_else(odd)?;
        // Each direction has its own stream, so that neither waits for the other.
        let kind = match flow.to {
            Endpoint::Gpu(_) => StreamKind::Side,
            Endpoint::Host { .. } => StreamKind::Default,
        };
        Ok(Transfer {
            stream: self.stream(gpu, kind)?,
            ..self.transfer(flow, setup.engine, setup.bytes.0, in_use)?
        })
    }

    /// Times copies whose buffers are not simply used again. The host's clock times them, with what makes the buffers.
    fn not_reused(
        &self,
        flows: &[Flow],
        setup: Setup,
        rows: u32,
        allocation: Allocation,
    ) -> Result<Row, HardwareError> {
        let [flow] = flows else {
            return Err(HardwareError::new(
                ErrorKind::Other,
                "copies whose buffers are made for each have one flow",
            ));
        };
        match allocation {
            Allocation::Reused | Allocation::Anew => self.anew(*flow, setup, rows),
            Allocation::AnewFilled | Allocation::Filled | Allocation::FilledInHalves => {
                self.filled(*flow, setup, rows, allocation)
            }
            Allocation::IntoNew => self.to_new_memory(*flow, setup, rows),
        }
    }

    /// Times copies whose memory is page-locked anew for each. Pinned memory is allocated and freed. Registered memory
    /// belongs to the process, and is only registered and unregistered. Filling it is not timed.
    fn anew(&self, flow: Flow, setup: Setup, rows: u32) -> Result<Row, HardwareError> {
        let registered = matches!(host_end(&flow), Some((HostMemory::Registered, _)));
        let flow = if registered { pageable(flow) } else { flow };
        let mut transfer = self.host_transfer(flow, setup, &[])?;
        if registered {
            self.prepare(&mut transfer)?;
        }
        let mut row = transfer.row(1);
        for _ in 0..rows.max(1) {
            let (span, host_ns) = if registered {
                self.registered_anew(&transfer)?
            } else {
                let (copied, check) = self.pinned_anew(&transfer)?;
                row.check = check;
                copied
            };
            row.rows.push(span);
            row.host_ns.push(host_ns);
        }
        if registered {
            row.check = self.arrived(&transfer)?;
        }
        Ok(row)
    }

    /// Times copies of bytes that this thread copies from pageable into pinned memory first.
    fn filled(
        &self,
        flow: Flow,
        setup: Setup,
        rows: u32,
        allocation: Allocation,
    ) -> Result<Row, HardwareError> {
        let mut transfer = self.host_transfer(pageable(flow), setup, &[])?;
        self.prepare(&mut transfer)?;
        let device = transfer.stream.device;
        let location = transfer.from.with_host_memory(HostMemory::Pinned).location;
        let mut row = transfer.row(1);
        // The first copy through a buffer is slower than the others and is not counted. A new buffer has no other.
        let is_new = allocation == Allocation::AnewFilled;
        for number in u32::from(is_new)..=rows.max(1) {
            let (span, host_ns) = if is_new {
                self.make_room(transfer.bytes, &[transfer.from.id])?;
                let (buffer, lock) =
                    self.clocked(|| self.take_host(device, location, transfer.bytes))?;
                let copied = self.fill_and_copy(&transfer, buffer, transfer.bytes);
                let (_, unlock) = self.clocked(|| self.free_host(buffer))?;
                let (host_ns, copy) = copied?;
                (together([lock, copy, unlock]), host_ns)
            } else {
                let buffer =
                    self.lend(device, location, transfer.bytes, false, &[transfer.from.id])?;
                self.holds(buffer, None);
                let halves = allocation == Allocation::FilledInHalves;
                let first = if halves { transfer.bytes / 16 * 8 } else { transfer.bytes };
                let (host_ns, span) = self.fill_and_copy(&transfer, buffer, first)?;
                (span, host_ns)
            };
            if number > 0 {
                row.rows.push(span);
                row.host_ns.push(host_ns);
            }
        }
        row.check = self.arrived(&transfer)?;
        Ok(row)
    }

    /// Copies the source into a pinned buffer and from there to the device, the first bytes before the others, and waits.
    /// Returns the host's nanoseconds before the wait, and the whole span.
    fn fill_and_copy(
        &self,
        transfer: &Transfer,
        pinned: Buffer,
        first: u64,
    ) -> Result<(f64, Span), HardwareError> {
        let Transfer { engine, stream, to, bytes, .. } = *transfer;
        let [source, _] = self.sources(transfer, bytes, 1)?;
        let copy = |[to, pinned, source]: [Buffer; 3], bytes| {
            self.driver.host_copy(pinned, source, bytes)?;
            self.driver.copy(engine, stream, to, pinned, bytes)
        };
        let others = |buffer| self.driver.part(buffer, first, bytes - first);
        self.clocked(|| {
            let host_ns = self.timed(|| {
                copy([to, pinned, source], first)?;
                if first == bytes {
                    return Ok(());
                }
                copy([others(to)?, others(pinned)?, others(source)?], bytes - first)
            })?;
            self.driver.synchronize(stream)?;
            Ok(host_ns)
        })
    }

    /// Times copies into memory of the GPU that is allocated for each: allocating it by the host's clock, the copy by the
    /// GPU's. Freeing it is not timed: frameworks keep it.
    fn to_new_memory(&self, flow: Flow, setup: Setup, rows: u32) -> Result<Row, HardwareError> {
        let transfer = self.host_transfer(flow, setup, &[])?;
        let mut row = transfer.row(1);
        for _ in 0..rows.max(1) {
            let device = transfer.stream.device;
            let allocate = || self.driver.allocate(device, transfer.bytes);
            let (to, allocated) = self.clocked(allocate).map_err(of_host)?;
            let mut transfer = Transfer { to, ..transfer };
            let copied = self.prepare(&mut transfer).and_then(|()| {
                let copied = self.rows_of(&transfer, Timing::PLAIN, 1)?;
                Ok((copied, self.arrived(&transfer)?))
            });
            self.driver.free(to)?;
            // What is full is no evidence about a GPU: this memory comes on top of what was planned.
            let (copied, check) = copied.map_err(of_host)?;
            row.rows.extend(copied.rows.iter().map(|copy| together([allocated, *copy])));
            row.host_ns.extend(copied.host_ns);
            // Each copy goes to other memory, and the first wrong one counts.
            let is_ok = |check: &Check| check.verified == Verified::Ok;
            row.check = row.check.filter(|check| !is_ok(check)).or(check);
        }
        Ok(row)
    }

    /// Times one copy of pageable memory that is registered for this copy only.
    fn registered_anew(&self, transfer: &Transfer) -> Result<(Span, f64), HardwareError> {
        let device = transfer.stream.device;
        let (registered, lock) = self
            .clocked(|| self.driver.host_register(device, transfer.on_host()).map_err(of_host))?;
        let copied = self.copy_and_wait(&transfer.with_host(registered));
        let (_, unlock) = self.clocked(|| self.driver.host_unregister(registered))?;
        let (host_ns, copy) = copied?;
        Ok((together([lock, copy, unlock]), host_ns))
    }

    /// Times one copy of memory that is allocated page-locked for this copy only, on the node of the memory that this
    /// run keeps. Checks the bytes before the memory is freed.
    fn pinned_anew(
        &self,
        transfer: &Transfer,
    ) -> Result<((Span, f64), Option<Check>), HardwareError> {
        let pinned = transfer.on_host().with_host_memory(HostMemory::Pinned).location;
        self.make_room(transfer.bytes, &[transfer.from.id, transfer.to.id])?;
        let (buffer, lock) =
            self.clocked(|| self.take_host(transfer.stream.device, pinned, transfer.bytes))?;
        let mut transfer = transfer.with_host(buffer);
        let copied = self.prepare(&mut transfer).and_then(|()| {
            let copied = self.copy_and_wait(&transfer)?;
            Ok((copied, self.arrived(&transfer)?))
        });
        let (_, unlock) = self.clocked(|| self.free_host(buffer))?;
        let ((host_ns, copy), check) = copied?;
        Ok(((together([lock, copy, unlock]), host_ns), check))
    }

    /// Makes one copy and waits for it. Returns the host's nanoseconds in the call, and the whole span.
    fn copy_and_wait(&self, transfer: &Transfer) -> Result<(f64, Span), HardwareError> {
        self.clocked(|| {
            let host_ns = self.timed(|| self.copy_once(transfer, transfer.bytes))?;
            self.driver.synchronize(transfer.stream)?;
            Ok(host_ns)
        })
    }

    /// Runs a closure and returns its span on the host's clock.
    #[allow(clippy::cast_precision_loss, reason = "2^53 ns are a hundred days")]
    pub(crate) fn clocked<T>(
        &self,
        run: impl FnOnce() -> Result<T, HardwareError>,
    ) -> Result<(T, Span), HardwareError> {
        let start_ns = self.driver.now().as_nanos() as f64;
        let done = run()?;
        Ok((done, Span { start_ns, end_ns: self.driver.now().as_nanos() as f64 }))
    }
}

/// Returns the same flow with pageable memory of the host.
fn pageable(flow: Flow) -> Flow {
    let pageable = |end| match end {
        Endpoint::Host { node, .. } => Endpoint::Host { node, memory: HostMemory::Pageable },
        gpu => gpu,
    };
    Flow { from: pageable(flow.from), to: pageable(flow.to) }
}

/// Joins spans to one that begins with the first and is as long as all of them together.
fn together<const N: usize>(spans: [Span; N]) -> Span {
    let start_ns = spans[0].start_ns;
    Span { start_ns, end_ns: start_ns + spans.iter().map(|span| span.length_ns()).sum::<f64>() }
}

fn is_enough(row: &Row, wanted: u32) -> bool {
    let spread = spread_percent(&row.copy_ns());
    row.rows.len() >= wanted as usize && spread.is_none_or(|spread| spread <= AGREE_PERCENT)
}
