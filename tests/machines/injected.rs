//! Generality: healthy machines with one fault at a random place. Whatever the machine, the kind, the
//! place and the noise, exactly one finding at warning or above must name it.

use std::path::Path;

use libtest_mimic::Trial;
use peerscope::hardware::sim::builtin;
use toml::{Table, Value, toml};

use crate::cases::names;
use crate::common::{finish, list, peerscope, write};
use crate::edited::{Machine, both, one_way};
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

#[derive(Debug, Clone, Copy)]
enum Fault {
    FewLanes,
    LowGeneration,
    UplinkFewLanes,
    LinksInactive,
    SlowPair,
    SlowOneWay,
    SlowGpu,
    SlowIntoGpu,
    SlowUplink,
    SlowCrossing,
    DroppedOneWay,
    CorruptGpu,
    TooHot,
    AccessMissing,
    AccessOneWay,
    GpuLost,
    TrainsDown,
    MemoryErrors,
}

const FAULTS: [Fault; 18] = [
    Fault::FewLanes,
    Fault::LowGeneration,
    Fault::UplinkFewLanes,
    Fault::LinksInactive,
    Fault::SlowPair,
    Fault::SlowOneWay,
    Fault::SlowGpu,
    Fault::SlowIntoGpu,
    Fault::SlowUplink,
    Fault::SlowCrossing,
    Fault::DroppedOneWay,
    Fault::CorruptGpu,
    Fault::TooHot,
    Fault::AccessMissing,
    Fault::AccessOneWay,
    Fault::GpuLost,
    Fault::TrainsDown,
    Fault::MemoryErrors,
];

impl Machine {
    /// Puts a fault in at a random place: the code and the subject that must be found; `None` where this
    /// machine has no such place.
    fn inject(&mut self, fault: Fault) -> Option<(&'static str, String)> {
        let gpus = self.gpus();
        let (one, other) = self.two();
        let pair = format!("pair{}-{}", one.min(other), one.max(other));
        let ordered = format!("{one}->{other}");
        let gpu = format!("gpu{one}");
        Some(match fault {
            Fault::FewLanes => {
                let address = self.address(one);
                let (generation, lanes) = self.link(&address);
                let fewer = lanes >> self.random.u32(1..=2);
                self.function(&address).insert("trained".into(), format!("Gen{generation} x{fewer}").into());
                ("pcie-narrow", gpu)
            }
            Fault::LowGeneration => {
                let address = self.address(one);
                let (generation, lanes) = self.link(&address);
                if self.has_nvlinks() || generation < 3 {
                    return None;
                }
                let lower = self.random.u32(1..generation);
                let function = self.function(&address);
                function.remove("idle");
                function.insert("trained".into(), format!("Gen{lower} x{lanes}").into());
                ("pcie-narrow", gpu)
            }
            Fault::UplinkFewLanes => {
                let switches = self.switches();
                let (uplink, _) = switches.iter().find(|(_, gpus)| gpus.len() > 1 && gpus.contains(&one))?;
                let (generation, lanes) = self.link(uplink);
                self.function(uplink).insert("trained".into(), format!("Gen{generation} x{}", lanes / 2).into());
                ("pcie-narrow", uplink.clone())
            }
            Fault::LinksInactive => return self.links_inactive(one, other),
            Fault::SlowPair => {
                let slow = self.slow();
                self.copies(&both(one, other), &slow);
                ("peer-bandwidth-low", pair)
            }
            Fault::SlowOneWay => {
                let slow = self.slow();
                self.copies(&one_way(one, other), &slow);
                ("peer-bandwidth-low", ordered)
            }
            Fault::SlowGpu | Fault::TooHot => {
                let slow = self.slow();
                (0..gpus).filter(|peer| *peer != one).for_each(|peer| self.copies(&both(one, peer), &slow));
                if !matches!(fault, Fault::TooHot) {
                    return Some(("peer-bandwidth-low", gpu));
                }
                let reasons = Value::Array(vec!["HW_THERMAL_SLOWDOWN".into()]);
                self.state(one, "throttle_under_load", reasons);
                ("gpu-throttled", gpu)
            }
            Fault::SlowIntoGpu => {
                let slow = self.slow();
                (0..gpus).filter(|peer| *peer != one).for_each(|peer| self.copies(&one_way(peer, one), &slow));
                ("peer-bandwidth-low", gpu)
            }
            Fault::SlowUplink => {
                let switches = self.switches();
                let (uplink, below) = switches.iter().find(|(_, gpus)| gpus.len() > 1 && gpus.contains(&one))?;
                if self.has_nvlinks() || below.len() == gpus || switches.len() < 3 {
                    return None;
                }
                let slow = self.slow();
                for inside in below {
                    for outside in (0..gpus).filter(|gpu| !below.contains(gpu)) {
                        self.copies(&both(*inside, outside), &slow);
                    }
                }
                ("peer-bandwidth-low", uplink.clone())
            }
            Fault::SlowCrossing => {
                if self.has_nvlinks() || self.text.get("numa_nodes")?.as_array()?.len() != 2 {
                    return None;
                }
                let speeds = self.text.entry("speeds").or_insert_with(|| Value::Table(Table::new()));
                let mut copy = speeds.get("cross_socket").and_then(|path| path.as_table().cloned()).unwrap_or_default();
                copy.insert("copy".into(), Value::Float(0.42));
                speeds.as_table_mut().unwrap().insert("cross_socket".into(), Value::Table(copy));
                ("peer-bandwidth-low", "machine".into())
            }
            Fault::DroppedOneWay => {
                self.copies(&one_way(one, other), &"dropped".into());
                ("peer-data-wrong", ordered)
            }
            Fault::CorruptGpu => {
                let words = Value::Table(toml! { corrupt = { words = 5 } });
                (0..gpus).filter(|peer| *peer != one).for_each(|peer| self.copies(&one_way(peer, one), &words));
                ("peer-data-wrong", gpu)
            }
            Fault::AccessMissing => {
                self.refuse(both(one, other));
                ("peer-access-missing", pair)
            }
            Fault::AccessOneWay => {
                self.refuse(one_way(one, other));
                ("peer-access-one-way", ordered)
            }
            Fault::GpuLost => {
                let faults = self.text.entry("faults").or_insert_with(|| Value::Table(Table::new()));
                let lost = Value::Array(vec![Value::Integer(i64::try_from(one).unwrap())]);
                faults.as_table_mut().unwrap().insert("lost_gpus".into(), lost);
                ("gpu-unreachable", gpu)
            }
            Fault::TrainsDown => {
                if self.has_nvlinks() {
                    return None;
                }
                let address = self.address(one);
                let (generation, lanes) = self.link(&address);
                let mut entry = Table::new();
                entry.insert("function".into(), address.into());
                entry.insert("trains_down_to".into(), format!("Gen{generation} x{}", lanes / 2).into());
                self.fault("links", entry);
                ("pcie-link-changed", gpu)
            }
            Fault::MemoryErrors => {
                self.state(one, "remapping_failed", Value::Boolean(true));
                ("gpu-memory-errors", gpu)
            }
        })
    }

