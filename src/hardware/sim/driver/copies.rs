//! Copies: their paths, their costs, and their faults.

use crate::engine::{Few, Flow, Server, Submission, Work};
use crate::spec::{CopyFault, HostWay, PairFault, Pairs, WindowFault};
use hardware::pattern::pattern;
use hardware::{Buffer, Device, ErrorKind, HardwareError, Sent, Stream};
use model::placement::{Engine, Path, Side};
use model::units::MIB;

use super::effect::Effect;
use super::state::{SharedPath, State};
use super::{HOLD_LIMIT_NS, failed};

/// Nanoseconds from the launch of a kernel to the access that kills it.
const ILLEGAL_ACCESS_NS: f64 = 5e3;

/// Share of the first copy's extra cost that is due at once. Single copies on H200 took 9.3 us more than their bytes at
/// 397.41 GB/s at 1 MiB, 11.7 at 16, 12.0 at 64 and 512 (docs/dev/facts.md, "Direct copies over NVLink"). The extra cost
/// is 9.5 us beside the 2.26 of every copy.
const FIRST_AT_ONCE: f64 = 0.72;
/// Bytes over which the rest of that cost is due. Copies that the destination issues do not pay the rest.
const FIRST_BYTES: f64 = 16.0 * MIB as f64;

/// Fixed cost of every copy within a GPU: 1.4 to 2.9 us are published (p2pBandwidthLatencyTest: cuda-samples issue 230,
/// nccl-tests issues 100 and 117).
const LOCAL_EACH_NS: f64 = 2.5e3;

/// Share of its rate that a copy keeps while each is compared: 388.3 of 389.9 GB/s both ways on 2 x H200.
const COMPARED: f64 = 0.996;

/// How one operation stands for several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repeat {
    /// Times its bytes.
    pub(super) bytes: f64,
    /// Times its fixed cost.
    pub(super) each: f64,
    /// The source of the copy before the last, if that is another.
    pub(super) before: Option<Buffer>,
    /// The words that were sent, and the number of their counts, if the copies are compared.
    pub(super) compared: Option<(Sent, u32)>,
    /// Number of copies.
    pub(super) copies: u32,
}

impl Repeat {
    /// One copy.
    pub(super) const ONCE: Self =
        Self { bytes: 1.0, each: 1.0, before: None, compared: None, copies: 1 };

    /// The same copy, one after the other.
    pub(super) fn times(times: u32) -> Self {
        let copies = times.max(1);
        Self { bytes: f64::from(copies), each: f64::from(copies), copies, ..Self::ONCE }
    }
}

