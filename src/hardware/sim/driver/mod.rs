//! The simulated CUDA driver. Streams and events consist of lanes, gates and marks of the engine, with the ordering
//! that was measured on hardware (docs/dev/method.md).

mod context;
mod contexts;
mod copies;
mod effect;
mod host;
mod links;
mod outside;
mod shared;
mod state;
mod tables;
mod talk;
mod talks;

use std::cell::{RefCell, RefMut};
use std::sync::Arc;
use std::time::Duration;

use hardware::{
    Buffer, Device, DeviceInfo, DeviceMemory, Driver, ErrorKind, Event, HardwareError, Location,
    PatternCheck, Sent, SteadyCopies, Stream,
};
use model::measurement::{CudaAttributes, RdmaSupport};
use model::placement::{Engine, StreamKind};
use model::reading::Reading;
use model::units::{Bytes, MIB};

use super::engine::Work;
use super::memory::Content;
use super::spec::{CudaPeerRule, GpuSpec, MachineSpec, uuid};
use copies::Repeat;
pub use outside::Written;
pub use shared::fetched;
use state::{Recorded, State};

/// The last moment of the clock. What a description makes slower than any machine must not end the program.
const LATEST: Duration = Duration::from_secs(u32::MAX as u64);

/// Nanoseconds after which a held stream opens by itself.
const HOLD_LIMIT_NS: f64 = 5e9;
/// Time of a round of matrix products, nanoseconds: some 300 cycles. Chosen.
const MATRIX_ROUND_NS: f64 = 200.0;
/// The L2 cache of every simulated GPU: that of an H100 (its data sheet).
const L2_CACHE: Bytes = Bytes(50 * MIB);

/// The driver of a simulated machine.
#[derive(Debug)]
pub struct SimDriver {
    devices: Vec<DeviceInfo>,
    state: RefCell<State>,
}

/// Returns an error in the driver's form: the call, its meaning, its number.
fn failed(kind: ErrorKind, call: &str, meaning: &str, code: u32) -> HardwareError {
    HardwareError::new(kind, format!("{call}: {meaning} (CUDA error {code})")).with_code(code)
}

impl SimDriver {
    /// Opens the driver of a machine.
    ///
    /// # Errors
    ///
    /// The machine's `cuInit` fails, or there is no GPU.
    pub fn new(spec: MachineSpec) -> Result<Self, HardwareError> {
        if let Some(fault) = &spec.faults.cuda_init {
            return Err(failed(ErrorKind::NoDriver, "cuInit", &fault.meaning, fault.code));
        }
        let gpus = spec.visible();
        let shown =
            gpus.iter().filter_map(|index| Some((*index, spec.gpus.get(*index as usize)?.pci)));
        let is_split = |index: u32| {
            let gpu = spec.gpus.get(index as usize);
            gpu.is_some_and(|gpu| gpu.state.mig_instance)
        };
        let attributes = |index: u32| {
            let gpu = spec.gpus.get(index as usize);
            let is = |of: fn(&GpuSpec) -> bool| Reading::Known(gpu.is_some_and(of));
            CudaAttributes {
                integrated: is(|gpu| gpu.integrated),
                registers_memory: is(|gpu| !gpu.registers_no_memory),
                pageable_access: is(|gpu| gpu.c2c),
                host_page_tables: is(|gpu| gpu.c2c),
                virtual_memory: is(|gpu| !gpu.integrated),
                rdma_of_virtual_memory: is(|gpu| !gpu.integrated),
                l2_cache_bytes: Reading::Known(L2_CACHE),
            }
        };
        let device = |((index, pci), ordinal)| DeviceInfo {
            device: Device(ordinal),
            uuid: Some(uuid(index)),
            instance: is_split(index).then(|| uuid(index).replace("GPU-0", "MIG-1")),
            pci: Some(pci),
            attributes: attributes(index),
        };
        let devices: Vec<_> = shown.zip(0..).map(device).collect();
        if devices.is_empty() {
            return Err(failed(
                ErrorKind::NoDriver,
                "cuInit",
                "no CUDA-capable device is detected",
                100,
            ));
        }
        let state = RefCell::new(State::new(Arc::new(spec), gpus));
        Ok(Self { devices, state })
    }

