//! Differences from an earlier fleet file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::digest::word;
use super::inventory::RACK;
use super::model::{Changes, Node, SCHEMA};
use super::names;
use model::report::Conclusion;

/// The compared part of an earlier fleet file.
#[derive(Debug, Deserialize)]
pub struct Earlier {
    schema: String,
    made_at: String,
    nodes: Vec<EarlierNode>,
}

#[derive(Debug, Deserialize)]
struct EarlierNode {
    node: String,
    verdict: Conclusion,
    facts: BTreeMap<String, String>,
    uuids: Vec<String>,
    findings: Vec<EarlierFinding>,
}

#[derive(Debug, Deserialize)]
struct EarlierFinding {
    code: String,
}

impl Earlier {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the file and its defect.
    pub fn load(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = recording::file(path).map_err(|why| format!("cannot read {name}: {why}"))?;
        let earlier: Self = serde_json::from_slice(&text).map_err(|why| {
            format!("{name} is not what 'peerscope fleet -o fleet.json' writes: {why}")
        })?;
        match earlier.schema.as_str() {
            SCHEMA => Ok(earlier),
            _ => Err(format!(
                "{name} is no fleet file of this version, which reads {SCHEMA}"
            )),
        }
    }

    /// Returns the differences from now.
    pub fn changes(&self, nodes: &[Node]) -> Changes {
        let before: BTreeMap<&str, &EarlierNode> = self
            .nodes
            .iter()
            .map(|node| (node.node.as_str(), node))
            .collect();
        let now: BTreeSet<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
        let mut lists: [BTreeMap<String, Vec<&str>>; 4] = Default::default();
        let [verdicts, appeared, gone, facts] = &mut lists;
        let (mut other_gpus, mut new_nodes) = (Vec::new(), Vec::new());
        for node in nodes {
            let name = node.node.as_str();
            let Some(old) = before.get(name) else {
                new_nodes.push(name);
                continue;
            };
            if old.verdict != node.verdict {
                add(
                    verdicts,
                    format!("{} to {}", word(old.verdict), word(node.verdict)),
                    name,
                );
            }
            let had: BTreeSet<&str> = old
                .findings
                .iter()
                .map(|finding| finding.code.as_str())
                .collect();
            let has: BTreeSet<&str> = node
                .findings
                .iter()
                .map(|finding| finding.code.as_str())
                .collect();
            has.difference(&had)
                .for_each(|code| add(appeared, (*code).to_owned(), name));
            had.difference(&has)
                .for_each(|code| add(gone, (*code).to_owned(), name));
            for (key, value) in node.facts.iter().filter(|(key, _)| **key != RACK) {
                if let Some(was) = old.facts.get(*key).filter(|was| *was != value) {
                    add(facts, format!("{key}: {was} to {value}"), name);
                }
            }
            if old.uuids != node.uuids {
                other_gpus.push(name);
            }
        }
        let lost = before.keys().copied().filter(|name| !now.contains(name));
        let lost_nodes = names::fold(lost);
        let [verdicts, appeared, gone, facts] = lists.map(|list| {
            list.into_iter()
                .map(|(key, nodes)| (key, names::fold(nodes)))
                .collect()
        });
        Changes {
            since: self.made_at.clone(),
            verdicts,
            appeared,
            gone,
            facts,
            other_gpus: names::fold(other_gpus),
            new_nodes: names::fold(new_nodes),
            lost_nodes,
        }
    }
}

fn add<'a>(list: &mut BTreeMap<String, Vec<&'a str>>, key: String, node: &'a str) {
    list.entry(key).or_default().push(node);
}
