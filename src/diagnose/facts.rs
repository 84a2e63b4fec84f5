//! The facts of a machine, and the one comparison of those of two reports.

use serde_json::Value;

use super::evidence::Evidence;
use super::expectations::Expectations;
use super::links;
use model::machine_facts::{
    CLASS, Component, MachineFacts, NVLINKS, PEER_ACCESS, differences, machine_facts,
};
use model::topology::LinkClass;

/// PCIe lanes of a GPU, seen under load if copies ran.
pub(crate) const LANES: &str = "pcie_width";
/// Highest PCIe generation that GPU and slot support together.
pub(crate) const GENERATION_MAX: &str = "pcie_generation_max";
/// PCIe generation seen under load; without load, the highest that GPU and slot support.
pub(crate) const GENERATION: &str = "pcie_generation_under_load";

/// Facts of which a GPU should not have less than before, in words. The generation under load is no such fact: a report
/// without copies has another one.
const MORE_IS_BETTER: [(&str, &str); 3] = [
    (LANES, "PCIe lanes"),
    (GENERATION_MAX, "PCIe generation at most"),
    (NVLINKS, "active NVLinks"),
];

/// Words for facts whose key is none.
const WORDS: [(&str, &str); 5] = [
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

/// Returns the number that is this fact of a GPU.
pub(crate) fn number(facts: &MachineFacts, gpu: u32, key: &str) -> Option<u32> {
    let value = facts.get(&(Component::Gpu(gpu), key.to_owned()))?.as_u64()?;
    u32::try_from(value).ok()
}

/// Returns what is required of the links of each GPU: the key of the fact, words for it, and the least number.
pub(crate) fn required(expected: &Expectations) -> [(&'static str, &'static str, Option<u32>); 3] {
    let Expectations { pcie, nvlink, .. } = expected;
    [
        (GENERATION, "PCIe generation", pcie.generation.map(u32::from)),
        (LANES, "PCIe lanes", pcie.width.map(u32::from)),
        (NVLINKS, "active NVLinks", nvlink.links),
    ]
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

    /// Returns words for the fact: `driver`, `video BIOS`, `iommu type`.
    pub(crate) fn what(&self) -> String {
        let mut known = WORDS.iter().chain(&MORE_IS_BETTER);
        known
            .find(|(key, _)| *key == self.key)
            .map_or_else(|| self.key.replace('_', " "), |(_, what)| (*what).to_owned())
    }
}
