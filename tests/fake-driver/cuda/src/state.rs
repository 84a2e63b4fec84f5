//! State of the fake driver: the meaning of each handle, small memory that the host reads and writes, and the shut
//! gates.

use std::cell::Cell;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fake_machine::code_in;
use hardware::{
    Buffer, Device, DeviceInfo, Driver, ErrorKind, Event, HardwareError, PatternCheck, Sent, Stream,
};
use model::placement::StreamKind;
use model::units::PciAddress;
use sim::SimDriver;
use sim::spec::GpuSpec;

use crate::host::Host;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::shared::Shared;
use crate::talk::Talks;

/// Codes of cuda.h that the fake returns by itself.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const NOT_INITIALIZED: u32 = 3;
    pub(crate) const INVALID_DEVICE: u32 = 101;
    pub(crate) const INVALID_CONTEXT: u32 = 201;
    pub(crate) const INVALID_IMAGE: u32 = 200;
    pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(crate) const JIT_COMPILATION_DISABLED: u32 = 223;
    pub(crate) const OPERATING_SYSTEM: u32 = 304;
    pub(crate) const INVALID_HANDLE: u32 = 400;
    pub(crate) const NOT_FOUND: u32 = 500;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    pub(crate) const PEER_ACCESS_NOT_ENABLED: u32 = 705;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
}

/// A handle is one of these plus a number, so that kinds are never confused.
const CONTEXTS: usize = 0xc0_0000;
const STREAMS: usize = 0x51_0000;
const EVENTS: usize = 0xe0_0000;
const MODULES: usize = 0x30_0000;
const FUNCTIONS: usize = 0xf0_0000;
/// Distance between handles of a kind.
const STEP: usize = 16;
/// Most handles of a kind.
const MOST: usize = 0x1_0000 / STEP * 4;

/// Files that the driver opens for a context: chosen.
const FILES: usize = 8;

/// Allocations up to this size hold real bytes and take no simulated memory.
pub(crate) const SMALL: u64 = 8192;

/// The fake driver, once `cuInit` has succeeded.
static FAKE: Mutex<Option<Fake>> = Mutex::new(None);

thread_local! {
    static CURRENT: Cell<Option<Device>> = const { Cell::new(None) };
}

/// Device memory.
struct Allocation {
    device: Device,
    bytes: u64,
    holds: Holds,
}

enum Holds {
    Simulated(Buffer),
    Bytes(Vec<u8>),
}

/// A stream that waits for a word in host memory.
struct Shut {
    flag: u64,
    generation: u32,
    expired: u64,
    /// Address of the word in which its device reports that it waits. 0 once it has reported, and if it has no such
    /// word.
    arrived: u64,
    device: Device,
}

/// The fake driver; see the module's documentation.
pub(crate) struct Fake {
    driver: SimDriver,
    gpus: Vec<GpuSpec>,
    /// CUDA version of the driver, such as 13000.
    pub cuda_version: i32,
    pub host: Host,
    /// The simulated devices that are shown, in CUDA's order.
    shown: Vec<Device>,
    memory: BTreeMap<u64, Allocation>,
    next_address: u64,
    streams: Vec<Stream>,
    /// The default stream of the thread on each device that was asked for it.
    per_thread: RefCell<BTreeMap<Device, Stream>>,
    events: Vec<Event>,
    /// The entries of each module.
    modules: Vec<BTreeSet<String>>,
    functions: Vec<Kernel>,
    peers: HashSet<(Device, Device)>,
    shut: Vec<Shut>,
    launches_block: bool,
    pub talks: Talks,
    /// Counts of compared copies, by the address of their words: the stream, and the simulated driver's number.
    pub tallies: BTreeMap<u64, (Stream, u32)>,
    pub shared: Shared,
}

// SAFETY: the simulated driver is plain data without threads of its own; it is only ever used
// under the mutex around it.
unsafe impl Send for Fake {}

