//! Facts of the simulated machine, read again at every call.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fake_machine::{code_in, traffic};
use hardware::{Counts, GpuGroup, LinkSample, Moved, Telemetry};
use model::flow::{Endpoint, Flow, HostMemory};
use model::reading::{Reading, Unknown};
use model::snapshot::{Gpu, GpuPair, Host, NvLink, NvLinkPacketErrors, PciFunction};
use model::units::{Generation, Lanes, PciAddress};
use sim::spec::{MachineSpec, OthersWork};

use crate::numbers;

/// Codes of nvml.h that the fake returns by itself.
pub(crate) mod code {
    pub(crate) const UNINITIALIZED: u32 = 1;
    pub(crate) const INVALID_ARGUMENT: u32 = 2;
    pub(crate) const NOT_SUPPORTED: u32 = 3;
    pub(crate) const NO_PERMISSION: u32 = 4;
    pub(crate) const INSUFFICIENT_SIZE: u32 = 7;
    pub(crate) const TIMEOUT: u32 = 10;
    pub(crate) const FUNCTION_NOT_FOUND: u32 = 13;
    pub(crate) const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    pub(crate) const UNKNOWN: u32 = 999;
}

/// Base of device handles. A handle is this plus sixteen times the index.
const HANDLES: usize = 0xd0_0000;

/// The scope for all NVLinks together.
const ALL_LINKS: u32 = u32::MAX;

/// Files that the library opens for a GPU: chosen. If it gets none, it returns "unknown error".
const FILES: usize = 4;

/// The GPUs for which it has opened them.
static OPENED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The last sample of each GPU while copies ran; `None` while it is at rest.
static WATCHED: Mutex<Option<HashMap<u32, Option<LinkSample>>>> = Mutex::new(None);

static TELEMETRY: Mutex<Option<Arc<dyn Telemetry>>> = Mutex::new(None);

/// Sets of events. Their handles count from one.
static EVENTS: Mutex<Vec<EventSet>> = Mutex::new(Vec::new());

/// A set of events.
#[derive(Debug, Default)]
struct EventSet {
    /// GPUs whose events it takes. A set that was freed has none.
    gpus: Vec<u32>,
    /// Xid errors that nobody has taken yet, with their GPUs.
    waiting: VecDeque<(u32, u32)>,
}

/// Returns the handle of a new set of events.
pub(crate) fn new_events() -> *mut c_void {
    let mut sets = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    sets.push(EventSet::default());
    std::ptr::without_provenance_mut(sets.len())
}

fn with_events<T>(
    handle: *mut c_void,
    work: impl FnOnce(&mut EventSet) -> Result<T, u32>,
) -> Result<T, u32> {
    let mut sets = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = handle.addr().checked_sub(1);
    let set = place.and_then(|place| sets.get_mut(place));
    work(set.ok_or(code::INVALID_ARGUMENT)?)
}

/// Makes a set take the Xid errors of a GPU.
pub(crate) fn register(device: *mut c_void, events: *mut c_void) -> Result<(), u32> {
    let index = index(device)?;
    telemetry()?.listen();
    with_events(events, |set| {
        set.gpus.push(index);
        Ok(())
    })
}

/// Takes the next event: the handle of the GPU, and the Xid error.
pub(crate) fn event(events: *mut c_void, wait: u32) -> Result<(*mut c_void, u32), u32> {
    let next = with_events(events, |set| Ok(set.waiting.pop_front()))?;
    let Some((index, xid)) = next else {
        std::thread::sleep(Duration::from_millis(wait.into()));
        return Err(code::TIMEOUT);
    };
    Ok((handle(index)?, xid))
}

/// Forgets a set of events.
pub(crate) fn free_events(events: *mut c_void) -> Result<(), u32> {
    with_events(events, |set| {
        *set = EventSet::default();
        Ok(())
    })
}

/// Starts the library.
pub(crate) fn start() -> Result<(), u32> {
    let spec = fake_machine::machine().map_err(|_| code::UNKNOWN)?;
    let telemetry = sim::telemetry(spec);
    write_errors(telemetry.as_ref());
    *TELEMETRY.lock().unwrap_or_else(PoisonError::into_inner) = Some(telemetry);
    Ok(())
}

