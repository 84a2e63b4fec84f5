//! The live CUDA driver behind [`Driver`].

mod affinity;
mod error;
mod gate;
mod held;
mod hold;
mod host;
mod images;
mod kernels;
mod links;
mod physical;
mod place;
mod returned;
mod session;
mod shared;
mod startup;
mod table;
mod talk;
mod words;

use std::ffi::c_int;
use std::ptr::without_provenance_mut;
use std::time::Duration;

use self::error::{addressable, code, lacks};
use self::gate::Gate;
use self::held::{Held, Origin};
use self::kernels::DEFAULT_STREAM;
use self::returned::{NO_COUNTS, counts_of, tally_at};
pub(crate) use self::session::CudaDriver;
use hardware::pattern::{pattern, poison};
use hardware::{
    Buffer, Device, DeviceInfo, DeviceMemory, Driver, ErrorKind, Event, HardwareError, Location,
    PatternCheck, Sent, Stream,
};
use model::flow::HostMemory;
use model::measurement::RdmaSupport;
use model::placement::{Engine, StreamKind};

/// CU_STREAM_DEFAULT: the stream and the legacy default stream keep their order.
const STREAM_BLOCKING: u32 = 0;
/// CU_STREAM_NON_BLOCKING: no implicit synchronisation with the legacy default stream.
const STREAM_NON_BLOCKING: u32 = 1;
/// CU_STREAM_PER_THREAD: the handle of the calling thread's default stream in the current context.
const STREAM_PER_THREAD: usize = 2;
impl Driver for CudaDriver {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn open(&self, devices: &[Device]) -> Vec<Result<(), HardwareError>> {
        self.start_devices(devices)
    }

    fn kernels_failure(&self, device: Device) -> Option<HardwareError> {
        self.kernels_failures.borrow().get(&device).cloned()
    }

    fn rdma(&self, device: Device) -> Option<RdmaSupport> {
        let opened = self.opened.borrow();
        Some(opened.get(device.0 as usize)?.as_ref()?.loaded.as_ref()?.rdma.clone())
    }

    fn floor_seconds(&self) -> f64 {
        self.init_seconds + self.context_seconds.get()
    }

    fn memory(&self, device: Device) -> Result<DeviceMemory, HardwareError> {
        self.enter(device)?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: writes two sizes.
        self.table.check("cuMemGetInfo", unsafe {
            (self.table.memory_info)(&raw mut free, &raw mut total)
        })?;
        Ok(DeviceMemory { free: free as u64, total: total as u64 })
    }

    fn allocate(&self, device: Device, bytes: u64) -> Result<Buffer, HardwareError> {
        self.enter(device)?;
        let pointer = startup::allocate(self.table, addressable(bytes)?)?;
        Ok(self.keep(Held {
            location: Location::Device(device),
            pointer: without_provenance_mut(pointer as usize),
            bytes,
            origin: Origin::Allocated,
        }))
    }

    fn free(&self, buffer: Buffer) -> Result<(), HardwareError> {
        let pointer = self.address(buffer, 0)?;
        match buffer.location {
            Location::Device(device) => self.enter(device)?,
            Location::Host { memory: HostMemory::Registered, .. } => self.unlock(pointer)?,
            Location::Host { .. } => {}
        }
        let held = self.buffers.borrow_mut().get_mut(buffer.id as usize).and_then(Option::take);
        match held.map(|held| held.origin) {
            Some(Origin::System(mapping)) => {
                drop(mapping);
                return Ok(());
            }
            Some(Origin::Mapped(memory)) => return memory.give_back(self.table),
            Some(Origin::Opened) => {
                let close = self.table.ipc_close_memory;
                let close = close.ok_or_else(|| lacks("cuIpcCloseMemHandle"))?;
                // SAFETY: the pointer came from cuIpcOpenMemHandle and its slot was just cleared, so it is closed once.
                let result = unsafe { close(pointer.addr() as u64) };
                return self.table.check("cuIpcCloseMemHandle", result);
            }
            Some(Origin::Allocated) | None => {}
        }
        if buffer.device().is_some() {
            // SAFETY: the pointer came from cuMemAlloc and its slot was just cleared, so it is freed once.
            let result = unsafe { (self.table.memory_free)(pointer.addr() as u64) };
            return self.table.check("cuMemFree", result);
        }
        let free = self.table.host_free.ok_or_else(|| lacks("cuMemFreeHost"))?;
        // SAFETY: the pointer came from cuMemHostAlloc and its slot was just cleared, so it is freed once.
        self.table.check("cuMemFreeHost", unsafe { free(pointer) })
    }

