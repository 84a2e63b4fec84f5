//! The facts of a machine, and the one comparison of those of two reports.

use serde_json::Value;

use super::evidence::Evidence;
use super::expectations::{Expectations, Machine};
use super::links;
use super::words;
use model::machine_facts::{
    CLASS, Component, MachineFacts, NVLINKS, PEER_ACCESS, differences, machine_facts,
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

/// Returns the facts that every GPU or pair must have, by key: the least number, or the only accepted value.
pub(crate) fn required(expected: &Expectations) -> Vec<(&'static str, Value)> {
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
    all.into_iter().filter_map(|(key, wanted)| Some((key, wanted?))).collect()
}

/// Returns the GPUs or pairs of which this required fact is not known.
pub(crate) fn unknown(key: &str, facts: &MachineFacts, evidence: &Evidence<'_>) -> Vec<Component> {
    let gpus = evidence.snapshot.gpus.iter().map(|gpu| Component::Gpu(gpu.index));
    let pairs = evidence.topology.pairs.iter().map(|route| Component::Pair(route.pair));
    let is_of_pairs = |part: &Component| matches!(part, Component::Pair(_));
    let of_key = gpus.chain(pairs).filter(|part| is_of_pairs(part) == (key == PEER_ACCESS));
    of_key.filter(|part| !facts.contains_key(&(*part, key.to_owned()))).collect()
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
        [] | [Component::Machine, ..] => None,
        [Component::Gpu(_), ..] => Some(evidence.named(&gpus)),
        [Component::Pair(_), ..] => Some(words::count(pairs.len(), "pair")),
        [Component::Function(address)] => Some(address.to_string()),
        _ => Some(words::count(parts.len(), "PCI function")),
    }
}

/// A fact that is not what it was, or not what is expected.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub part: Component,
    pub key: String,
    /// The earlier or the expected value.
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

    /// Returns every fact that is not as expected.
    pub(crate) fn unmet(expected: &Expectations, facts: &MachineFacts) -> Vec<Self> {
        let required = required(expected).into_iter();
        let unmet = required.flat_map(|(key, wanted)| {
            facts.iter().filter(move |((_, of), _)| *of == key).filter_map(
                move |((part, _), now)| {
                    let is_met = match now.as_u64().zip(wanted.as_u64()) {
                        Some((found, wanted)) => found >= wanted,
                        None => *now == wanted,
                    };
                    let (key, then, now) = (key.to_owned(), wanted.clone(), now.clone());
                    (!is_met).then_some(Self { part: *part, key, then, now })
                },
            )
        });
        unmet.collect()
    }

    /// Returns true if a GPU has less than before, or a pair lost its peer access or its near connection.
    pub(crate) fn is_worse(&self) -> bool {
        if self.key == PEER_ACCESS {
            return self.now == false;
        }
        if MORE_IS_BETTER.iter().any(|(key, _)| *key == self.key) {
            return self.now.as_u64() < self.then.as_u64();
        }
        let class = |value: &Value| value.as_str()?.parse::<LinkClass>().ok();
        let of_both = class(&self.then).zip(class(&self.now)).filter(|_| self.key == CLASS);
        // Inactive NVLinks are a fact of their own.
        of_both.is_some_and(|(then, now)| now > then && !matches!(then, LinkClass::NvLink(_)))
    }

    /// Returns true if the change is neither for the worse nor the number of lanes, which another state of the link explains.
    pub(crate) fn is_other(&self) -> bool {
        !self.is_worse() && self.key != LANES
    }
}