    /// Returns the state for a call on this device, if the device can be used.
    fn usable(&self, device: Device) -> Result<RefMut<'_, State>, HardwareError> {
        let mut state = self.state.borrow_mut();
        state.answers(device)?;
        Ok(state)
    }

    /// Does the same for a call that takes host time.
    fn call(&self, device: Device) -> Result<RefMut<'_, State>, HardwareError> {
        let mut state = self.usable(device)?;
        state.call();
        Ok(state)
    }

    /// Runs a kernel or the processor over the first `bytes` bytes of a buffer, and takes the time for it. A kernel has
    /// ended when `then` runs; the processor works on memory as it is.
    fn touch<T>(
        &self,
        buffer: Buffer,
        bytes: u64,
        then: impl FnOnce(&mut State) -> T,
    ) -> Result<T, HardwareError> {
        if let Some(device) = buffer.device() {
            let mut state = self.usable(device)?;
            state.kernels_loaded()?;
            state.usable_buffer("cuLaunchKernel", buffer, bytes)?;
            state.touch(device, bytes);
            return Ok(then(&mut state));
        }
        let mut state = self.caught_up();
        state.usable_buffer("memory access", buffer, bytes)?;
        let done = then(&mut state);
        #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
        let ns = bytes as f64 / *state.spec.speeds.host.processor_gbps;
        state.clock_ns += ns;
        Ok(done)
    }
}

impl Driver for SimDriver {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn open(&self, devices: &[Device]) -> Vec<Result<(), HardwareError>> {
        let mut state = self.state.borrow_mut();
        devices.iter().map(|device| state.open(*device)).collect()
    }

    fn kernels_failure(&self, _device: Device) -> Option<HardwareError> {
        self.state.borrow().kernels_loaded().err()
    }

    fn rdma(&self, device: Device) -> Option<RdmaSupport> {
        let state = self.state.borrow();
        state.kernels_loaded().ok()?;
        let supported = state.gpu(device).ok()?.gpu_direct();
        let dma_buf = supported && state.spec.host.open_kernel_module;
        Some(RdmaSupport {
            gpu_direct: Reading::Known(supported),
            dma_buf: Reading::Known(dma_buf),
        })
    }

    fn floor_seconds(&self) -> f64 {
        // The simulated driver starts at once, and the caller asks for real time.
        0.0
    }

    fn memory(&self, device: Device) -> Result<DeviceMemory, HardwareError> {
        let mut state = self.state.borrow_mut();
        let GpuSpec { memory, memory_free, .. } = *state.gpu(device)?;
        state.call();
        Ok(DeviceMemory {
            free: memory_free.0.saturating_sub(state.memory.taken(device)),
            total: memory.0,
        })
    }

    fn allocate(&self, device: Device, bytes: u64) -> Result<Buffer, HardwareError> {
        let mut state = self.call(device)?;
        let free = state.gpu(device)?.memory_free.0;
        let full = |_| failed(ErrorKind::OutOfMemory, "cuMemAlloc", "out of memory", 2);
        let location = Location::Device(device);
        let allocated = state.memory.allocate(device, location, bytes, free);
        allocated.map_err(full)
    }

    fn free(&self, buffer: Buffer) -> Result<(), HardwareError> {
        let Some(device) = buffer.device() else {
            return self.host_free(buffer);
        };
        let mut state = self.call(device)?;
        // cuMemFree waits for the work that uses the memory.
        state.wait_for_buffer(buffer);
        state.usable_device(device)?;
        state.usable_buffer("cuMemFree", buffer, 0)?;
        state.forget_buffer(buffer);
        Ok(())
    }

    fn part(&self, buffer: Buffer, offset: u64, bytes: u64) -> Result<Buffer, HardwareError> {
        let mut state = match buffer.device() {
            Some(device) => self.usable(device)?,
            None => self.state.borrow_mut(),
        };
        let invalid = |_| failed(ErrorKind::Other, "part", "invalid argument: no such memory", 1);
        state.memory.part(buffer, offset, bytes).map_err(invalid)
    }

    fn can_access_peer(&self, device: Device, peer: Device) -> Result<bool, HardwareError> {
        let mut state = self.state.borrow_mut();
        state.call();
        let (device_gpu, peer_gpu) = (state.index(device)?, state.index(peer)?);
        Ok(device != peer
            && state.spec.peer_rule(device_gpu, peer_gpu).cuda != CudaPeerRule::Refused)
    }

    fn set_peer_access(
        &self,
        device: Device,
        peer: Device,
        enabled: bool,
    ) -> Result<(), HardwareError> {
        let mut state = self.usable(device)?;
        state.usable_device(peer)?;
        state.call();
        if !enabled {
            state.access.set(device, peer, false);
            return Ok(());
        }
        let refuse = |meaning, code| {
            Err(failed(ErrorKind::Unsupported, "cuCtxEnablePeerAccess", meaning, code))
        };
        if device == peer {
            return refuse("invalid device ordinal", 101);
        }
        let rule = state.spec.peer_rule(state.index(device)?, state.index(peer)?);
        if rule.cuda != CudaPeerRule::Granted {
            return refuse("peer access is not supported between these two devices", 217);
        }
        // Count the peers only if there is a limit.
        if state
            .spec
            .peers
            .limit
            .is_some_and(|limit| state.access.others(device, peer) >= limit as usize)
        {
            let meaning = "peer access resources exhausted: too many peer mappings";
            return Err(failed(ErrorKind::TooManyPeers, "cuCtxEnablePeerAccess", meaning, 711));
        }
        state.access.set(device, peer, true);
        Ok(())
    }

