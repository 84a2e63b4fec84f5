//! Enqueues work, applies the effects of work that has ended, and lets the host wait.

use std::time::Duration;

use hardware::{Buffer, Device, ErrorKind, HardwareError, PatternCheck, Sent, Stream};

use super::super::context::Due;
use super::super::effect::Effect;
use super::super::failed;
use super::{Recorded, State};
use crate::engine::{Ended, Few, Lane, Op, Server, Submission, Work};
use crate::memory::Content;
use crate::spec::{CopyFault, PairFault};
use crate::work::Contention;

impl State {
    /// Advances the host's clock by the time of a call.
    pub(in crate::driver) fn call(&mut self) {
        self.clock_ns += *self.spec.speeds.call_us * 1e3;
    }

    /// Enqueues work on one stream.
    pub(in crate::driver) fn enqueue(
        &mut self,
        stream: Stream,
        after: Option<Op>,
        server: Option<Server>,
        work: Work,
    ) -> Result<Op, HardwareError> {
        let lanes = Few::one(self.lane(stream)?);
        self.call();
        let servers = server.map_or(Few::NONE, Few::one);
        Ok(self.in_order(Submission { lanes, after, at: self.clock_ns, servers, work }))
    }

    /// Enqueues a submission in CUDA's order: on the legacy default stream of a device it waits for all work on the
    /// device's blocking streams, and all later work on these waits for it.
    fn in_order(&mut self, submission: Submission) -> Op {
        let at = submission.at;
        let mut both = Vec::new();
        for context in self.contexts.iter().flatten().filter(|of| !of.blocking.is_empty()) {
            if let Some(default) = submission.lanes.iter().find(|lane| *lane == context.lanes[0]) {
                both.extend(context.blocking.iter().map(|lane| Few::two(default, *lane)));
            }
        }
        let mark = |lanes: &Few<Lane>| Submission {
            lanes: *lanes,
            after: None,
            at,
            servers: Few::NONE,
            work: Work::Mark,
        };
        for lanes in &both {
            self.engine.enqueue(mark(lanes));
        }
        let op = self.engine.enqueue(submission);
        for lanes in &both {
            self.engine.enqueue(mark(lanes));
        }
        op
    }

    /// Enqueues a gate.
    pub(in crate::driver) fn hold(
        &mut self,
        stream: Stream,
        limit: f64,
    ) -> Result<(), HardwareError> {
        let late = *self.gpu(stream.device)?.gate_delay_us * 1e3;
        let lanes = Few::one(self.lane(stream)?);
        self.call();
        let at = self.clock_ns + self.begins_late(stream.device)?;
        let work = Work::Gate { limit, late };
        let op = self.in_order(Submission { lanes, after: None, at, servers: Few::NONE, work });
        self.held.push((op, stream.device));
        Ok(())
    }

    /// Returns the nanoseconds after which a device begins with its next gate.
    fn begins_late(&mut self, device: Device) -> Result<f64, HardwareError> {
        let gpu = self.index(device)?;
        let before = self
            .holds
            .get_mut(device.0 as usize)
            .map_or(0, |holds| std::mem::replace(holds, *holds + 1));
        let fault = self.spec.faults.late_gates.iter().find(|fault| fault.gpu == gpu);
        Ok(fault
            .filter(|fault| fault.times.is_none_or(|times| before < times))
            .map_or(0.0, |fault| *fault.us * 1e3))
    }

    /// Enqueues a prepared submission, with the effect of its end.
    pub(in crate::driver) fn submit(
        &mut self,
        submission: Submission,
        buffers: [Buffer; 2],
        effect: Option<Effect>,
    ) {
        let op = self.in_order(submission);
        for buffer in buffers {
            let place = self.memory.whole(buffer) as usize;
            if self.last_use.len() <= place {
                self.last_use.resize(place + 1, None);
            }
            self.last_use[place] = Some(op);
        }
        effect.into_iter().for_each(|effect| self.effects.insert(op, effect));
    }

