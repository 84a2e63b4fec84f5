//! Generality: healthy machines with one fault at a random place. Whatever the machine, the kind, the
//! place and the noise, exactly one finding at warning or above must name it.

use std::path::Path;

use libtest_mimic::Trial;
use peerscope::hardware::sim::Simulated;
use peerscope::hardware::sim::spec::{
    CopyFault, CudaPeerRule, FunctionSpec, LinkFault, MachineSpec, Noise, NvLinkSpec, NvLinkTarget, PairFault, Pairs,
    PeerException, PeerRule,
};
use peerscope::model::snapshot::{P2pStatus, PciKind, PcieErrors};
use peerscope::model::units::{Generation, Lanes, PciAddress, PcieLink};

use crate::cases::names;
use crate::common::{finish, list, peerscope, text_of, write};
use crate::trial;

/// Runs, each of one fault. More with PEERSCOPE_INJECTED.
const RUNS: usize = 110;

/// Healthy machines, built in or of the labelled set.
const MACHINES: [&str; 10] = [
    "h200x8",
    "a100x8",
    "two-sockets",
    "nvlink12",
    "tests/cases/healthy-h100-four-nv6.toml",
    "tests/cases/healthy-a100-four-nv4.toml",
    "tests/cases/healthy-b200.toml",
    "tests/cases/healthy-idle-gen1.toml",
    "tests/cases/healthy-intel-gen3-planning-value.toml",
    "tests/cases/healthy-a6000-two-bridges.toml",
];