    fn part(&self, buffer: Buffer, offset: u64, bytes: u64) -> Result<Buffer, HardwareError> {
        let whole = self.address(buffer, offset.saturating_add(bytes))?;
        let key = (buffer.id, offset, bytes);
        let known = self.parts.borrow().get(&key).copied();
        let part = known.unwrap_or_else(|| {
            self.keep(Held {
                location: buffer.location,
                pointer: whole.wrapping_byte_add(offset as usize),
                bytes,
                origin: Origin::Allocated,
            })
        });
        self.parts.borrow_mut().insert(key, part);
        Ok(part)
    }

    fn can_access_peer(&self, device: Device, peer: Device) -> Result<bool, HardwareError> {
        let mut possible: c_int = 0;
        // SAFETY: writes one int.
        let result = unsafe {
            (self.table.device_can_access_peer)(
                &raw mut possible,
                self.handle(device)?,
                self.handle(peer)?,
            )
        };
        self.table.check("cuDeviceCanAccessPeer", result).map(|()| possible != 0)
    }

    fn set_peer_access(
        &self,
        device: Device,
        peer: Device,
        enabled: bool,
    ) -> Result<(), HardwareError> {
        let peer = self.context(peer)?;
        self.enter(device)?;
        let (call, result, benign) = if enabled {
            // SAFETY: both contexts are retained; the flags must be 0.
            let result = unsafe { (self.table.context_enable_peer_access)(peer.0, 0) };
            ("cuCtxEnablePeerAccess", result, code::PEER_ACCESS_ALREADY_ENABLED)
        } else {
            // SAFETY: both contexts are retained.
            let result = unsafe { (self.table.context_disable_peer_access)(peer.0) };
            ("cuCtxDisablePeerAccess", result, code::PEER_ACCESS_NOT_ENABLED)
        };
        if result == benign { Ok(()) } else { self.table.check(call, result) }
    }

    fn create_stream(&self, device: Device, kind: StreamKind) -> Result<Stream, HardwareError> {
        let flags = match kind {
            StreamKind::Default => return Ok(Stream::default_of(device)),
            StreamKind::PerThread => None,
            StreamKind::SideBlocking => Some(STREAM_BLOCKING),
            StreamKind::Side => Some(STREAM_NON_BLOCKING),
        };
        let mut stream = std::ptr::without_provenance_mut(STREAM_PER_THREAD);
        if let Some(flags) = flags {
            self.enter(device)?;
            stream = std::ptr::null_mut();
            // SAFETY: writes one stream handle.
            let result = unsafe { (self.table.stream_create)(&raw mut stream, flags) };
            stream = self.table.made("cuStreamCreate", result, stream)?;
        }
        let mut streams = self.streams.borrow_mut();
        streams.push(stream);
        Ok(Stream { device, id: u32::try_from(streams.len()).unwrap_or(u32::MAX), kind })
    }

    fn create_event(&self, device: Device, timed: bool) -> Result<Event, HardwareError> {
        self.new_event(device, timed)
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), HardwareError> {
        self.enter(stream.device)?;
        // SAFETY: both handles are alive.
        let result = unsafe { (self.table.event_record)(self.event(event)?, self.stream(stream)?) };
        self.table.check("cuEventRecord", result)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), HardwareError> {
        self.enter(stream.device)?;
        // SAFETY: both handles are alive; the flags must be 0.
        let result =
            unsafe { (self.table.stream_wait_event)(self.stream(stream)?, self.event(event)?, 0) };
        self.table.check("cuStreamWaitEvent", result)
    }

