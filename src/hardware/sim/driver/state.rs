//! State of the simulated driver: the host's clock, contexts, streams, events and memory, and the engine that runs the
//! enqueued work.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Ended, Engine, Few, Lane, Op, Server, SharedHop, Submission, Work};
use crate::memory::Memory;
use crate::routes::{Hop, PathClass};
use crate::spec::{CopyFault, Drift, MachineSpec, PairFault, PathSpeed};
use crate::work::Contention;
use hardware::{Buffer, Device, ErrorKind, Event, HardwareError, Stream};
use model::maps::Map;

use super::context::{Context, Due};
use super::effect::Effect;
use super::failed;
use super::tables::{Access, Effects, Paths};
use super::talks::Talks;

/// The position after which an event was last recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Recorded {
    /// The event was not recorded yet.
    Never,
    /// An operation that has not ended.
    Under(Op),
    /// An operation that ended at this time, nanoseconds.
    At(f64),
}

/// A route with the data that the engine needs.
#[derive(Debug, Clone)]
pub(super) struct SharedPath {
    /// Speeds of copies on this route.
    pub speed: PathSpeed,
    /// Rate of its narrowest link, GB/s, reduced if a port redirects.
    pub bottleneck_gbps: f64,
    pub hops: Arc<[SharedHop]>,
}

/// All state that changes while the driver is used.
#[derive(Debug)]
pub(super) struct State {
    pub spec: Arc<MachineSpec>,
    pub engine: Engine,
    pub memory: Memory,
    /// The host's clock, nanoseconds. Never behind the engine's.
    pub clock_ns: f64,
    /// Access of each device to the memory of the others.
    pub access: Access,
    /// Number of copies enqueued, which numbers the draws of noise.
    pub copies: u64,
    /// NVML's index of each device.
    pub(super) gpus: Vec<u32>,
    /// Contexts by device.
    pub(super) contexts: Vec<Option<Context>>,
    /// Streams by number, from 1 on, without the default streams.
    streams: Vec<(Device, Lane)>,
    events: Vec<(Device, Recorded)>,
    hops: Map<Hop, SharedHop>,
    paths: Paths<SharedPath>,
    effects: Effects,
    /// Reused from one call to the next.
    ended: Vec<Ended>,
    /// The last operation on each buffer, by the buffer's number.
    last_use: Vec<Option<Op>>,
    /// Faults with a limit on how often they occur, and how often each has occurred.
    shown: Vec<(PairFault, u32)>,
    /// Operations that hold streams until the next release, with their devices.
    pub held: Vec<(Op, Device)>,
    /// Pairs of devices that have been copied between.
    pub met: HashSet<(Device, Device)>,
    /// Number of holds of streams, by device.
    holds: Vec<u32>,
    pub talks: Talks,
    /// Devices with access to a buffer that was mapped for them, by the buffer's number.
    pub(super) mapped: Map<u32, Vec<Device>>,
    /// Files of buffers that other processes may open.
    pub(super) published: Vec<OwnedFd>,
}

impl State {
    /// Creates a driver that was just initialised, with NVML's index of each device.
    pub(super) fn new(spec: Arc<MachineSpec>, gpus: Vec<u32>) -> Self {
        let (devices, all) = (gpus.len(), spec.gpus.len());
        Self {
            spec,
            engine: Engine::default(),
            memory: Memory::default(),
            clock_ns: 0.0,
            access: Access::none(devices),
            copies: 0,
            gpus,
            contexts: (0..devices).map(|_| None).collect(),
            streams: Vec::new(),
            events: Vec::new(),
            hops: Map::default(),
            paths: Paths::none(all),
            effects: Effects::default(),
            ended: Vec::new(),
            last_use: Vec::new(),
            shown: Vec::new(),
            held: Vec::new(),
            met: HashSet::new(),
            holds: vec![0; devices],
            talks: Talks::default(),
            mapped: Map::default(),
            published: Vec::new(),
        }
    }

    /// Fails if the GPU kernels could not be loaded.
    pub(super) fn kernels_loaded(&self) -> Result<(), HardwareError> {
        match &self.spec.faults.kernels {
            Some(why) => Err(HardwareError::new(ErrorKind::Unsupported, why)),
            None => Ok(()),
        }
    }

    /// Fails if the first `bytes` bytes of a buffer cannot be used.
    pub(super) fn usable_buffer(
        &self,
        call: &str,
        buffer: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let invalid = |_| {
            failed(
                ErrorKind::Other,
                call,
                "invalid argument: no such memory",
                1,
            )
        };
        self.memory.usable(buffer, bytes).map(drop).map_err(invalid)
    }

