//! NVML: facts about GPUs and about pairs of them. Uses the wrapper's calls if they are sound, and raw ones (in
//! [`raw`]) if it lacks them.

mod c2c;
mod decode;
mod error;
mod moved;
mod nvlink;
mod raw;
mod xids;

use std::ffi::OsStr;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, GpuVirtualizationMode, MemoryError, TemperatureSensor,
};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use self::raw::{Field, Raw};
pub(crate) use self::xids::Xids;
use hardware::{Counts, ErrorKind, GpuGroup, HardwareError, LinkBytes, LinkSample, Moved, Power};
use model::reading::{Reading, Unknown};
use model::snapshot::{Gpu, GpuPair, GpuProcess, Host, P2pStatus, PcieErrors, SlowFact};
use model::units::Bytes;

/// Names of the library. A driver installs the first; some images contain only the second.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// `NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS`, `…_NON_FATAL_ERROR` and `…_FATAL_ERROR`.
const PCIE_ERRORS: [u32; 3] = [173, 179, 180];

/// An NVML that has started. It is never shut down. A shutdown may block on a sick machine, calls on abandoned threads
/// may still run, and the end of the process does the same.
#[derive(Clone, Copy)]
pub(crate) struct Nvml {
    nvml: &'static nvml_wrapper::Nvml,
}

