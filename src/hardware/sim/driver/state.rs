//! What the simulated driver remembers: the host's clock, contexts, streams, events and memory,
//! and the engine that runs what was enqueued.

use std::sync::Arc;
use std::time::Duration;

use crate::hardware::sim::engine::{Ended, Engine, Lane, Op, Server, SharedHop, Submission, Work};
use crate::hardware::sim::hops::Met;
use crate::hardware::sim::memory::Memory;
use crate::hardware::sim::numbers::{Map, Set};
use crate::hardware::sim::routes::{Hop, PathClass};
use crate::hardware::sim::spec::{CopyFault, Drift, GpuSpec, MachineSpec, PairFault, PathSpeed};
use crate::hardware::{Buffer, Device, ErrorKind, Event, HardwareError, Stream};

use super::failed;

/// What a device has only so many of.
#[derive(Debug, Clone, Copy)]
pub struct Servers {
    /// Copies that leave for other GPUs.
    pub copies_out: Server,
    /// Copies that arrive from other GPUs.
    pub copies_in: Server,
    /// Copies to the host.
    pub to_host: Server,
    /// Copies from the host.
    pub from_host: Server,
    /// Kernels: each one fills the device.
    pub multiprocessors: Server,
}

/// What an event was last recorded after.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Recorded {
    /// Nothing yet.
    Never,
    /// An operation that has not ended.
    Under(Op),
    /// One that ended at this time, nanoseconds.
    At(f64),
}

/// A route with what the engine has to know of it.
#[derive(Debug, Clone)]
pub struct SharedPath {
    /// What copies of it reach.
    pub speed: PathSpeed,
    /// Rate of its narrowest link, GB/s, and less where a port redirects.
    pub bottleneck_gbps: f64,
    /// What it passes.
    pub hops: Arc<[SharedHop]>,
}

/// What happens in memory, to an event or to a context, when an operation ends.
#[derive(Debug)]
pub enum Effect {
    /// Bytes have moved for this device.
    Moved { issuer: Device, destination: Buffer, source: Buffer, bytes: u64, fault: Option<PairFault> },
    /// An event is reached.
    Reached(Event),
    /// A kernel touched what it must not: the context is gone.
    IllegalAddress(Device),
}

/// Everything that changes while the driver is used.
#[derive(Debug)]
pub struct State {
    pub spec: Arc<MachineSpec>,
    pub engine: Engine,
    pub memory: Memory,
    /// The host's clock, nanoseconds. Never behind the engine's.
    pub clock_ns: f64,
    /// Which device may reach the memory of which.
    pub access: Set<(Device, Device)>,
    /// Copies enqueued, which numbers the draws of noise.
    pub copies: u64,
    /// NVML's index of each device.
    gpus: Vec<u32>,
    contexts: Map<Device, Servers>,
    broken: Map<Device, HardwareError>,
    /// Calls that a device still serves before it gives the error of this code.
    due: Map<Device, (u32, u32)>,
    lanes: Map<Stream, Lane>,
    /// The lanes of each device, in the order in which they were made.
    device_lanes: Map<Device, Vec<Lane>>,
    last_stream: u32,
    events: Vec<(Device, Recorded)>,
    hops: Map<Hop, SharedHop>,
    paths: Map<(u32, u32, bool), SharedPath>,
    effects: Map<Op, Effect>,
    last_use: Map<u32, Op>,
}

impl State {
    /// A driver that was just initialised, with NVML's index of each device.
    pub fn new(spec: Arc<MachineSpec>, gpus: Vec<u32>) -> Self {
        Self {
            spec,
            engine: Engine::default(),
            memory: Memory::default(),
            clock_ns: 0.0,
            access: Set::default(),
            copies: 0,
            gpus,
            contexts: Map::default(),
            broken: Map::default(),
            due: Map::default(),
            lanes: Map::default(),
            device_lanes: Map::default(),
            last_stream: 0,
            events: Vec::new(),
            hops: Map::default(),
            paths: Map::default(),
            effects: Map::default(),
            last_use: Map::default(),
        }
    }