/// Returns the compute capability of an architecture, major and minor, of its data-centre chip.
pub(crate) fn capability(architecture: &str) -> [i32; 2] {
    match architecture {
        "Kepler" => [3, 5],
        "Maxwell" => [5, 0],
        "Pascal" => [6, 0],
        "Volta" => [7, 0],
        "Turing" => [7, 5],
        "Ampere" => [8, 0],
        "Ada" => [8, 9],
        "Hopper" => [9, 0],
        _ => [10, 0],
    }
}

/// Returns the code of an error of the simulated driver.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn code_of(error: HardwareError) -> u32 {
    match error.kind {
        ErrorKind::OutOfMemory => code::OUT_OF_MEMORY,
        kind if kind.is_lack() && !error.message.contains(" error ") => code::NOT_SUPPORTED,
        _ => code_in(&error.message),
    }
}

fn handle(kind: usize, index: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(kind + index * STEP)
}

fn index(kind: usize, handle: *const c_void) -> Option<usize> {
    let offset = handle.addr().checked_sub(kind)?;
    (offset.is_multiple_of(STEP) && offset / STEP < MOST).then_some(offset / STEP)
}

/// Returns the word at an address of host memory.
fn word(address: u64) -> &'static AtomicU32 {
    // SAFETY: the address came from cuMemHostAlloc, whose memory is never freed, and both sides
    // treat its words as atomic.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU32>(address as usize) }
}

/// Returns the device whose context is current.
pub(crate) fn current() -> Result<Device, u32> {
    CURRENT.get().ok_or(code::INVALID_CONTEXT)
}

/// Runs a function with the driver, after opening the gates that are due.
pub(crate) fn with<T>(work: impl FnOnce(&mut Fake) -> Result<T, u32>) -> Result<T, u32> {
    let mut fake = FAKE.lock().unwrap_or_else(PoisonError::into_inner);
    let fake = fake.as_mut().ok_or(code::NOT_INITIALIZED)?;
    fake.open_gates();
    let result = work(fake);
    fake.arrive();
    if fake.driver.expired() {
        for shut in fake.shut.drain(..).filter(|shut| shut.expired != 0) {
            word(shut.expired).store(1, Ordering::Release);
        }
    }
    result
}

/// Starts the driver.
pub(crate) fn init() -> Result<(), u32> {
    let mut fake = FAKE.lock().unwrap_or_else(PoisonError::into_inner);
    if fake.is_some() {
        return Ok(());
    }
    let mut spec = fake_machine::machine().map_err(|_| 999_u32)?;
    // The fake NVML adds the traffic of other programs.
    spec.faults.others.clear();
    let gpus = spec.gpus.clone();
    let cuda_version = &spec.host.cuda_version;
    let cuda_version = fake_machine::cuda_version(cuda_version).ok_or(999_u32)?;
    let driver = SimDriver::new(spec).map_err(code_of)?;
    let mut shown: Vec<Device> = driver.devices().iter().map(|info| info.device).collect();
    if let Ok(mask) = std::env::var("CUDA_VISIBLE_DEVICES") {
        shown = visible(&mask, driver.devices());
    }
    if shown.is_empty() {
        return Err(100);
    }
    *fake = Some(Fake {
        driver,
        gpus,
        cuda_version,
        host: Host::default(),
        shown,
        memory: BTreeMap::new(),
        next_address: 0x7f00_0000_0000,
        streams: Vec::new(),
        per_thread: RefCell::default(),
        events: Vec::new(),
        modules: Vec::new(),
        functions: Vec::new(),
        peers: HashSet::new(),
        shut: Vec::new(),
        shared: Shared::default(),
        launches_block: std::env::var("CUDA_LAUNCH_BLOCKING")
            .is_ok_and(|value| value != "0" && !value.is_empty()),
        talks: Talks::default(),
        tallies: BTreeMap::new(),
    });
    Ok(())
}

/// Returns the devices of a list of indices, UUIDs, or prefixes of UUIDs. An invalid entry hides all after it, as in
/// CUDA.
fn visible(mask: &str, all: &[DeviceInfo]) -> Vec<Device> {
    let named = |info: &&DeviceInfo, name: &str| {
        info.uuid.as_ref().is_some_and(|uuid| uuid.starts_with(name))
    };
    let device = |entry: &str| match entry.trim() {
        name if name.starts_with("GPU-") => all.iter().find(|info| named(info, name)),
        number => all.get(number.parse::<usize>().ok()?),
    };
    mask.split(',').map_while(|entry| Some(device(entry)?.device)).collect()
}

