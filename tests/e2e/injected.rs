//! Generality: healthy machines with one fault at a random place. Whatever the machine, the kind, the
//! place and the noise, exactly one finding at warning or above must name it.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use toml::{Table, Value, toml};

use crate::common::{finish, list, peerscope, run, say, text_of, write};
use crate::labelled::names;

/// Runs, each of one fault. More with PEERSCOPE_INJECTED.
const RUNS: u64 = 110;

/// Runs at a time.
const AT_ONCE: usize = 4;

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

/// A machine's description as it is being changed.
struct Machine {
    text: Table,
    random: fastrand::Rng,
}

impl Machine {
    fn load(name: &str, seed: u64) -> Self {
        let text = match name.strip_suffix(".toml") {
            Some(_) => std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap(),
            None => run(&["machines", "--show", name]).stdout,
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut text: Table = toml::from_str(&text).unwrap();
        let percent = 1.0 + random.f64();
        let number = i64::try_from(seed).unwrap();
        text.insert("noise".into(), Value::Table(toml! { percent = percent  seed = number }));
        Self { text, random }
    }

    fn gpus(&self) -> usize {
        self.text["gpus"].as_array().unwrap().len()
    }

    fn gpu(&mut self, index: usize) -> &mut Table {
        self.text["gpus"][index].as_table_mut().unwrap()
    }

    fn function(&mut self, address: &str) -> &mut Table {
        let functions = self.text["pci"].as_array_mut().unwrap();
        let function = functions.iter_mut().find(|function| function["address"].as_str() == Some(address));
        function.unwrap().as_table_mut().unwrap()
    }

    fn address(&self, gpu: usize) -> String {
        self.text["gpus"][gpu]["pci"].as_str().unwrap().to_owned()
    }

    /// The bridges above a function, the nearest first.
    fn above(&mut self, address: &str) -> Vec<String> {
        let mut way = Vec::new();
        let mut at = address.to_owned();
        while let Some(parent) = self.function(&at).get("parent").map(|parent| parent.as_str().unwrap().to_owned()) {
            way.push(parent.clone());
            at = parent;
        }
        way
    }

    /// Generation and lanes that both ends of a function's link can do.
    fn link(&mut self, address: &str) -> (u32, u32) {
        let ends: Vec<_> = std::iter::once(address.to_owned()).chain(self.above(address).into_iter().take(1)).collect();
        let parse = |text: &str| -> (u32, u32) {
            let (generation, lanes) = text.split_once(" x").unwrap();
            (generation.trim_start_matches("Gen").parse().unwrap(), lanes.parse().unwrap())
        };
        let ends: Vec<_> =
            ends.iter().filter_map(|end| Some(parse(self.function(end).get("max")?.as_str()?))).collect();
        (ends.iter().map(|end| end.0).min().unwrap(), ends.iter().map(|end| end.1).min().unwrap())
    }

    /// The switches, by their upstream ports, with the GPUs below each.
    fn switches(&mut self) -> Vec<(String, Vec<usize>)> {
        let mut switches: Vec<(String, Vec<usize>)> = Vec::new();
        for gpu in 0..self.gpus() {
            let address = self.address(gpu);
            for bridge in self.above(&address) {
                if self.function(&bridge)["kind"].as_str() == Some("switch-upstream") {
                    match switches.iter_mut().find(|(known, _)| *known == bridge) {
                        Some((_, gpus)) => gpus.push(gpu),
                        None => switches.push((bridge, vec![gpu])),
                    }
                }
            }
        }
        switches
    }

    fn has_nvlinks(&self) -> bool {
        self.text["gpus"][0].get("nvlinks").is_some_and(|links| !links.as_array().unwrap().is_empty())
    }

    /// The target of a GPU's first links.
    fn leads_to_gpus(&self) -> bool {
        self.text["gpus"][0]["nvlinks"][0]["remote"].as_str() != Some("switch")
    }

    fn fault(&mut self, list: &str, fault: Table) {
        let faults = self.text.entry("faults").or_insert_with(|| Value::Table(Table::new())).as_table_mut().unwrap();
        let list = faults.entry(list).or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut().unwrap().push(Value::Table(fault));
    }

    fn copies(&mut self, pairs: &Value, fault: &Value) {
        let (pairs, fault) = (pairs.clone(), fault.clone());
        let mut entry = Table::new();
        entry.insert("pairs".into(), pairs);
        entry.insert("fault".into(), fault);
        self.fault("pairs", entry);
    }

    fn refuse(&mut self, pairs: Value) {
        let peers = self.text.entry("peers").or_insert_with(|| Value::Table(Table::new())).as_table_mut().unwrap();
        let exceptions = peers.entry("exceptions").or_insert_with(|| Value::Array(Vec::new()));
        let mut entry = Table::new();
        entry.insert("pairs".into(), pairs);
        entry.insert("rule".into(), Value::Table(toml! { nvml = "CNS"  cuda = "refused" }));
        exceptions.as_array_mut().unwrap().push(Value::Table(entry));
    }

    fn state(&mut self, gpu: usize, key: &str, value: Value) {
        let state = self.gpu(gpu).entry("state").or_insert_with(|| Value::Table(Table::new()));
        state.as_table_mut().unwrap().insert(key.into(), value);
    }

    /// Two GPUs.
    fn two(&mut self) -> (usize, usize) {
        let gpus = self.gpus();
        let one = self.random.usize(..gpus);
        let other = (one + 1 + self.random.usize(..gpus - 1)) % gpus;
        (one, other)
    }

    /// A share that is below every floor, and not so low that staged copies are faster.
    fn slow(&mut self) -> Value {
        let share = 0.45 + self.random.f64() * 0.25;
        let mut slow = Table::new();
        slow.insert("share".into(), Value::Float((share * 1000.0).round() / 1000.0));
        Value::Table(Table::from_iter([("slow".to_owned(), Value::Table(slow))]))
    }

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

fn pair(key: &str, one: usize, other: usize) -> Value {
    let ends = [one, other].map(|gpu| Value::Integer(i64::try_from(gpu).unwrap()));
    Value::Table(Table::from_iter([(key.to_owned(), Value::Array(ends.to_vec()))]))
}

fn both(one: usize, other: usize) -> Value {
    pair("both", one, other)
}

fn one_way(from: usize, to: usize) -> Value {
    pair("ordered", from, to)
}

/// The n-th fault on the n-th machine, and what is wrong with what is found; `None` where the machine
/// has no place for it.
fn try_one(number: u64) -> Option<Result<(), String>> {
    let (machines, faults) = (MACHINES.len() as u64, FAULTS.len() as u64);
    let name = MACHINES[usize::try_from(number % machines).unwrap()];
    let fault = FAULTS[usize::try_from(number / machines % faults).unwrap()];
    let mut machine = Machine::load(name, number);
    let (code, subject) = machine.inject(fault)?;
    let folder = tempfile::tempdir().unwrap();
    let text = toml::to_string(&machine.text).unwrap();
    let file = write(folder.path(), "machine.toml", &text);
    let ran = finish(&mut peerscope(&[
        "check",
        "--machine",
        &file,
        "--profile",
        "quick",
        "--no-journal",
        "--format",
        "json",
    ]));
    if ran.code == Some(2) {
        return Some(Err(format!("#{number}, {fault:?} on {name}: {}", ran.stderr)));
    }
    let report = ran.json();
    let found: Vec<_> = list(&report["findings"]).iter().filter(|finding| finding["severity"] != "info").collect();
    let right = |finding: &serde_json::Value| finding["code"] == code && names(&finding["subject"]).contains(&subject);
    Some(match found.as_slice() {
        [one] if right(one) => Ok(()),
        others => {
            let kept = text_of(&std::env::temp_dir().join(format!("peerscope-injected-{number}.toml")));
            std::fs::write(&kept, &text).unwrap();
            let others: Vec<_> = others
                .iter()
                .map(|finding| format!("{}@{}: {}", finding["code"], names(&finding["subject"])[0], finding["message"]))
                .collect();
            Err(format!("#{number}, {fault:?} on {name} ({kept}): wanted {code}@{subject}, found {others:#?}"))
        }
    })
}

#[test]
fn one_fault_anywhere_is_one_finding_that_names_it() {
    let runs = std::env::var("PEERSCOPE_INJECTED").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let (next, tried) = (AtomicU64::new(0), AtomicU64::new(0));
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while tried.load(Ordering::Relaxed) < runs {
                    let Some(outcome) = try_one(next.fetch_add(1, Ordering::Relaxed)) else { continue };
                    tried.fetch_add(1, Ordering::Relaxed);
                    wrong.lock().unwrap().extend(outcome.err());
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let tried = tried.into_inner();
    say(&format!("injected faults: {tried} machines with one fault each, {} told wrong", wrong.len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
