//! Owns the devices of a run with their streams, events and buffers, and runs the rounds on them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use super::Span;
use super::at_once::AtOnce;
use super::following::{Following, OPEN_GATES};
use super::open_gpus::{self, Selection, find, hidden};
use super::seeds::{Filled, Seeds};
use hardware::{Buffer, Device, Driver, ErrorKind, Event, HardwareError, Stream};
use model::flow::Setup;
use model::maps::{Map, Set};
use model::measurement::{CudaDevice, CudaPeerAccess, DriverFacts};
use model::placement::{Pair, Path, Placement, Side, StreamKind};
use model::units::Bytes;
use plan::{Round, stream_of};

/// Time that devices may take to reach their gates. A launch begins after some 10 us, and the host has enqueued a row
/// by then. A GPU shared in time slices gives each program about this long. Chosen.
const GATE_PATIENCE: Duration = Duration::from_millis(2);
/// Tries of a row whose device has not reached its gate in time. Chosen.
const GATE_TRIES: u32 = 3;

/// An opened device with its streams and buffers.
pub(super) struct OpenGpu {
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
pub(super) struct Origin {
    pub event: Event,
    pub at: Duration,
}

/// The devices of a run, and the rounds run on them.
pub struct Bench<'a> {
    pub(super) driver: &'a dyn Driver,
    open_gpus: Map<u32, OpenGpu>,
    facts: DriverFacts,
    /// Ordered pairs whose first device can access the second's memory now.
    enabled: RefCell<Set<(Device, Device)>>,
    events: RefCell<Map<Device, Vec<Event>>>,
    /// Further streams of a device, beside those of its open_gpu.
    streams: RefCell<Map<Device, Vec<Stream>>>,
    /// Time of the last opening of the gates, on the clock of [`Driver::now`].
    released: Cell<Duration>,
    /// Latest nanoseconds per byte in the reference placement, by setup of any size.
    pub(super) pace: RefCell<Map<(Pair, Setup), f64>>,
    /// Latest extra nanoseconds of a copy in another placement, from any pair, by setup of any size.
    pub(super) placement_ns: RefCell<Map<Setup, f64>>,
    /// Times that this run looked again at a row that took far longer than others.
    pub(super) looks_again: Cell<u32>,
    pub(super) seeds: Seeds,
    /// The patterns that buffers hold, by the buffer's number.
    pub(super) filled: RefCell<Map<u32, Filled>>,
    pub(super) at_once: RefCell<AtOnce>,
    pub(super) following: Following,
    /// Buffers of the host that this run keeps.
    pub(super) kept: RefCell<Vec<Buffer>>,
    /// Bytes of the host's memory that are taken.
    pub(super) taken: Cell<u64>,
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
        let found: Vec<_> = selections
            .iter()
            .map(|wanted| find(driver.devices(), wanted))
            .collect();
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
            at_once: RefCell::default(),
            following: Following::default(),
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
                hindered: open_gpu
                    .as_ref()
                    .is_err_and(|error| error.kind == ErrorKind::Hindered),
                hidden: info.is_none().then(|| hidden().0),
                kernels_failure: None,
                budget_bytes: open_gpu
                    .as_ref()
                    .ok()
                    .map(|open_gpu| Bytes(2 * open_gpu.send.bytes)),
                attributes: info.map(|info| info.attributes.clone()),
                rdma: open_gpu
                    .as_ref()
                    .ok()
                    .and_then(|open_gpu| driver.rdma(open_gpu.device)),
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
    pub(super) fn pairs(&self, round: &Round) -> Result<Vec<Pair>, HardwareError> {
        let pairs: Option<Vec<_>> = round.flows.iter().map(|flow| flow.pair()).collect();
        pairs.filter(|pairs| !pairs.is_empty()).ok_or_else(|| {
            HardwareError::new(
                ErrorKind::Unsupported,
                "this version does not copy to or from host memory",
            )
        })
    }