    fn create_stream(&self, device: Device, kind: StreamKind) -> Result<Stream, HardwareError> {
        Ok(self.call(device)?.add_stream(device, kind))
    }

    fn create_event(&self, device: Device, _timed: bool) -> Result<Event, HardwareError> {
        Ok(self.call(device)?.add_event(device))
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), HardwareError> {
        let mut state = self.usable(stream.device)?;
        state.event("cuEventRecord", event)?;
        if event.device != stream.device {
            return Err(failed(
                ErrorKind::Other,
                "cuEventRecord",
                "event and stream are of different devices",
                400,
            ));
        }
        let op = state.enqueue(stream, None, None, Work::Record)?;
        state.set_event(event, op);
        Ok(())
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), HardwareError> {
        let mut state = self.usable(stream.device)?;
        // An event that was never recorded delays nothing.
        let after = match state.event("cuStreamWaitEvent", event)? {
            Recorded::Under(op) => Some(op),
            Recorded::Never | Recorded::At(_) => None,
        };
        state.enqueue(stream, after, None, Work::Mark).map(drop)
    }

    fn elapsed_ns(&self, start: Event, end: Event) -> Result<f64, HardwareError> {
        let mut state = self.state.borrow_mut();
        state.call();
        state.catch_up();
        let call = "cuEventElapsedTime";
        let other = |meaning, code| failed(ErrorKind::Other, call, meaning, code);
        if start.device != end.device {
            return Err(other("the events are of different devices", 400));
        }
        let mut times = [0.0; 2];
        for (time, event) in times.iter_mut().zip([start, end]) {
            *time = match state.event(call, event)? {
                Recorded::Never => return Err(other("an event was never recorded", 400)),
                Recorded::Under(_) => return Err(other("device not ready", 600)),
                Recorded::At(time) => time,
            };
        }
        // CUDA returns milliseconds as a 32-bit float.
        #[allow(clippy::cast_possible_truncation, reason = "CUDA's own type")]
        let milliseconds = ((times[1] - times[0]) / 1e6) as f32;
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
        self.state.borrow_mut().copy(engine, stream, (destination, source), bytes, Repeat::ONCE)
    }

    fn compare(
        &self,
        stream: Stream,
        buffer: Buffer,
        bytes: u64,
        sent: Sent,
        (tally, _turn): (u32, u32),
    ) -> Result<(), HardwareError> {
        let device = stream.device;
        let mut state = self.usable(device)?;
        state.kernels_loaded()?;
        state.usable_buffer("cuLaunchKernel", buffer, bytes)?;
        state.compare(stream, buffer, bytes, sent, tally)
    }

    fn compared(&self, stream: Stream, tally: u32) -> Result<PatternCheck, HardwareError> {
        self.synchronize(stream)?;
        let found = self.state.borrow_mut().tallies.remove(&(stream.device, tally));
        Ok(found.unwrap_or(PatternCheck::NONE))
    }

    fn copy_steadily(&self, flows: &[SteadyCopies]) -> Result<(), HardwareError> {
        let mut state = self.state.borrow_mut();
        for flow in flows {
            let Some(last) = flow.copies.checked_sub(1) else { continue };
            // One operation of as many bytes: hours of copies take no longer than their number of rounds. Of the bytes, only
            // those of the last two copies can be seen, unless all are compared.
            let at = |copy: u32| copy as usize % 2;
            let repeat = Repeat {
                before: last.checked_sub(1).map(|copy| flow.sources[at(copy)]),
                compared: flow.compared.map(|compared| (compared.sent[at(last)], compared.tally)),
                ..Repeat::times(flow.copies)
            };
            let ends = (flow.places[at(last)], flow.sources[at(last)]);
            state.copy(flow.engine, flow.stream, ends, flow.bytes, repeat)?;
        }
        Ok(())
    }

    fn heat(&self, stream: Stream, duration: Duration) -> Result<(), HardwareError> {
        let mut state = self.usable(stream.device)?;
        state.kernels_loaded()?;
        // Other kernels have room beside it.
        let work = Work::Busy(duration.as_secs_f64() * 1e9);
        state.enqueue(stream, None, None, work).map(drop)
    }