/// Writes the kernel's counters to its files. The counters of a run begin with the description's values, and rise while
/// copies run. Unchanged values are not written again: on a busy machine a look would take longer than peerscope waits
/// for one.
fn write_errors(telemetry: &dyn Telemetry) {
    static WRITTEN: Mutex<Vec<PciFunction>> = Mutex::new(Vec::new());
    let Some(root) = std::env::var_os("PEERSCOPE_FSROOT") else {
        return;
    };
    let functions = telemetry.pci_tree().functions;
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    let new = functions
        .iter()
        .enumerate()
        .filter(|(place, function)| written.get(*place) != Some(*function));
    let new: Vec<_> = new.map(|(_, function)| function.clone()).collect();
    // If the folder is gone, nobody reads it any more.
    let _ = fake_machine::sysfs::count_errors(Path::new(&root), &new);
    *written = functions;
}

fn telemetry() -> Result<Arc<dyn Telemetry>, u32> {
    TELEMETRY.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(code::UNINITIALIZED)
}

/// Returns the value of a reading, or NVML's code for the reason why it is unknown.
pub(crate) fn known<T: Clone>(reading: &Reading<T>) -> Result<T, u32> {
    match reading {
        Reading::Known(value) => Ok(value.clone()),
        Reading::Unknown(Unknown::Unsupported | Unknown::NotRead(_)) => Err(code::NOT_SUPPORTED),
        Reading::Unknown(Unknown::Denied(_)) => Err(code::NO_PERMISSION),
        Reading::Unknown(Unknown::Failed(why) | Unknown::Limited(why)) => Err(code_in(why)),
    }
}

pub(crate) fn host() -> Result<Host, u32> {
    Ok(telemetry()?.host())
}

pub(crate) fn count() -> Result<u32, u32> {
    telemetry()?.gpu_count().map_err(|error| code_in(&error.message))
}

/// Returns the handle of a GPU that can be opened.
pub(crate) fn handle(index: u32) -> Result<*mut c_void, u32> {
    if index >= count()? {
        return Err(code::INVALID_ARGUMENT);
    }
    known(&read(index, GpuGroup::Identity)?.uuid)?;
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if !opened.contains(&index) {
        if !fake_machine::take_files(FILES) {
            return Err(code::UNKNOWN);
        }
        opened.push(index);
    }
    Ok(std::ptr::without_provenance_mut(HANDLES + 16 * index as usize))
}

/// Returns the index of a handle.
pub(crate) fn index(device: *mut c_void) -> Result<u32, u32> {
    let offset = device.addr().checked_sub(HANDLES).filter(|offset| offset.is_multiple_of(16));
    let index =
        offset.and_then(|offset| u32::try_from(offset / 16).ok()).ok_or(code::INVALID_ARGUMENT)?;
    if index < count()? { Ok(index) } else { Err(code::INVALID_ARGUMENT) }
}

fn read(index: u32, group: GpuGroup) -> Result<Gpu, u32> {
    Ok(read_from(telemetry()?.as_ref(), index, group))
}

fn read_from(telemetry: &dyn Telemetry, index: u32, group: GpuGroup) -> Gpu {
    let mut gpu = Gpu::unread(index, &Unknown::Unsupported);
    telemetry.read_gpu(group, &mut gpu);
    gpu
}

/// Returns what a GPU draws, if the simulated machine says so.
fn power(index: u32) -> Result<hardware::Power, u32> {
    last_look(index).and_then(|sample| sample.power).ok_or(code::NOT_SUPPORTED)
}

/// Returns one group of facts of a GPU.
pub(crate) fn gpu(device: *mut c_void, group: GpuGroup) -> Result<Gpu, u32> {
    read(index(device)?, group)
}

/// Returns an NVLink with its error counters.
pub(crate) fn link(device: *mut c_void, number: u32) -> Result<NvLink, u32> {
    links(index(device)?)?
        .into_iter()
        .find(|link| u32::from(link.link) == number)
        .ok_or(code::INVALID_ARGUMENT)
}