    /// Returns the GPU of a round that copies within one.
    pub(super) fn within(&self, round: &Round) -> Result<u32, HardwareError> {
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
        let gate = self.driver.create_stream(device)?;
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
            side: self.driver.create_stream(device)?,
            gate,
            opened: self.driver.create_event(device)?,
        })
    }

    fn ask_peer_access(
        &self,
        selections: &[Selection],
        opening: &mut dyn FnMut(u32),
    ) -> Vec<CudaPeerAccess> {
        let indices: Vec<u32> = selections.iter().map(|wanted| wanted.index).collect();
        let mut last = None;
        let ask = |pair: Pair| -> Option<CudaPeerAccess> {
            let (source, destination) = (
                self.open_gpus.get(&pair.source)?,
                self.open_gpus.get(&pair.destination)?,
            );
            if last.replace(pair.source) != Some(pair.source) {
                opening(pair.source);
            }
            let answer = self
                .driver
                .can_access_peer(source.device, destination.device);
            let possible = answer.as_ref().ok().copied();
            let error = match answer {
                Ok(true) => self.enable(source.device, destination.device).err(),
                answer => answer.err(),
            };
            let failure_code = error.as_ref().and_then(|error| error.code);
            let hindered = error
                .as_ref()
                .is_some_and(|error| error.kind == ErrorKind::Hindered);
            let failure = error.map(|error| error.to_string());
            Some(CudaPeerAccess {
                pair,
                possible,
                failure,
                failure_code,
                hindered,
            })
        };
        Pair::ordered(&indices)
            .into_iter()
            .filter_map(ask)
            .collect()
    }

    /// Gives one device access to another's memory. Systems without NVSwitch allow only some peers at a time. Access to
    /// the others is then disabled, and enabled again when needed.
    fn enable(&self, device: Device, peer: Device) -> Result<(), HardwareError> {
        if self.enabled.borrow().contains(&(device, peer)) {
            return Ok(());
        }
        let result = match self.driver.set_peer_access(device, peer, true) {
            Err(error) if error.kind == ErrorKind::TooManyPeers => {
                let others: Vec<_> = self
                    .enabled
                    .borrow()
                    .iter()
                    .filter(|(of, _)| *of == device)
                    .copied()
                    .collect();
                for (of, other) in others {
                    self.disable(of, other)?;
                }
                self.driver.set_peer_access(device, peer, true)
            }
            result => result,
        };
        result.map(|()| {
            self.enabled.borrow_mut().insert((device, peer));
        })
    }

    /// Gives the sources of these pairs access to their destinations and to no others.
    pub(super) fn reach_only(&self, pairs: &[Pair]) -> Result<(), HardwareError> {
        let mut wanted = BTreeSet::new();
        for pair in pairs {
            wanted.insert((
                self.open_gpu(pair.source)?.device,
                self.open_gpu(pair.destination)?.device,
            ));
        }
        let sources: BTreeSet<Device> = wanted.iter().map(|(source, _)| *source).collect();
        let of_sources =
            |pair: &&(Device, Device)| sources.contains(&pair.0) && !wanted.contains(*pair);
        let others: Vec<_> = self
            .enabled
            .borrow()
            .iter()
            .filter(of_sources)
            .copied()
            .collect();
        others
            .into_iter()
            .try_for_each(|(source, other)| self.disable(source, other))?;
        wanted
            .into_iter()
            .try_for_each(|(source, destination)| self.enable(source, destination))
    }

    fn disable(&self, device: Device, peer: Device) -> Result<(), HardwareError> {
        if self.enabled.borrow().contains(&(device, peer)) {
            self.driver.set_peer_access(device, peer, false)?;
            // Remove the pair only now: access that could not be disabled still counts as one of the few.
            self.enabled.borrow_mut().remove(&(device, peer));
        }
        Ok(())
    }

    /// Enables peer access of a pair for the direct path, disables it for the staged one, both ways.
    pub(super) fn set_path(&self, pair: Pair, path: Path) -> Result<(), HardwareError> {
        let (source, destination) = (
            self.open_gpu(pair.source)?.device,
            self.open_gpu(pair.destination)?.device,
        );
        match path {
            Path::Direct => {
                self.enable(source, destination)?;
                // Pairs with access in one direction only are still copied in that direction.
                if self
                    .facts
                    .said_of(pair.reversed())
                    .is_some_and(|said| said.possible == Some(true))
                {
                    self.enable(destination, source)?;
                }
                Ok(())
            }
            Path::Staged => {
                self.disable(source, destination)?;
                self.disable(destination, source)
            }
        }
    }

    /// Returns true if the source of a pair can access the memory of its destination now.
    pub(super) fn is_enabled(&self, pair: Pair) -> bool {
        let ends = self
            .open_gpu(pair.source)
            .ok()
            .zip(self.open_gpu(pair.destination).ok());
        ends.is_some_and(|(one, other)| self.enabled.borrow().contains(&(one.device, other.device)))
    }

    pub(super) fn open_gpu(&self, index: u32) -> Result<&OpenGpu, HardwareError> {
        self.open_gpus.get(&index).ok_or_else(|| {
            HardwareError::new(ErrorKind::Other, format!("GPU {index} was not opened"))
        })
    }

    /// Returns the open device with the lowest index.
    pub(super) fn any_device(&self) -> Result<Device, HardwareError> {
        let first = self
            .open_gpus
            .iter()
            .min_by_key(|(index, _)| **index)
            .map(|(_, open_gpu)| open_gpu.device);
        first.ok_or_else(|| HardwareError::new(ErrorKind::Other, "no GPU was opened"))
    }

    /// Returns the current stream of one side of a pair in a placement.
    pub(super) fn current_stream(
        &self,
        pair: Pair,
        placement: Placement,
        side: Side,
    ) -> Result<Stream, HardwareError> {
        let gpu = match side {
            Side::Source => pair.source,
            Side::Destination => pair.destination,
        };
        self.stream(gpu, stream_of(placement, side))
    }

    /// Returns a stream of a GPU: its default stream, or the one beside it.
    pub(super) fn stream(&self, gpu: u32, kind: StreamKind) -> Result<Stream, HardwareError> {
        let open_gpu = self.open_gpu(gpu)?;
        Ok(match kind {
            StreamKind::Default => Stream::default_of(open_gpu.device),
            StreamKind::Side => open_gpu.side,
        })
    }

    /// Returns events of a device, created once and reused in later rounds.
    pub(super) fn events(&self, device: Device, count: usize) -> Result<Vec<Event>, HardwareError> {
        let mut events = self.events.borrow_mut();
        let events = events.entry(device).or_default();
        while events.len() < count {
            events.push(self.driver.create_event(device)?);
        }
        Ok(events[..count].to_vec())
    }

    /// Returns streams of a device, created once and reused in later rounds.
    pub(super) fn streams(
        &self,
        device: Device,
        count: usize,
    ) -> Result<Vec<Stream>, HardwareError> {
        let mut streams = self.streams.borrow_mut();
        let streams = streams.entry(device).or_default();
        while streams.len() < count {
            streams.push(self.driver.create_stream(device)?);
        }
        Ok(streams[..count].to_vec())
    }

    /// Closes the gate of a device and returns the event of its opening. Streams that wait for the event stay shut
    /// until [`Driver::release`].
    ///
    /// # Errors
    ///
    /// Confidential computing is on. Its copies pass through encrypted buffers, and their calls hold the host until the
    /// bytes are moved (NVIDIA, confidential computing deployment guide). Behind a closed gate they would never return.
    pub(super) fn close_gate(&self, index: u32) -> Result<Event, HardwareError> {
        let open_gpu = self.open_gpu(index)?;
        if open_gpu.confidential {
            let why = "confidential computing is on: calls of copies wait for the GPU, so no work can be held back and \
                       started together";
            return Err(HardwareError::new(ErrorKind::Impossible, why));
        }
        self.driver.hold(open_gpu.gate)?;
        self.driver.record(open_gpu.opened, open_gpu.gate)?;
        Ok(open_gpu.opened)
    }

    /// Enqueues work that closes gates, and opens them in any case: a closed gate would block all later work. Every
    /// device must reach its gate before the opening. A device that comes later begins later than the others, and
    /// nothing would show it. Then the enqueued work is void: it is waited for and enqueued again.
    ///
    /// # Errors
    ///
    /// An error of `enqueue`; or a device was late every time, which is no evidence about the hardware.
    pub(super) fn gated<T>(
        &self,
        mut enqueue: impl FnMut() -> Result<T, HardwareError>,
    ) -> Result<T, HardwareError> {
        let mut late = Vec::new();
        for _ in 0..GATE_TRIES {
            let result = enqueue();
            // If enqueueing failed, the gate itself may be missing.
            late = if result.is_ok() {
                self.driver.late(GATE_PATIENCE)
            } else {
                Vec::new()
            };
            let release = || {
                self.driver.release();
                Ok(())
            };
            let opened = self.call(|| OPEN_GATES.into(), release);
            self.released.set(self.driver.now());
            if late.is_empty() {
                return opened.and(result);
            }
            self.open_gpus
                .values()
                .try_for_each(|open_gpu| self.driver.drain(open_gpu.device))?;
            // Reset the expiry too: a gate that opened by itself meanwhile is void as well.
            self.driver.expired();
        }
        Err(self.used_by_others(&late))
    }

    /// Returns the error for devices that reached their gates too late.
    fn used_by_others(&self, late: &[Device]) -> HardwareError {
        let own = self
            .open_gpus
            .iter()
            .filter(|(_, open_gpu)| late.contains(&open_gpu.device));
        let gpus: BTreeSet<u32> = own.map(|(index, _)| *index).collect();
        let gpus: Vec<String> = gpus.iter().map(|index| format!("GPU {index}")).collect();
        let are = if gpus.len() == 1 { "is" } else { "are" };
        let why = format!(
            "{} {are} used by other programs: what was enqueued did not begin there within {} ms, {GATE_TRIES} times \
             one after the other",
            gpus.join(", "),
            GATE_PATIENCE.as_millis()
        );
        HardwareError::new(ErrorKind::Hindered, why)
    }

    /// Returns the origin of a device's times: the opening of its gate.
    pub(super) fn opening(&self, opened: Event) -> Origin {
        Origin {
            event: opened,
            at: self.released.get(),
        }
    }

    /// Returns the time between two events.
    ///
    /// # Errors
    ///
    /// A time is not a number, which is no evidence about the copy.
    #[allow(clippy::cast_precision_loss, reason = "2^53 ns are a hundred days")]
    pub(super) fn span(
        &self,
        origin: Origin,
        start: Event,
        end: Event,
    ) -> Result<Span, HardwareError> {
        let start_ns = origin.at.as_nanos() as f64 + self.driver.elapsed_ns(origin.event, start)?;
        // Measure from the start, not from the origin: drivers give times as floats of some seven digits.
        let span = Span {
            start_ns,
            end_ns: start_ns + self.driver.elapsed_ns(start, end)?,
        };
        if !(span.start_ns.is_finite() && span.end_ns.is_finite()) {
            let why = "the driver gave a time that is no number: no figure can be made of it";
            return Err(HardwareError::new(ErrorKind::Hindered, why));
        }
        Ok(span)
    }

    /// Returns the spans between successive marks.
    ///
    /// # Errors
    ///
    /// A span took no time, although the driver reported that the copy was enqueued.
    pub(super) fn spans(
        &self,
        origin: Origin,
        marks: &[Event],
    ) -> Result<Vec<Span>, HardwareError> {
        let span = |ends: &[Event]| match self.span(origin, ends[0], ends[1])? {
            span if span.length_ns() <= 0.0 => Err(HardwareError::new(
                ErrorKind::Other,
                "a copy took no time: it was not made",
            )),
            span => Ok(span),
        };
        marks.windows(2).map(span).collect()
    }

    /// Returns an error if a gate opened by itself: times taken meanwhile are void.
    pub(super) fn gates_held(&self) -> Result<(), HardwareError> {
        if self.driver.expired() {
            return Err(HardwareError::new(
                ErrorKind::Hindered,
                "enqueueing took so long that the gate opened by itself: the host is overloaded, or each call waits for the GPU \
                 (CUDA_LAUNCH_BLOCKING, a debugger)",
            ));
        }
        Ok(())
    }
}