impl Fake {
    pub(crate) fn count(&self) -> usize {
        self.shown.len()
    }

    /// Returns the simulated device of a handle.
    pub(crate) fn device(&self, device: i32) -> Result<Device, u32> {
        let shown = usize::try_from(device).ok().and_then(|device| self.shown.get(device));
        shown.copied().ok_or(code::INVALID_DEVICE)
    }

    /// Returns the description of a device's GPU.
    pub(crate) fn gpu(&self, device: Device) -> Result<&GpuSpec, u32> {
        let info = self.driver.devices().iter().find(|info| info.device == device);
        let pci = info.and_then(|info| info.pci);
        let gpu = self.gpus.iter().find(|gpu| Some(gpu.pci) == pci);
        gpu.ok_or(code::INVALID_DEVICE)
    }

    pub(crate) fn driver(&self) -> &SimDriver {
        &self.driver
    }

    /// Creates the context of a device.
    pub(crate) fn retain(&self, device: Device) -> Result<*mut c_void, u32> {
        let opened = self.driver.open(&[device]).pop().ok_or(999_u32)?;
        opened.map_err(code_of)?;
        if !fake_machine::take_files(FILES) {
            return Err(code::OPERATING_SYSTEM);
        }
        Ok(handle(CONTEXTS, device.0 as usize + 1))
    }

    /// Returns the device of a context.
    pub(crate) fn context(&self, context: *const c_void) -> Result<Device, u32> {
        let device =
            index(CONTEXTS, context).and_then(|index| u32::try_from(index.checked_sub(1)?).ok());
        device.map(Device).filter(|device| self.shown.contains(device)).ok_or(code::INVALID_CONTEXT)
    }

    pub(crate) fn set_current(&self, context: *const c_void) -> Result<(), u32> {
        let device = if context.is_null() { None } else { Some(self.context(context)?) };
        CURRENT.set(device);
        Ok(())
    }

    /// Enables or disables access of the current device to a peer. Like the driver, returns an error if that is already
    /// so.
    pub(crate) fn peer(&mut self, peer: *const c_void, enable: bool) -> Result<(), u32> {
        let pair = (current()?, self.context(peer)?);
        match (enable, self.peers.contains(&pair)) {
            (true, true) => return Err(code::PEER_ACCESS_ALREADY_ENABLED),
            (false, false) => return Err(code::PEER_ACCESS_NOT_ENABLED),
            _ => self.driver.set_peer_access(pair.0, pair.1, enable).map_err(code_of)?,
        }
        if enable {
            self.peers.insert(pair)
        } else {
            self.peers.remove(&pair)
        };
        Ok(())
    }

    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<u64, u32> {
        let device = current()?;
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        let holds = if bytes <= SMALL {
            Holds::Bytes(vec![0xa5; usize::try_from(bytes).map_err(|_| code::OUT_OF_MEMORY)?])
        } else {
            Holds::Simulated(self.driver.allocate(device, bytes).map_err(code_of)?)
        };
        let address = self.take_address(bytes);
        self.memory.insert(address, Allocation { device, bytes, holds });
        Ok(address)
    }

    /// Returns addresses that nothing has.
    pub(crate) fn take_address(&mut self, bytes: u64) -> u64 {
        let address = self.next_address;
        self.next_address += bytes.next_multiple_of(2 << 20);
        address
    }

    /// Puts a buffer at an address.
    pub(crate) fn hold_at(&mut self, address: u64, device: Device, bytes: u64, buffer: Buffer) {
        let holds = Holds::Simulated(buffer);
        self.memory.insert(address, Allocation { device, bytes, holds });
    }