fn links(index: u32) -> Result<Vec<NvLink>, u32> {
    let mut gpu = read(index, GpuGroup::NvLink)?;
    telemetry()?.read_gpu(GpuGroup::LinkErrors, &mut gpu);
    known(&gpu.nvlinks)
}

/// Starts a new look at a GPU, which begins with the generation of its link. The first look finds it at rest. From the
/// second on, peerscope watches it while copies run.
pub(crate) fn look(device: *mut c_void) -> Result<(), u32> {
    let index = index(device)?;
    let telemetry = telemetry()?;
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let watched = watched.get_or_insert_default();
    if let Some(sample) = watched.get_mut(&index) {
        let new = telemetry.sample(index);
        let mut sets = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
        for set in sets.iter_mut().filter(|set| set.gpus.contains(&index)) {
            let xids = new.xids.iter().flatten().flatten();
            set.waiting.extend(xids.map(|xid| (index, *xid)));
        }
        *sample = Some(new);
        write_errors(telemetry.as_ref());
    } else {
        watched.insert(index, None);
    }
    Ok(())
}

/// Returns the last look at a GPU under load; `None` while it is at rest.
pub(crate) fn watched(device: *mut c_void) -> Result<Option<LinkSample>, u32> {
    index(device).map(last_look)
}

fn last_look(index: u32) -> Option<LinkSample> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&index)?.clone()
}

/// Returns the current generation and lanes of the link.
pub(crate) fn pcie_now(device: *mut c_void) -> Result<(Generation, Lanes), u32> {
    if let Some(sample) = watched(device)? {
        return sample.generation.zip(sample.width).ok_or(code::NOT_SUPPORTED);
    }
    let gpu = gpu(device, GpuGroup::Pcie)?;
    Ok((known(&gpu.pcie_generation)?, known(&gpu.pcie_width)?))
}

/// Returns the PCIe replays.
pub(crate) fn replays(device: *mut c_void) -> Result<u64, u32> {
    match watched(device)? {
        Some(sample) => sample.replays.ok_or(code::NOT_SUPPORTED),
        None => known(&gpu(device, GpuGroup::Pcie)?.pcie_replays),
    }
}

/// Returns the temperature, degrees Celsius.
pub(crate) fn temperature(device: *mut c_void) -> Result<u32, u32> {
    match watched(device)? {
        Some(sample) => sample.temperature_c.ok_or(code::NOT_SUPPORTED),
        None => known(&gpu(device, GpuGroup::State)?.temperature_c),
    }
}

/// Returns the reasons why clocks are reduced.
pub(crate) fn throttle_reasons(device: *mut c_void) -> Result<Vec<String>, u32> {
    match watched(device)? {
        Some(sample) => Ok(sample.throttle_reasons),
        None => known(&gpu(device, GpuGroup::State)?.throttle_reasons),
    }
}

pub(crate) fn pair(device: *mut c_void, other: *mut c_void) -> Result<GpuPair, u32> {
    let mut pair = telemetry()?.read_pair(index(device)?, index(other)?);
    telemetry()?.read_access(&mut pair);
    telemetry()?.read_atomics(&mut pair);
    Ok(pair)
}

/// The counters of the fake CUDA's copies. Their telemetry excludes the traffic of other programs, which is in
/// [`MOVED`].
struct Copied {
    spec: MachineSpec,
    counters: Arc<dyn Telemetry>,
    /// Offset up to which the copies were read.
    place: u64,
    copies: usize,
    /// Number of copies at the last look at each GPU.
    looked: HashMap<u32, usize>,
    /// Bytes moved over the NVLinks of each GPU by other programs that work only while copies run.
    others: HashMap<u32, [u64; 2]>,
    /// Bytes that kernels moved over single links, by GPU and link.
    links: HashMap<(PciAddress, u8), [u64; 2]>,
}

/// Time that other programs work from one look at a GPU to the next.
const STEP_SECONDS: f64 = 0.03;

