//! Owns the devices of a run with their streams, events and buffers, and runs the rounds on them.

mod around;
pub(crate) mod at_once;
pub(crate) mod check;
pub(crate) mod compared;
mod contents;
pub(crate) mod following;
mod gates;
pub(crate) mod gpu_buffers;
pub(crate) mod host_pool;
pub(crate) mod open_gpus;
mod peer_access;
pub(crate) mod row;
pub(crate) mod rows;
pub(crate) mod running;
pub(crate) mod seeds;
pub(crate) mod timeline;
pub(crate) mod transfer;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use crate::Round;
use crate::bench::at_once::AtOnce;
use crate::bench::following::Following;
use crate::bench::open_gpus::{Selection, find, hidden};
use crate::bench::seeds::{Filled, Seeds};
use hardware::{BlockMap, Buffer, Device, Driver, ErrorKind, Event, HardwareError, Stream};
use model::flow::Setup;
use model::maps::{Map, Set};
use model::measurement::{CudaDevice, DriverFacts};
use model::placement::{Pair, Placement, Side, StreamKind};
use model::units::Bytes;

/// An opened device with its streams and buffers.
pub(crate) struct OpenGpu {
    pub device: Device,
    /// True if confidential computing is on.
    confidential: bool,
    /// The processors of its NUMA node; empty if they are unknown or the only ones.
    pub processors: Vec<usize>,
    pub send: Buffer,
    /// Buffer for received bytes.
    pub receive: Buffer,
    side: Stream,
    /// Stream held while work is enqueued; the other streams wait for its event.
    gate: Stream,
    /// Event of the gate's opening.
    pub opened: Event,
}

/// An event of a device, with its time on the host's clock.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub event: Event,
    pub at: Duration,
}

/// The devices of a run, and the rounds run on them.
pub struct Bench<'a> {
    pub(crate) driver: &'a dyn Driver,
    open_gpus: Map<u32, OpenGpu>,
    facts: DriverFacts,
    /// Ordered pairs whose first device can access the second's memory now.
    enabled: RefCell<Set<(Device, Device)>>,
    events: RefCell<Map<(Device, bool), Vec<Event>>>,
    /// Further streams of a device, by kind, beside those of its open_gpu.
    streams: RefCell<Map<(Device, StreamKind), Vec<Stream>>>,
    /// Time of the last opening of the gates, on the clock of [`Driver::now`].
    released: Cell<Duration>,
    /// Latest nanoseconds per byte in the reference placement, by setup of any size.
    pub(crate) pace: RefCell<Map<(Pair, Setup), f64>>,
    /// Latest extra nanoseconds of a copy in another placement, from any pair, by setup of any size.
    pub(crate) placement_ns: RefCell<Map<Setup, f64>>,
    /// Times that this run looked again at a row that took far longer than others.
    pub(crate) looks_again: Cell<u32>,
    pub(crate) seeds: Seeds,
    /// The patterns that buffers hold, by the buffer's number.
    pub(crate) filled: RefCell<Map<u32, Filled>>,
    /// Copies to a buffer since it was poisoned, by the buffer's number.
    pub(crate) arrived: RefCell<Map<u32, u32>>,
    /// Blocks of a peer's memory by link. Empty until they were learned.
    pub(crate) blocks: RefCell<BlockMap>,
    pub(crate) at_once: RefCell<AtOnce>,
    pub(crate) following: Following,
    /// What comparing every copy costs the flows of a round of hours, by the round's number, per cent.
    pub(crate) slowed: RefCell<Map<u32, Vec<Option<f64>>>>,
    /// Buffers of the host that this run keeps.
    pub(crate) kept: RefCell<Vec<Buffer>>,
    /// Bytes of the host's memory that are taken.
    pub(crate) taken: Cell<u64>,
}

impl<'a> Bench<'a> {
    /// Opens the devices, allocates memory, and asks which devices can access each other. Failures are recorded in
    /// [`Bench::facts`]; a device that fails loses only itself.
    pub fn open(driver: &'a dyn Driver, selections: &[Selection], memory_limit: Bytes) -> Self {
        Self::open_telling(driver, selections, memory_limit, false, &mut |_| ())
    }