    /// Creates the context of a device.
    pub fn open(&mut self, device: Device) -> Result<(), HardwareError> {
        let &GpuSpec { copy_engines, host_engines, one_host_engine, .. } = self.gpu(device)?;
        if let Some(fault) = self.spec.faults.contexts.iter().find(|fault| self.index(device) == Ok(fault.gpu)) {
            return Err(failed(ErrorKind::Other, "cuDevicePrimaryCtxRetain", &fault.meaning, fault.code));
        }
        if !self.contexts.contains_key(&device) {
            let to_host = self.engine.add_server(host_engines);
            let servers = Servers {
                copies_out: self.engine.add_server(copy_engines),
                copies_in: self.engine.add_server(copy_engines),
                to_host,
                from_host: if one_host_engine { to_host } else { self.engine.add_server(host_engines) },
                multiprocessors: self.engine.add_server(1),
            };
            self.contexts.insert(device, servers);
            self.add_lane(Stream::default_of(device));
        }
        Ok(())
    }

    /// NVML's index of a device.
    pub fn index(&self, device: Device) -> Result<u32, HardwareError> {
        let unknown = || failed(ErrorKind::Other, "cuDeviceGet", "invalid device ordinal", 101);
        self.gpus.get(device.0 as usize).copied().ok_or_else(unknown)
    }

    /// The specification of a device.
    pub fn gpu(&self, device: Device) -> Result<&GpuSpec, HardwareError> {
        let index = self.index(device)?;
        Ok(&self.spec.gpus[index as usize])
    }

    /// What a device has only so many of.
    pub fn servers(&self, device: Device) -> Result<Servers, HardwareError> {
        let closed = || failed(ErrorKind::Other, "cuCtxSetCurrent", "the device has no context", 201);
        self.contexts.get(&device).copied().ok_or_else(closed)
    }