/// The code and the subject that must be found; `None` where this machine has no place for the fault.
type Found = Option<(&'static str, String)>;

/// Puts a fault in at one GPU, or between it and another.
type Inject = fn(&mut Machine, u32, u32) -> Found;

const FAULTS: [(&str, Inject); 18] = [
    ("FewLanes", Machine::few_lanes),
    ("LowGeneration", Machine::low_generation),
    ("UplinkFewLanes", Machine::uplink_few_lanes),
    ("LinksInactive", Machine::links_inactive),
    ("SlowPair", Machine::slow_pair),
    ("SlowOneWay", Machine::slow_one_way),
    ("SlowGpu", Machine::slow_gpu),
    ("SlowIntoGpu", Machine::slow_into_gpu),
    ("SlowUplink", Machine::slow_uplink),
    ("SlowCrossing", Machine::slow_crossing),
    ("DroppedOneWay", Machine::dropped_one_way),
    ("CorruptGpu", Machine::corrupt_gpu),
    ("TooHot", Machine::too_hot),
    ("AccessMissing", Machine::access_missing),
    ("AccessOneWay", Machine::access_one_way),
    ("GpuLost", Machine::gpu_lost),
    ("TrainsDown", Machine::trains_down),
    ("MemoryErrors", Machine::memory_errors),
];

/// A machine that is being changed.
struct Machine {
    spec: MachineSpec,
    random: fastrand::Rng,
}

impl Machine {
    /// One with noise of its own.
    fn of(base: &MachineSpec, seed: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let mut spec = base.clone();
        spec.noise = Noise { percent: 1.0 + random.f64(), seed: seed as u64 };
        Self { spec, random }
    }

    fn gpus(&self) -> u32 {
        self.spec.gpus.len().try_into().unwrap()
    }

    /// Two GPUs.
    fn two(&mut self) -> (u32, u32) {
        let gpus = self.spec.gpus.len();
        let one = self.random.usize(..gpus);
        let other = (one + 1 + self.random.usize(..gpus - 1)) % gpus;
        (one as u32, other as u32)
    }

    fn address(&self, gpu: u32) -> PciAddress {
        self.spec.gpus[gpu as usize].pci
    }

    fn function(&mut self, address: PciAddress) -> &mut FunctionSpec {
        self.spec.pci.iter_mut().find(|function| function.address == address).unwrap()
    }

    /// The bridges above a function, the nearest first.
    fn above(&self, address: PciAddress) -> impl Iterator<Item = &FunctionSpec> {
        let up = |function: &&FunctionSpec| self.spec.function(function.parent?);
        std::iter::successors(self.spec.function(address), up).skip(1)
    }

    /// What both ends of a function's link can do.
    fn link(&self, address: PciAddress) -> PcieLink {
        let ends = self.spec.function(address).into_iter().chain(self.above(address).take(1));
        ends.filter_map(|end| end.max).reduce(PcieLink::least).unwrap()
    }

    /// The switches, by their upstream ports, with the GPUs below each.
    fn switches(&self) -> Vec<(PciAddress, Vec<u32>)> {
        let mut switches: Vec<(PciAddress, Vec<u32>)> = Vec::new();
        for gpu in 0..self.gpus() {
            for bridge in self.above(self.address(gpu)).filter(|bridge| bridge.kind == PciKind::SwitchUpstream) {
                match switches.iter_mut().find(|(known, _)| *known == bridge.address) {
                    Some((_, gpus)) => gpus.push(gpu),
                    None => switches.push((bridge.address, vec![gpu])),
                }
            }
        }
        switches
    }

    /// The switch above a GPU with the GPUs below it, where they are several.
    fn shared_switch(&self, gpu: u32) -> Option<(PciAddress, Vec<u32>)> {
        self.switches().into_iter().find(|(_, gpus)| gpus.len() > 1 && gpus.contains(&gpu))
    }

    fn has_nvlinks(&self) -> bool {
        !self.spec.gpus[0].nvlinks.is_empty()
    }

    fn copies(&mut self, pairs: Pairs, fault: CopyFault) {
        self.spec.faults.pairs.push(PairFault::new(pairs, fault));
    }

    /// Copies between a GPU and all others, or from these to it.
    fn copies_of(&mut self, gpu: u32, pairs: fn(u32, u32) -> Pairs, fault: CopyFault) {
        (0..self.gpus()).filter(|peer| *peer != gpu).for_each(|peer| self.copies(pairs(peer, gpu), fault));
    }

    fn refuse(&mut self, pairs: Pairs) {
        let rule = PeerRule { nvml: P2pStatus::ChipsetNotSupported, nvml_write: None, cuda: CudaPeerRule::Refused };
        self.spec.peers.exceptions.push(PeerException { pairs, rule });
    }

    /// A share that is below every floor, and not so low that staged copies are faster.
    fn slow(&mut self) -> CopyFault {
        let share = 0.45 + self.random.f64() * 0.25;
        CopyFault::Slow { share: (share * 1000.0).round() / 1000.0 }
    }

    fn few_lanes(&mut self, one: u32, _: u32) -> Found {
        let address = self.address(one);
        let link = self.link(address);
        let width = fewer(link.width, self.random.u32(1..=2));
        self.function(address).trained = Some(PcieLink { width, ..link });
        Some(("pcie-narrow", gpu(one)))
    }

    fn low_generation(&mut self, one: u32, _: u32) -> Found {
        let address = self.address(one);
        let PcieLink { generation, width } = self.link(address);
        if self.has_nvlinks() || generation.number() < 3 {
            return None;
        }
        let generation = Generation::try_from(self.random.u32(1..generation.number().into())).unwrap();
        let function = self.function(address);
        (function.idle, function.trained) = (None, Some(PcieLink { generation, width }));
        Some(("pcie-narrow", gpu(one)))
    }

    fn uplink_few_lanes(&mut self, one: u32, _: u32) -> Found {
        let (uplink, _) = self.shared_switch(one)?;
        let link = self.link(uplink);
        self.function(uplink).trained = Some(PcieLink { width: fewer(link.width, 1), ..link });
        Some(("pcie-narrow", uplink.to_string()))
    }

    fn links_inactive(&mut self, one: u32, other: u32) -> Found {
        let groups = self.spec.gpus[one as usize].nvlinks.clone();
        if !self.has_nvlinks() {
            return None;
        }
        if self.spec.gpus[0].nvlinks[0].remote == NvLinkTarget::Switch {
            let count = i64::from(groups[0].count);
            let down = self.random.i64(1..count / 2);
            let first = self.random.i64(0..=count - down);
            let part = |count: i64, active: bool| {
                let count = u8::try_from(count).unwrap();
                NvLinkSpec { count, active, ..groups[0].clone() }
            };
            let parts = [part(first, true), part(down, false), part(count - down - first, true)];
            self.spec.gpus[one as usize].nvlinks = parts.into_iter().filter(|part| part.count != 0).collect();
            let subject = if down == 1 { format!("link{one}.{first}") } else { gpu(one) };
            return Some(("nvlink-inactive", subject));
        }
        // All active links between two GPUs of several that are joined so.
        if groups.len() < 3 {
            return None;
        }
        for (gpu, peer) in [(one, other), (other, one)] {
            let links = self.spec.gpus[gpu as usize].nvlinks.iter_mut();
            links.filter(|links| links.remote == NvLinkTarget::Gpu(peer)).for_each(|links| links.active = false);
        }
        Some(("nvlink-inactive", pair(one, other)))
    }

    fn slow_pair(&mut self, one: u32, other: u32) -> Found {
        let slow = self.slow();
        self.copies(Pairs::Both(one, other), slow);
        Some(("peer-bandwidth-low", pair(one, other)))
    }

    fn slow_one_way(&mut self, one: u32, other: u32) -> Found {
        let slow = self.slow();
        self.copies(Pairs::Ordered(one, other), slow);
        Some(("peer-bandwidth-low", ordered(one, other)))
    }

    fn slow_gpu(&mut self, one: u32, _: u32) -> Found {
        let slow = self.slow();
        self.copies_of(one, Pairs::Both, slow);
        Some(("peer-bandwidth-low", gpu(one)))
    }

    fn slow_into_gpu(&mut self, one: u32, _: u32) -> Found {
        let slow = self.slow();
        self.copies_of(one, Pairs::Ordered, slow);
        Some(("peer-bandwidth-low", gpu(one)))
    }

    fn slow_uplink(&mut self, one: u32, _: u32) -> Found {
        let (uplink, below) = self.shared_switch(one)?;
        if self.has_nvlinks() || below.len() == self.spec.gpus.len() || self.switches().len() < 3 {
            return None;
        }
        let slow = self.slow();
        for inside in &below {
            for outside in (0..self.gpus()).filter(|gpu| !below.contains(gpu)) {
                self.copies(Pairs::Both(*inside, outside), slow);
            }
        }
        Some(("peer-bandwidth-low", uplink.to_string()))
    }

    fn slow_crossing(&mut self, _: u32, _: u32) -> Found {
        if self.has_nvlinks() || self.spec.numa_nodes.len() != 2 {
            return None;
        }
        self.spec.speeds.cross_socket.copy = 0.42;
        Some(("peer-bandwidth-low", "machine".into()))
    }

    fn dropped_one_way(&mut self, one: u32, other: u32) -> Found {
        self.copies(Pairs::Ordered(one, other), CopyFault::Dropped);
        Some(("peer-data-wrong", ordered(one, other)))
    }

    fn corrupt_gpu(&mut self, one: u32, _: u32) -> Found {
        self.copies_of(one, Pairs::Ordered, CopyFault::Corrupt { words: 5 });
        Some(("peer-data-wrong", gpu(one)))
    }

    fn too_hot(&mut self, one: u32, other: u32) -> Found {
        self.slow_gpu(one, other);
        self.spec.gpus[one as usize].state.throttle_under_load = vec!["hw-thermal".into()];
        Some(("gpu-throttled", gpu(one)))
    }

    fn access_missing(&mut self, one: u32, other: u32) -> Found {
        self.refuse(Pairs::Both(one, other));
        Some(("peer-access-missing", pair(one, other)))
    }

    fn access_one_way(&mut self, one: u32, other: u32) -> Found {
        self.refuse(Pairs::Ordered(one, other));
        Some(("peer-access-one-way", ordered(one, other)))
    }

    fn gpu_lost(&mut self, one: u32, _: u32) -> Found {
        self.spec.faults.lost_gpus.push(one);
        Some(("gpu-unreachable", gpu(one)))
    }

    fn trains_down(&mut self, one: u32, _: u32) -> Found {
        if self.has_nvlinks() {
            return None;
        }
        let function = self.address(one);
        let link = self.link(function);
        let trains_down_to = Some(PcieLink { width: fewer(link.width, 1), ..link });
        let errors = PcieErrors::default();
        self.spec.faults.links.push(LinkFault { function, trains_down_to, replays: 0, errors });
        Some(("pcie-link-changed", gpu(one)))
    }

    fn memory_errors(&mut self, one: u32, _: u32) -> Found {
        self.spec.gpus[one as usize].state.remapping_failed = true;
        Some(("gpu-memory-errors", gpu(one)))
    }
}

/// Half the lanes, so many times.
fn fewer(width: Lanes, halvings: u32) -> Lanes {
    (u32::from(width.number()) >> halvings).try_into().unwrap()
}

fn gpu(index: u32) -> String {
    format!("gpu{index}")
}

fn pair(one: u32, other: u32) -> String {
    format!("pair{}-{}", one.min(other), one.max(other))
}

fn ordered(from: u32, to: u32) -> String {
    format!("{from}->{to}")
}

/// The machines that have a place for their fault, in an order that has every machine and fault early.
pub fn trials() -> Vec<Trial> {
    let runs = std::env::var("PEERSCOPE_INJECTED").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = |name: &str| if name.ends_with(".toml") { text_of(&root.join(name)) } else { name.to_owned() };
    let bases = MACHINES.map(|name| Simulated::find(&path(name)).unwrap().spec);
    (0..)
        .filter_map(|number| Injected::new(number, &bases))
        .take(runs)
        .map(|injected| trial(injected.name(), move || injected.check()))
        .collect()
}

/// A machine with one fault, and what must be found.
struct Injected {
    number: usize,
    base: &'static str,
    fault: &'static str,
    spec: MachineSpec,
    code: &'static str,
    subject: String,
}

impl Injected {
    /// The n-th fault on the n-th machine; `None` where the machine has no place for it.
    fn new(number: usize, bases: &[MachineSpec]) -> Option<Self> {
        let place = number % MACHINES.len();
        let (fault, inject) = FAULTS[number / MACHINES.len() % FAULTS.len()];
        let mut machine = Machine::of(&bases[place], number);
        let (one, other) = machine.two();
        let (code, subject) = inject(&mut machine, one, other)?;
        Some(Self { number, base: MACHINES[place], fault, spec: machine.spec, code, subject })
    }

    fn name(&self) -> String {
        let base = Path::new(self.base).file_stem().unwrap().to_str().unwrap();
        format!("injected::{:03}_{}_{base}", self.number, self.fault)
    }

    fn check(&self) {
        let folder = tempfile::tempdir().unwrap();
        let description = toml::to_string(&self.spec).unwrap();
        let file = write(folder.path(), "machine.toml", &description);
        let args = ["check", "--machine", &file, "--profile", "quick", "--no-journal", "--format", "json"];
        let ran = finish(&mut peerscope(&args));
        let found = |finding: &serde_json::Value| {
            format!("{}@{}: {}", finding["code"], names(&finding["subject"])[0], finding["message"])
        };
        let report = ran.json();
        let findings: Vec<_> = list(&report["findings"]).iter().filter(|it| it["severity"] != "info").collect();
        let right = |it: &&&serde_json::Value| it["code"] == self.code && names(&it["subject"]).contains(&self.subject);
        if findings.len() != 1 || findings.iter().filter(right).count() != 1 {
            let kept = std::env::temp_dir().join(format!("peerscope-injected-{}.toml", self.number));
            std::fs::write(&kept, &description).unwrap();
            let findings: Vec<_> = findings.into_iter().map(found).collect();
            let (kept, code, subject) = (kept.display(), self.code, &self.subject);
            panic!("{kept}: wanted {code}@{subject} alone, found {findings:#?}");
        }
    }
}