/// A GPU that NVML opened, or the reason why it did not. Every reading of an unopened GPU returns that reason.
struct Opened(Result<Device<'static>, Unknown>);

impl Opened {
    /// Reads a fact with a call of the wrapper.
    fn read<T>(&self, call: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>) -> Reading<T> {
        self.ask(|device| call(device).map_err(error::unknown))
    }

    /// Reads a fact with raw calls.
    fn raw<T>(&self, call: impl FnOnce(Raw) -> Result<T, Unknown>) -> Reading<T> {
        self.ask(|device| call(Raw::new(device)))
    }

    fn ask<T>(&self, call: impl FnOnce(&Device<'static>) -> Result<T, Unknown>) -> Reading<T> {
        self.0.as_ref().map_err(Clone::clone).and_then(call).into()
    }
}

impl Nvml {
    /// Loads and starts NVML.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoDriver`], with the way out.
    pub(crate) fn open() -> Result<Self, HardwareError> {
        let open = |name: &str| nvml_wrapper::Nvml::builder().lib_path(OsStr::new(name)).init();
        let nvml = match open(LIBRARIES[0]) {
            // Report the failure of the first name: if both are missing, they are the same.
            Err(first @ NvmlError::LibloadingError(_)) => open(LIBRARIES[1]).map_err(|_| first),
            other => other,
        }
        .map_err(error::not_started)?;
        Ok(Self { nvml: Box::leak(Box::new(nvml)) })
    }

    /// Returns the number of GPUs, including those that cannot be opened.
    pub(crate) fn gpu_count(self) -> Result<u32, HardwareError> {
        self.nvml.device_count().map_err(|error| {
            HardwareError::new(
                ErrorKind::Other,
                format!("NVML does not count its GPUs: {}", error::unknown(error)),
            )
        })
    }

    /// Fills in the versions.
    pub(crate) fn read_host(self, host: &mut Host) {
        fn reading<T>(result: Result<T, NvmlError>) -> Reading<T> {
            result.map_err(error::unknown).into()
        }
        host.driver_version = reading(self.nvml.sys_driver_version());
        host.nvml_version = reading(self.nvml.sys_nvml_version());
        host.cuda_version = reading(self.nvml.sys_cuda_driver_version()).map(decode::cuda_version);
        host.confidential_computing = raw::confidential_computing(self.nvml).into();
    }

    fn device(self, index: u32) -> Opened {
        Opened(self.nvml.device_by_index(index).map_err(error::not_opened))
    }

    /// Fills in one group of facts.
    pub(crate) fn read_gpu(self, group: GpuGroup, gpu: &mut Gpu) {
        let device = self.device(gpu.index);
        match group {
            GpuGroup::Identity => read_identity(&device, gpu),
            GpuGroup::Pcie => read_pcie(&device, gpu),
            GpuGroup::NvLink => read_nvlink(&device, gpu),
            GpuGroup::State => read_state(&device, gpu),
            GpuGroup::LinkErrors => {
                if let (Ok(device), Reading::Known(links)) = (&device.0, &mut gpu.nvlinks) {
                    nvlink::read_errors(device, links);
                }
            }
        }
    }

    /// Returns what NVML reports for an ordered pair, except access to memory and atomics.
    pub(crate) fn read_pair(self, source: u32, destination: u32) -> GpuPair {
        let (from, to) = (self.device(source), self.device(destination));
        let (from, to) = match (&from.0, &to.0) {
            (Ok(from), Ok(to)) => (Raw::new(from), Raw::new(to)),
            (Err(why), _) | (_, Err(why)) => return GpuPair::unread(source, destination, why),
        };
        let p2p_nvlink = from.p2p_status(to, 2).and_then(decode::p2p_status).into();
        GpuPair {
            source,
            destination,
            common_ancestor: match p2p_nvlink {
                Reading::Known(P2pStatus::Ok) => Reading::Unknown(GpuPair::ancestor_not_asked()),
                _ => from.common_ancestor(to).and_then(decode::common_ancestor).into(),
            },
            p2p_read: Reading::Unknown(SlowFact::PeerAccess.not_read()),
            p2p_write: Reading::Unknown(SlowFact::PeerAccess.not_read()),
            p2p_nvlink,
            p2p_atomics: Reading::Unknown(SlowFact::PeerAtomics.not_read()),
            p2p_pci: Reading::Unknown(GpuPair::pci_not_asked()),
        }
    }

    /// Fills in what NVML reports for access to each other's memory.
    pub(crate) fn read_access(self, pair: &mut GpuPair) {
        let (from, to) = (self.device(pair.source), self.device(pair.destination));
        let status = |capability| match (&from.0, &to.0) {
            (Ok(from), Ok(to)) => Raw::new(from)
                .p2p_status(Raw::new(to), capability)
                .and_then(decode::p2p_status)
                .into(),
            (Err(why), _) | (_, Err(why)) => Reading::Unknown(why.clone()),
        };
        (pair.p2p_read, pair.p2p_write) = (status(0), status(1));
    }

    /// Fills in what NVML reports for atomics between a pair. Also fills in access over PCIe if there is no NVLink, and
    /// the PCI level that both share if it was left out before.
    pub(crate) fn read_atomics(self, pair: &mut GpuPair) {
        let (from, to) = (self.device(pair.source), self.device(pair.destination));
        if let (Ok(from), Ok(to)) = (&from.0, &to.0) {
            let status = |capability| {
                Raw::new(from).p2p_status(Raw::new(to), capability).and_then(decode::p2p_status)
            };
            if pair.common_ancestor.unknown() == Some(&GpuPair::ancestor_not_asked()) {
                pair.common_ancestor = Raw::new(from)
                    .common_ancestor(Raw::new(to))
                    .and_then(decode::common_ancestor)
                    .into();
            }
            pair.p2p_atomics = status(3).into();
            pair.p2p_pci = match pair.p2p_nvlink.get() {
                Some(P2pStatus::Ok) => Reading::Unknown(GpuPair::has_nvlink()),
                _ => status(4).into(),
            };
        }
    }

    /// Returns the programs that compute on a GPU, without their names.
    pub(crate) fn processes(self, index: u32) -> Reading<Vec<GpuProcess>> {
        processes(&self.device(index))
    }

    /// Returns the data that a GPU has moved up to now. The caller fills in the time.
    pub(crate) fn moved(self, index: u32) -> Moved {
        moved::read(&self.device(index))
    }

    /// Returns the counters of a GPU, and those of these NVLinks.
    pub(crate) fn counts(self, index: u32, links: &[u8]) -> Counts {
        moved::counts(&self.device(index), links)
    }

    /// Returns the counters of all NVLinks of a GPU that has them.
    pub(crate) fn link_bytes(self, index: u32) -> Result<Vec<LinkBytes>, Unknown> {
        self.device(index).0.and_then(|device| moved::link_bytes(Raw::new(&device)))
    }

    /// Returns the readings that are watched while copies run.
    pub(crate) fn sample(self, index: u32) -> LinkSample {
        let device = self.device(index);
        LinkSample {
            generation: link_figure(&device, Device::current_pcie_link_gen).get(),
            width: link_figure(&device, Device::current_pcie_link_width).get(),
            replays: device.read(Device::pcie_replay_counter).get().map(u64::from),
            pcie_errors: pcie_errors(&device).get(),
            ecc_uncorrected: ecc_uncorrected(&device).get(),
            throttle_reasons: throttle_reasons(&device).known().cloned().unwrap_or_default(),
            sm_clock_mhz: device.read(|device| device.clock_info(Clock::SM)).get(),
            memory_clock_mhz: device.read(|device| device.clock_info(Clock::Memory)).get(),
            temperature_c: temperature(&device).get(),
            busy_percent: None,
            power: None,
            xids: None,
            programs: None,
        }
    }

    /// Returns the share of the last fraction of a second in which the GPU was busy, per cent.
    pub(crate) fn busy_percent(self, index: u32) -> Option<u8> {
        let share = self.device(index).read(Device::utilization_rates);
        share.known().and_then(|share| u8::try_from(share.gpu).ok())
    }

    /// Returns power and energy, the temperature of the memory, and the time for which the clocks were held back.
    pub(crate) fn power(self, index: u32) -> Power {
        /// Power now and its limit, temperature of the memory, energy, and the counters of [`hardware::HELD_BY`]. The last three have other
        /// numbers up to driver 570.
        const FIELDS: [u32; 11] = [186, 190, 82, 83, 74, 269, 270, 271, 251, 252, 253];
        let fields = FIELDS.map(|id| Field { id, scope: 0 });
        let values = self.device(index).raw(|raw| raw.fields(&fields));
        let value = |at: usize| values.known()?.get(at)?.as_ref().ok().copied();
        let small = |at| value(at).and_then(|value| u32::try_from(value).ok());
        Power {
            milliwatts: small(0),
            limit_milliwatts: small(1),
            memory_c: small(2),
            millijoules: value(3),
            held_ns: [
                value(4),
                value(5).or(value(8)),
                value(6).or(value(9)),
                value(7).or(value(10)),
            ],
        }
    }
}

fn read_identity(device: &Opened, gpu: &mut Gpu) {
    gpu.pci = device.ask(|device| {
        let pci = device.pci_info().map_err(error::unknown)?;
        pci.bus_id.parse().map_err(|error| Unknown::Failed(format!("NVML: {error}")))
    });
    gpu.uuid = device.read(Device::uuid);
    gpu.name = device.read(Device::name);
    gpu.architecture = device.raw(|raw| decode::architecture(raw.architecture()?));
    gpu.minor = device.read(Device::minor_number);
    gpu.serial = device.read(Device::serial);
    gpu.vbios = device.read(Device::vbios_version);
    let memory = device.ask(|device| {
        let memory = device.memory_info().map_err(error::unknown);
        let newer = memory.map(|memory| [memory.free, memory.total].map(Bytes));
        or_older(newer, || Raw::new(device).memory())
    });
    gpu.memory_free_bytes = memory.clone().map(|[free, _]| free);
    gpu.memory_total_bytes = memory.map(|[_, total]| total);
}

fn read_pcie(device: &Opened, gpu: &mut Gpu) {
    gpu.pcie_generation = link_figure(device, Device::current_pcie_link_gen);
    gpu.pcie_width = link_figure(device, Device::current_pcie_link_width);
    gpu.pcie_generation_max = link_figure(device, Device::max_pcie_link_gen);
    gpu.pcie_width_max = link_figure(device, Device::max_pcie_link_width);
    gpu.pcie_generation_device_max =
        device.raw(|raw| decode::link_figure(raw.pcie_generation_device_max()?));
    gpu.pcie_replays = device.read(Device::pcie_replay_counter).map(u64::from);
    gpu.pcie_errors = pcie_errors(device);
}

fn pcie_errors(device: &Opened) -> Reading<PcieErrors> {
    device.raw(|raw| {
        let values = raw.fields(&PCIE_ERRORS.map(|id| Field { id, scope: 0 }))?;
        let values: Vec<_> = values.into_iter().collect::<Result<_, _>>()?;
        match values[..] {
            [correctable, non_fatal, fatal] => Ok(PcieErrors { correctable, non_fatal, fatal }),
            _ => Err(Unknown::Unsupported),
        }
    })
}

fn read_nvlink(device: &Opened, gpu: &mut Gpu) {
    gpu.nvlinks = device.ask(nvlink::read);
    gpu.fabric = device.raw(Raw::fabric);
    gpu.module_id = device.raw(Raw::module_id);
    gpu.c2c = device.raw(Raw::c2c);
    gpu.c2c_links = match &gpu.c2c {
        Reading::Known(true) => device.raw(|raw| c2c::read(|fields| raw.fields(fields))),
        Reading::Known(false) => Reading::unsupported(),
        Reading::Unknown(why) => Reading::Unknown(why.clone()),
    };
}

fn read_state(device: &Opened, gpu: &mut Gpu) {
    gpu.bar1_total_bytes = device.read(Device::bar1_memory_info).map(|bar1| Bytes(bar1.total));
    gpu.mig =
        device.ask(|device| decode::on(device.mig_mode().map_err(error::unknown)?.current.into()));
    gpu.vgpu =
        device.read(Device::virtualization_mode).map(|mode| mode == GpuVirtualizationMode::Vgpu);
    gpu.compute_mode = device.raw(|raw| decode::compute_mode(raw.compute_mode()?));
    gpu.persistence = device.read(Device::is_in_persistent_mode);
    gpu.ecc = device.read(Device::is_ecc_enabled).map(|ecc| ecc.currently_enabled);
    gpu.ecc_uncorrected = ecc_uncorrected(device);
    gpu.remapped_rows = device.raw(Raw::remapped_rows);
    gpu.throttle_reasons = throttle_reasons(device);
    gpu.sm_clock_mhz = device.read(|device| device.clock_info(Clock::SM));
    gpu.memory_clock_mhz = device.read(|device| device.clock_info(Clock::Memory));
    gpu.temperature_c = temperature(device);
    gpu.power_state = device.raw(|raw| decode::power_state(raw.power_state()?));
    gpu.processes = processes(device);
}

/// Returns the programs that compute on a GPU, without their names.
fn processes(device: &Opened) -> Reading<Vec<GpuProcess>> {
    device.ask(|device| {
        let process = |process: nvml_wrapper::struct_wrappers::device::ProcessInfo| GpuProcess {
            pid: process.pid,
            name: None,
            memory_bytes: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
                UsedGpuMemory::Unavailable => None,
            },
        };
        let processes = device.running_compute_processes().map_err(error::unknown);
        let newer = processes.map(|processes| processes.into_iter().map(process).collect());
        or_older(newer, || Raw::new(device).processes())
    })
}

/// Returns the answer of a call, or that of the older one if the driver lacks it.
fn or_older<T>(
    newer: Result<T, Unknown>,
    older: impl FnOnce() -> Result<T, Unknown>,
) -> Result<T, Unknown> {
    match newer {
        Err(Unknown::Unsupported) => older(),
        newer => newer,
    }
}

fn link_figure<T: TryFrom<u32, Error: std::fmt::Display>>(
    device: &Opened,
    call: fn(&Device<'static>) -> Result<u32, NvmlError>,
) -> Reading<T> {
    device.ask(|device| decode::link_figure(call(device).map_err(error::unknown)?))
}

fn ecc_uncorrected(device: &Opened) -> Reading<u64> {
    device.read(|device| device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile))
}

fn throttle_reasons(device: &Opened) -> Reading<Vec<String>> {
    device.raw(Raw::throttle_mask).map(decode::throttle_reasons)
}

fn temperature(device: &Opened) -> Reading<u32> {
    device.read(|device| device.temperature(TemperatureSensor::Gpu))
}
