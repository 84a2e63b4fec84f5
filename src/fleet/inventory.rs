//! Facts of nodes side by side: their distribution over nodes of one GPU model, and the odd ones.

use std::collections::BTreeMap;

use serde_json::json;

use super::digest::Digest;
use super::model::{Attribute, Bin, Finding};
use super::names;
use super::steps::Step;
use model::machine_facts::{tally, tally_all};

/// Fewest nodes of one model in which one can be odd. Chosen.
const FEWEST: usize = 5;

/// Largest share of nodes with a value for it to be odd: above it, there are two kinds of nodes. Chosen.
const ODD: f64 = 0.2;

/// Keys of the compared facts, as in JSON; this one is the number of GPUs.
pub(crate) const GPUS: &str = "gpus";
/// Version of the driver.
pub(crate) const DRIVER: &str = "driver";
/// Version of the video BIOS of the GPUs.
pub(crate) const VBIOS: &str = "vbios";
/// PCIe links of the GPUs.
pub(crate) const LINKS: &str = "links";
/// Connections of the GPUs.
pub(crate) const TOPOLOGY: &str = "topology";
/// Kernel release.
pub(crate) const KERNEL: &str = "kernel";
/// The part of a name before its last number.
pub(crate) const RACK: &str = "rack";

/// Facts that should be the same on all nodes of a model, with the meaning of a difference and the next step.
const SAME: [(&str, &str, Step); 5] = [
    (GPUS, "number of GPUs", Step::FindGpu),
    (DRIVER, "driver version", Step::SameDriver),
    (VBIOS, "video BIOS of the GPUs", Step::SameFirmware),
    (LINKS, "PCIe links of the GPUs", Step::CheckNode),
    (TOPOLOGY, "topology", Step::CompareNodes),
];

/// Facts of a summary that have another key here.
const RENAMED: [&str; 3] = ["driver_version", "kernel_version", "name"];

/// Returns the facts of a node: those that its summary has, and what the machine is made of.
pub(crate) fn facts(digest: &Digest) -> BTreeMap<String, String> {
    let summary = &digest.summary;
    let unknown = || "unknown".to_owned();
    let of_gpus = |fact: fn(&super::summary::Gpu) -> Option<&String>| {
        let of_gpu = |gpu| fact(gpu).cloned().unwrap_or_else(unknown);
        tally(summary.gpus.iter().map(of_gpu))
    };
    let known = |version: &Option<String>| version.clone().unwrap_or_else(unknown);
    let mut facts = summary.facts.clone();
    facts.retain(|key, _| !RENAMED.contains(&key.as_str()));
    let own = [
        ("model", model(digest)),
        (GPUS, number_of_gpus(digest)),
        (DRIVER, known(&summary.driver_version)),
        (VBIOS, of_gpus(|gpu| gpu.vbios.as_ref())),
        (LINKS, of_gpus(|gpu| gpu.link.as_ref())),
        (TOPOLOGY, topology(digest)),
        (KERNEL, known(&summary.kernel_version)),
        (RACK, names::head(&digest.node).to_owned()),
        ("version", digest.version.clone()),
    ];
    facts.extend(own.map(|(key, value)| (key.to_owned(), value)));
    facts
}

/// Returns `8`, or `6 (2 left out)` if the user asked for some of them.
fn number_of_gpus(digest: &Digest) -> String {
    match digest.summary.gpus_left_out {
        0 => digest.summary.gpus.len().to_string(),
        left_out => format!("{} ({left_out} left out)", digest.summary.gpus.len()),
    }
}

/// Returns the GPUs' models: `NVIDIA H200`.
fn model(digest: &Digest) -> String {
    let mut names: Vec<&str> = digest
        .summary
        .gpus
        .iter()
        .map(|gpu| gpu.name.as_deref().unwrap_or("unknown model"))
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { "no GPU".to_owned() } else { names.join(" and ") }
}

/// Returns `56 x NV18`.
fn topology(digest: &Digest) -> String {
    match digest.summary.pairs.len() {
        0 => "no pairs".to_owned(),
        // Even one pair counts twice, once per direction.
        _ => tally_all(digest.summary.pairs.iter().map(|pair| pair.class.to_string())),
    }
}

/// A node and its facts.
pub(crate) type Facts<'a> = (&'a str, &'a BTreeMap<String, String>);

