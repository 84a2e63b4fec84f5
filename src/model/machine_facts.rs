//! Facts of a machine that stay from run to run: two reports of it are compared by them, beside their figures. They follow
//! from the declared readings: one that is added there is compared everywhere, unless [`CHANGING`] names it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::placement::Pair;
use super::snapshot::Snapshot;
use super::topology::Topology;
use super::units::PciAddress;

/// The part of a machine that a fact describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    Machine,
    /// By NVML's index.
    Gpu(u32),
    Pair(Pair),
    /// By PCI address.
    Function(PciAddress),
}

/// The known facts, each by its key in the report.
pub type MachineFacts = BTreeMap<(Component, String), Value>;

/// Active NVLinks of a GPU.
pub const NVLINKS: &str = "active_nvlinks";
/// True if CUDA grants peer access.
pub const PEER_ACCESS: &str = "peer_access";
/// Class of the connection of a pair.
pub const CLASS: &str = "class";

/// Readings that differ from run to run, that another reading repeats, or that identify a part instead of describing it.
const CHANGING: &str = "address aer_correctable aer_fatal aer_nonfatal answers bars boot_id busy_tasks class container_made_by \
    control_group ecc_uncorrected generation hostname index iommu_group kernel_module_version \
    memory_clock_mhz memory_free_bytes minor mps_daemon mps_pipe_directory nccl_variables nvlinks \
    nvml_version parent pci pcie_generation pcie_replays power_state processes runtime_status \
    serial shm_free_bytes shm_total_bytes sm_clock_mhz temperature_c throttle_reasons up_seconds uuid width xids";

/// Settings of PCI functions that a summary counts. Their other facts are those of a place, not of a machine.
const SETTINGS: &[&str] =
    &["acs_redirect", "iommu_type", "max_payload_bytes", "max_read_request_bytes"];

/// Returns the facts of a machine.
pub fn machine_facts(snapshot: &Snapshot, topology: &Topology) -> MachineFacts {
    let mut facts: MachineFacts = readings(Component::Machine, &snapshot.host).collect();
    for gpu in &snapshot.gpus {
        let part = Component::Gpu(gpu.index);
        facts.extend(readings(part, gpu));
        let links = gpu.active_nvlinks().map(Value::from);
        facts.extend(links.map(|links| ((part, NVLINKS.to_owned()), links)));
    }
    for function in &snapshot.pci {
        facts.extend(readings(Component::Function(function.address), function));
    }
    for route in &topology.pairs {
        let part = Component::Pair(route.pair);
        let access = route.peer_access.cuda.map(Value::from);
        facts.extend(access.map(|access| ((part, PEER_ACCESS.to_owned()), access)));
        facts.insert((part, CLASS.to_owned()), route.class.to_string().into());
    }
    facts
}

/// Returns the plain readings of a part of the machine that are known.
fn readings(
    part: Component,
    of: &impl Serialize,
) -> impl Iterator<Item = ((Component, String), Value)> {
    let all = match serde_json::to_value(of) {
        Ok(Value::Object(all)) => all,
        _ => serde_json::Map::new(),
    };
    let is_plain = |value: &Value| match value {
        Value::Array(values) => values.iter().all(Value::is_string),
        other => !other.is_null() && !other.is_object(),
    };
    all.into_iter()
        .filter(move |(key, value)| {
            is_plain(value) && !CHANGING.split(' ').any(|changing| changing == key)
        })
        .map(move |(key, value)| ((part, key), value))
}

/// Returns a fact as a word for people.
pub fn in_words(value: &Value) -> String {
    match value {
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) => {
            let texts = values.iter().filter_map(Value::as_str);
            texts.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

/// Returns `Gen5 x16` if all values are the same, else `7 x Gen5 x16, 1 x Gen5 x8`.
pub fn tally(values: impl Iterator<Item = String>) -> String {
    let counts = counted(values);
    match counts.as_slice() {
        [] => "none".to_owned(),
        [(value, _)] => value.clone(),
        _ => listed(&counts),
    }
}

/// Returns `56 x NV18`, also if all values are the same.
pub fn tally_all(values: impl Iterator<Item = String>) -> String {
    listed(&counted(values))
}

fn listed(counts: &[(String, usize)]) -> String {
    let parts = counts.iter().map(|(value, count)| format!("{count} x {value}"));
    parts.collect::<Vec<_>>().join(", ")
}

fn counted(values: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(a, one), (b, other)| other.cmp(one).then_with(|| a.cmp(b)));
    counts
}

/// Returns the facts of the machine, of its GPUs together, and the settings of its PCI functions together, by key. Lanes
/// may be those of a link at rest: a summary has the links under load.
pub fn summed_up(facts: &MachineFacts) -> BTreeMap<String, String> {
    let mut of_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((part, key), value) in facts {
        let key = match part {
            Component::Gpu(_) if key == "pcie_width" => continue,
            Component::Machine | Component::Gpu(_) => key.clone(),
            Component::Function(_) if SETTINGS.contains(&key.as_str()) => format!("pci_{key}"),
            Component::Function(_) | Component::Pair(_) => continue,
        };
        of_key.entry(key).or_default().push(in_words(value));
    }
    of_key.into_iter().map(|(key, values)| (key, tally(values.into_iter()))).collect()
}

/// What two sets of facts both know and do not agree on: the key, the earlier and the later value.
pub fn differences<'a, K: Ord, V: PartialEq>(
    then: &'a BTreeMap<K, V>,
    now: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, &'a V, &'a V)> {
    now.iter().filter_map(|(key, now)| {
        let then = then.get(key).filter(|then| *then != now)?;
        Some((key, then, now))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;
    use crate::testing::h200_vm;

    #[test]
    fn every_reading_that_is_left_out_exists() {
        let machine = h200_vm(1);
        let parts = [
            serde_json::to_value(&machine.host),
            serde_json::to_value(&machine.gpus[0]),
            serde_json::to_value(&machine.pci[0]),
        ];
        let parts: Vec<Value> = parts.into_iter().map(Result::unwrap).collect();
        let exists = |key: &&str| parts.iter().any(|part| part.get(*key).is_some());
        let gone: Vec<_> = CHANGING
            .split(' ')
            .chain(SETTINGS.iter().copied())
            .filter(|key| !exists(key))
            .collect();
        assert_eq!(gone, [""; 0]);
    }

    #[test]
    fn a_setting_that_differs_is_found_where_both_know_it() {
        let (mut then, mut now) = (h200_vm(2), h200_vm(2));
        let ecc = |on| Reading::Known(on);
        (then.gpus[1].ecc, now.gpus[1].ecc) = (ecc(true), ecc(false));
        then.host.busy_tasks = Reading::Known(0);
        then.host.up_seconds = Reading::Known(7);
        (then.gpus[0].ecc, now.gpus[0].ecc) = (Reading::unsupported(), ecc(true));
        now.gpus[0].temperature_c = Reading::Known(71);
        now.host.busy_tasks = Reading::Known(3);
        now.host.up_seconds = Reading::Known(100);
        let graph = Topology::default();
        let [then, now] = [then, now].map(|machine| machine_facts(&machine, &graph));
        let found: Vec<_> = differences(&then, &now).map(|(key, ..)| key).collect();
        assert_eq!(found, [&(Component::Gpu(1), "ecc".to_owned())]);
        assert_eq!(summed_up(&now)["ecc"], "1 x off, 1 x on");
    }
}
