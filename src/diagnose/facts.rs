//! The facts of a machine, and the one comparison of those of two reports.

use serde_json::Value;

use super::evidence::Evidence;
use super::expectations::{Expectations, Machine};
use super::links;
use super::words;
use model::machine_facts::{
    CLASS, Component, MachineFacts, NVLINKS, PEER_ACCESS, differences, in_words, machine_facts,
};
use model::placement::Pair;
use model::topology::LinkClass;

/// PCIe lanes of a GPU, seen under load if copies ran.
pub(crate) const LANES: &str = "pcie_width";
/// Highest PCIe generation that GPU and slot support together.
pub(crate) const GENERATION_MAX: &str = "pcie_generation_max";
/// PCIe generation seen under load; without load, the highest that GPU and slot support.
pub(crate) const GENERATION: &str = "pcie_generation_under_load";

/// Product name of a GPU.
pub(crate) const NAME: &str = "name";

/// Facts of which a GPU should not have less than before, in words. The generation under load is no such fact: a report
/// without copies has another one.
const MORE_IS_BETTER: [(&str, &str); 3] = [
    (LANES, "PCIe lanes"),
    (GENERATION_MAX, "PCIe generation at most"),
    (NVLINKS, "active NVLinks"),
];

/// Words for facts whose key is none.
const WORDS: [(&str, &str); 7] = [
    (NAME, "model"),
    (GENERATION, "PCIe generation"),
    ("driver_version", "driver"),
    ("cuda_version", "CUDA"),
    ("kernel_version", "kernel"),
    ("vbios", "video BIOS"),
    (CLASS, "connection"),
];

/// Returns the facts of this machine. Lanes seen only at rest are not the link's width.
pub(crate) fn of(evidence: &Evidence<'_>) -> MachineFacts {
    let mut facts = machine_facts(evidence.snapshot, evidence.topology);
    for gpu in &evidence.snapshot.gpus {
        let belief = links::belief_of(evidence, gpu.index);
        let lanes = belief.and_then(|belief| belief.measured_lanes());
        let generation = belief
            .and_then(|belief| belief.measured_generation())
            .or(gpu.pcie_generation_max.get());
        let mut set = |key: &str, value: Option<u32>| {
            let part = Component::Gpu(gpu.index);
            facts.extend(value.map(|value| ((part, key.to_owned()), value.into())));
        };
        set(LANES, lanes.map(u32::from));
        set(GENERATION, generation.map(u32::from));
    }
    facts
}

/// A fact that every GPU or pair must have.
pub(crate) struct RequiredFact {
    pub key: &'static str,
    /// Least number, or the only accepted value.
    pub wanted: Value,
}

impl RequiredFact {
    /// Returns the facts that are required.
    pub(crate) fn of(expected: &Expectations) -> Vec<Self> {
        let Machine { model, pcie_generation, pcie_width, nvlinks, peer_access, .. } =
            &expected.machine;
        let number = |number: &Option<u32>| number.map(Value::from);
        let all = [
            (NAME, model.clone().map(Value::from)),
            (GENERATION, number(pcie_generation)),
            (LANES, number(pcie_width)),
            (NVLINKS, number(nvlinks)),
            (PEER_ACCESS, peer_access.map(Value::from)),
        ];
        all.into_iter().filter_map(|(key, wanted)| Some(Self { key, wanted: wanted? })).collect()
    }