/// A copy that is ready to be enqueued.
pub(super) struct Prepared {
    /// The units of the devices that it needs.
    pub(super) servers: Few<Server>,
    pub(super) flow: Flow,
    /// Numbers of both ends, for the draws of noise.
    pub(super) ends: (u32, u32),
    pub(super) fault: Option<PairFault>,
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
impl State {
    /// Enqueues a copy that stands for several.
    pub(super) fn copy(
        &mut self,
        engine: Engine,
        stream: Stream,
        (destination, source): (Buffer, Buffer),
        bytes: u64,
        repeat: Repeat,
    ) -> Result<(), HardwareError> {
        let devices = (source.device(), destination.device());
        let call = match (engine, devices) {
            (Engine::Kernel, _) => "cuLaunchKernel",
            (Engine::Copy, (Some(_), Some(_))) => "cuMemcpyPeerAsync",
            (Engine::Copy, (None, _)) => "cuMemcpyHtoDAsync",
            (Engine::Copy, (_, None)) => "cuMemcpyDtoHAsync",
        };
        let invalid = |meaning, code| Err(failed(ErrorKind::Other, call, meaning, code));
        let issuer = stream.device;
        if engine == Engine::Kernel {
            self.kernels_loaded()?;
        }
        self.answers(issuer)?;
        for device in [devices.0, devices.1].into_iter().flatten() {
            self.usable_device(device)?;
        }
        if devices.0 != Some(issuer) && devices.1 != Some(issuer) {
            return invalid("the stream is of neither device", 400);
        }
        for buffer in [source, destination] {
            self.usable_buffer(call, buffer, bytes)?;
        }
        let pageable = source.is_pageable() || destination.is_pageable();
        if engine == Engine::Kernel && pageable {
            return invalid("invalid argument: memory that is not mapped", 1);
        }
        let own = self.lane(stream)?;
        let mut lanes = Few::one(own);
        let prepared = match devices {
            (Some(from), Some(to)) => {
                let other = if issuer == from { to } else { from };
                // Measured: a peer copy on a legacy default stream, of either device, serialises with the
                // legacy default streams of both.
                if engine == Engine::Copy && stream.id == 0 && other != issuer {
                    lanes = Few::two(own, self.lane(Stream::default_of(other))?);
                }
                self.peer_copy(engine, issuer, (from, to), bytes)?
            }
            (None, _) => {
                self.spend(true, bytes);
                Some(self.host_copy(engine, issuer, source, HostWay::ToDevice, bytes)?)
            }
            (_, None) => {
                self.spend(true, bytes);
                Some(self.host_copy(engine, issuer, destination, HostWay::ToHost, bytes)?)
            }
        };
        let at = self.clock_ns;
        let (servers, work, effect) = match prepared {
            None => (
                Few::one(self.servers(issuer)?.multiprocessors),
                Work::Busy(ILLEGAL_ACCESS_NS),
                Some(Effect::IllegalAddress(issuer)),
            ),
            Some(Prepared { servers, mut flow, ends, fault }) => {
                self.delay(&mut flow, ends, fault);
                if let (Some(_), Some(to)) = (repeat.compared, devices.1) {
                    // A copy writes each byte, and the comparison reads and writes it once more. The memory does twice what
                    // a copy within the GPU has.
                    let memory = 2.0 * *self.gpu(to)?.local_gbps / 3.0;
                    flow.cap = (flow.cap * COMPARED).min(memory);
                }
                flow.bytes *= repeat.bytes;
                flow.each_ns *= repeat.each;
                let (destination, source, fault) =
                    self.through_window(engine, issuer, (destination, source), bytes, fault);
                // The conditions of a conditional fault are known only when the copy ends.
                match fault.filter(|fault| !fault.is_conditional()).map(|fault| fault.fault) {
                    Some(CopyFault::Hangs) => (servers, Work::Never, None),
                    Some(CopyFault::Crashes) => std::process::abort(),
                    _ => (
                        servers,
                        Work::Flow(flow),
                        Some(Effect::Moved {
                            issuer,
                            destination,
                            source,
                            before: repeat.before,
                            compared: repeat.compared,
                            copies: repeat.copies,
                            bytes,
                            fault,
                        }),
                    ),
                }
            }
        };
        let submission = Submission { lanes, after: None, at, servers, work };
        self.submit(submission, [source, destination], effect);
        if pageable {
            // The call waits for the copy.
            self.wait_for_buffer(source);
        }
        Ok(())
    }

    /// Returns what a direct copy reaches, and its fault. A copy of a range that the issuer does not reach is lost, or reaches
    /// another address.
    fn through_window(
        &mut self,
        engine: Engine,
        issuer: Device,
        (destination, source): (Buffer, Buffer),
        bytes: u64,
        fault: Option<PairFault>,
    ) -> (Buffer, Buffer, Option<PairFault>) {
        let as_it_is = (destination, source, fault);
        let writes = source.device() == Some(issuer);
        let far = if writes { destination } else { source };
        let Some(owner) = far.device().filter(|owner| *owner != issuer) else { return as_it_is };
        let (Ok(gpu), Ok(by)) = (self.index(owner), self.index(issuer)) else { return as_it_is };
        let at = self.memory.address(far);
        let fits = |window: &&WindowFault| {
            window.gpu == gpu
                && window.by.is_none_or(|only| only == by)
                && window.engine.is_none_or(|only| only == engine)
                && (window.from.0..window.to.0).contains(&at)
        };
        let window = self.spec.faults.windows.iter().find(fits).copied();
        let Some(window) = window.filter(|_| self.reaches(engine, issuer, owner)) else {
            return as_it_is;
        };
        let reached = window.instead.and_then(|instead| {
            self.memory.buffer_at(owner, instead.0 + (at - window.from.0), bytes)
        });
        match reached {
            Some(reached) if writes => (reached, source, fault),
            Some(reached) => (destination, reached, fault),
            None => {
                let lost = PairFault::new(Pairs::Ordered(by, gpu), CopyFault::Dropped);
                (destination, source, Some(lost))
            }
        }
    }

