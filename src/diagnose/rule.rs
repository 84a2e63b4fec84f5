//! What a rule is, and what it may look at.

use std::collections::BTreeMap;

use serde_json::Value;

use super::expected::{self, Expectation};
use super::settings::{Parameter, Settings};
use crate::model::finding::{Finding, Severity, Subject};
use crate::model::measurement::{Measurements, PeerBandwidth};
use crate::model::placement::{Pair, Path};
use crate::model::snapshot::Snapshot;
use crate::model::topology::Topology;

/// Everything that a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The facts.
    pub snapshot: &'a Snapshot,
    /// The graph and the routes, CUDA's word on peer access included where it was asked.
    pub topology: &'a Topology,
    /// The figures; none where nothing was to be measured.
    pub measurements: Option<&'a Measurements>,
    /// What the user set.
    pub settings: &'a Settings,
}

impl<'a> Evidence<'a> {
    /// The figure that a pair is judged by: copy engine, issued by the source, one way, reference
    /// placement, and of several sizes the largest.
    pub fn reference(&self, path: Path) -> BTreeMap<Pair, &'a PeerBandwidth> {
        self.measurements.map(|measurements| measurements.reference(path)).unwrap_or_default()
    }

    /// What a cell is expected to reach; `None` where its theoretical rate is not known.
    pub fn expected(&self, cell: &PeerBandwidth) -> Option<Expectation> {
        expected::of(cell, self.topology, self.snapshot, self.settings)
    }

    /// The value of a rule's parameter: what the user set, or its default.
    pub fn parameter(&self, rule: &dyn Rule, name: &str) -> f64 {
        let own = || rule.parameters().iter().find(|parameter| parameter.name == name).map(|own| own.default);
        // A test asks every rule for its parameters by name.
        self.settings.parameter(rule.code(), name).or_else(own).unwrap_or(f64::NAN)
    }

    /// Whether this is known to be a virtual machine.
    pub fn virtual_machine(&self) -> bool {
        self.snapshot.host.virtual_machine.get() == Some(true)
    }
}

/// One thing that can be wrong. Its file's doc comment is its manual page.
pub trait Rule: Sync {
    /// Its code: kebab-case, names the problem, never used again for another.
    fn code(&self) -> &'static str;

    /// How bad its findings are, where a finding has no reason to be otherwise.
    fn severity(&self) -> Severity;

    /// The figures it judges by, which a user may set.
    fn parameters(&self) -> &'static [Parameter] {
        &[]
    }

    /// Its own file, through `include_str!`: the manual page is kept nowhere else.
    fn source(&self) -> &'static str;

    /// What it finds.
    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Finding>;

    /// What it means, in one sentence: the first of its manual page.
    fn summary(&self) -> String {
        let page = self.page();
        let text: Vec<_> = page.lines().skip_while(|line| line.starts_with('#') || line.is_empty()).collect();
        let paragraph: Vec<_> = text.into_iter().take_while(|line| !line.is_empty()).collect();
        let paragraph = paragraph.join(" ");
        paragraph.split_once(". ").map_or(paragraph.clone(), |(sentence, _)| format!("{sentence}."))
    }

    /// Its manual page, in Markdown.
    fn page(&self) -> String {
        let doc = self.source().lines().map_while(|line| line.strip_prefix("//!"));
        let lines: Vec<_> = doc.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        lines.join("\n")
    }
}

/// A finding of this rule with its own severity; [`Finding`]'s other fields as given.
pub fn finding<const N: usize>(
    rule: &dyn Rule,
    subject: Subject,
    message: String,
    evidence: [(&str, Value); N],
    next_step: impl Into<String>,
) -> Finding {
    Finding {
        code: rule.code().to_owned(),
        severity: rule.severity(),
        subject,
        message,
        evidence: evidence
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        next_step: next_step.into(),
        location: String::new(),
        suspects: Vec::new(),
    }
}
