//! The copies, kernels, streams and events of a machine, which the worker drives.

use std::time::Duration;

use super::handles::{
    Buffer, Device, DeviceInfo, DeviceMemory, Event, PatternCheck, Sent, SteadyCopies, Stream,
};
use super::{HardwareError, HostDriver, LinkDriver, SharedDriver, TalkDriver};
use model::measurement::RdmaSupport;
use model::placement::{Engine, StreamKind};

/// Copies, kernels, streams and events of a machine, at the level of the CUDA driver API. Calls that enqueue return
/// before the work is done, as the driver's do. Errors are the driver's own unless documented otherwise.
pub trait Driver: HostDriver + TalkDriver + SharedDriver + LinkDriver {
    /// The devices that CUDA shows, in its order.
    fn devices(&self) -> &[DeviceInfo];

    /// Creates the primary contexts of these devices in parallel, and loads the GPU kernels. Returns one result per
    /// device, in the same order. Failures to load kernels are reported by [`Driver::kernels_failure`] instead.
    fn open(&self, devices: &[Device]) -> Vec<Result<(), HardwareError>>;

    /// Returns the reason why the GPU kernels could not be loaded onto a device, if they could not.
    fn kernels_failure(&self, device: Device) -> Option<HardwareError>;

    /// Returns how network adapters may reach the memory of an open device. `None` if the device was not asked, for
    /// example because the kernels could not be loaded.
    fn rdma(&self, device: Device) -> Option<RdmaSupport>;

    /// Returns the seconds that the library's initialisation and the contexts alone took.
    fn floor_seconds(&self) -> f64;

    fn memory(&self, device: Device) -> Result<DeviceMemory, HardwareError>;

    /// Allocates plain device memory. Memory from a pool would need its own peer access. If the device is full, the
    /// error is [`ErrorKind::OutOfMemory`].
    fn allocate(&self, device: Device, bytes: u64) -> Result<Buffer, HardwareError>;

    /// Frees a buffer. Waits for the work that uses a device's memory, and so may block and fail like
    /// [`Driver::synchronize`]. Everything that uses the host's memory must have ended.
    fn free(&self, buffer: Buffer) -> Result<(), HardwareError>;

    /// Returns `bytes` bytes of a buffer from `offset` on, as a buffer of its own. The part lives as long as the whole
    /// buffer; only the whole is freed. Asking twice for the same part returns the same buffer.
    fn part(&self, buffer: Buffer, offset: u64, bytes: u64) -> Result<Buffer, HardwareError>;

    /// Returns true if `device` may reach the memory of `peer`, as reported by the driver.
    fn can_access_peer(&self, device: Device, peer: Device) -> Result<bool, HardwareError>;

    /// Enables or disables access of `device` to the memory of `peer`. Repeating a call is no error.
    fn set_peer_access(
        &self,
        device: Device,
        peer: Device,
        enabled: bool,
    ) -> Result<(), HardwareError>;

    /// Creates a stream of this kind. The default streams are not created but named: all of one kind are the same
    /// stream, that of the calling thread for [`StreamKind::PerThread`].
    fn create_stream(&self, device: Device, kind: StreamKind) -> Result<Stream, HardwareError>;

    /// Creates an event, with timing or for order alone.
    fn create_event(&self, device: Device, timed: bool) -> Result<Event, HardwareError>;

    /// Records an event on a stream of the same device.
    fn record(&self, event: Event, stream: Stream) -> Result<(), HardwareError>;

    /// Makes a stream, of any device, wait for an event.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), HardwareError>;

    /// Returns the nanoseconds between two completed events of the same device. Fails if one of them is not completed.
    fn elapsed_ns(&self, start: Event, end: Event) -> Result<f64, HardwareError>;