    /// Whether work can be given to a device.
    pub fn usable_device(&self, device: Device) -> Result<(), HardwareError> {
        self.servers(device)?;
        self.broken.get(&device).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The same for a new call: errors of earlier work come to light in one.
    pub fn answers(&mut self, device: Device) -> Result<(), HardwareError> {
        if let Some((code, calls)) = self.due.get_mut(&device) {
            *calls = calls.saturating_sub(1);
            if *calls == 0 {
                let meaning = "an error of earlier work on this device";
                let error = failed(ErrorKind::Sticky, "cuCtxSynchronize", meaning, *code);
                self.due.remove(&device);
                self.broken.insert(device, error);
            }
        }
        self.usable_device(device)
    }

    /// Whether the GPU kernels were loaded.
    pub fn kernels_loaded(&self) -> Result<(), HardwareError> {
        match &self.spec.faults.kernels {
            Some(why) => Err(HardwareError::new(ErrorKind::Unsupported, why)),
            None => Ok(()),
        }
    }

    /// Whether the first `bytes` bytes of a buffer can be used.
    pub fn usable_buffer(&self, call: &str, buffer: Buffer, bytes: u64) -> Result<(), HardwareError> {
        let invalid = |_| failed(ErrorKind::Other, call, "invalid argument: no such memory", 1);
        self.memory.usable(buffer, bytes).map_err(invalid)
    }

    /// A new stream, which never waits for the default stream.
    pub fn add_stream(&mut self, device: Device) -> Stream {
        self.last_stream += 1;
        let stream = Stream { device, id: self.last_stream };
        self.add_lane(stream);
        stream
    }

    fn add_lane(&mut self, stream: Stream) {
        let lane = self.engine.add_lane();
        self.lanes.insert(stream, lane);
        self.device_lanes.entry(stream.device).or_default().push(lane);
    }

    /// The lane of a stream.
    pub fn lane(&self, stream: Stream) -> Result<Lane, HardwareError> {
        let unknown = || failed(ErrorKind::Other, "cuStream", "invalid resource handle", 400);
        self.lanes.get(&stream).copied().ok_or_else(unknown)
    }

    /// A new event.
    pub fn add_event(&mut self, device: Device) -> Event {
        self.events.push((device, Recorded::Never));
        Event { device, id: u32::try_from(self.events.len() - 1).unwrap_or(u32::MAX) }
    }

    /// What an event was last recorded after.
    pub fn event(&self, call: &str, event: Event) -> Result<Recorded, HardwareError> {
        match self.events.get(event.id as usize) {
            Some((device, recorded)) if *device == event.device => Ok(*recorded),
            _ => Err(failed(ErrorKind::Other, call, "invalid resource handle", 400)),
        }
    }

    /// Remembers what an event was recorded after.
    pub fn set_event(&mut self, event: Event, op: Op) {
        if let Some(state) = self.events.get_mut(event.id as usize) {
            state.1 = Recorded::Under(op);
            self.effects.insert(op, Effect::Reached(event));
        }
    }

    /// The engine's hop for one of the machine's.
    pub fn shared_hop(&mut self, hop: Hop) -> SharedHop {
        if let Some(known) = self.hops.get(&hop) {
            return *known;
        }
        let hops = &mut self.engine.hops;
        let shared = hops.add(self.spec.shared_gbps(hop));
        self.hops.insert(hop, shared);
        if let Some(opposite) = hop.reversed().and_then(|reversed| self.hops.get(&reversed)) {
            hops.oppose(shared, *opposite);
        }
        self.spec.collapsed_gbps(hop).into_iter().for_each(|gbps| hops.collapse(shared, gbps));
        self.spec.starved(hop).into_iter().for_each(|(gpu, part)| hops.starve(shared, gpu, part));
        self.spec.sleep(hop).into_iter().for_each(|sleep| hops.put_to_sleep(shared, sleep));
        shared
    }

    /// Share of its rate that a GPU has by now, from 0 to 1.
    pub fn drifted(&self, gpu: u32) -> f64 {
        let drifts = self.spec.faults.drifts.iter().filter(|drift| drift.gpu == gpu);
        let left = |drift: &Drift| {
            let over_ns = drift.over_ms * 1e6;
            let passed = if self.clock_ns < over_ns { self.clock_ns / over_ns } else { 1.0 };
            1.0 - drift.percent / 100.0 * passed
        };
        drifts.map(left).product()
    }

    /// What a GPU's own memory gives, GB/s: the limit where the description has no link on the way.
    fn local_gbps(&self, gpu: u32) -> f64 {
        self.spec.gpus.get(gpu as usize).map_or(f64::INFINITY, |gpu| gpu.local_gbps)
    }

    /// The way of copies from one GPU to another.
    pub fn path(&mut self, from: u32, to: u32, direct: bool) -> SharedPath {
        if let Some(known) = self.paths.get(&(from, to, direct)) {
            return known.clone();
        }
        let route = if direct { self.spec.direct_route(from, to) } else { self.spec.staged_route(from, to) };
        let redirected = if direct && route.class != PathClass::NvLink { self.spec.redirect_share(from) } else { 1.0 };
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
        self.paths.insert((from, to, direct), path.clone());
        path
    }

    /// The host spends the time of a call.
    pub fn call(&mut self) {
        self.clock_ns += self.spec.speeds.call_us * 1e3;
    }

    /// Enqueues work on one stream.
    pub fn enqueue(
        &mut self,
        stream: Stream,
        after: Vec<Op>,
        server: Option<Server>,
        work: Work,
    ) -> Result<Op, HardwareError> {
        let lanes = vec![self.lane(stream)?];
        self.call();
        let servers = server.into_iter().collect();
        Ok(self.engine.enqueue(Submission { lanes, after, at: self.clock_ns, servers, work }))
    }

    /// Enqueues what the host has made ready, with what happens at its end.
    pub fn submit(&mut self, submission: Submission, buffers: [Buffer; 2], effect: Option<Effect>) {
        let op = self.engine.enqueue(submission);
        self.last_use.extend(buffers.map(|buffer| (buffer.id, op)));
        self.effects.extend(effect.map(|effect| (op, effect)));
    }

    /// Lets the devices do what they have done by the host's clock.
    pub fn catch_up(&mut self) {
        self.engine.run_to(self.clock_ns);
        for Ended { op, at: end, met } in self.engine.take_ended() {
            match self.effects.remove(&op) {
                Some(Effect::Moved { issuer, destination, source, bytes, fault }) => {
                    let fault = fault.filter(|fault| shows(fault, met)).map(|fault| fault.fault);
                    if let Some(CopyFault::LateError { code, calls }) = fault {
                        self.due.entry(issuer).or_insert((code, calls));
                    }
                    self.memory.copy(destination, source, bytes, fault);
                }
                Some(Effect::Reached(event)) => {
                    // Unless it was recorded again meanwhile.
                    if let Some((_, recorded)) = self.events.get_mut(event.id as usize)
                        && *recorded == Recorded::Under(op)
                    {
                        *recorded = Recorded::At(end);
                    }
                }
                Some(Effect::IllegalAddress(device)) => {
                    let meaning = "an illegal memory access was encountered";
                    self.broken.insert(device, failed(ErrorKind::Sticky, "cuStreamSynchronize", meaning, 700));
                }
                None => {}
            }
        }
    }

    /// The host waits for an operation. One that never ends is really waited for: that is what deadlines are for.
    pub fn wait_for(&mut self, op: Op) {
        match self.engine.run_until_ended(op) {
            Ok(end) => self.clock_ns = self.clock_ns.max(end),
            Err(_) => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
        }
        self.catch_up();
    }

    /// The host waits for everything on a stream.
    pub fn wait_for_stream(&mut self, stream: Stream) -> Result<(), HardwareError> {
        if let Some(last) = self.engine.last_of(self.lane(stream)?) {
            self.wait_for(last);
        }
        Ok(())
    }

    /// The host waits for everything on a device.
    pub fn wait_for_device(&mut self, device: Device) {
        let lanes = self.device_lanes.get(&device).cloned().unwrap_or_default();
        let last: Vec<_> = lanes.into_iter().filter_map(|lane| self.engine.last_of(lane)).collect();
        last.into_iter().for_each(|op| self.wait_for(op));
    }

    /// The host waits for everything that uses a buffer.
    pub fn wait_for_buffer(&mut self, buffer: Buffer) {
        if let Some(op) = self.last_use.get(&buffer.id).copied() {
            self.wait_for(op);
        }
    }

    /// Gives a buffer back.
    pub fn forget_buffer(&mut self, buffer: Buffer) {
        self.last_use.remove(&buffer.id);
        let _ = self.memory.free(buffer); // The caller has seen that it is there.
    }

    /// The host waits for a kernel over this much of a device's memory.
    pub fn touch(&mut self, device: Device, bytes: u64) {
        // Half of the rate of copies within the GPU, and a launch: 256 MiB took 0.2 to 0.3 ms on H200.
        let gbps = self.gpu(device).map_or(f64::INFINITY, |gpu| gpu.local_gbps / 2.0);
        self.call();
        #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
        let span = 2e4 + bytes as f64 / gbps;
        self.clock_ns += span;
        self.catch_up();
    }
}

/// Whether a fault shows in a copy that met this on its way.
const fn shows(fault: &PairFault, met: Met) -> bool {
    (!fault.both_ways || met.opposite) && (!fault.under_load || met.others) && (!fault.beside_third || met.third)
}
