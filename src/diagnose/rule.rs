//! What a rule is.

use super::evidence::Evidence;
use model::finding::{Finding, RuleId, Severity, Subject};

/// What a rule finds in the evidence.
type Judge = fn(&Evidence<'_>) -> Vec<Finding>;

/// One thing that can be wrong. A rule is one file; its doc comment is its manual page.
#[derive(Debug)]
pub struct Rule {
    /// Its identifier: kebab-case, names the problem, never used again for another.
    pub id: RuleId,
    /// How bad its findings are, where a finding has no reason to be otherwise.
    pub severity: Severity,
    /// The figures it judges by, which a user may set.
    pub parameters: &'static [Parameter],
    /// Whether its findings say that something was not tested. That has an exit code of its own and is
    /// no fault of the machine, whatever severity it is shown with.
    pub gap: bool,
    /// Its own file, through `include_str!`: the `//!` lines at its top are the manual page, which is kept nowhere else.
    pub source: &'static str,
    pub judge: Judge,
}

/// A figure that a rule judges by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// Its name, with the unit at its end.
    pub name: &'static str,
    /// Its value where nobody set another.
    pub default: f64,
    /// What it means, and where the default comes from.
    pub about: &'static str,
}

impl Rule {
    /// A rule without parameters, whose findings are about the machine.
    pub const fn new(
        code: &'static str,
        severity: Severity,
        source: &'static str,
        judge: Judge,
    ) -> Self {
        Self {
            id: RuleId::new(code),
            severity,
            parameters: &[],
            gap: false,
            source,
            judge,
        }
    }

    /// The same with these parameters.
    pub const fn with(mut self, parameters: &'static [Parameter]) -> Self {
        self.parameters = parameters;
        self
    }

    /// The same, but its findings say that something was not tested.
    pub const fn for_gaps(mut self) -> Self {
        self.gap = true;
        self
    }

    /// A finding of this rule with its own severity.
    pub fn finding(
        &self,
        subject: Subject,
        message: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Finding {
        Finding::new(self.id.clone(), self.severity, subject, message, next_step)
    }

    /// The value of one of its parameters: what the user set, or its default.
    pub fn parameter(&self, evidence: &Evidence<'_>, parameter: &Parameter) -> f64 {
        evidence
            .settings
            .parameter(&self.id, parameter.name)
            .unwrap_or(parameter.default)
    }

    /// What it means, in one sentence: the first of its manual page.
    pub fn summary(&self) -> String {
        let page = self.page();
        let text: Vec<_> = page
            .lines()
            .skip_while(|line| line.starts_with('#') || line.is_empty())
            .collect();
        let paragraph: Vec<_> = text
            .into_iter()
            .take_while(|line| !line.is_empty())
            .collect();
        let paragraph = paragraph.join(" ");
        paragraph
            .split_once(". ")
            .map_or(paragraph.clone(), |(sentence, _)| format!("{sentence}."))
    }

    /// Its manual page, in Markdown.
    pub fn page(&self) -> String {
        let doc = self
            .source
            .lines()
            .map_while(|line| line.strip_prefix("//!"));
        let lines: Vec<_> = doc
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect();
        lines.join("\n")
    }
}