    /// Returns the values that do not meet it, each with its GPUs or pairs.
    pub(crate) fn unmet<'f>(&self, facts: &'f MachineFacts) -> Vec<(&'f Value, Vec<Component>)> {
        let is_met = |value: &Value| match value.as_u64().zip(self.wanted.as_u64()) {
            Some((found, wanted)) => found >= wanted,
            None => *value == self.wanted,
        };
        let of_key = facts.iter().filter(|((_, key), value)| *key == self.key && !is_met(value));
        let values =
            words::grouped(of_key.map(|((part, _), value)| (in_words(value), (value, *part))));
        let split = |all: Vec<(&'f Value, Component)>| {
            let (value, _) = *all.first()?;
            Some((value, all.into_iter().map(|(_, part)| part).collect()))
        };
        values.into_values().filter_map(split).collect()
    }

    /// Returns the GPUs or pairs of which it is not known.
    pub(crate) fn unknown(&self, facts: &MachineFacts, evidence: &Evidence<'_>) -> Vec<Component> {
        let parts: Vec<Component> = if self.key == PEER_ACCESS {
            evidence.topology.pairs.iter().map(|route| Component::Pair(route.pair)).collect()
        } else {
            evidence.snapshot.gpus.iter().map(|gpu| Component::Gpu(gpu.index)).collect()
        };
        let is_unknown = |part: &Component| !facts.contains_key(&(*part, self.key.to_owned()));
        parts.into_iter().filter(is_unknown).collect()
    }
}

/// Returns words for a fact: `driver`, `video BIOS`, `iommu type`.
pub(crate) fn what(key: &str) -> String {
    let mut known = WORDS.iter().chain(&MORE_IS_BETTER);
    let known = known.find(|(known, _)| *known == key);
    known.map_or_else(|| key.replace('_', " "), |(_, what)| (*what).to_owned())
}

/// Returns the GPUs and the pairs of these parts.
pub(crate) fn gpus_and_pairs(parts: &[Component]) -> (Vec<u32>, Vec<Pair>) {
    let (mut gpus, mut pairs) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Component::Gpu(gpu) => gpus.push(*gpu),
            Component::Pair(pair) => pairs.push(*pair),
            Component::Machine | Component::Function(_) => {}
        }
    }
    (gpus, pairs)
}

/// Returns words for parts of the machine; none for the machine itself.
pub(crate) fn of_parts(evidence: &Evidence<'_>, parts: &[Component]) -> Option<String> {
    let (gpus, pairs) = gpus_and_pairs(parts);
    match parts {
        [Component::Machine, ..] => None,
        [Component::Gpu(_), ..] => Some(words::all_or(evidence.snapshot, &gpus)),
        [Component::Pair(_), ..] => Some(words::count(pairs.len(), "pair")),
        [Component::Function(address)] => Some(address.to_string()),
        _ => Some(words::count(parts.len(), "PCI function")),
    }
}

/// A fact that differs between two reports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub part: Component,
    pub key: String,
    pub then: Value,
    pub now: Value,
}

impl Change {
    /// Returns every fact that both know and that differs.
    pub(crate) fn between(then: &MachineFacts, now: &MachineFacts) -> Vec<Self> {
        let change = |((part, key), then, now): (&(Component, String), &Value, &Value)| Self {
            part: *part,
            key: key.clone(),
            then: then.clone(),
            now: now.clone(),
        };
        differences(then, now).map(change).collect()
    }

    /// Returns the words of a fact of a GPU that is less than before, with both values.
    pub(crate) fn fewer(&self) -> Option<(&'static str, u64, u64)> {
        let (_, what) = *MORE_IS_BETTER.iter().find(|(key, _)| *key == self.key)?;
        let (then, now) = self.then.as_u64().zip(self.now.as_u64())?;
        (now < then).then_some((what, then, now))
    }

    /// Returns the loss of a pair, in words: of peer access, or of a near connection.
    pub(crate) fn lost(&self) -> Option<String> {
        if self.key == PEER_ACCESS {
            return (self.now == false).then(|| "CUDA no longer grants peer access".to_owned());
        }
        let class = |value: &Value| value.as_str()?.parse::<LinkClass>().ok();
        let (then, now) = class(&self.then).zip(class(&self.now))?;
        // Inactive NVLinks are a fact of their own.
        let is_farther = now > then && !matches!(then, LinkClass::NvLink(_));
        is_farther.then(|| format!("The GPUs are connected by {now}, earlier by {then}"))
    }

    /// Returns true if the change is neither for the worse nor the number of lanes, which another state of the link explains.
    pub(crate) fn is_other(&self) -> bool {
        self.fewer().is_none() && self.lost().is_none() && self.key != LANES
    }
}