    /// Creates a stream that never waits for the default stream.
    pub(super) fn add_stream(&mut self, device: Device) -> Stream {
        let lane = self.engine.add_lane();
        self.streams.push((device, lane));
        self.context_mut(device)
            .into_iter()
            .for_each(|context| context.lanes.push(lane));
        Stream {
            device,
            id: u32::try_from(self.streams.len()).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn lane(&self, stream: Stream) -> Result<Lane, HardwareError> {
        let unknown = || failed(ErrorKind::Other, "cuStream", "invalid resource handle", 400);
        let lane = match (stream.id as usize).checked_sub(1) {
            None => self
                .context(stream.device)
                .and_then(|context| context.lanes.first()),
            Some(place) => self
                .streams
                .get(place)
                .filter(|(device, _)| *device == stream.device)
                .map(|(_, lane)| lane),
        };
        lane.copied().ok_or_else(unknown)
    }

    /// Creates an event.
    pub(super) fn add_event(&mut self, device: Device) -> Event {
        self.events.push((device, Recorded::Never));
        Event {
            device,
            id: u32::try_from(self.events.len() - 1).unwrap_or(u32::MAX),
        }
    }

    /// Returns the position after which an event was last recorded.
    pub(super) fn event(&self, call: &str, event: Event) -> Result<Recorded, HardwareError> {
        match self.events.get(event.id as usize) {
            Some((device, recorded)) if *device == event.device => Ok(*recorded),
            _ => Err(failed(
                ErrorKind::Other,
                call,
                "invalid resource handle",
                400,
            )),
        }
    }

    /// Sets the operation after which an event was recorded.
    pub(super) fn set_event(&mut self, event: Event, op: Op) {
        if let Some(state) = self.events.get_mut(event.id as usize) {
            state.1 = Recorded::Under(op);
            self.effects.insert(op, Effect::Reached(event));
        }
    }

    /// Returns the engine's hop for a hop of the machine.
    pub(super) fn shared_hop(&mut self, hop: Hop) -> SharedHop {
        if let Some(known) = self.hops.get(&hop) {
            return *known;
        }
        let hops = &mut self.engine.hops;
        let shared = hops.add(self.spec.shared_gbps(hop));
        self.hops.insert(hop, shared);
        if let Some(opposite) = hop.reversed().and_then(|reversed| self.hops.get(&reversed)) {
            hops.oppose(shared, *opposite);
        }
        self.spec
            .collapsed_gbps(hop)
            .into_iter()
            .for_each(|gbps| hops.collapse(shared, gbps));
        self.spec
            .starved(hop)
            .into_iter()
            .for_each(|(gpu, part)| hops.starve(shared, gpu, part));
        self.spec
            .sleep(hop)
            .into_iter()
            .for_each(|sleep| hops.put_to_sleep(shared, sleep));
        shared
    }

    /// Returns the share of its rate that a GPU has by now, from 0 to 1.
    pub(super) fn drifted(&self, gpu: u32) -> f64 {
        let drifts = self
            .spec
            .faults
            .drifts
            .iter()
            .filter(|drift| drift.gpu == gpu);
        let left = |drift: &Drift| {
            let over_ns = drift.over_ms * 1e6;
            let passed = if self.clock_ns < over_ns {
                self.clock_ns / over_ns
            } else {
                1.0
            };
            1.0 - drift.percent / 100.0 * passed
        };
        let drifted: f64 = drifts.map(left).product();
        drifted * self.spec.clock_at(gpu, self.seconds())
    }

    /// Returns the host's clock in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.clock_ns / 1e9
    }

    /// Returns the rate of a GPU's own memory, GB/s. It is the limit if the description has no link on the way.
    fn local_gbps(&self, gpu: u32) -> f64 {
        self.spec
            .gpus
            .get(gpu as usize)
            .map_or(f64::INFINITY, |gpu| gpu.local_gbps)
    }

    /// Returns the path of copies from one GPU to another.
    pub(super) fn path(&mut self, from: u32, to: u32, direct: bool) -> SharedPath {
        if let Some(known) = self.paths.get((from, to, direct)) {
            return known;
        }
        let route = if direct {
            self.spec.direct_route(from, to)
        } else {
            self.spec.staged_route(from, to)
        };
        let redirected = if direct && route.class != PathClass::NvLink {
            self.spec.redirect_share(from)
        } else {
            1.0
        };
        let bottleneck_gbps = Some(self.spec.bottleneck_gbps(&route))
            .filter(|rate| rate.is_finite())
            .unwrap_or_else(|| self.local_gbps(from).min(self.local_gbps(to)));
        let path = SharedPath {
            speed: match route.class {
                PathClass::NvLink => self.spec.speeds.nvlink,
                PathClass::Pcie => self.spec.speeds.pcie,
                PathClass::CrossSocket => self.spec.speeds.cross_socket,
                PathClass::Staged => self.spec.speeds.staged,
            },
            bottleneck_gbps: redirected * bottleneck_gbps,
            hops: route.hops.iter().map(|hop| self.shared_hop(*hop)).collect(),
        };
        self.paths.keep((from, to, direct), path.clone());
        path
    }

    /// Advances the host's clock by the time of a call.
    pub(super) fn call(&mut self) {
        self.clock_ns += self.spec.speeds.call_us * 1e3;
    }

    /// Enqueues work on one stream.
    pub(super) fn enqueue(
        &mut self,
        stream: Stream,
        after: Option<Op>,
        server: Option<Server>,
        work: Work,
    ) -> Result<Op, HardwareError> {
        let lanes = Few::one(self.lane(stream)?);
        self.call();
        let servers = server.map_or(Few::NONE, Few::one);
        Ok(self.engine.enqueue(Submission {
            lanes,
            after,
            at: self.clock_ns,
            servers,
            work,
        }))
    }

    /// Enqueues a gate.
    pub(super) fn hold(&mut self, stream: Stream, limit: f64) -> Result<(), HardwareError> {
        let late = self.gpu(stream.device)?.gate_delay_us * 1e3;
        let lanes = Few::one(self.lane(stream)?);
        self.call();
        let at = self.clock_ns + self.begins_late(stream.device)?;
        let work = Work::Gate { limit, late };
        let op = self.engine.enqueue(Submission {
            lanes,
            after: None,
            at,
            servers: Few::NONE,
            work,
        });
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
        let fault = self
            .spec
            .faults
            .late_gates
            .iter()
            .find(|fault| fault.gpu == gpu);
        Ok(fault
            .filter(|fault| fault.times.is_none_or(|times| before < times))
            .map_or(0.0, |fault| fault.us * 1e3))
    }

    /// Enqueues a prepared submission, with the effect of its end.
    pub(super) fn submit(
        &mut self,
        submission: Submission,
        buffers: [Buffer; 2],
        effect: Option<Effect>,
    ) {
        let op = self.engine.enqueue(submission);
        for buffer in buffers {
            let place = self.memory.whole(buffer) as usize;
            if self.last_use.len() <= place {
                self.last_use.resize(place + 1, None);
            }
            self.last_use[place] = Some(op);
        }
        effect
            .into_iter()
            .for_each(|effect| self.effects.insert(op, effect));
    }

    /// Runs the devices up to the host's clock.
    pub(super) fn catch_up(&mut self) {
        self.engine.run_to(self.clock_ns);
        let mut ended = std::mem::take(&mut self.ended);
        self.engine.take_ended(&mut ended);
        for Ended {
            op,
            at: end,
            contention,
        } in ended.drain(..)
        {
            match self.effects.take(op) {
                Some(Effect::Moved {
                    issuer,
                    destination,
                    source,
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
                    self.memory
                        .copy(destination, source, bytes, fault.map(|fault| fault.fault));
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
        let place = self
            .shown
            .iter()
            .position(|(known, _)| known == fault)
            .unwrap_or_else(|| {
                self.shown.push((*fault, 0));
                self.shown.len() - 1
            });
        self.shown[place].1 += 1;
        self.shown[place].1 <= most
    }

    /// Makes the host wait for an operation. If the operation never ends, this really waits: deadlines exist for that.
    pub(super) fn wait_for(&mut self, op: Op) {
        match self.engine.run_until_ended(op) {
            Ok(end) => self.clock_ns = self.clock_ns.max(end),
            Err(_) => never(),
        }
        self.catch_up();
    }

    /// Makes the host wait for everything on a stream.
    pub(super) fn wait_for_stream(&mut self, stream: Stream) -> Result<(), HardwareError> {
        if let Some(last) = self.engine.last_of(self.lane(stream)?) {
            self.wait_for(last);
        }
        Ok(())
    }

    /// Makes the host wait for everything on a device.
    pub(super) fn wait_for_device(&mut self, device: Device) {
        let lanes = self
            .context(device)
            .map_or_else(Vec::new, |context| context.lanes.clone());
        let last: Vec<_> = lanes
            .into_iter()
            .filter_map(|lane| self.engine.last_of(lane))
            .collect();
        last.into_iter().for_each(|op| self.wait_for(op));
    }

    /// Makes the host wait for everything that uses a buffer.
    pub(super) fn wait_for_buffer(&mut self, buffer: Buffer) {
        let whole = self.memory.whole(buffer) as usize;
        if let Some(op) = self.last_use.get(whole).copied().flatten() {
            self.wait_for(op);
        }
    }

    /// Frees a buffer.
    pub(super) fn forget_buffer(&mut self, buffer: Buffer) {
        self.last_use
            .get_mut(buffer.id as usize)
            .into_iter()
            .for_each(|last| *last = None);
        self.mapped.remove(&buffer.id);
        let _ = self.memory.free(buffer); // The caller has checked that it exists.
    }

    /// Makes the host wait for a kernel over this much of a device's memory.
    pub(super) fn touch(&mut self, device: Device, bytes: u64) {
        // Half of the rate of copies within the GPU, plus a launch: 256 MiB took 0.2 to 0.3 ms on H200.
        let gbps = self
            .gpu(device)
            .map_or(f64::INFINITY, |gpu| gpu.local_gbps / 2.0);
        self.call();
        #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
        let span = 2e4 + bytes as f64 / gbps;
        self.clock_ns += span;
        self.catch_up();
    }
}

/// Returns true if a fault occurs in a copy that met these conditions on its way.
fn shows(fault: &PairFault, contention: Contention) -> bool {
    let enough = fault
        .flows_at_once
        .is_none_or(|flows| contention.flows >= flows);
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