    /// Takes a buffer away from its address, without freeing it.
    pub(crate) fn forget(&mut self, address: u64) {
        self.memory.remove(&address);
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<(), u32> {
        let allocation = self.memory.remove(&address).ok_or(code::INVALID_VALUE)?;
        match allocation.holds {
            Holds::Simulated(buffer) => self.driver.free(buffer).map_err(code_of),
            Holds::Bytes(_) => Ok(()),
        }
    }

    /// Returns the simulated buffer, or part of one, that begins at an address and has at least this many bytes.
    pub(crate) fn buffer(&self, address: u64, bytes: u64) -> Result<Buffer, u32> {
        match self.memory.range(..=address).next_back() {
            Some((begin, Allocation { holds: Holds::Simulated(buffer), .. })) => {
                match address - begin {
                    0 if bytes <= buffer.bytes => Ok(*buffer),
                    offset if offset > 0 => {
                        let rest = buffer.bytes.checked_sub(offset).filter(|rest| bytes <= *rest);
                        self.driver
                            .part(*buffer, offset, rest.ok_or(code::INVALID_VALUE)?)
                            .map_err(code_of)
                    }
                    _ => Err(code::INVALID_VALUE),
                }
            }
            _ => Err(code::INVALID_VALUE),
        }
    }

    /// Returns the bytes at an address of small memory.
    pub(crate) fn bytes(&mut self, address: u64, bytes: usize) -> Result<&mut [u8], u32> {
        match self.memory.range_mut(..=address).next_back() {
            Some((begin, Allocation { holds: Holds::Bytes(held), .. })) => {
                let from = usize::try_from(address - begin).map_err(|_| code::INVALID_VALUE)?;
                let held = held.get_mut(from..).ok_or(code::INVALID_VALUE)?;
                held.get_mut(..bytes).ok_or(code::INVALID_VALUE)
            }
            _ => Err(code::INVALID_VALUE),
        }
    }

    pub(crate) fn create_stream(&mut self, flags: c_uint) -> Result<*mut c_void, u32> {
        let kind = if flags == 0 { StreamKind::SideBlocking } else { StreamKind::Side };
        self.streams.push(self.driver.create_stream(current()?, kind).map_err(code_of)?);
        Ok(handle(STREAMS, self.streams.len() - 1))
    }

    pub(crate) fn stream(&self, stream: *const c_void) -> Result<Stream, u32> {
        if stream.is_null() {
            return Ok(Stream::default_of(current()?));
        }
        // CU_STREAM_PER_THREAD
        if stream.addr() == 2 {
            let (device, mut known) = (current()?, self.per_thread.borrow_mut());
            if let Some(stream) = known.get(&device) {
                return Ok(*stream);
            }
            let stream =
                self.driver.create_stream(device, StreamKind::PerThread).map_err(code_of)?;
            known.insert(device, stream);
            return Ok(stream);
        }
        index(STREAMS, stream)
            .and_then(|index| self.streams.get(index))
            .copied()
            .ok_or(code::INVALID_HANDLE)
    }

    pub(crate) fn create_event(&mut self, flags: u32) -> Result<*mut c_void, u32> {
        self.events.push(self.driver.create_event(current()?, flags == 0).map_err(code_of)?);
        Ok(handle(EVENTS, self.events.len() - 1))
    }

    pub(crate) fn event(&self, event: *const c_void) -> Result<Event, u32> {
        index(EVENTS, event)
            .and_then(|index| self.events.get(index))
            .copied()
            .ok_or(code::INVALID_HANDLE)
    }

    /// With CUDA_LAUNCH_BLOCKING, waits for the last enqueued work. Behind a gate, that lasts until the gate opens by
    /// itself.
    pub(crate) fn wait_if_blocking(&mut self, stream: *const c_void) -> Result<(), u32> {
        if !self.launches_block {
            return Ok(());
        }
        self.synchronize(stream)
    }

    /// Waits for a stream, and shows the data of its copies to the host.
    pub(crate) fn synchronize(&mut self, stream: *const c_void) -> Result<(), u32> {
        self.start_talks()?;
        let stream = self.stream(stream)?;
        self.driver.synchronize(stream).map_err(code_of)?;
        self.show(|of| (of.device, of.id) == (stream.device, stream.id))
    }

    /// Does the same for a device.
    pub(crate) fn drain(&mut self, device: Device) -> Result<(), u32> {
        self.start_talks()?;
        self.driver.drain(device).map_err(code_of)?;
        self.show(|of| of.device == device)
    }

    /// Returns true if copies between two devices are direct, and not within one.
    pub(crate) fn reaches(&self, from: Device, to: Device) -> bool {
        let direct = self.peers.contains(&(from, to)) || self.peers.contains(&(to, from));
        direct && from != to
    }

    /// Returns the addresses of all GPUs, in NVML's order.
    pub(crate) fn gpu_addresses(&self) -> Vec<PciAddress> {
        self.gpus.iter().map(|gpu| gpu.pci).collect()
    }

    pub(crate) fn address(&self, device: Device) -> Option<PciAddress> {
        self.driver.devices().iter().find(|info| info.device == device)?.pci
    }

    /// Loads an image of kernels.
    pub(crate) fn load(&mut self, image: &Image) -> Result<*mut c_void, u32> {
        if let Some(failure) = self.driver.kernels_failure(current()?) {
            return Err(code_of(failure));
        }
        let capability = capability(&self.gpu(current()?)?.architecture);
        if let Some(code) = image.refusal(capability, self.cuda_version) {
            return Err(code);
        }
        self.modules.push(image.entries.clone());
        Ok(handle(MODULES, self.modules.len() - 1))
    }

    pub(crate) fn function(
        &mut self,
        module: *const c_void,
        name: &str,
    ) -> Result<*mut c_void, u32> {
        let module = index(MODULES, module)
            .and_then(|index| self.modules.get(index))
            .ok_or(code::INVALID_HANDLE)?;
        let there = module.contains(name);
        self.functions.push(Kernel::named(name).filter(|_| there).ok_or(code::NOT_FOUND)?);
        Ok(handle(FUNCTIONS, self.functions.len() - 1))
    }

    pub(crate) fn kernel(&self, function: *const c_void) -> Result<Kernel, u32> {
        index(FUNCTIONS, function)
            .and_then(|index| self.functions.get(index))
            .copied()
            .ok_or(code::INVALID_HANDLE)
    }

    /// Holds a stream until the word at `flag` has reached a generation.
    pub(crate) fn hold(
        &mut self,
        stream: *const c_void,
        flag: u64,
        generation: u32,
        [expired, arrived]: [u64; 2],
    ) -> Result<(), u32> {
        let stream = self.stream(stream)?;
        if flag == 0 {
            return Err(code::INVALID_VALUE);
        }
        let shut = Shut { flag, generation, expired, arrived, device: stream.device };
        if !shut.is_open() {
            self.driver.hold(stream).map_err(code_of)?;
            self.shut.push(shut);
        } else if arrived != 0 {
            word(arrived).store(generation, Ordering::Release);
        }
        Ok(())
    }

    /// Writes a word of host memory. It does not wait for earlier work on its stream: there is none on streams that are
    /// written to.
    pub(crate) fn write(&self, stream: *const c_void, address: u64, value: u32) -> Result<(), u32> {
        self.stream(stream)?;
        if address == 0 {
            return Err(code::INVALID_VALUE);
        }
        word(address).store(value, Ordering::Release);
        Ok(())
    }

    /// Makes the devices that have reached their gates report so.
    fn arrive(&mut self) {
        if self.shut.iter().all(|shut| shut.arrived == 0) {
            return;
        }
        let late = self.driver.late(Duration::ZERO);
        for shut in
            self.shut.iter_mut().filter(|shut| shut.arrived != 0 && !late.contains(&shut.device))
        {
            word(std::mem::take(&mut shut.arrived)).store(shut.generation, Ordering::Release);
        }
    }

    fn open_gates(&mut self) {
        if !self.shut.is_empty() && self.shut.iter().all(Shut::is_open) {
            self.driver.release();
            self.shut.clear();
        }
    }

    pub(crate) fn spin(&self, stream: *const c_void, nanoseconds: u64) -> Result<(), u32> {
        let stream = self.stream(stream)?;
        if nanoseconds == 0 {
            return Ok(());
        }
        self.driver.spin(stream, Duration::from_nanos(nanoseconds)).map_err(code_of)
    }

    pub(crate) fn work(
        &self,
        stream: *const c_void,
        address: u64,
        bytes: u64,
        rounds: u32,
        limit_ns: u64,
    ) -> Result<(), u32> {
        let stream = self.stream(stream)?;
        if limit_ns > 0 {
            return self.driver.heat(stream, Duration::from_nanos(limit_ns)).map_err(code_of);
        }
        let whole = (bytes > 0).then(|| self.buffer(address, bytes)).transpose()?;
        let reads = whole.map(|whole| self.driver.part(whole, 0, bytes).map_err(code_of));
        self.driver.work(stream, reads.transpose()?, rounds).map_err(code_of)
    }

    /// Runs a kernel over a buffer. Over no bytes, as at the first launch, it does nothing.
    pub(crate) fn over(
        &self,
        address: u64,
        bytes: u64,
        run: impl FnOnce(&dyn Driver, Buffer) -> Result<(), HardwareError>,
    ) -> Result<(), u32> {
        if bytes == 0 {
            return Ok(());
        }
        run(&self.driver, self.buffer(address, bytes)?).map_err(code_of)
    }

    /// Counts wrong words in the words at `result`, as the kernel does. Counts of compared copies are shown when they are read.
    pub(crate) fn check(
        &mut self,
        stream: *const c_void,
        address: u64,
        bytes: u64,
        sent: Sent,
        (turn, result): (u64, u64),
    ) -> Result<(), u32> {
        if bytes == 0 {
            return Ok(());
        }
        let buffer = self.buffer(address, bytes)?;
        if turn == 0 {
            let [found] = self.driver.check(&[(buffer, sent)], bytes).map_err(code_of)?[..] else {
                return Err(999);
            };
            return self.add_counts(result, &found);
        }
        let stream = self.stream(stream)?;
        let next = u32::try_from(self.tallies.len()).map_err(|_| 999_u32)?;
        let tally = self.tallies.get(&result).map_or(next, |(_, tally)| *tally);
        self.tallies.insert(result, (stream, tally));
        let part = self.driver.part(buffer, 0, bytes).map_err(code_of)?;
        let turn = u32::try_from(turn).map_err(|_| code::INVALID_VALUE)?;
        self.driver.compare(stream, part, bytes, sent, (tally, turn)).map_err(code_of)
    }

    /// Shows the counts of compared copies whose words are read.
    pub(crate) fn show_counts(&mut self, result: u64) -> Result<(), u32> {
        let Some((stream, tally)) = self.tallies.get(&result).copied() else {
            return Ok(());
        };
        let found = self.driver.compared(stream, tally).map_err(code_of)?;
        self.add_counts(result, &found)
    }

    fn add_counts(&mut self, result: u64, found: &PatternCheck) -> Result<(), u32> {
        let held = self.bytes(result, 40)?;
        let mut words = [0_u64; 5];
        for (word, bytes) in words.iter_mut().zip(held.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().map_err(|_| 999_u32)?);
        }
        let first = found.first_wrong.map_or(u64::MAX, |byte| byte / 8);
        let [wrong, poisoned, before, stale, copies] = words;
        let words = [
            wrong + found.wrong,
            poisoned + found.poisoned,
            before.min(first),
            stale + found.stale,
            copies + found.copies,
        ];
        for (word, bytes) in words.iter().zip(held.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    /// Returns the memory of the current device.
    pub(crate) fn memory(&self) -> Result<(u64, u64), u32> {
        let memory = self.driver.memory(current()?).map_err(code_of)?;
        Ok((memory.free, memory.total))
    }

    /// Returns true if memory at an address belongs to a device.
    pub(crate) fn belongs(&self, address: u64, device: Device) -> bool {
        self.memory.range(..=address).next_back().is_some_and(|(begin, allocation)| {
            allocation.device == device && address - begin < allocation.bytes
        })
    }
}

impl Shut {
    /// Returns true if the gate is open. Compares by the difference, as the kernel does, so that generations may wrap
    /// around.
    fn is_open(&self) -> bool {
        word(self.flag).load(Ordering::Acquire).wrapping_sub(self.generation) < 1 << 31
    }
}