impl Copied {
    /// Runs the other programs that work only while copies run, if there were copies since the last look at a GPU.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a description has no negative rate"
    )]
    fn let_others_work(&mut self, index: u32, others: &[OthersWork]) -> [u64; 2] {
        let before = self.looked.insert(index, self.copies).unwrap_or(0);
        let moved = self.others.entry(index).or_default();
        for others in others.iter().filter(|others| self.copies > before && others.gpu == index) {
            for (moved, rate) in moved.iter_mut().zip(others.nvlink) {
                *moved += (*rate * 1e9 * STEP_SECONDS) as u64;
            }
        }
        *moved
    }
}

static COPIED: Mutex<Option<Copied>> = Mutex::new(None);

/// Returns what the copies have added to the counters of a GPU by now.
fn copied(index: u32) -> Result<Counts, u32> {
    let mut copied = COPIED.lock().unwrap_or_else(PoisonError::into_inner);
    if copied.is_none() {
        let mut spec = fake_machine::machine().map_err(|_| code::UNKNOWN)?;
        spec.faults.others.clear();
        let (looked, others) = (HashMap::new(), HashMap::new());
        *copied = Some(Copied {
            counters: sim::telemetry(spec.clone()),
            spec,
            place: 0,
            copies: 0,
            looked,
            others,
            links: HashMap::new(),
        });
    }
    let Some(copied) = copied.as_mut() else {
        return Err(code::UNKNOWN);
    };
    let (copies, links, place) = traffic::since(copied.place);
    for of in links {
        let known = copied.links.entry((of.gpu, of.link)).or_default();
        *known = [0, 1].map(|way| known[way] + of.rise[way]);
    }
    (copied.place, copied.copies) = (place, copied.copies + copies.len());
    let host = Endpoint::Host { node: None, memory: HostMemory::Pinned };
    let end = |address: Option<PciAddress>| match address {
        None => Some(host),
        Some(address) => {
            let index = copied.spec.gpus.iter().position(|gpu| gpu.pci == address)?;
            u32::try_from(index).ok().map(Endpoint::Gpu)
        }
    };
    for copy in copies {
        if let (Some(from), Some(to)) = (end(copy.from), end(copy.to)) {
            copied.counters.carried(Flow { from, to }, copy.bytes);
        }
    }
    let mut counts = copied.counters.counts(index, &(0..=63).collect::<Vec<u8>>());
    let address = copied.spec.gpus.get(index as usize).map(|gpu| gpu.pci);
    for (link, bytes) in &mut counts.links {
        let moved = address.and_then(|address| copied.links.get(&(address, *link)));
        *bytes = [0, 1].map(|way| bytes[way] + moved.map_or(0, |moved| moved[way]));
    }
    match counts.failure {
        Some(why) => Err(code_in(&why)),
        None => Ok(counts),
    }
}

/// Returns the data that copies have moved over an NVLink, KiB.
fn of_link(index: u32, scope: u32, way: usize) -> Result<u64, u32> {
    links(index)?
        .iter()
        .find(|link| u32::from(link.link) == scope)
        .ok_or(code::INVALID_ARGUMENT)?;
    let counts = copied(index)?;
    let link = counts.links.iter().find(|(link, _)| u32::from(*link) == scope);
    link.map(|(_, counted)| counted[way] / 1024).ok_or(code::NOT_SUPPORTED)
}

/// Returns true if the links of a GPU have the counters of NVLink 5 alone. NVLink 6 has here, so that both are read.
fn counts_packets(index: u32) -> Result<bool, u32> {
    let is_6 = |link: &NvLink| link.version.known().is_some_and(|version| version == "6.0");
    Ok(links(index)?.iter().any(is_6))
}

/// Returns the data that other programs and copies have moved over all NVLinks, KiB.
fn of_all_links(index: u32, moved: &Moved, way: usize) -> Result<u64, u32> {
    let others = moved.nvlink.ok_or(code::NOT_SUPPORTED)?[way];
    let own = copied(index)?.nvlink.ok_or(code::NOT_SUPPORTED)?[way];
    Ok((others + own + under_load(index, way)?) / 1024)
}