    /// Enqueues a copy of the first `bytes` bytes between two devices, or between a device and the host, on a stream of
    /// a device at one of its ends. A kernel needs peer access, or host memory that is page-locked and so mapped. A
    /// copy engine's copy of pageable memory blocks the host, because the driver copies it through a buffer of its own.
    fn copy(
        &self,
        engine: Engine,
        stream: Stream,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError>;

    /// Enqueues a kernel that compares the first `bytes` bytes of a buffer of the stream's device with what was sent, adds to
    /// counts, and poisons the bytes, as an earlier call did. `counts` are their number and the number of the copy, which is
    /// not 0 and differs from that of the call before.
    fn compare(
        &self,
        stream: Stream,
        buffer: Buffer,
        bytes: u64,
        sent: Sent,
        counts: (u32, u32),
    ) -> Result<(), HardwareError>;

    /// Waits for a stream that compares. Returns the counts of this number without those of words, and begins anew.
    fn compared(&self, stream: Stream, tally: u32) -> Result<PatternCheck, HardwareError>;

    /// Enqueues the copies of all these flows evenly: a call waits when its stream is full, and the other flows go on meanwhile.
    fn copy_steadily(&self, flows: &[SteadyCopies]) -> Result<(), HardwareError> {
        copy_one_by_one(self, flows)
    }

    /// Enqueues a kernel that draws as much power as the multiprocessors can for about this long. It leaves room for others.
    fn heat(&self, stream: Stream, duration: Duration) -> Result<(), HardwareError>;

    /// Enqueues a kernel that keeps the device's multiprocessors busy for about this long.
    fn spin(&self, stream: Stream, duration: Duration) -> Result<(), HardwareError>;

    /// Enqueues a kernel on all multiprocessors that reads a buffer of its own device in so many rounds. Without a buffer it
    /// multiplies matrices in as many.
    fn work(&self, stream: Stream, reads: Option<Buffer>, rounds: u32)
    -> Result<(), HardwareError>;

    /// Holds a stream: work enqueued on it from now on waits until [`Driver::release`]. If the GPU kernels are loaded,
    /// a held stream opens by itself after some seconds, so that a dead host leaves no stuck GPU.
    fn hold(&self, stream: Stream) -> Result<(), HardwareError>;

    /// Waits, at most for `limit`, until every device has reached the point where its streams were held since the last
    /// release. Returns the devices that have not. Devices that cannot report this are left out. A stream with work
    /// ahead of the hold has not reached it.
    fn late(&self, limit: Duration) -> Vec<Device>;

    /// Opens every stream that is held.
    fn release(&self);

    /// Returns true if a held stream opened by itself since the last call. Timings taken meanwhile are void.
    fn expired(&self) -> bool;

    /// Waits until everything enqueued on the stream is done. Returns errors of the work itself.
    fn synchronize(&self, stream: Stream) -> Result<(), HardwareError>;

    /// Waits until an event is reached. Returns errors of the work before it.
    fn synchronize_event(&self, event: Event) -> Result<(), HardwareError>;

    /// Waits until everything enqueued on any stream of a device is done. Returns errors of the work itself.
    fn drain(&self, device: Device) -> Result<(), HardwareError>;

    /// Fills the first `bytes` bytes with the pattern of `seed`: on a device by a kernel, which it enqueues on the
    /// legacy default stream; on the host by the processor.
    fn fill(&self, buffer: Buffer, bytes: u64, seed: u64) -> Result<(), HardwareError>;

    /// Fills the first `bytes` bytes with the poison of `seed` in the same way. Poison is no byte of the seed's
    /// pattern.
    fn poison(&self, buffer: Buffer, bytes: u64, seed: u64) -> Result<(), HardwareError>;

    /// Compares the first `bytes` bytes of each buffer with what was sent, and counts its poison. A device
    /// compares by a kernel on its legacy default stream, one buffer in a call, and all devices do so at once. The
    /// processor compares memory of the host as it is now, without waiting for data still on its way.
    fn check(
        &self,
        buffers: &[(Buffer, Sent)],
        bytes: u64,
    ) -> Result<Vec<PatternCheck>, HardwareError>;

    /// Restricts the calling thread to these processors, as far as it may use them. If it may use none of them,
    /// restores all that it had at first. If the system refuses, nothing changes.
    fn run_on(&self, processors: &[usize]);

    /// Returns the host's clock: real time on a live machine, virtual time on a simulated one.
    fn now(&self) -> Duration;
}

/// Enqueues copies of all flows in turn, with what compares each of them.
///
/// # Errors
///
/// Those of the calls.
pub fn copy_one_by_one<D: Driver + ?Sized>(
    driver: &D,
    flows: &[SteadyCopies],
) -> Result<(), HardwareError> {
    let most = flows.iter().map(|flow| flow.copies).max().unwrap_or(0);
    for step in 0..most {
        for flow in flows {
            let upto = |step: u32| u64::from(flow.copies) * u64::from(step) / u64::from(most);
            for copy in upto(step)..upto(step + 1) {
                let at = (copy % 2) as usize;
                let place = flow.places[at];
                if let Some(compared) = flow.compared
                    && copy > 1
                {
                    driver.wait(flow.stream, compared.poisoned[at])?;
                }
                driver.copy(flow.engine, flow.stream, place, flow.sources[at], flow.bytes)?;
                let Some(compared) = flow.compared else { continue };
                driver.record(compared.arrived[at], flow.stream)?;
                driver.wait(compared.stream, compared.arrived[at])?;
                let turn = u32::try_from(copy).unwrap_or(u32::MAX).saturating_add(1);
                let counts = (compared.tally, turn);
                driver.compare(compared.stream, place, flow.bytes, compared.sent[at], counts)?;
                driver.record(compared.poisoned[at], compared.stream)?;
            }
        }
    }
    Ok(())
}