    /// Prepares a copy between devices or within one. Returns none for a kernel that may not access the other device.
    fn peer_copy(
        &mut self,
        engine: Engine,
        issuer: Device,
        (source, destination): (Device, Device),
        bytes: u64,
    ) -> Result<Option<Prepared>, HardwareError> {
        let other = if issuer == source { destination } else { source };
        let local = source == destination;
        if self.spec.faults.lazy_peers && self.met.insert((source, destination)) {
            if !self.held.is_empty() {
                self.clock_ns += HOLD_LIMIT_NS;
            }
            self.catch_up();
        }
        let direct = local || self.reaches(engine, issuer, other);
        let servers = self.servers_of(engine, issuer, (source, destination), direct)?;
        self.spend(direct, bytes);
        if !direct && engine == Engine::Kernel {
            return Ok(None);
        }
        let ends = (self.index(source)?, self.index(destination)?);
        let side = if issuer == source { Side::Source } else { Side::Destination };
        let path = if direct { Path::Direct } else { Path::Staged };
        let now = self.seconds();
        let late = || {
            let fault = self.spec.late_copy_fault(ends, now).filter(|_| !local)?;
            let pairs = Pairs::Ordered(ends.0, ends.1);
            Some(PairFault::new(pairs, fault))
        };
        let fault = self.spec.copy_fault(ends, engine, side, path);
        let fault = fault.filter(|fault| self.spec.is_hot_enough(fault, ends, now)).or_else(late);
        let mut flow = self.flow(engine, issuer, (source, destination), direct, bytes)?;
        if direct && !local {
            flow.cap *= self.drifted(ends.0) * self.drifted(ends.1);
        }
        Ok(Some(Prepared { servers, flow, ends, fault }))
    }

    /// Returns the servers that a copy needs. A copy between GPUs needs an engine of its issuer. A copy through host
    /// memory needs an engine of both, and not the same ones.
    fn servers_of(
        &self,
        engine: Engine,
        issuer: Device,
        (source, destination): (Device, Device),
        direct: bool,
    ) -> Result<Few<Server>, HardwareError> {
        let servers = self.servers(issuer)?;
        Ok(match engine {
            Engine::Kernel => Few::one(servers.multiprocessors),
            Engine::Copy if !direct => {
                Few::two(self.servers(source)?.to_host, self.servers(destination)?.from_host)
            }
            Engine::Copy if issuer == source => Few::one(servers.copies_out),
            Engine::Copy => Few::one(servers.copies_in),
        })
    }

    /// Returns true if a copy between these devices is direct. A copy engine needs access in either direction, a kernel
    /// its own device's access to the peer.
    fn reaches(&self, engine: Engine, device: Device, peer: Device) -> bool {
        let backwards = engine == Engine::Copy && self.access.is_given(peer, device);
        backwards || self.access.is_given(device, peer)
    }

    /// Advances the host's clock by the time that enqueuing a copy takes. Without peer access the host stages the bytes
    /// itself, so even the asynchronous call blocks it.
    fn spend(&mut self, direct: bool, bytes: u64) {
        let speeds = &self.spec.speeds;
        let staging =
            if direct { 0.0 } else { *speeds.staged_call_us_per_mib * bytes as f64 / MIB as f64 };
        self.clock_ns += (*speeds.copy_call_us + staging) * 1e3;
    }

