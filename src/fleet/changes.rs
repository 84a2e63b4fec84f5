//! Differences from an earlier fleet file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::digest::word;
use super::inventory::RACK;
use super::model::{Changes, Node, SCHEMA};
use super::names;
use super::summary::{Method, Metric};
use diagnose::figures::{Allowances, Figure, compare};
use diagnose::kind::Kind;
use model::flow::Setup;
use model::machine_facts::differences;
use model::measurement::Probe;
use model::report::Conclusion;
use report::files;

/// The compared part of an earlier fleet file.
#[derive(Debug, Deserialize)]
pub struct Earlier {
    schema: String,
    made_at: String,
    #[serde(default)]
    kinds: Vec<Metric>,
    nodes: Vec<EarlierNode>,
}

#[derive(Debug, Deserialize)]
struct EarlierNode {
    node: String,
    verdict: Conclusion,
    facts: BTreeMap<String, String>,
    uuids: Vec<String>,
    findings: Vec<EarlierFinding>,
    #[serde(default)]
    worst: BTreeMap<usize, f64>,
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
        let text = files::file(path).map_err(|why| format!("cannot read {name}: {why}"))?;
        let earlier: Self = serde_json::from_slice(&text).map_err(|why| {
            format!("{name} is not what 'peerscope fleet -o fleet.json' writes: {why}")
        })?;
        match earlier.schema.as_str() {
            SCHEMA => Ok(earlier),
            _ => Err(format!("{name} is no fleet file of this version, which reads {SCHEMA}")),
        }
    }

    /// Returns the differences from now.
    pub fn changes(&self, nodes: &[Node], kinds: &[Metric]) -> Changes {
        let before: BTreeMap<&str, &EarlierNode> =
            self.nodes.iter().map(|node| (node.node.as_str(), node)).collect();
        let now: BTreeSet<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
        let mut lists: [BTreeMap<String, Vec<&str>>; 5] = Default::default();
        let [verdicts, appeared, gone, facts, figures] = &mut lists;
        let allowed = Allowances::default();
        let (mut other_gpus, mut new_nodes) = (Vec::new(), Vec::new());
        for node in nodes {
            let name = node.node.as_str();
            let Some(old) = before.get(name) else {
                new_nodes.push(name);
                continue;
            };
            if old.verdict != node.verdict {
                add(verdicts, format!("{} to {}", word(old.verdict), word(node.verdict)), name);
            }
            let had: BTreeSet<&str> =
                old.findings.iter().map(|finding| finding.code.as_str()).collect();
            let has: BTreeSet<&str> =
                node.findings.iter().map(|finding| finding.code.as_str()).collect();
            has.difference(&had).for_each(|code| add(appeared, (*code).to_owned(), name));
            had.difference(&has).for_each(|code| add(gone, (*code).to_owned(), name));
            let changed = differences(&old.facts, &node.facts);
            for (key, was, value) in changed.filter(|(key, ..)| *key != RACK) {
                add(facts, format!("{key}: {was} to {value}"), name);
            }
            let then = table(&self.kinds, &old.worst);
            for figure in compare(&then, &table(kinds, &node.worst)) {
                for (word, is) in
                    [("worse", figure.is_worse(&allowed)), ("better", figure.is_better(&allowed))]
                {
                    if is {
                        add(figures, format!("{word}: {}", figure.identity), name);
                    }
                }
            }
            if old.uuids != node.uuids {
                other_gpus.push(name);
            }
        }
        let lost = before.keys().copied().filter(|name| !now.contains(name));
        let lost_nodes = names::fold(lost);
        let [verdicts, appeared, gone, facts, figures] = lists
            .map(|list| list.into_iter().map(|(key, nodes)| (key, names::fold(nodes))).collect());
        Changes {
            since: self.made_at.clone(),
            verdicts,
            appeared,
            gone,
            facts,
            figures,
            other_gpus: names::fold(other_gpus),
            new_nodes: names::fold(new_nodes),
            lost_nodes,
        }
    }
}

/// Returns the worst figures of a node by kind, without shares.
fn table(
    kinds: &[Metric],
    worst: &BTreeMap<usize, f64>,
) -> BTreeMap<(Metric, Kind), Option<Figure>> {
    let figure = |(number, value): (&usize, &f64)| {
        let kind = kinds.get(*number)?;
        let figure = Figure { value: *value, spread_percent: 0.0, bytes: 0 };
        Some(((kind.clone(), judged_as(kind)?), Some(figure)))
    };
    worst.iter().filter_map(figure).collect()
}

/// Returns the kind by whose allowance a figure is compared. `None` if it is a share, which has none.
fn judged_as(metric: &Metric) -> Option<Kind> {
    let what = &metric.what;
    let rate = |probe| Kind::of_rate(probe, what.setup());
    let time = |probe| Kind::of_time(probe, what.setup());
    Some(match what {
        Method::Peer { path, direction, engine, issuer } => Kind::of_pair(
            Setup::REFERENCE
                .with_path(*path)
                .with_direction(*direction)
                .with_engine(*engine)
                .with_issuer(*issuer),
        ),
        Method::Latency { .. } => time(Probe::Latency),
        Method::Live { .. } => time(Probe::Live),
        Method::Chase { .. } => time(Probe::Chase),
        Method::Local => rate(Probe::Local),
        Method::Load(_) => rate(Probe::Load),
        Method::Host(_) => {
            let (way, at_once) = what.host_way()?;
            Kind::of_host(way, at_once)
        }
        Method::Counted(_) | Method::LeastLink(_) | Method::SlowestLink => return None,
    })
}

fn add<'a>(list: &mut BTreeMap<String, Vec<&'a str>>, key: String, node: &'a str) {
    list.entry(key).or_default().push(node);
}

#[cfg(test)]
mod tests {
    use super::super::sources::Gathered;
    use super::super::testing::{assessed, fleet_of, slow};
    use super::*;

    #[test]
    fn facts_and_figures_that_differ_name_their_nodes() {
        fn set(gathered: &mut Gathered, ecc: &str) {
            let facts = &mut gathered.digests[4].summary.facts;
            facts.insert("ecc".to_owned(), ecc.to_owned());
        }
        let fleet = |change: fn(&mut Gathered)| {
            let mut gathered = Gathered { digests: fleet_of(6), ..Gathered::default() };
            change(&mut gathered);
            assessed(&gathered)
        };
        let text = serde_json::to_vec(&fleet(|gathered| set(gathered, "on"))).unwrap();
        let earlier: Earlier = serde_json::from_slice(&text).unwrap();
        let now = fleet(|gathered| {
            set(gathered, "off");
            slow(&mut gathered.digests[2], 3, 0.9);
        });
        let changes = earlier.changes(&now.nodes, &now.kinds);
        let fact = BTreeMap::from([("ecc: on to off".to_owned(), "node004".to_owned())]);
        assert_eq!(changes.facts, fact);
        let of_pairs = |figure: &String| figure.starts_with("worse: NV18 copies (");
        assert!(changes.figures.keys().any(of_pairs), "{changes:?}");
        for (figure, nodes) in &changes.figures {
            assert!(figure.starts_with("worse: "), "{figure}");
            assert_eq!(nodes, "node002", "{figure}");
        }
        // A file of a version without figures is read as well.
        let mut older: serde_json::Value = serde_json::from_slice(&text).unwrap();
        older.as_object_mut().unwrap().remove("kinds");
        let older: Earlier = serde_json::from_value(older).unwrap();
        assert_eq!(older.changes(&now.nodes, &now.kinds).figures, BTreeMap::new());
    }
}