/// Returns the bytes moved over the NVLinks of a GPU by other programs that work only while copies run. The call for
/// the first direction is the look.
fn under_load(index: u32, way: usize) -> Result<u64, u32> {
    static OTHERS: OnceLock<Vec<OthersWork>> = OnceLock::new();
    let read = || fake_machine::machine().map(|machine| machine.faults.others).unwrap_or_default();
    let others =
        OTHERS.get_or_init(|| read().into_iter().filter(OthersWork::is_only_under_load).collect());
    let mut copied = COPIED.lock().unwrap_or_else(PoisonError::into_inner);
    let copied = copied.as_mut().ok_or(code::UNKNOWN)?;
    if way == 0 {
        return Ok(copied.let_others_work(index, others)[way]);
    }
    Ok(copied.others.get(&index).map_or(0, |moved| moved[way]))
}

fn over_pcie(index: u32, way: usize) -> Result<u64, u32> {
    let others = moved(index).pcie.ok_or(code::NOT_SUPPORTED)?[way];
    let own = copied(index)?.pcie.ok_or(code::NOT_SUPPORTED)?[way];
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a counter that wraps, as the real one does"
    )]
    Ok(u64::from((others + own) as u32))
}

/// The data that each GPU had moved at the last look: one call for several fields is one look.
static MOVED: Mutex<Option<HashMap<u32, Moved>>> = Mutex::new(None);

/// Looks at the data that a GPU has moved.
fn look_at_moves(index: u32) -> Result<Moved, u32> {
    let moved = telemetry()?.moved(index);
    MOVED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(index, moved.clone());
    Ok(moved)
}

/// Returns the data of the last look.
pub(crate) fn moved(index: u32) -> Moved {
    let seen = MOVED.lock().unwrap_or_else(PoisonError::into_inner);
    seen.as_ref().and_then(|seen| seen.get(&index).cloned()).unwrap_or_default()
}

/// A counter of errors of an NVLink.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Errors {
    Crc,
    Replay,
    Recovery,
    LostPackets,
    FailedRecovery,
    Uncorrected,
    /// Codewords in which this number of symbols was corrected.
    Corrected(u8),
}

/// Returns a counter of errors of an NVLink. Copies add errors between the first reading of a counter and the second:
/// `check` takes the first while copies may already run.
pub(crate) fn link_errors(index: u32, number: u32, of: Errors) -> Result<u64, u32> {
    static READ: Mutex<Option<HashSet<(u32, u32, Errors)>>> = Mutex::new(None);
    static AT_REST: OnceLock<Option<Arc<dyn Telemetry>>> = OnceLock::new();
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = read.get_or_insert_default().insert((index, number, of));
    let telemetry = if is_first {
        let at_rest = AT_REST.get_or_init(|| fake_machine::machine().ok().map(sim::telemetry));
        at_rest.clone().ok_or(code::UNKNOWN)?
    } else {
        telemetry()?
    };
    let mut gpu = read_from(telemetry.as_ref(), index, GpuGroup::NvLink);
    telemetry.read_gpu(GpuGroup::LinkErrors, &mut gpu);
    let link = known(&gpu.nvlinks)?
        .into_iter()
        .find(|link| u32::from(link.link) == number)
        .ok_or(code::INVALID_ARGUMENT)?;
    let of_packets = |figure: fn(&NvLinkPacketErrors) -> Option<u64>| {
        figure(&known(&link.packet_errors)?).ok_or(code::NOT_SUPPORTED)
    };
    match of {
        Errors::Crc => known(&link.crc_errors),
        Errors::Replay => known(&link.replay_errors),
        Errors::Recovery => known(&link.recovery_errors),
        Errors::LostPackets => of_packets(|errors| errors.lost_packets),
        Errors::FailedRecovery => of_packets(|errors| errors.failed_recoveries),
        Errors::Uncorrected => of_packets(|errors| errors.uncorrected),
        Errors::Corrected(symbols) => known(&link.fec_histogram)?
            .get(usize::from(symbols))
            .copied()
            .ok_or(code::NOT_SUPPORTED),
    }
}

