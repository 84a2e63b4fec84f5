//! Copies, kernels, streams and events of a machine: what the worker drives.

use std::time::Duration;

use super::handles::{Buffer, Device, DeviceInfo, DeviceMemory, Event, PatternCheck, Stream};
use super::{HardwareError, HostDriver};
use model::measurement::RdmaSupport;

/// Copies, kernels, streams and events of a machine, at the level of the CUDA driver API. Calls
/// that enqueue return before the work is done, as the driver's do. An error is the driver's own unless said
/// otherwise.
pub trait Driver: HostDriver {
    /// The devices that CUDA shows, in its order.
    fn devices(&self) -> &[DeviceInfo];

    /// Creates the primary contexts of these devices, all at once, and loads the GPU kernels.
    /// One result per device, in the same order; a failure to load kernels is not among them, see
    /// [`Driver::kernels_failure`].
    fn open(&self, devices: &[Device]) -> Vec<Result<(), HardwareError>>;

    /// Why the GPU kernels could not be loaded onto a device, if so.
    fn kernels_failure(&self, device: Device) -> Option<HardwareError>;

    /// How network adapters may reach the memory of an open device; none where it was not asked, as where the kernels
    /// could not be loaded.
    fn rdma(&self, device: Device) -> Option<RdmaSupport>;

    /// Seconds that the library's initialisation and the contexts alone took.
    fn floor_seconds(&self) -> f64;

    fn memory(&self, device: Device) -> Result<DeviceMemory, HardwareError>;

    /// Takes plain device memory (not from a pool: pool memory needs its own peer access). Where it is
    /// full, the error is [`ErrorKind::OutOfMemory`].
    fn allocate(&self, device: Device, bytes: u64) -> Result<Buffer, HardwareError>;

    /// Gives memory back. Waits for the work that uses it, and so may block and fail like
    /// [`Driver::synchronize`].
    fn free(&self, buffer: Buffer) -> Result<(), HardwareError>;

    /// So many bytes of a buffer, from an offset on, as a buffer of its own. It lives as long as the whole one, which
    /// alone is given back. The same part asked for twice is the same buffer.
    fn part(&self, buffer: Buffer, offset: u64, bytes: u64) -> Result<Buffer, HardwareError>;

    /// Whether `device` may reach the memory of `peer`, as the driver says.
    fn can_access_peer(&self, device: Device, peer: Device) -> Result<bool, HardwareError>;

    /// Lets `device` reach the memory of `peer`, or no longer. Doing so twice is no error.
    fn set_peer_access(
        &self,
        device: Device,
        peer: Device,
        enabled: bool,
    ) -> Result<(), HardwareError>;

    /// A new stream that does not synchronise with the legacy default stream.
    fn create_stream(&self, device: Device) -> Result<Stream, HardwareError>;

    /// A new event with timing.
    fn create_event(&self, device: Device) -> Result<Event, HardwareError>;

    /// Records an event on a stream of the same device.
    fn record(&self, event: Event, stream: Stream) -> Result<(), HardwareError>;

    /// Lets a stream, of any device, wait for an event.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), HardwareError>;

    /// Nanoseconds from one completed event to another of the same device; an error where one of
    /// them is not completed.
    fn elapsed_ns(&self, start: Event, end: Event) -> Result<f64, HardwareError>;

    /// Enqueues a copy of the first `bytes` bytes by a copy engine, on a stream of either device.
    fn copy(
        &self,
        stream: Stream,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError>;

    /// Enqueues the same copy by a kernel on the stream's device, which needs peer access.
    fn kernel_copy(
        &self,
        stream: Stream,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError>;

    /// Enqueues a kernel that keeps the device's multiprocessors busy for about this long.
    fn spin(&self, stream: Stream, duration: Duration) -> Result<(), HardwareError>;

    /// Closes a stream: what is enqueued on it from now on waits until [`Driver::release`]. Where
    /// the GPU kernels are loaded, a closed stream opens by itself after some seconds, so that a
    /// dead host leaves no stuck GPU.
    fn hold(&self, stream: Stream) -> Result<(), HardwareError>;

    /// Waits until every device has come to where its streams were held since the last release, at most so long: the
    /// devices that have not. Those are left out of which that cannot be told, and a stream that work stands before is
    /// not come to.
    fn late(&self, limit: Duration) -> Vec<Device>;

    /// Opens every stream that is held.
    fn release(&self);

    /// Whether a held stream opened by itself since the last call: what was timed meanwhile is void.
    fn expired(&self) -> bool;

    /// Waits until everything that was enqueued on the stream is done. Errors of the work itself come
    /// to light here.
    fn synchronize(&self, stream: Stream) -> Result<(), HardwareError>;

    /// Waits until an event is reached. Errors of the work before it come to light here.
    fn synchronize_event(&self, event: Event) -> Result<(), HardwareError>;

    /// Waits until everything that was enqueued on a device is done, on whatever stream. Errors of the work
    /// itself come to light here.
    fn drain(&self, device: Device) -> Result<(), HardwareError>;

    /// Enqueues a kernel on the legacy default stream that fills the first `bytes` bytes with the pattern of
    /// `seed`.
    fn fill(&self, buffer: Buffer, bytes: u64, seed: u64) -> Result<(), HardwareError>;

    /// Enqueues a kernel on the legacy default stream that fills the first `bytes` bytes with poison.
    fn poison(&self, buffer: Buffer, bytes: u64, value: u64) -> Result<(), HardwareError>;

    /// Enqueues a kernel on the legacy default stream that compares the first `bytes` bytes with the pattern
    /// of `seed`, on the buffer's own device. One at a time for each device, until its
    /// [`Driver::checked`].
    fn check(
        &self,
        buffer: Buffer,
        bytes: u64,
        seed: u64,
        poison: u64,
    ) -> Result<(), HardwareError>;

    /// Waits for the last [`Driver::check`] of a buffer, and says what it counted in so many bytes.
    fn checked(&self, buffer: Buffer, bytes: u64) -> Result<PatternCheck, HardwareError>;

    /// Lets the calling thread run on these processors only, as far as it may use them; where there are none, on
    /// all that it had at first. Where the system refuses, it stays where it is.
    fn run_on(&self, processors: &[usize]);

    /// The host's clock: real time on a live machine, virtual time on a simulated one.
    fn now(&self) -> Duration;
}