    /// Opens the devices like [`Bench::open`]. Calls `opening` with the NVML index of each GPU before any request to
    /// the driver that concerns it alone. All contexts are created at once unless `one_by_one`.
    pub fn open_telling(
        driver: &'a dyn Driver,
        selections: &[Selection],
        memory_limit: Bytes,
        one_by_one: bool,
        opening: &mut dyn FnMut(u32),
    ) -> Self {
        let found: Vec<_> =
            selections.iter().map(|wanted| find(driver.devices(), wanted)).collect();
        let devices: Vec<Device> = found.iter().flatten().map(|info| info.device).collect();
        let mut opened: Map<Device, _> = Map::default();
        if one_by_one {
            for (wanted, info) in selections.iter().zip(&found) {
                let Some(info) = info else { continue };
                opening(wanted.index);
                opened.extend([info.device].into_iter().zip(driver.open(&[info.device])));
            }
        } else {
            opened.extend(devices.iter().copied().zip(driver.open(&devices)));
        }
        let mut bench = Self {
            driver,
            open_gpus: Map::default(),
            facts: DriverFacts::default(),
            enabled: RefCell::default(),
            events: RefCell::default(),
            streams: RefCell::default(),
            released: Cell::default(),
            pace: RefCell::default(),
            placement_ns: RefCell::default(),
            looks_again: Cell::default(),
            seeds: Seeds::new(),
            filled: RefCell::default(),
            arrived: RefCell::default(),
            blocks: RefCell::default(),
            at_once: RefCell::default(),
            following: Following::default(),
            slowed: RefCell::default(),
            kept: RefCell::default(),
            taken: Cell::default(),
        };
        // A failure is reported later, when the value is needed.
        bench.facts.host_budget_bytes = driver.host_room().ok().map(|room| Bytes(room.most(0)));
        for (wanted, info) in selections.iter().zip(found) {
            opening(wanted.index);
            let open_gpu = match info {
                None => Err(HardwareError::new(ErrorKind::Other, hidden().1)),
                Some(info) => opened
                    .remove(&info.device)
                    .unwrap_or_else(|| Err(HardwareError::new(ErrorKind::Other, "named twice")))
                    .and_then(|()| open_gpus::whole(info, wanted))
                    .and_then(|()| bench.equip(info.device, wanted, memory_limit)),
            };
            bench.facts.devices.push(CudaDevice {
                index: wanted.index,
                ordinal: info.map(|info| info.device.0),
                failure: open_gpu.as_ref().err().map(ToString::to_string),
                failure_code: open_gpu.as_ref().err().and_then(|error| error.code),
                hindered: open_gpu.as_ref().is_err_and(|error| error.kind == ErrorKind::Hindered),
                hidden: info.is_none().then(|| hidden().0),
                kernels_failure: None,
                budget_bytes: open_gpu.as_ref().ok().map(|open_gpu| Bytes(2 * open_gpu.send.bytes)),
                attributes: info.map(|info| info.attributes.clone()),
                rdma: open_gpu.as_ref().ok().and_then(|open_gpu| driver.rdma(open_gpu.device)),
            });
            if let Ok(open_gpu) = open_gpu {
                bench.open_gpus.insert(wanted.index, open_gpu);
            }
        }
        open_gpus::note_kernels(&mut bench.facts, |gpu| {
            driver.kernels_failure(bench.open_gpus.get(&gpu)?.device)
        });
        bench.facts.peer_access = bench.ask_peer_access(selections, opening);
        bench
    }

    /// Returns the facts that the driver reported.
    pub const fn facts(&self) -> &DriverFacts {
        &self.facts
    }

    /// Returns the pairs that a round copies between, at least one.
    pub(crate) fn pairs(&self, round: &Round) -> Result<Vec<Pair>, HardwareError> {
        let pairs: Option<Vec<_>> = round.flows.iter().map(|flow| flow.pair()).collect();
        pairs.filter(|pairs| !pairs.is_empty()).ok_or_else(|| {
            HardwareError::new(
                ErrorKind::Unsupported,
                "this version does not copy to or from host memory",
            )
        })
    }