/// Returns a field value, that of a link if `scope` is one. `links_read` has the links once they were read: all fields of a
/// call are of one moment.
pub(crate) fn field(
    index: u32,
    id: u32,
    scope: u32,
    links_read: &mut Option<Vec<NvLink>>,
) -> Result<u64, u32> {
    let mut link = || {
        let links = match links_read.take() {
            Some(links) => links,
            None => links(index)?,
        };
        let found = links.iter().find(|link| u32::from(link.link) == scope);
        let found = found.cloned().ok_or(code::INVALID_ARGUMENT);
        *links_read = Some(links);
        found
    };
    match id {
        186 => power(index)?.milliwatts.map(u64::from).ok_or(code::NOT_SUPPORTED),
        190 => power(index)?.limit_milliwatts.map(u64::from).ok_or(code::NOT_SUPPORTED),
        138 | 139 | 202 | 204 if (id > 139) != counts_packets(index)? => Err(code::NOT_SUPPORTED),
        138 | 139 | 202 | 204 => {
            let way = usize::from(id == 139 || id == 204);
            let kib = match scope {
                // The call for the first direction is the look.
                ALL_LINKS if way == 0 => of_all_links(index, &look_at_moves(index)?, way),
                ALL_LINKS => of_all_links(index, &moved(index), way),
                _ => of_link(index, scope, way),
            };
            kib.map(|kib| if id > 139 { kib * 1024 } else { kib })
        }
        170..=172 | 231..=233 => {
            let links = known(&read(index, GpuGroup::NvLink)?.c2c_links)?;
            let is_up = scope < links.active;
            // One link counts the errors of all.
            let errors = links.errors.ok_or(code::INVALID_ARGUMENT);
            let first = |count| if scope == 0 { count } else { 0 };
            match id {
                170 => Ok(links.count.into()),
                171 => Ok(is_up.into()),
                172 => links.link_mbps.filter(|_| is_up).map(u64::from).ok_or(code::NOT_SUPPORTED),
                231 => Ok(first(errors?.crc)),
                232 => Ok(first(errors?.replay)),
                _ => Ok(first(errors?.replay_again)),
            }
        }
        197 => over_pcie(index, 0),
        198 => over_pcie(index, 1),
        91 => Ok(links(index)?.len() as u64),
        161 => link_errors(index, scope, Errors::Replay),
        // NVLink 5 and later count recoveries in another field, and have no other counter of errors.
        162 if link()?.crc_errors.get().is_some() => link_errors(index, scope, Errors::Recovery),
        215 if link()?.crc_errors.get().is_none() => link_errors(index, scope, Errors::Recovery),
        163 => link_errors(index, scope, Errors::Crc),
        206 => link_errors(index, scope, Errors::LostPackets),
        // They are in field 206.
        207 | 212 => known(&link()?.packet_errors).map(|_| 0),
        214 => link_errors(index, scope, Errors::FailedRecovery),
        219 => link_errors(index, scope, Errors::Uncorrected),
        220 => {
            let rate = known(&link()?.packet_errors)?.bit_error_rate_log10;
            // The lowest bit error rate: mantissa 15, exponent 255.
            rate.map(|_| 15 << 8 | 255).ok_or(code::NOT_SUPPORTED)
        }
        #[allow(clippy::cast_possible_truncation, reason = "0 to 15")]
        235..=250 => link_errors(index, scope, Errors::Corrected((id - 235) as u8)),
        164 => Ok(known(&link()?.speed_mbps)?.into()),
        165 => Ok(known(&link()?.active)?.into()),
        166 => {
            let version = known(&link()?.version)?;
            numbers::nvlink_version(&version).map(u64::from).ok_or(code::UNKNOWN)
        }
        173 | 179 | 180 => {
            let errors = match last_look(index) {
                Some(sample) => sample.pcie_errors.ok_or(code::NOT_SUPPORTED)?,
                None => known(&read(index, GpuGroup::Pcie)?.pcie_errors)?,
            };
            Ok(match id {
                173 => errors.correctable,
                179 => errors.non_fatal,
                _ => errors.fatal,
            })
        }
        _ => Err(code::NOT_SUPPORTED),
    }
}
