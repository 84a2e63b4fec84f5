//! Copies between host and GPU: plain rows behind a gate, of one GPU or of several at the same time. The received bytes
//! are checked afterwards.
//!
//! Copies from and to pageable memory are not gated: their calls block the host until the bytes are moved, so behind a
//! closed gate they would never return.

use super::bench::{Bench, Origin};
use super::contents::Check;
use super::host_pool::{Lent, of_host};
use super::statistics::spread_percent;
use super::{Outcome, Row, Span};
use hardware::{Buffer, ErrorKind, Event, HardwareError, PatternCheck, Stream};
use model::flow::{Endpoint, Flow, HostMemory, Setup};
use model::host::Allocation;
use model::placement::{Engine, Pair, Path, Placement, Side, StreamKind};
use model::units::MIB;
use plan::Round;

/// Bytes of the copy before a row's first event.
const WARM_BYTES: u64 = MIB;
/// Rows whose spread is at most this agree, per cent: further rows would change nothing.
const AGREE_PERCENT: f64 = 0.5;
/// Largest number of rows added if they do not agree.
const MORE_ROWS: u32 = 2;

/// One direction between host and GPU, with all its resources.
struct Leg {
    gpu: u32,
    to_device: bool,
    memory: HostMemory,
    node: Option<u32>,
    on_host: Lent,
    on_device: Buffer,
    stream: Stream,
    kind: StreamKind,
    /// Events before the first copy and after the last.
    marks: [Event; 2],
    /// Seed of the pattern that is copied.
    seed: u64,
    /// Check of the poison on the GPU before copies to it; for memory pinned anew, the check of the last copy. `None` if
    /// nothing was checked.
    before: Option<PatternCheck>,
}

/// Returns GPU, direction (true: to the GPU), memory and node of a flow between host and GPU.
fn parts(flow: Flow) -> Option<(u32, bool, HostMemory, Option<u32>)> {
    match (flow.from, flow.to) {
        (Endpoint::Host { node, memory }, Endpoint::Gpu(gpu)) => Some((gpu, true, memory, node)),
        (Endpoint::Gpu(gpu), Endpoint::Host { node, memory }) => Some((gpu, false, memory, node)),
        _ => None,
    }
}

