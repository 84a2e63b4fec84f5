//! The devices of a run with their streams, events and buffers, and the rounds run on them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use super::Span;
use super::at_once::AtOnce;
use super::following::{Following, OPEN_GATES};
use super::kept::HostPool;
use super::seats::{self, Selection, find, hidden};
use super::seeds::Seeds;
use hardware::{Buffer, Device, Driver, ErrorKind, Event, HardwareError, Stream};
use model::flow::Setup;
use model::maps::{Map, Set};
use model::measurement::{CudaDevice, CudaPeerAccess, DriverFacts};
use model::placement::{Pair, Path, Placement, Side, StreamKind};
use model::units::Bytes;
use plan::{Round, stream_of};

/// How long devices may take to come to their gates. A launch begins after some 10 us, and the host has enqueued a row by
/// then; a GPU that several programs share in time slices has each for about this long. Chosen.
const GATE_PATIENCE: Duration = Duration::from_millis(2);
/// Tries of a row with a gate that its device has not come to in time. Chosen.
const GATE_TRIES: u32 = 3;

/// One device, ready.
pub(super) struct Seat {
    pub device: Device,
    /// The processors of its NUMA node; none where they are not known or the only ones.
    pub processors: Vec<usize>,
    pub send: Buffer,
    /// What it receives into.
    pub receive: Buffer,
    side: Stream,
    /// Held while work is enqueued; the others wait for its event.
    gate: Stream,
    /// When the gate opened.
    pub opened: Event,
}

/// An event of a device, and when it happened on the host's clock.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub event: Event,
    pub at: Duration,
}

/// The devices of a run, and the rounds run on them.
pub struct Bench<'a> {
    pub(super) driver: &'a dyn Driver,
    seats: Map<u32, Seat>,
    facts: DriverFacts,
    /// Ordered pairs whose first device may reach the second's memory now.
    enabled: RefCell<Set<(Device, Device)>>,
    events: RefCell<Map<Device, Vec<Event>>>,
    /// Streams of a device beside those of its seat.
    streams: RefCell<Map<Device, Vec<Stream>>>,
    /// When the gates opened last, on the clock of [`Driver::now`].
    released: Cell<Duration>,
    /// Nanoseconds per byte in the reference placement, as last seen, by setup of any size.
    pub(super) pace: RefCell<Map<(Pair, Setup), f64>>,
    /// Nanoseconds that a copy takes beyond that in another placement, as last seen of any pair, by setup of any size.
    pub(super) placement_ns: RefCell<Map<Setup, f64>>,
    pub(super) seeds: Seeds,
    /// With what each GPU's send buffer was filled, all of it.
    pub(super) contents: RefCell<Map<u32, u64>>,
    pub(super) at_once: RefCell<AtOnce>,
    pub(super) following: Following,
    pub(super) hosts: HostPool,
}

impl<'a> Bench<'a> {
    /// Opens the devices, takes memory, and asks who may reach whom. What fails stands in
    /// [`Bench::facts`]; a device that fails costs itself only.
    pub fn open(driver: &'a dyn Driver, selections: &[Selection], memory_limit: Bytes) -> Self {
        Self::open_telling(driver, selections, memory_limit, false, &mut |_| ())
    }