    fn spin(&self, stream: Stream, duration: Duration) -> Result<(), HardwareError> {
        let mut state = self.usable(stream.device)?;
        state.kernels_loaded()?;
        let multiprocessors = state.servers(stream.device)?.multiprocessors;
        let work = Work::Busy(duration.as_secs_f64() * 1e9);
        state.enqueue(stream, None, Some(multiprocessors), work).map(drop)
    }

    fn work(
        &self,
        stream: Stream,
        reads: Option<Buffer>,
        rounds: u32,
    ) -> Result<(), HardwareError> {
        let mut state = self.usable(stream.device)?;
        state.kernels_loaded()?;
        let round_ns = match reads {
            None => MATRIX_ROUND_NS,
            Some(buffer) => {
                state.usable_buffer("cuLaunchKernel", buffer, buffer.bytes)?;
                // A copy within the GPU reads and writes each byte.
                buffer.bytes as f64 / (2.0 * *state.gpu(stream.device)?.local_gbps)
            }
        };
        let multiprocessors = state.servers(stream.device)?.multiprocessors;
        let work = Work::Busy(f64::from(rounds) * round_ns);
        state.enqueue(stream, None, Some(multiprocessors), work).map(drop)
    }

    fn hold(&self, stream: Stream) -> Result<(), HardwareError> {
        let mut state = self.usable(stream.device)?;
        if state.spec.faults.no_hold {
            return Err(HardwareError::new(ErrorKind::Unsupported, "streams cannot be held"));
        }
        state.hold(stream, HOLD_LIMIT_NS)
    }

    fn late(&self, limit: Duration) -> Vec<Device> {
        let mut state = self.state.borrow_mut();
        let until = state.clock_ns + limit.as_secs_f64() * 1e9;
        loop {
            state.catch_up();
            let before = state.held.iter().filter(|(gate, _)| state.engine.is_before(*gate));
            let late: Vec<Device> = before.map(|(_, device)| *device).collect();
            if late.is_empty() || state.clock_ns >= until {
                return late;
            }
            state.clock_ns =
                state.engine.next_time().map_or(until, |next| next.clamp(state.clock_ns, until));
        }
    }

    fn release(&self) {
        let mut state = self.state.borrow_mut();
        state.call();
        let now = state.clock_ns;
        state.held.clear();
        state.engine.open_gates(now);
        state.catch_up();
    }

    fn expired(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.catch_up();
        state.engine.take_expired()
    }

    fn synchronize(&self, stream: Stream) -> Result<(), HardwareError> {
        let mut state = self.call(stream.device)?;
        state.wait_for_stream(stream)?;
        state.usable_device(stream.device)
    }

    fn synchronize_event(&self, event: Event) -> Result<(), HardwareError> {
        let mut state = self.call(event.device)?;
        if let Recorded::Under(op) = state.event("cuEventSynchronize", event)? {
            state.wait_for(op);
        }
        state.usable_device(event.device)
    }

    fn drain(&self, device: Device) -> Result<(), HardwareError> {
        let mut state = self.call(device)?;
        state.wait_for_device(device);
        state.usable_device(device)
    }

    fn fill(&self, buffer: Buffer, bytes: u64, seed: u64) -> Result<(), HardwareError> {
        self.touch(buffer, bytes, |state| state.memory.write(buffer, bytes, Content::Pattern(seed)))
    }

    fn poison(&self, buffer: Buffer, bytes: u64, seed: u64) -> Result<(), HardwareError> {
        self.touch(buffer, bytes, |state| state.memory.write(buffer, bytes, Content::Poison(seed)))
    }

    fn check(
        &self,
        buffers: &[(Buffer, Sent)],
        bytes: u64,
    ) -> Result<Vec<PatternCheck>, HardwareError> {
        let mut counts = Vec::new();
        for &(buffer, sent) in buffers {
            counts
                .push(self.touch(buffer, bytes, |state| state.memory.check(buffer, bytes, sent))?);
        }
        // The counts are read with a call of their own.
        let mut devices = buffers.iter().filter_map(|(buffer, _)| buffer.device());
        devices.try_for_each(|device| self.usable(device).map(drop))?;
        Ok(counts)
    }

    fn run_on(&self, _processors: &[usize]) {
        // The simulated processors are not those of this machine.
    }

    fn now(&self) -> Duration {
        let seconds = self.state.borrow().clock_ns / 1e9;
        Duration::try_from_secs_f64(seconds).map_or(LATEST, |now| now.min(LATEST))
    }
}

#[cfg(test)]
mod tests;
