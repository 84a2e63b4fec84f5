//! Common traits of findings on many nodes: a position in the machine, a rack, a driver, a firmware.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::inventory::{DRIVER, KERNEL, LINKS, RACK, TOPOLOGY, VBIOS};
use super::model::{Code, Finding};
use super::names;
use super::robust::chance;
use super::steps::Step;
use model::finding::Severity;

/// A problem on a node, with the code of its rule or of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incident<'a> {
    pub code: &'a str,
    /// Index of the node.
    pub node: usize,
    pub severity: Severity,
    /// The GPUs that it is about.
    pub gpus: Vec<u32>,
    pub message: &'a str,
}

/// Fewest nodes that make a pattern. Chosen.
const FEWEST: usize = 3;

/// Highest probability, over all positions and facts, of a pattern that arises by chance. Chosen: one report in a
/// thousand shows a false pattern.
const BY_CHANCE: f64 = 1e-3;

/// Least share for a fact to explain a finding. At least this share of the nodes with the finding must have the fact.
/// At least this share of the nodes with the fact must have the finding. Chosen.
const EXPLAINED: f64 = 0.8;

/// Facts that can explain a finding, in words.
const FACTS: [(&str, &str); 6] = [
    (RACK, "names begin with"),
    (DRIVER, "driver is"),
    (VBIOS, "video BIOS is"),
    (LINKS, "PCIe links are"),
    (TOPOLOGY, "topology is"),
    (KERNEL, "kernel is"),
];

/// Returns findings by code, the most widespread first.
pub(crate) fn codes(incidents: &[Incident<'_>], nodes: &[&str]) -> Vec<Code> {
    let mut codes: Vec<Code> = by_code(incidents)
        .into_iter()
        .map(|(code, found)| {
            let on: BTreeSet<usize> = found.iter().map(|incident| incident.node).collect();
            Code {
                code: code.to_owned(),
                severity: found
                    .iter()
                    .map(|incident| incident.severity)
                    .max()
                    .unwrap_or(Severity::Info),
                nodes: names::fold(on.iter().map(|place| nodes[*place])),
                count: on.len(),
                findings: found.len(),
                example: found
                    .first()
                    .map(|incident| incident.message.to_owned())
                    .unwrap_or_default(),
            }
        })
        .collect();
    codes.sort_by(|one, other| {
        let key = |code: &Code| (code.severity, code.count);
        key(other).cmp(&key(one)).then_with(|| one.code.cmp(&other.code))
    });
    codes
}

fn by_code<'a, 'b>(incidents: &'b [Incident<'a>]) -> BTreeMap<&'a str, Vec<&'b Incident<'a>>> {
    let mut codes: BTreeMap<&str, Vec<&Incident<'_>>> = BTreeMap::new();
    for incident in incidents {
        codes.entry(incident.code).or_default().push(incident);
    }
    codes
}