    /// Enqueues a kernel that compares and poisons a buffer. It runs beside other kernels.
    pub(in crate::driver) fn compare(
        &mut self,
        stream: Stream,
        buffer: Buffer,
        bytes: u64,
        sent: Sent,
        tally: u32,
    ) -> Result<(), HardwareError> {
        let device = stream.device;
        let lanes = Few::one(self.lane(stream)?);
        let work = Work::Busy(self.touch_ns(device, bytes));
        self.call();
        let at = self.clock_ns;
        let submission = Submission { lanes, after: None, at, servers: Few::NONE, work };
        let effect = Effect::Compared { device, buffer, bytes, sent, tally };
        self.submit(submission, [buffer; 2], Some(effect));
        Ok(())
    }

    /// Runs the devices up to the host's clock.
    pub(in crate::driver) fn catch_up(&mut self) {
        self.engine.run_to(self.clock_ns);
        let mut ended = std::mem::take(&mut self.ended);
        self.engine.take_ended(&mut ended);
        for Ended { op, at: end, contention } in ended.drain(..) {
            match self.effects.take(op) {
                Some(Effect::Moved {
                    issuer,
                    destination,
                    source,
                    before,
                    compared,
                    copies,
                    bytes,
                    fault,
                }) => {
                    let fault =
                        fault.filter(|fault| shows(fault, contention) && self.counts(fault));
                    match fault.map(|fault| fault.fault) {
                        Some(CopyFault::LateError { code, calls }) => {
                            let lasts = fault.is_some_and(|fault| fault.times.is_none());
                            self.context_mut(issuer).into_iter().for_each(|context| {
                                context.due.get_or_insert(Due { code, calls, lasts });
                            });
                        }
                        Some(CopyFault::Hangs) => never(),
                        Some(CopyFault::Crashes) => std::process::abort(),
                        _ => {}
                    }
                    let fault = fault.map(|fault| fault.fault);
                    let ends = (source.device(), destination.device());
                    let (faulty, [but_one, last]) = self.faulty(fault, ends, bytes, copies);
                    if let Some((sent, tally)) = compared {
                        let fault = fault.filter(|_| faulty > 0);
                        self.memory.write_from(
                            destination,
                            bytes,
                            Content::Poison(sent.seed),
                            sent.from * 8,
                        );
                        self.memory.copy(destination, source, bytes, fault);
                        let found = self.memory.compare(destination, bytes, sent);
                        let to = destination.device();
                        to.into_iter().for_each(|to| self.count(to, tally, found.times(faulty)));
                        continue;
                    }
                    if let Some(before) = before {
                        self.memory.copy(destination, before, bytes, but_one);
                    }
                    self.memory.copy(destination, source, bytes, last);
                }
                Some(Effect::Compared { device, buffer, bytes, sent, tally }) => {
                    let found = self.memory.compare(buffer, bytes, sent);
                    self.count(device, tally, found);
                }
                Some(Effect::Reached(event)) => {
                    // Skip an event that was recorded again meanwhile.
                    if let Some((_, recorded)) = self.events.get_mut(event.id as usize)
                        && *recorded == Recorded::Under(op)
                    {
                        *recorded = Recorded::At(end);
                    }
                }
                Some(Effect::IllegalAddress(device)) => {
                    let meaning = "an illegal memory access was encountered";
                    let error = failed(ErrorKind::Sticky, "cuStreamSynchronize", meaning, 700);
                    self.context_mut(device)
                        .into_iter()
                        .for_each(|context| context.broken = Some(error.clone()));
                }
                None => {}
            }
        }
        self.ended = ended;
    }

    /// Returns true if a fault occurs once more. Counts it if its number is limited.
    fn counts(&mut self, fault: &PairFault) -> bool {
        let Some(most) = fault.times else { return true };
        let place = self.shown.iter().position(|(known, _)| known == fault).unwrap_or_else(|| {
            self.shown.push((*fault, 0));
            self.shown.len() - 1
        });
        self.shown[place].1 += 1;
        self.shown[place].1 <= most
    }

