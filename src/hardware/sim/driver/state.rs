//! State of the simulated driver: the host's clock, contexts, streams, events and memory, and the engine that runs the
//! enqueued work.

mod paths;
mod work;

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::engine::{Ended, Engine, Few, Lane, Op, SharedHop, Submission, Work};
use crate::memory::Memory;
use crate::routes::Hop;
use crate::spec::{MachineSpec, PairFault};
use hardware::{Buffer, Device, ErrorKind, Event, HardwareError, PatternCheck, Stream};
use model::maps::Map;
use model::placement::StreamKind;

use super::context::Context;
use super::effect::Effect;
use super::failed;
use super::tables::{Access, Effects, Paths};
use super::talks::{SingleLinks, Talks};

pub(super) use self::paths::SharedPath;

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
    /// Copies made between two ends by which a fault counts, source first.
    made: HashMap<(Option<Device>, Option<Device>), u64>,
    /// Counts of compared copies, by the device that compares.
    pub(super) tallies: HashMap<(Device, u32), PatternCheck>,
    /// Operations that hold streams until the next release, with their devices.
    pub held: Vec<(Op, Device)>,
    /// Pairs of devices that have been copied between.
    pub met: HashSet<(Device, Device)>,
    /// Number of holds of streams, by device.
    holds: Vec<u32>,
    pub talks: Talks,
    pub(super) links: SingleLinks,
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
            made: HashMap::new(),
            tallies: HashMap::new(),
            held: Vec::new(),
            met: HashSet::new(),
            holds: vec![0; devices],
            talks: Talks::default(),
            links: SingleLinks::default(),
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
        let invalid = |_| failed(ErrorKind::Other, call, "invalid argument: no such memory", 1);
        self.memory.usable(buffer, bytes).map(drop).map_err(invalid)
    }

    /// Creates a stream, or names a default stream.
    pub(super) fn add_stream(&mut self, device: Device, kind: StreamKind) -> Stream {
        let is_legacy = kind == StreamKind::PerThread && self.spec.faults.per_thread_is_default;
        if kind == StreamKind::Default || is_legacy {
            return Stream { kind, ..Stream::default_of(device) };
        }
        let known = self.context(device).and_then(|context| context.per_thread);
        if let (StreamKind::PerThread, Some(known)) = (kind, known) {
            return known;
        }
        let lane = self.engine.add_lane();
        self.streams.push((device, lane));
        let id = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        let stream = Stream { device, id, kind };
        let mut before = None;
        if let Some(context) = self.context_mut(device) {
            context.lanes.push(lane);
            if kind != StreamKind::Side {
                context.blocking.push(lane);
                before = context.lanes.first().copied();
            }
            if kind == StreamKind::PerThread {
                context.per_thread = Some(stream);
            }
        }
        // It waits for what the default stream has to do already.
        if let Some(default) = before {
            let (lanes, servers) = (Few::two(default, lane), Few::NONE);
            let at = self.clock_ns;
            self.engine.enqueue(Submission { lanes, after: None, at, servers, work: Work::Mark });
        }
        stream
    }

    pub(super) fn lane(&self, stream: Stream) -> Result<Lane, HardwareError> {
        let unknown = || failed(ErrorKind::Other, "cuStream", "invalid resource handle", 400);
        let lane = match (stream.id as usize).checked_sub(1) {
            None => self.context(stream.device).and_then(|context| context.lanes.first()),
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
        Event { device, id: u32::try_from(self.events.len() - 1).unwrap_or(u32::MAX) }
    }

    /// Returns the position after which an event was last recorded.
    pub(super) fn event(&self, call: &str, event: Event) -> Result<Recorded, HardwareError> {
        match self.events.get(event.id as usize) {
            Some((device, recorded)) if *device == event.device => Ok(*recorded),
            _ => Err(failed(ErrorKind::Other, call, "invalid resource handle", 400)),
        }
    }

    /// Sets the operation after which an event was recorded.
    pub(super) fn set_event(&mut self, event: Event, op: Op) {
        if let Some(state) = self.events.get_mut(event.id as usize) {
            state.1 = Recorded::Under(op);
            self.effects.insert(op, Effect::Reached(event));
        }
    }

    /// Returns the host's clock in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.clock_ns / 1e9
    }

    /// Frees a buffer.
    pub(super) fn forget_buffer(&mut self, buffer: Buffer) {
        self.last_use.get_mut(buffer.id as usize).into_iter().for_each(|last| *last = None);
        let _ = self.memory.free(buffer); // The caller has checked that it exists.
    }
}