    fn links_inactive(&mut self, one: usize, other: usize) -> Option<(&'static str, String)> {
        if !self.has_nvlinks() {
            return None;
        }
        if !self.leads_to_gpus() {
            let group = self.gpu(one)["nvlinks"][0].clone();
            let count = group["count"].as_integer().unwrap();
            let down = self.random.i64(1..count / 2);
            let first = self.random.i64(0..=count - down);
            let part = |count: i64, active: bool| {
                let mut part = group.as_table().unwrap().clone();
                part.insert("count".into(), Value::Integer(count));
                part.insert("active".into(), Value::Boolean(active));
                Value::Table(part)
            };
            let parts = [part(first, true), part(down, false), part(count - down - first, true)];
            let parts = parts.into_iter().filter(|part| part["count"].as_integer() != Some(0)).collect();
            self.gpu(one).insert("nvlinks".into(), Value::Array(parts));
            let subject = if down == 1 { format!("link{one}.{first}") } else { format!("gpu{one}") };
            return Some(("nvlink-inactive", subject));
        }
        // All active links between two GPUs of several that are joined so.
        if self.gpu(one)["nvlinks"].as_array().unwrap().len() < 3 {
            return None;
        }
        for (gpu, peer) in [(one, other), (other, one)] {
            for group in self.gpu(gpu)["nvlinks"].as_array_mut().unwrap() {
                if group["remote"]["gpu"].as_integer() == i64::try_from(peer).ok() {
                    group.as_table_mut().unwrap().insert("active".into(), Value::Boolean(false));
                }
            }
        }
        Some(("nvlink-inactive", format!("pair{}-{}", one.min(other), one.max(other))))
    }
}

/// The machines that have a place for their fault, in an order that has every machine and fault early.
pub fn trials() -> Vec<Trial> {
    let runs = std::env::var("PEERSCOPE_INJECTED").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let read = |name: &str| match name.strip_suffix(".toml") {
        Some(_) => std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap(),
        None => builtin::description(name).unwrap().to_owned(),
    };
    let bases = MACHINES.map(|name| toml::from_str(&read(name)).unwrap());
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
    fault: Fault,
    description: Table,
    code: &'static str,
    subject: String,
}

impl Injected {
    /// The n-th fault on the n-th machine; `None` where the machine has no place for it.
    fn new(number: usize, bases: &[Table]) -> Option<Self> {
        let place = number % MACHINES.len();
        let fault = FAULTS[number / MACHINES.len() % FAULTS.len()];
        let mut machine = Machine::of(&bases[place], number);
        let (code, subject) = machine.inject(fault)?;
        Some(Self { number, base: MACHINES[place], fault, description: machine.text, code, subject })
    }

    fn name(&self) -> String {
        let base = Path::new(self.base).file_stem().unwrap().to_str().unwrap();
        format!("injected::{:03}_{:?}_{base}", self.number, self.fault)
    }

    fn check(&self) {
        let folder = tempfile::tempdir().unwrap();
        let description = toml::to_string(&self.description).unwrap();
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