    /// Returns how many of these copies are faulty, and the faults of the last but one and of the last. Faults of every so many
    /// copies, or bits, are those of few.
    fn faulty(
        &mut self,
        fault: Option<CopyFault>,
        ends: (Option<Device>, Option<Device>),
        bytes: u64,
        copies: u32,
    ) -> (u64, [Option<CopyFault>; 2]) {
        let (each, every) = match fault {
            None => return (0, [None; 2]),
            Some(CopyFault::LostLine { every }) => (1, u64::from(every)),
            Some(CopyFault::BitErrors { one_in }) => (bytes.saturating_mul(8), one_in),
            fault => return (u64::from(copies), [fault; 2]),
        };
        let made = self.made.entry(ends).or_default();
        let before = *made;
        *made = before.saturating_add(each.saturating_mul(u64::from(copies)));
        let number = |back: u64| made.saturating_sub(each.saturating_mul(back)).max(before) / every;
        let [but_one, last] = [1, 0].map(|back| fault.filter(|_| number(back) > number(back + 1)));
        (u64::from(copies).min(number(0) - before / every), [but_one, last])
    }

    /// Adds to the counts of compared copies.
    fn count(&mut self, device: Device, tally: u32, found: PatternCheck) {
        let counts = self.tallies.entry((device, tally)).or_insert(PatternCheck::NONE);
        *counts = PatternCheck { words: 0, ..counts.and(found) };
    }

    /// Makes the host wait for an operation. If the operation never ends, this really waits: deadlines exist for that.
    pub(in crate::driver) fn wait_for(&mut self, op: Op) {
        match self.engine.run_until_ended(op) {
            Ok(end) => self.clock_ns = self.clock_ns.max(end),
            Err(_) => never(),
        }
        self.catch_up();
    }

    /// Makes the host wait for everything on a stream.
    pub(in crate::driver) fn wait_for_stream(
        &mut self,
        stream: Stream,
    ) -> Result<(), HardwareError> {
        if let Some(last) = self.engine.last_of(self.lane(stream)?) {
            self.wait_for(last);
        }
        Ok(())
    }

    /// Makes the host wait for everything on a device.
    pub(in crate::driver) fn wait_for_device(&mut self, device: Device) {
        let lanes = self.context(device).map_or_else(Vec::new, |context| context.lanes.clone());
        let last: Vec<_> = lanes.into_iter().filter_map(|lane| self.engine.last_of(lane)).collect();
        last.into_iter().for_each(|op| self.wait_for(op));
    }

    /// Makes the host wait for everything that uses a buffer.
    pub(in crate::driver) fn wait_for_buffer(&mut self, buffer: Buffer) {
        let whole = self.memory.whole(buffer) as usize;
        if let Some(op) = self.last_use.get(whole).copied().flatten() {
            self.wait_for(op);
        }
    }

    /// Makes the host wait for a kernel over this much of a device's memory.
    pub(in crate::driver) fn touch(&mut self, device: Device, bytes: u64) {
        self.call();
        self.clock_ns += 2e4 + self.touch_ns(device, bytes);
        self.catch_up();
    }

    /// Returns the nanoseconds of a kernel over this much of a device's memory, without its launch: half of the rate of copies
    /// within the GPU. 256 MiB took 0.2 to 0.3 ms on H200.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    pub(in crate::driver) fn touch_ns(&self, device: Device, bytes: u64) -> f64 {
        let gbps = self.gpu(device).map_or(f64::INFINITY, |gpu| *gpu.local_gbps / 2.0);
        bytes as f64 / gbps
    }
}

/// Returns true if a fault occurs in a copy that met these conditions on its way.
fn shows(fault: &PairFault, contention: Contention) -> bool {
    let enough = fault.flows_at_once.is_none_or(|flows| contention.flows >= flows);
    enough
        && (!fault.both_ways || contention.opposite)
        && (!fault.under_load || contention.others)
        && (!fault.beside_third || contention.third)
}

/// Blocks the host for ever.
fn never() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