    fn elapsed_ns(&self, start: Event, end: Event) -> Result<f64, HardwareError> {
        self.enter(start.device)?;
        let mut milliseconds = f32::NAN;
        // SAFETY: writes one float; both events are of the current context.
        let result = unsafe {
            (self.table.event_elapsed)(&raw mut milliseconds, self.event(start)?, self.event(end)?)
        };
        self.table.check("cuEventElapsedTime", result)?;
        if milliseconds.is_nan() {
            return Err(HardwareError::new(
                ErrorKind::Other,
                "cuEventElapsedTime: reported success and gave nothing",
            ));
        }
        Ok(f64::from(milliseconds) * 1e6)
    }

    fn copy(
        &self,
        engine: Engine,
        stream: Stream,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        if engine == Engine::Kernel {
            return self.copy_by_kernel(stream, (destination, source), bytes);
        }
        self.enter(stream.device)?;
        let handle = self.stream(stream)?;
        let (to, from) = (self.address(destination, bytes)?, self.address(source, bytes)?);
        let (to_device, from_device, size) =
            (to.addr() as u64, from.addr() as u64, addressable(bytes)?);
        match (destination.device(), source.device()) {
            (Some(destination), Some(source)) => {
                let (to_context, from_context) =
                    (self.context(destination)?.0, self.context(source)?.0);
                let copy = self.table.copy_peer_async;
                // SAFETY: both ranges lie within live allocations of these contexts.
                self.table.check("cuMemcpyPeerAsync", unsafe {
                    copy(to_device, to_context, from_device, from_context, size, handle)
                })
            }
            (Some(_), None) => {
                let copy = self.table.copy_up;
                let copy = copy.ok_or_else(|| lacks("cuMemcpyHtoDAsync_v2"))?;
                // SAFETY: both ranges lie within live allocations, which stay until the copy has ended.
                self.table
                    .check("cuMemcpyHtoDAsync", unsafe { copy(to_device, from, size, handle) })
            }
            (None, Some(_)) => {
                let copy = self.table.copy_down;
                let copy = copy.ok_or_else(|| lacks("cuMemcpyDtoHAsync_v2"))?;
                // SAFETY: both ranges lie within live allocations, which stay until the copy has ended.
                self.table
                    .check("cuMemcpyDtoHAsync", unsafe { copy(to, from_device, size, handle) })
            }
            (None, None) => Err(HardwareError::new(ErrorKind::Other, "no copy within the host")),
        }
    }

    fn compare(
        &self,
        stream: Stream,
        buffer: Buffer,
        bytes: u64,
        sent: Sent,
        (tally, turn): (u32, u32),
    ) -> Result<(), HardwareError> {
        let handle = self.stream(stream)?;
        let words = self.mapped(buffer, bytes)?;
        self.with_kernels(stream.device, |kernels, returned| {
            let counts = (tally_at(returned, tally), turn);
            kernels.check(self.table, handle, words, bytes, sent, counts)
        })
    }

    fn compared(&self, stream: Stream, tally: u32) -> Result<PatternCheck, HardwareError> {
        self.synchronize(stream)?;
        let counts = self.read_words(stream.device, |returned| tally_at(returned, tally))?;
        self.write_words(stream.device, |returned| tally_at(returned, tally), NO_COUNTS)?;
        Ok(counts_of(counts, 0))
    }

    fn heat(&self, stream: Stream, duration: Duration) -> Result<(), HardwareError> {
        let handle = self.stream(stream)?;
        // Short ones, for GPUs with a display: their drivers end kernels of seconds.
        let (mut left, most) = (duration.as_nanos(), 200_000_000);
        while left > 0 {
            let now = u64::try_from(left.min(most)).unwrap_or(0);
            self.with_kernels(stream.device, |kernels, _| kernels.heat(self.table, handle, now))?;
            left -= u128::from(now);
        }
        Ok(())
    }

    fn spin(&self, stream: Stream, duration: Duration) -> Result<(), HardwareError> {
        let handle = self.stream(stream)?;
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.with_kernels(stream.device, |kernels, _| kernels.spin(self.table, handle, nanoseconds))
    }