    /// Returns the GPU of a round that copies within one.
    pub(crate) fn within(&self, round: &Round) -> Result<u32, HardwareError> {
        let gpu = round.flows.iter().find_map(|flow| flow.within());
        gpu.ok_or_else(|| HardwareError::new(ErrorKind::Other, "this is no copy within a GPU"))
    }

    fn equip(
        &self,
        device: Device,
        wanted: &Selection,
        limit: Bytes,
    ) -> Result<OpenGpu, HardwareError> {
        let size = open_gpus::buffer(self.driver.memory(device)?, wanted, limit)?;
        let gate = self.driver.create_stream(device, StreamKind::Side)?;
        let send = self.driver.allocate(device, size)?;
        let receive = match self.driver.allocate(device, size) {
            Err(error) => {
                self.driver.free(send)?;
                return Err(error);
            }
            receive => receive?,
        };
        Ok(OpenGpu {
            device,
            confidential: wanted.confidential,
            processors: wanted.processors.clone(),
            send,
            receive,
            side: self.driver.create_stream(device, StreamKind::Side)?,
            gate,
            opened: self.driver.create_event(device, true)?,
        })
    }

    pub(crate) fn open_gpu(&self, index: u32) -> Result<&OpenGpu, HardwareError> {
        self.open_gpus.get(&index).ok_or_else(|| {
            HardwareError::new(ErrorKind::Other, format!("GPU {index} was not opened"))
        })
    }

    /// Returns the open device with the lowest index.
    pub(crate) fn any_device(&self) -> Result<Device, HardwareError> {
        let first = self
            .open_gpus
            .iter()
            .min_by_key(|(index, _)| **index)
            .map(|(_, open_gpu)| open_gpu.device);
        first.ok_or_else(|| HardwareError::new(ErrorKind::Other, "no GPU was opened"))
    }

    /// Returns the current stream of one side of a pair in a placement.
    pub(crate) fn current_stream(
        &self,
        pair: Pair,
        placement: Placement,
        side: Side,
    ) -> Result<Stream, HardwareError> {
        let gpu = match side {
            Side::Source => pair.source,
            Side::Destination => pair.destination,
        };
        self.stream(gpu, placement.stream_of(side))
    }

    /// Returns the stream of this kind that copies of a GPU use.
    pub(crate) fn stream(&self, gpu: u32, kind: StreamKind) -> Result<Stream, HardwareError> {
        let open_gpu = self.open_gpu(gpu)?;
        Ok(match kind {
            StreamKind::Default => Stream::default_of(open_gpu.device),
            StreamKind::Side => open_gpu.side,
            StreamKind::PerThread | StreamKind::SideBlocking => {
                self.streams_of(open_gpu.device, kind, 1)?[0]
            }
        })
    }

    /// Returns events of a device, created once and reused in later rounds.
    pub(crate) fn events(&self, device: Device, count: usize) -> Result<Vec<Event>, HardwareError> {
        self.events_of(device, true, count)
    }

    /// Returns a pair of events of a device that only keep order.
    pub(crate) fn order_events(
        &self,
        device: Device,
        place: usize,
    ) -> Result<[Event; 2], HardwareError> {
        let events = self.events_of(device, false, 2 * place + 2)?;
        Ok([events[2 * place], events[2 * place + 1]])
    }

    fn events_of(
        &self,
        device: Device,
        timed: bool,
        count: usize,
    ) -> Result<Vec<Event>, HardwareError> {
        let mut events = self.events.borrow_mut();
        let events = events.entry((device, timed)).or_default();
        while events.len() < count {
            events.push(self.driver.create_event(device, timed)?);
        }
        Ok(events[..count].to_vec())
    }

    /// Returns non-blocking streams of a device, created once and reused in later rounds.
    pub(crate) fn streams(
        &self,
        device: Device,
        count: usize,
    ) -> Result<Vec<Stream>, HardwareError> {
        self.streams_of(device, StreamKind::Side, count)
    }

    fn streams_of(
        &self,
        device: Device,
        kind: StreamKind,
        count: usize,
    ) -> Result<Vec<Stream>, HardwareError> {
        let mut streams = self.streams.borrow_mut();
        let streams = streams.entry((device, kind)).or_default();
        while streams.len() < count {
            streams.push(self.driver.create_stream(device, kind)?);
        }
        Ok(streams[..count].to_vec())
    }
}