/// Returns GPU positions that findings name on far more nodes than the other positions.
pub(crate) fn positions(incidents: &[Incident<'_>], nodes: &[&str], gpus: usize) -> Vec<Finding> {
    let codes = by_code(incidents);
    let tried = codes.len() * gpus;
    let mut found = Vec::new();
    for (code, incidents) in codes {
        // Each node counts once for a position, and only if a single GPU is to blame.
        let blamed: BTreeSet<(u32, usize)> = incidents
            .iter()
            .filter_map(|incident| match incident.gpus.as_slice() {
                [gpu] => Some((*gpu, incident.node)),
                _ => None,
            })
            .collect();
        let mut by_gpu: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (gpu, node) in &blamed {
            by_gpu.entry(*gpu).or_default().push(*node);
        }
        for (gpu, on) in by_gpu {
            #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
            let by_chance = chance(on.len(), blamed.len(), gpus) * tried as f64;
            if on.len() >= FEWEST && by_chance < BY_CHANCE {
                found.push(position(code, gpu, &on, blamed.len(), nodes));
            }
        }
    }
    found
}

fn position(code: &str, gpu: u32, on: &[usize], all: usize, nodes: &[&str]) -> Finding {
    Finding::new(
        "fleet-position-bad",
        names::fold(on.iter().map(|place| nodes[*place])),
        on.len(),
        format!(
            "GPU {gpu} is the one in {} of {all} findings {code}: the position is to blame, not the GPUs",
            on.len()
        ),
        [
            ("of_code", json!(code)),
            ("findings", json!(on.len())),
            ("of_findings", json!(all)),
        ],
        [Step::LookAtPosition, Step::SwapPosition],
    )
    .gpus(vec![gpu])
}

/// Returns findings whose nodes share a fact that other nodes lack.
pub(crate) fn shared(
    incidents: &[Incident<'_>],
    nodes: &[&str],
    facts: &[BTreeMap<String, String>],
) -> Vec<Finding> {
    let mut found = Vec::new();
    for (code, incidents) in by_code(incidents) {
        let on: BTreeSet<usize> = incidents.iter().map(|incident| incident.node).collect();
        if on.len() < FEWEST {
            continue;
        }
        let best = FACTS.iter().filter_map(|(key, words)| {
            let (value, explained) = explains(key, &on, facts)?;
            Some((explained, *key, *words, value))
        });
        let Some((_, key, words, value)) =
            best.max_by(|(one, ..), (other, ..)| one.total_cmp(other))
        else {
            continue;
        };
        let with =
            facts.iter().filter(|facts| facts.get(key).is_some_and(|own| own == value)).count();
        let both = on
            .iter()
            .filter(|place| facts[**place].get(key).is_some_and(|own| own == value))
            .count();
        found.push(Finding::new(
            "fleet-finding-shared",
            names::fold(on.iter().map(|place| nodes[*place])),
            on.len(),
            format!(
                "{both} of {} nodes with {code} are among the {with} whose {words} {value}, of {} in all",
                on.len(),
                nodes.len()
            ),
            [
                ("of_code", json!(code)),
                ("fact", json!(key)),
                ("value", json!(value)),
                ("with_both", json!(both)),
                ("with_fact", json!(with)),
                ("of_nodes", json!(nodes.len())),
            ],
            [Step::LookAtShared],
        ));
    }
    found
}

/// Returns the value of a fact that nearly all of these nodes share and few others have, and how well it fits.
fn explains<'a>(
    key: &str,
    on: &BTreeSet<usize>,
    facts: &'a [BTreeMap<String, String>],
) -> Option<(&'a String, f64)> {
    let mut values: BTreeMap<&String, usize> = BTreeMap::new();
    for place in on {
        *values.entry(facts[*place].get(key)?).or_default() += 1;
    }
    let (value, both) = values.into_iter().max_by_key(|(_, count)| *count)?;
    let with = facts.iter().filter(|facts| facts.get(key) == Some(value)).count();
    #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    let (of_nodes, of_fact, of_all) = (
        both as f64 / on.len() as f64,
        both as f64 / with as f64,
        with as f64 / facts.len() as f64,
    );
    // A fact of more than half the nodes distinguishes none.
    (both >= FEWEST && of_nodes >= EXPLAINED && of_fact >= EXPLAINED && of_all <= 0.5)
        .then_some((value, of_nodes * of_fact))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(node: usize, gpus: &[u32]) -> Incident<'static> {
        Incident {
            code: "pcie-narrow",
            node,
            severity: Severity::Error,
            gpus: gpus.to_vec(),
            message: "narrow",
        }
    }

    fn names_of(number: usize) -> Vec<String> {
        (0..number).map(|at| format!("r{}n{:02}", at / 10, at % 10)).collect()
    }

    #[test]
    fn a_position_is_found_where_chance_does_not_explain_it() {
        let names = names_of(40);
        let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
        let same: Vec<_> = (0..8).map(|node| incident(node, &[5])).collect();
        let found = positions(&same, &nodes, 8);
        assert_eq!(
            (found.len(), found[0].gpus.as_slice(), found[0].nodes.as_str()),
            (1, &[5][..], "r0n[00-07]")
        );
        let spread: Vec<_> =
            (0..16).map(|node| incident(node, &[u32::try_from(node).unwrap() % 8])).collect();
        assert_eq!(positions(&spread, &nodes, 8), []);
        let two: Vec<_> = (0..2).map(|node| incident(node, &[5])).collect();
        assert_eq!(positions(&two, &nodes, 8), []);
        let pairs: Vec<_> = (0..8).map(|node| incident(node, &[5, 6])).collect();
        assert_eq!(positions(&pairs, &nodes, 8), [], "nobody knows which of the two");
    }

    #[test]
    fn a_rack_or_a_firmware_behind_a_finding_is_named() {
        let names = names_of(40);
        let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
        let fact = |at: usize| {
            let vbios = if at.is_multiple_of(7) { "old" } else { "new" };
            BTreeMap::from([
                (RACK.to_owned(), names::head(&names[at]).to_owned()),
                (VBIOS.to_owned(), vbios.to_owned()),
                (DRIVER.to_owned(), "580".into()),
            ])
        };
        let facts: Vec<_> = (0..40).map(fact).collect();
        let rack: Vec<_> = (10..20).map(|node| incident(node, &[])).collect();
        let found = shared(&rack, &nodes, &facts);
        assert!(
            found[0].message.contains("10 of 10 nodes")
                && found[0].message.contains("begin with r1n"),
            "{found:?}"
        );
        let firmware: Vec<_> = (0..40).step_by(7).map(|node| incident(node, &[])).collect();
        assert!(shared(&firmware, &nodes, &facts)[0].message.contains("video BIOS is old"));
        let none: Vec<_> = [3, 14, 25, 36].map(|node| incident(node, &[])).into();
        assert_eq!(shared(&none, &nodes, &facts), []);
    }

    #[test]
    fn codes_are_counted_by_node() {
        let incidents = [incident(0, &[1]), incident(0, &[2]), incident(3, &[1])];
        let codes = codes(&incidents, &["a0", "a1", "a2", "a3"]);
        assert_eq!((codes[0].count, codes[0].findings, codes[0].nodes.as_str()), (2, 3, "a[0,3]"));
    }
}