    fn work(
        &self,
        stream: Stream,
        reads: Option<Buffer>,
        rounds: u32,
    ) -> Result<(), HardwareError> {
        let handle = self.stream(stream)?;
        let memory = reads.map(|buffer| Ok((self.mapped(buffer, buffer.bytes)?, buffer.bytes)));
        let (memory, bytes) = memory.transpose()?.unwrap_or_default();
        self.with_kernels(stream.device, |kernels, _| {
            kernels.work(self.table, handle, memory, bytes, rounds)
        })
    }

    fn hold(&self, stream: Stream) -> Result<(), HardwareError> {
        self.close_gate(stream)
    }

    fn late(&self, limit: Duration) -> Vec<Device> {
        self.not_held_within(limit)
    }

    fn release(&self) {
        self.open_gate();
    }

    fn expired(&self) -> bool {
        self.gate.get().is_some_and(Gate::take_expired)
    }

    fn synchronize(&self, stream: Stream) -> Result<(), HardwareError> {
        self.enter(stream.device)?;
        // SAFETY: the stream is alive.
        self.table.check("cuStreamSynchronize", unsafe {
            (self.table.stream_synchronize)(self.stream(stream)?)
        })
    }

    fn synchronize_event(&self, event: Event) -> Result<(), HardwareError> {
        self.enter(event.device)?;
        // SAFETY: the event is alive.
        self.table.check("cuEventSynchronize", unsafe {
            (self.table.event_synchronize)(self.event(event)?)
        })
    }

    fn drain(&self, device: Device) -> Result<(), HardwareError> {
        self.enter(device)?;
        // SAFETY: waits for the current context.
        self.table.check("cuCtxSynchronize", unsafe { (self.table.context_synchronize)() })
    }

    fn fill(&self, buffer: Buffer, bytes: u64, seed: u64) -> Result<(), HardwareError> {
        match buffer.location {
            Location::Device(device) => {
                let words = self.address(buffer, bytes)?.addr() as u64;
                self.with_kernels(device, |kernels, _| kernels.fill(self.table, words, bytes, seed))
            }
            Location::Host { .. } => {
                let words = self.words(buffer, bytes)?;
                words.write(|index| pattern(seed, index));
                Ok(())
            }
        }
    }

    fn poison(&self, buffer: Buffer, bytes: u64, seed: u64) -> Result<(), HardwareError> {
        match buffer.location {
            Location::Device(device) => {
                let words = self.address(buffer, bytes)?.addr() as u64;
                self.with_kernels(device, |kernels, _| {
                    kernels.poison(self.table, words, bytes, seed)
                })
            }
            Location::Host { .. } => {
                let words = self.words(buffer, bytes)?;
                words.write(|index| poison(seed, index));
                Ok(())
            }
        }
    }

    fn check(
        &self,
        buffers: &[(Buffer, Sent)],
        bytes: u64,
    ) -> Result<Vec<PatternCheck>, HardwareError> {
        let on_devices =
            buffers.iter().filter_map(|(buffer, sent)| Some((buffer.device()?, *buffer, *sent)));
        for (device, buffer, sent) in on_devices {
            let words = self.address(buffer, bytes)?.addr() as u64;
            self.write_words(device, |counts| counts, NO_COUNTS)?;
            self.with_kernels(device, |kernels, result| {
                kernels.check(self.table, DEFAULT_STREAM, words, bytes, sent, (result, 0))
            })?;
        }
        let counted = |(buffer, sent): &(Buffer, Sent)| match buffer.location {
            Location::Device(device) => {
                // Its own copy follows the kernel on the legacy default stream.
                Ok(counts_of(self.read_words(device, |counts| counts)?, bytes / 8))
            }
            Location::Host { .. } => Ok(self.words(*buffer, bytes)?.compare(*sent)),
        };
        buffers.iter().map(counted).collect()
    }

    fn run_on(&self, processors: &[usize]) {
        self.affinity.run_on(processors);
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}