    /// Lengthens a copy by its noise and its fault.
    pub(super) fn delay(
        &mut self,
        flow: &mut Flow,
        (source, destination): (u32, u32),
        fault: Option<PairFault>,
    ) {
        self.copies += 1;
        let noise = self.spec.noise;
        let mut draws = draws(noise.seed, self.copies, source, destination);
        let mut longer = 1.0 + draws.f64() * *noise.percent / 100.0;
        match fault.map(|fault| (fault.fault, fault)) {
            Some((CopyFault::Slow { share }, fault)) if fault.both_ways => flow.both_ways *= *share,
            Some((CopyFault::Slow { share }, fault)) if fault.under_load => {
                flow.beside_others *= *share
            }
            Some((CopyFault::Slow { share }, fault)) if fault.beside_third => {
                flow.beside_third *= *share
            }
            Some((CopyFault::Slow { share }, _)) => flow.cap *= *share,
            Some((CopyFault::Unstable { percent }, _)) => {
                longer *= 1.0 + draws.f64() * *percent / 100.0
            }
            Some((CopyFault::Outliers { one_in, times }, _))
                if draws.u32(0..one_in.max(1)) == 0 =>
            {
                longer *= *times
            }
            _ => {}
        }
        // Add work rather than lower the rate, so that the effect remains whatever limits the rate.
        flow.bytes *= longer;
        flow.each_ns *= longer;
        flow.first_ns *= longer;
        flow.event_ns *= longer;
    }

    fn flow(
        &mut self,
        engine: Engine,
        issuer: Device,
        (source, destination): (Device, Device),
        direct: bool,
        bytes: u64,
    ) -> Result<Flow, HardwareError> {
        let (from, to) = (self.index(source)?, self.index(destination)?);
        if source == destination {
            let cap = *self.gpu(source)?.local_gbps;
            return Ok(Flow {
                places: [from, to],
                each_ns: LOCAL_EACH_NS,
                ..Flow::new(bytes as f64, cap)
            });
        }
        let SharedPath { speed, bottleneck_gbps, hops } = self.path(from, to, direct);
        let (share, extra_us) = match engine {
            Engine::Copy if issuer == source => (speed.copy, 0.0),
            Engine::Copy => (speed.copy, *speed.from_destination_us),
            Engine::Kernel if issuer == source => (speed.push, 0.0),
            Engine::Kernel => (speed.pull, 0.0),
        };
        let warmed_up = if issuer == source { (bytes as f64 / FIRST_BYTES).min(1.0) } else { 0.0 };
        let first_us = *speed.first_us * (FIRST_AT_ONCE + (1.0 - FIRST_AT_ONCE) * warmed_up);
        let cap = *share * bottleneck_gbps;
        // The least time, without the time that the bytes take.
        let least_ns = if cap > 0.0 { *speed.least_us * 1e3 - bytes as f64 / cap } else { 0.0 };
        // A long read hides the extra cost of the event.
        let event_us = match engine {
            Engine::Kernel => 0.0,
            Engine::Copy if issuer == source => *speed.event_us,
            Engine::Copy => {
                let hidden = (bytes as f64 / FIRST_BYTES).min(1.0);
                *speed.event_us + *speed.event_from_destination_us * (1.0 - hidden)
            }
        };
        Ok(Flow {
            hops,
            places: [from, to],
            both_ways: *speed.both_ways,
            each_ns: ((*speed.each_us + extra_us) * 1e3).max(least_ns),
            first_ns: first_us * 1e3,
            event_ns: event_us * 1e3,
            ..Flow::new(bytes as f64, cap)
        })
    }
}

/// Returns the random draws for one copy. The same seed, number and pair return the same draws.
fn draws(seed: u64, number: u64, source: u32, destination: u32) -> fastrand::Rng {
    let pair = u64::from(source) << 32 | u64::from(destination);
    fastrand::Rng::with_seed(pattern(pattern(seed, number), pair))
}
