//! NVML and sysfs together as the facts of the live machine. If NVML is missing or does not start, the kernel's facts
//! remain: they show if there are GPUs at all.

use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::nvml::{Nvml, Xids};
use super::sysfs::Sysfs;
use hardware::{
    Counts, GpuGroup, HardwareError, LinkSample, Moved, NvidiaFunctions, PciTree, Sampler,
    Telemetry, sampler,
};
use model::reading::{Reading, Unknown};
use model::snapshot::{Gpu, GpuPair, GpuProcess, Host};

/// The live machine's facts and counters.
pub(crate) struct LiveTelemetry {
    /// NVML, or the reason why it does not start, which is also the reason for all unknown GPU facts.
    nvml: Result<Nvml, HardwareError>,
    sysfs: Sysfs,
    opened: Instant,
    xids: Xids,
}

impl LiveTelemetry {
    /// Starts NVML.
    pub(crate) fn open() -> Self {
        Self {
            nvml: Nvml::open(),
            sysfs: Sysfs::default(),
            opened: Instant::now(),
            xids: Xids::default(),
        }
    }

    fn nvml(&self) -> Result<Nvml, Unknown> {
        self.nvml.clone().map_err(|why| Unknown::Failed(why.message))
    }

    /// Returns true if a process is this one or its worker, which opens CUDA while facts are read. The worker may not
    /// be recognised in a container with its own process numbers.
    fn is_own(&self, pid: u32) -> bool {
        let own = process::id();
        pid == own || self.sysfs.parent_process(pid) == Some(own)
    }
}

impl LiveTelemetry {
    /// Leaves programs other than this one, and gives them their names.
    fn name_others(&self, processes: &mut Vec<GpuProcess>) {
        processes.retain(|process| !self.is_own(process.pid) && !self.sysfs.is_ending(process.pid));
        for process in processes {
            process.name = self.sysfs.process_name(process.pid);
        }
    }
}

impl Telemetry for LiveTelemetry {
    fn sampler(self: Arc<Self>, gpus: &[u32], interval: Duration) -> Box<dyn Sampler> {
        let telemetry: Arc<dyn Telemetry> = self;
        Box::new(sampler::Threads::start(&telemetry, gpus, interval))
    }

    fn host(&self) -> Host {
        match self.nvml() {
            Ok(nvml) => {
                let mut host = self.sysfs.host(&Unknown::Unsupported);
                nvml.read_host(&mut host);
                host
            }
            Err(why) => self.sysfs.host(&why),
        }
    }

    fn pci_tree(&self) -> PciTree {
        self.sysfs.pci_tree()
    }

    fn nvidia_functions(&self) -> NvidiaFunctions {
        self.sysfs.nvidia_functions()
    }

    fn gpu_count(&self) -> Result<u32, HardwareError> {
        self.nvml.clone()?.gpu_count()
    }

    fn read_gpu(&self, group: GpuGroup, gpu: &mut Gpu) {
        match self.nvml() {
            Ok(nvml) => nvml.read_gpu(group, gpu),
            Err(why) => return *gpu = Gpu::unread(gpu.index, &why),
        }
        match group {
            GpuGroup::Identity => {
                gpu.numa_node = match &gpu.pci {
                    Reading::Known(address) => self.sysfs.numa_node(*address),
                    Reading::Unknown(why) => Reading::Unknown(why.clone()),
                };
            }
            GpuGroup::State => {
                if let Reading::Known(processes) = &mut gpu.processes {
                    self.name_others(processes);
                }
            }
            GpuGroup::Pcie | GpuGroup::NvLink | GpuGroup::LinkErrors => {}
        }
    }

    fn read_pair(&self, source: u32, destination: u32) -> GpuPair {
        match self.nvml() {
            Ok(nvml) => nvml.read_pair(source, destination),
            Err(why) => GpuPair::unread(source, destination, &why),
        }
    }

    fn read_access(&self, pair: &mut GpuPair) {
        if let Ok(nvml) = self.nvml() {
            nvml.read_access(pair);
        }
    }

    fn read_atomics(&self, pair: &mut GpuPair) {
        if let Ok(nvml) = self.nvml() {
            nvml.read_atomics(pair);
        }
    }

    fn sample(&self, index: u32) -> LinkSample {
        let sample = |nvml: Nvml| {
            let xids = self.xids.since(nvml, index);
            let listening = xids.is_some();
            let programs = listening.then(|| nvml.processes(index).known().cloned()).flatten();
            LinkSample {
                xids,
                power: listening.then(|| nvml.power(index)),
                busy_percent: listening.then(|| nvml.busy_percent(index)).flatten(),
                programs: programs.map(|mut programs| {
                    self.name_others(&mut programs);
                    programs
                }),
                ..nvml.sample(index)
            }
        };
        self.nvml().map(sample).unwrap_or_default()
    }

    fn listen(&self) {
        self.xids.listen();
    }

    fn moved(&self, index: u32) -> Moved {
        let asked = self.opened.elapsed();
        let moved = self.nvml().map(|nvml| nvml.moved(index)).unwrap_or_default();
        Moved { asked, answered: self.opened.elapsed(), ..moved }
    }

    fn counts(&self, index: u32, links: &[u8]) -> Counts {
        let asked = self.opened.elapsed();
        let counts = self.nvml().map_or_else(
            |why| Counts { failure: Some(why.to_string()), ..Counts::default() },
            |nvml| nvml.counts(index, links),
        );
        Counts { asked, answered: self.opened.elapsed(), ..counts }
    }
}