impl Bench<'_> {
    /// Runs a round of copies between host and GPU.
    pub(super) fn host(
        &self,
        round: &Round,
        rows: u32,
        copies: u32,
        allocation: Allocation,
    ) -> Result<Outcome, HardwareError> {
        let setup = round.task.setup;
        let found = match allocation {
            Allocation::Reused => self.host_rows(&round.flows, setup, rows, copies.max(1)),
            Allocation::Anew => self.anew(&round.flows, setup, rows),
        };
        // Give the memory back after an error too. Report the first error.
        let back = self.give_back();
        found.and_then(|rows| back.map(|()| Outcome::Rows { rows }))
    }

    fn host_rows(
        &self,
        flows: &[Flow],
        setup: Setup,
        rows: u32,
        copies: u32,
    ) -> Result<Vec<Row>, HardwareError> {
        let mut legs: Vec<Leg> = Vec::new();
        for flow in flows {
            let lent: Vec<_> = legs.iter().map(|leg| leg.on_host).collect();
            legs.push(self.leg(*flow, setup, &lent)?);
        }
        for leg in &mut legs {
            self.prepare(leg, setup.bytes.0)?;
        }
        if legs.iter().any(|leg| leg.memory == HostMemory::Pageable) {
            // The first row is far slower than the others (9 instead of 15 GB/s to an H200) and is not counted.
            self.host_row(&legs, setup, copies)?;
        }
        let mut found: Vec<_> = legs.iter().map(|leg| empty(leg, copies)).collect();
        let mut left = rows + MORE_ROWS;
        while left > 0 && !found.iter().all(|row| is_enough(row, rows)) {
            for (row, (span, host_ns)) in found.iter_mut().zip(self.host_row(&legs, setup, copies)?)
            {
                row.rows.push(span);
                row.host_ns.push(host_ns);
            }
            left -= 1;
            if legs.iter().any(|leg| leg.memory == HostMemory::Pageable)
                && found[0].rows.len() >= rows as usize
            {
                // Copies by the processor scatter, and more of them would not agree either.
                break;
            }
        }
        for (row, leg) in found.iter_mut().zip(&legs) {
            row.check = self.arrived(leg, setup.bytes.0)?;
        }
        Ok(found)
    }

    /// Returns the resources of a flow.
    fn leg(&self, flow: Flow, setup: Setup, lent: &[Lent]) -> Result<Leg, HardwareError> {
        let odd =
            || HardwareError::new(ErrorKind::Other, "these are no copies between host and GPU");
        let (gpu, to_device, memory, node) = parts(flow).ok_or_else(odd)?;
        let open_gpu = self.open_gpu(gpu)?;
        let on_device = if to_device {
            open_gpu.receive
        } else {
            open_gpu.send
        };
        // Each direction has its own stream, so that neither waits for the other.
        let kind = if to_device {
            StreamKind::Side
        } else {
            StreamKind::Default
        };
        let placement = Placement {
            source: kind,
            ..Placement::REFERENCE
        };
        let within = Pair {
            source: gpu,
            destination: gpu,
        };
        let stream = self.current_stream(within, placement, Side::Source)?;
        let events = self.events(open_gpu.device, 4)?;
        let marks = if to_device {
            [events[0], events[1]]
        } else {
            [events[2], events[3]]
        };
        let on_host = self.lend(
            open_gpu.device,
            (memory, node),
            setup.bytes.0,
            to_device,
            lent,
        )?;
        let (seed, before) = (0, None);
        Ok(Leg {
            gpu,
            to_device,
            memory,
            node,
            on_host,
            on_device,
            stream,
            kind,
            marks,
            seed,
            before,
        })
    }

    /// Fills the source of the bytes and poisons their destination.
    fn prepare(&self, leg: &mut Leg, bytes: u64) -> Result<(), HardwareError> {
        let within = Pair {
            source: leg.gpu,
            destination: leg.gpu,
        };
        let fresh = || {
            self.seeds
                .next(within, Engine::Copy, Side::Source, Path::Staged)
        };
        let has_kernels = self.facts().kernels_failure_of(leg.gpu).is_none();
        let default = Stream::default_of(leg.on_device.device);
        if leg.to_device {
            leg.seed = leg.on_host.seed.unwrap_or_else(fresh);
            if leg.on_host.seed.is_none() {
                self.driver.host_fill(leg.on_host.buffer, bytes, leg.seed)?;
                self.holds(leg.on_host.buffer, Some(leg.seed));
            }
            if has_kernels {
                self.driver.poison(leg.on_device, bytes, leg.seed)?;
                self.driver
                    .check(leg.on_device, bytes, leg.seed, leg.seed)?;
                leg.before = Some(self.driver.checked(leg.on_device, bytes)?);
            }
            return Ok(());
        }
        let held = self.contents.borrow().get(&leg.gpu).copied();
        leg.seed = held.unwrap_or_else(fresh);
        if held.is_none() && has_kernels {
            // Fill the whole buffer: copies to peers use the same contents.
            self.driver
                .fill(leg.on_device, leg.on_device.bytes, leg.seed)?;
            self.driver.synchronize(default)?;
            self.contents.borrow_mut().insert(leg.gpu, leg.seed);
        }
        self.holds(leg.on_host.buffer, None);
        self.driver.host_poison(leg.on_host.buffer, bytes, leg.seed)
    }

    /// Checks the bytes at their destination. Returns `None` if the GPU has no kernels to check them with.
    fn arrived(&self, leg: &Leg, bytes: u64) -> Result<Option<Check>, HardwareError> {
        if self.facts().kernels_failure_of(leg.gpu).is_some() {
            return Ok(None);
        }
        if !leg.to_device {
            let counted = self
                .driver
                .host_check(leg.on_host.buffer, bytes, leg.seed, leg.seed)?;
            return Ok(Some(Check::of(&counted)));
        }
        self.driver
            .check(leg.on_device, bytes, leg.seed, leg.seed)?;
        let counted = self.driver.checked(leg.on_device, bytes)?;
        let blind = leg.before.filter(|before| before.poisoned != before.words);
        Ok(Some(match blind {
            Some(before) => Check::inconclusive(format!(
                "the check itself does not work on GPU {}: of {} words that were poisoned it saw {}",
                leg.gpu, before.words, before.poisoned
            )),
            None => Check::of(&counted),
        }))
    }

    /// Times one row of each leg, all at once. Returns the row, and the host's nanoseconds per copy.
    fn host_row(
        &self,
        legs: &[Leg],
        setup: Setup,
        copies: u32,
    ) -> Result<Vec<(Span, f64)>, HardwareError> {
        let (began, bytes) = (self.driver.now(), setup.bytes.0);
        let (mut gated, mut host) = (false, Vec::new());
        self.gated(|| {
            host.clear();
            if legs.iter().all(|leg| leg.memory != HostMemory::Pageable) {
                gated = self.shut_legs(legs)?;
            }
            for leg in legs {
                self.host_copy(
                    leg,
                    setup.engine,
                    if gated { WARM_BYTES.min(bytes) } else { bytes },
                )?;
                self.driver.record(leg.marks[0], leg.stream)?;
                let ns = self.timed(|| {
                    (0..copies).try_for_each(|_| self.host_copy(leg, setup.engine, bytes))
                })?;
                host.push(ns / f64::from(copies));
                self.driver.record(leg.marks[1], leg.stream)?;
            }
            Ok(())
        })?;
        legs.iter()
            .try_for_each(|leg| self.driver.synchronize(leg.stream))?;
        self.gates_held()?;
        let span = |leg: &Leg| {
            let origin = match gated {
                true => self.opening(self.open_gpu(leg.gpu)?.opened),
                false => Origin {
                    event: leg.marks[0],
                    at: began,
                },
            };
            self.spans(origin, &leg.marks)
                .map(|mut spans| spans.remove(0))
        };
        legs.iter()
            .zip(host)
            .map(|(leg, ns)| Ok((span(leg)?, ns)))
            .collect()
    }

    /// Closes the gate of each GPU. Returns false if streams cannot be held and there is only one leg, which is then
    /// measured without a gate.
    fn shut_legs(&self, legs: &[Leg]) -> Result<bool, HardwareError> {
        let mut shut: Vec<(u32, Event)> = Vec::new();
        for leg in legs {
            let closed = shut
                .iter()
                .find(|(gpu, _)| *gpu == leg.gpu)
                .map(|(_, opened)| *opened);
            let opened = match closed.map_or_else(|| self.close_gate(leg.gpu), Ok) {
                Err(error) if error.kind == ErrorKind::Unsupported && legs.len() == 1 => {
                    return Ok(false);
                }
                opened => opened?,
            };
            shut.push((leg.gpu, opened));
            self.driver.wait(leg.stream, opened)?;
        }
        Ok(true)
    }

    fn host_copy(&self, leg: &Leg, engine: Engine, bytes: u64) -> Result<(), HardwareError> {
        let Leg {
            stream,
            on_device,
            on_host: Lent { buffer, .. },
            ..
        } = *leg;
        match (leg.to_device, engine) {
            (true, Engine::Copy) => self.driver.copy_to_device(stream, on_device, buffer, bytes),
            (true, Engine::Kernel) => self
                .driver
                .kernel_copy_to_device(stream, on_device, buffer, bytes),
            (false, Engine::Copy) => self.driver.copy_to_host(stream, buffer, on_device, bytes),
            (false, Engine::Kernel) => self
                .driver
                .kernel_copy_to_host(stream, buffer, on_device, bytes),
        }
    }

    /// Times copies whose memory is page-locked anew for each. Pinned memory is allocated and freed. Registered memory
    /// belongs to the process, and is only registered and unregistered. The host's clock times page-locking and copy,
    /// but not filling.
    fn anew(&self, flows: &[Flow], setup: Setup, rows: u32) -> Result<Vec<Row>, HardwareError> {
        let [flow] = flows else {
            return Err(HardwareError::new(
                ErrorKind::Other,
                "copies with memory that is page-locked anew have one flow",
            ));
        };
        let odd =
            || HardwareError::new(ErrorKind::Other, "these are no copies between host and GPU");
        let (_, _, memory, node) = parts(*flow).ok_or_else(odd)?;
        let as_pageable = match *flow {
            Flow {
                from: Endpoint::Host { .. },
                to,
            } => Flow {
                from: Endpoint::Host {
                    node,
                    memory: HostMemory::Pageable,
                },
                to,
            },
            Flow { from, .. } => Flow {
                from,
                to: Endpoint::Host {
                    node,
                    memory: HostMemory::Pageable,
                },
            },
        };
        let mut leg = match memory {
            HostMemory::Registered => self.leg(as_pageable, setup, &[])?,
            _ => self.leg(*flow, setup, &[])?,
        };
        let mut row = empty(&leg, 1);
        for _ in 0..rows.max(1) {
            let (span, host_ns) = match memory {
                HostMemory::Registered => self.registered_anew(&mut leg, setup)?,
                _ => self.pinned_anew(&mut leg, setup)?,
            };
            row.rows.push(span);
            row.host_ns.push(host_ns);
        }
        if memory == HostMemory::Registered {
            row.check = self.arrived(&leg, setup.bytes.0)?;
        } else {
            row.check = leg.before.take().map(|counted| Check::of(&counted));
        }
        Ok(vec![row])
    }

    /// Times one copy of pageable memory that is registered for this copy only.
    fn registered_anew(&self, leg: &mut Leg, setup: Setup) -> Result<(Span, f64), HardwareError> {
        let pageable = leg.on_host;
        if leg.seed == 0 {
            self.prepare(leg, setup.bytes.0)?;
        }
        let device = leg.on_device.device;
        let (registered, lock) = self.clocked(|| {
            self.driver
                .host_register(device, pageable.buffer)
                .map_err(of_host)
        })?;
        leg.on_host.buffer = registered;
        let copied = self.copy_and_wait(leg, setup);
        let (_, unlock) = self.clocked(|| self.driver.host_unregister(registered))?;
        leg.on_host = pageable;
        let (host_ns, copy) = copied?;
        Ok((together([lock, copy, unlock]), host_ns))
    }

    /// Times one copy of memory that is allocated page-locked for this copy only. Stores the check of its bytes in
    /// `before`, since the memory is freed.
    fn pinned_anew(&self, leg: &mut Leg, setup: Setup) -> Result<(Span, f64), HardwareError> {
        let (device, kept, bytes) = (leg.on_device.device, leg.on_host, setup.bytes.0);
        let (buffer, lock) =
            self.clocked(|| self.take_host(device, (HostMemory::Pinned, leg.node), bytes))?;
        leg.on_host = Lent { buffer, seed: None };
        let copied = self.prepare(leg, bytes).and_then(|()| {
            let copied = self.copy_and_wait(leg, setup)?;
            Ok((copied, self.counted(leg, bytes)?))
        });
        let (_, unlock) = self.clocked(|| self.free_host(buffer))?;
        leg.on_host = kept;
        let ((host_ns, copy), counted) = copied?;
        leg.before = counted;
        Ok((together([lock, copy, unlock]), host_ns))
    }

    /// Makes one copy and waits for it. Returns the host's nanoseconds in the call, and the whole span.
    fn copy_and_wait(&self, leg: &Leg, setup: Setup) -> Result<(f64, Span), HardwareError> {
        self.clocked(|| {
            let host_ns = self.timed(|| self.host_copy(leg, setup.engine, setup.bytes.0))?;
            self.driver.synchronize(leg.stream)?;
            Ok(host_ns)
        })
    }

    /// Counts the wrong words that arrived. Returns `None` if the GPU has no kernels to count them with.
    fn counted(&self, leg: &Leg, bytes: u64) -> Result<Option<PatternCheck>, HardwareError> {
        if self.facts().kernels_failure_of(leg.gpu).is_some() {
            return Ok(None);
        }
        if !leg.to_device {
            return self
                .driver
                .host_check(leg.on_host.buffer, bytes, leg.seed, leg.seed)
                .map(Some);
        }
        self.driver
            .check(leg.on_device, bytes, leg.seed, leg.seed)?;
        self.driver.checked(leg.on_device, bytes).map(Some)
    }

    /// Runs a closure and returns its span on the host's clock.
    #[allow(clippy::cast_precision_loss, reason = "2^53 ns are a hundred days")]
    pub(super) fn clocked<T>(
        &self,
        run: impl FnOnce() -> Result<T, HardwareError>,
    ) -> Result<(T, Span), HardwareError> {
        let start_ns = self.driver.now().as_nanos() as f64;
        let done = run()?;
        Ok((
            done,
            Span {
                start_ns,
                end_ns: self.driver.now().as_nanos() as f64,
            },
        ))
    }
}

/// Joins spans to one that begins with the first and is as long as all of them together.
fn together(spans: [Span; 3]) -> Span {
    let start_ns = spans[0].start_ns;
    Span {
        start_ns,
        end_ns: start_ns + spans.iter().map(|span| span.length_ns()).sum::<f64>(),
    }
}

fn is_enough(row: &Row, wanted: u32) -> bool {
    let spread = spread_percent(&row.copy_ns());
    row.rows.len() >= wanted as usize && spread.is_none_or(|spread| spread <= AGREE_PERCENT)
}

fn empty(leg: &Leg, copies: u32) -> Row {
    Row {
        gpu: leg.gpu,
        stream: leg.kind,
        copies,
        at_once: 1,
        ..Row::default()
    }
}