    /// The same, where `opening` hears of each GPU, by NVML index, before the driver is asked for
    /// something that concerns it alone. All contexts are created at once unless `one_by_one`.
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
            seats: Map::default(),
            facts: DriverFacts::default(),
            enabled: RefCell::default(),
            events: RefCell::default(),
            streams: RefCell::default(),
            released: Cell::default(),
            pace: RefCell::default(),
            placement_ns: RefCell::default(),
            seeds: Seeds::new(),
            contents: RefCell::default(),
            at_once: RefCell::default(),
            following: Following::default(),
            hosts: HostPool::default(),
        };
        // Where it is not known, that is told when it is needed.
        bench.facts.host_budget_bytes = driver.host_room().ok().map(|room| Bytes(room.most(0)));
        for (wanted, info) in selections.iter().zip(found) {
            opening(wanted.index);
            let seat = match info {
                None => Err(HardwareError::new(ErrorKind::Other, hidden().1)),
                Some(info) => opened
                    .remove(&info.device)
                    .unwrap_or_else(|| Err(HardwareError::new(ErrorKind::Other, "named twice")))
                    .and_then(|()| bench.take_seat(info.device, wanted, memory_limit)),
            };
            bench.facts.devices.push(CudaDevice {
                index: wanted.index,
                ordinal: info.map(|info| info.device.0),
                failure: seat.as_ref().err().map(ToString::to_string),
                failure_code: seat.as_ref().err().and_then(|error| error.code),
                hidden: info.is_none().then(|| hidden().0),
                kernels_failure: None,
                budget_bytes: seat.as_ref().ok().map(|seat| Bytes(2 * seat.send.bytes)),
                rdma: seat.as_ref().ok().and_then(|seat| driver.rdma(seat.device)),
            });
            if let Ok(seat) = seat {
                bench.seats.insert(wanted.index, seat);
            }
        }
        seats::note_kernels(&mut bench.facts, |gpu| {
            driver.kernels_failure(bench.seats.get(&gpu)?.device)
        });
        bench.facts.peer_access = bench.ask_peer_access(selections, opening);
        bench
    }

    /// What the driver said.
    pub const fn facts(&self) -> &DriverFacts {
        &self.facts
    }

    /// The pairs that a round copies between, of which there is at least one.
    pub(super) fn pairs(&self, round: &Round) -> Result<Vec<Pair>, HardwareError> {
        let pairs: Option<Vec<_>> = round.flows.iter().map(|flow| flow.pair()).collect();
        pairs.filter(|pairs| !pairs.is_empty()).ok_or_else(|| {
            HardwareError::new(
                ErrorKind::Unsupported,
                "this version does not copy to or from host memory",
            )
        })
    }

    fn take_seat(
        &self,
        device: Device,
        wanted: &Selection,
        limit: Bytes,
    ) -> Result<Seat, HardwareError> {
        let size = seats::buffer(self.driver.memory(device)?, wanted, limit)?;
        let gate = self.driver.create_stream(device)?;
        Ok(Seat {
            device,
            processors: wanted.processors.clone(),
            send: self.driver.allocate(device, size)?,
            receive: self.driver.allocate(device, size)?,
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
                self.seats.get(&pair.source)?,
                self.seats.get(&pair.destination)?,
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

    /// Lets one device reach another's memory. Systems without NVSwitch allow only some peers at a
    /// time; the others are let go then, and come back when they are needed.
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

    /// Lets the sources of these pairs reach their destinations and no others.
    pub(super) fn reach_only(&self, pairs: &[Pair]) -> Result<(), HardwareError> {
        let mut wanted = BTreeSet::new();
        for pair in pairs {
            wanted.insert((
                self.seat(pair.source)?.device,
                self.seat(pair.destination)?.device,
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
            // Not before: access that could not be taken back still counts as one of the few.
            self.enabled.borrow_mut().remove(&(device, peer));
        }
        Ok(())
    }

    /// Switches peer access of a pair on for the direct path, off for the staged one, both ways.
    pub(super) fn set_path(&self, pair: Pair, path: Path) -> Result<(), HardwareError> {
        let (source, destination) = (
            self.seat(pair.source)?.device,
            self.seat(pair.destination)?.device,
        );
        match path {
            Path::Direct => {
                self.enable(source, destination)?;
                // Pairs whose access is granted one way only are still copied that way.
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

    /// Whether the source of a pair may reach the memory of its destination now.
    pub(super) fn is_enabled(&self, pair: Pair) -> bool {
        let ends = self
            .seat(pair.source)
            .ok()
            .zip(self.seat(pair.destination).ok());
        ends.is_some_and(|(one, other)| self.enabled.borrow().contains(&(one.device, other.device)))
    }

    pub(super) fn seat(&self, index: u32) -> Result<&Seat, HardwareError> {
        self.seats.get(&index).ok_or_else(|| {
            HardwareError::new(ErrorKind::Other, format!("GPU {index} was not opened"))
        })
    }

    /// A device that is open.
    pub(super) fn any_device(&self) -> Result<Device, HardwareError> {
        let first = self
            .seats
            .iter()
            .min_by_key(|(index, _)| **index)
            .map(|(_, seat)| seat.device);
        first.ok_or_else(|| HardwareError::new(ErrorKind::Other, "no GPU was opened"))
    }

    /// The current stream of one side of a pair in a placement.
    pub(super) fn current_stream(
        &self,
        pair: Pair,
        placement: Placement,
        side: Side,
    ) -> Result<Stream, HardwareError> {
        let seat = self.seat(match side {
            Side::Source => pair.source,
            Side::Destination => pair.destination,
        })?;
        Ok(match stream_of(placement, side) {
            StreamKind::Default => Stream::default_of(seat.device),
            StreamKind::Side => seat.side,
        })
    }

    /// Some events of a device, created once and used again in the next round.
    pub(super) fn events(&self, device: Device, count: usize) -> Result<Vec<Event>, HardwareError> {
        let mut events = self.events.borrow_mut();
        let events = events.entry(device).or_default();
        while events.len() < count {
            events.push(self.driver.create_event(device)?);
        }
        Ok(events[..count].to_vec())
    }

    /// Some streams of a device, created once and used again in the next round.
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

    /// Closes the gate of a device. Streams that wait for the event it returns stay shut until
    /// [`Driver::release`], and the event's time is that of the opening.
    pub(super) fn close_gate(&self, index: u32) -> Result<Event, HardwareError> {
        let seat = self.seat(index)?;
        self.driver.hold(seat.gate)?;
        self.driver.record(seat.opened, seat.gate)?;
        Ok(seat.opened)
    }

    /// Runs something that closes gates, and opens them whatever comes of it: a closed gate would
    /// hold up all that follows. Before that, every device must have come to its gate: one that comes later begins later
    /// than the others, and nothing would show it. Then what was enqueued is void, and is enqueued again once it is done.
    ///
    /// # Errors
    ///
    /// That of what was enqueued; or a device was late every time, which says nothing about the hardware.
    pub(super) fn gated<T>(
        &self,
        mut enqueue: impl FnMut() -> Result<T, HardwareError>,
    ) -> Result<T, HardwareError> {
        let mut late = Vec::new();
        for _ in 0..GATE_TRIES {
            let result = enqueue();
            // Where something could not be enqueued, it may be a gate.
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
            self.seats
                .values()
                .try_for_each(|seat| self.driver.drain(seat.device))?;
            // What has opened by itself meanwhile is void as well.
            self.driver.expired();
        }
        Err(self.used_by_others(&late))
    }

    /// These devices came to their gates too late.
    fn used_by_others(&self, late: &[Device]) -> HardwareError {
        let own = self
            .seats
            .iter()
            .filter(|(_, seat)| late.contains(&seat.device));
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

    /// Where times of a device are counted from: the opening of its gate.
    pub(super) fn opening(&self, opened: Event) -> Origin {
        Origin {
            event: opened,
            at: self.released.get(),
        }
    }

    /// What ran between two events.
    ///
    /// # Errors
    ///
    /// A time is no number, which says nothing about the copy.
    #[allow(clippy::cast_precision_loss, reason = "2^53 ns are a hundred days")]
    pub(super) fn span(
        &self,
        origin: Origin,
        start: Event,
        end: Event,
    ) -> Result<Span, HardwareError> {
        let start_ns = origin.at.as_nanos() as f64 + self.driver.elapsed_ns(origin.event, start)?;
        // Not from the origin: drivers give times as floats of some seven digits.
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

    /// The spans between marks that follow each other.
    ///
    /// # Errors
    ///
    /// One took no time, although the driver said that it had enqueued it.
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

    /// An error if a gate opened by itself: what was timed meanwhile is void.
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