/// Returns the distribution of facts, by model.
pub(crate) fn spread(nodes: &[Facts<'_>]) -> Vec<Attribute> {
    let mut models: BTreeMap<&str, BTreeMap<&str, BTreeMap<&str, Vec<&str>>>> = BTreeMap::new();
    for (node, facts) in nodes {
        let of_model = models.entry(&facts["model"]).or_default();
        for (key, value) in facts.iter().filter(|(key, _)| !["model", RACK].contains(&key.as_str()))
        {
            of_model.entry(key).or_default().entry(value).or_default().push(node);
        }
    }
    let mut attributes = Vec::new();
    for (model, facts) in models {
        for (attribute, values) in facts {
            let mut values: Vec<Bin> =
                values.into_iter().map(|(value, nodes)| share(value, nodes)).collect();
            values.sort_by(|one, other| {
                other.count.cmp(&one.count).then_with(|| one.value.cmp(&other.value))
            });
            attributes.push(Attribute {
                model: model.to_owned(),
                attribute: attribute.to_owned(),
                values,
            });
        }
    }
    attributes
}

fn share(value: &str, nodes: Vec<&str>) -> Bin {
    Bin { value: value.to_owned(), count: nodes.len(), nodes: names::fold(nodes) }
}

/// Returns nodes whose value differs from nearly all others of their model.
pub(crate) fn odd(inventory: &[Attribute]) -> Vec<Finding> {
    let mut found = Vec::new();
    for attribute in inventory {
        let Some((_, what, step)) = SAME.iter().find(|(key, ..)| *key == attribute.attribute)
        else {
            continue;
        };
        let Some((usual, others)) = attribute.values.split_first() else {
            continue;
        };
        let all: usize = attribute.values.iter().map(|share| share.count).sum();
        if all < FEWEST {
            continue;
        }
        #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
        let is_odd = |share: &&Bin| share.count as f64 <= all as f64 * ODD;
        found.extend(others.iter().filter(is_odd).map(|share| {
            Finding::new(
                "fleet-inventory-odd",
                share.nodes.clone(),
                share.count,
                format!(
                    "{what}: {} where {} of {all} nodes with {} have {}",
                    share.value, usual.count, attribute.model, usual.value
                ),
                [
                    ("attribute", json!(attribute.attribute)),
                    ("value", json!(share.value)),
                    ("usual", json!(usual.value)),
                    ("usual_nodes", json!(usual.count)),
                    ("of_nodes", json!(all)),
                ],
                [step.clone()],
            )
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::fleet_of;
    use super::*;

    fn found(change: impl Fn(usize, &mut Digest)) -> Vec<Finding> {
        let mut nodes = fleet_of(20);
        nodes.iter_mut().enumerate().for_each(|(at, digest)| change(at, digest));
        let facts: Vec<_> = nodes.iter().map(facts).collect();
        let pairs: Vec<Facts<'_>> =
            nodes.iter().zip(&facts).map(|(digest, facts)| (digest.node.as_str(), facts)).collect();
        odd(&spread(&pairs))
    }

    #[test]
    fn nodes_alike_are_not_odd_and_one_that_differs_is() {
        assert_eq!(found(|_, _| {}), []);
        let one = found(|at, digest| {
            if at == 7 {
                digest.summary.driver_version = Some("550.1".into());
                digest.summary.gpus[3].vbios = Some("other".into());
            }
        });
        assert_eq!(
            one.iter().map(|finding| finding.nodes.as_str()).collect::<Vec<_>>(),
            ["node007", "node007"]
        );
        assert!(one[1].message.contains("1 x other"), "{}", one[1].message);
        let gone = found(|at, digest| digest.summary.gpus.truncate(if at == 2 { 7 } else { 8 }));
        assert!(
            gone.iter().any(|finding| finding.message.starts_with("number of GPUs: 7")),
            "{gone:?}"
        );
    }

    #[test]
    fn two_kinds_of_nodes_are_not_odd() {
        assert_eq!(
            found(|at, digest| digest.summary.driver_version = Some((at % 2).to_string())),
            []
        );
        let kernels = found(|at, digest| {
            digest.summary.kernel_version = Some(if at == 0 { "6.9" } else { "6.8" }.into())
        });
        assert_eq!(kernels, [], "kernels may differ");
    }
}
