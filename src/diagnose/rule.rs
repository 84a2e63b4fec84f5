//! The definition of a rule.

use super::cluster::Group;
use super::evidence::Evidence;
use super::steps::Plan;
use model::finding::{Finding, RuleId, Severity, Subject};

/// The function that returns the findings of a rule on the evidence.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Judge {
    All(fn(&Evidence<'_>) -> Vec<Finding>),
    /// One at most.
    One(fn(&Evidence<'_>) -> Option<Finding>),
}

/// A fault or fact that can be reported. A rule is one file; its doc comment is its manual page.
#[derive(Debug)]
pub struct Rule {
    /// Its identifier: kebab-case, names the problem, never used again for another.
    pub id: RuleId,
    /// Severity of its findings, unless a finding has a reason for another.
    pub severity: Severity,
    /// The figures it judges by, which a user may set.
    pub parameters: &'static [Parameter],
    /// True if its findings report that something was not tested. This has its own exit code and is no fault of the
    /// machine, whatever its severity.
    pub gap: bool,
    /// Its own file, in [`crate::rules::ALL`]: the `//!` lines at its top are the manual page, which is stored nowhere else.
    pub source: &'static str,
    /// Heading of its list in docs/rules/README.md.
    pub(crate) topic: &'static str,
    judge: Judge,
}

/// A figure that a rule judges by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// The identifier of its rule.
    pub(crate) rule: &'static str,
    /// Its name, with the unit at its end.
    pub name: &'static str,
    /// Its value if the user set no other.
    pub default: f64,
    /// Its meaning, and the source of the default.
    pub about: &'static str,
}

impl Parameter {
    /// Returns its value: the user's setting, or its default.
    pub(crate) fn of(&self, evidence: &Evidence<'_>) -> f64 {
        evidence.settings.parameter(self.rule, self.name).unwrap_or(self.default)
    }

    /// Returns the margin that it is, per cent, or what the figures of this machine scatter by if that is more.
    pub(crate) fn margin(&self, evidence: &Evidence<'_>) -> f64 {
        self.of(evidence).max(evidence.scatter_percent())
    }
}

/// Defines `RULE` of a file: its code, its severity, the function that returns its findings, and the figures that it judges
/// by, each with its meaning and the source of its default above it.
macro_rules! rule {
    ($code:literal, $severity:ident, $judge:ident($function:ident) $(, $more:ident)?; $(
        $(#[doc = $about:literal])+
        $name:ident: $key:ident = $default:expr;
    )*) => {
        pub(crate) const RULE: Rule = Rule::new(
            $code,
            Severity::$severity,
            &[$($name),*],
            crate::rule::Judge::$judge($function),
        )$(.$more())?;
        $(const $name: crate::rule::Parameter = crate::rule::Parameter {
            rule: $code,
            name: stringify!($key),
            default: $default,
            about: concat!($($about),+),
        };)*
    };
}
pub(crate) use rule;

impl Rule {
    pub(crate) const fn new(
        code: &'static str,
        severity: Severity,
        parameters: &'static [Parameter],
        judge: Judge,
    ) -> Self {
        Self {
            id: RuleId::new(code),
            severity,
            parameters,
            gap: false,
            source: "",
            topic: "",
            judge,
        }
    }

    /// Returns the rule with findings that report that something was not tested.
    pub(crate) const fn for_gaps(mut self) -> Self {
        self.gap = true;
        self
    }

    /// Returns the rule with its topic and its own file.
    pub(crate) const fn listed(mut self, topic: &'static str, source: &'static str) -> Self {
        (self.topic, self.source) = (topic, source);
        self
    }

    /// Returns its findings on the evidence.
    pub(crate) fn judge(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        match self.judge {
            Judge::All(judge) => judge(evidence),
            Judge::One(judge) => judge(evidence).into_iter().collect(),
        }
    }

    /// Returns a finding about the machine.
    pub(crate) fn on_machine(&self, message: impl Into<String>, plan: impl Into<Plan>) -> Finding {
        self.finding(Subject::Machine, message, plan)
    }

    /// Returns a finding about these GPUs.
    pub(crate) fn on_gpus(
        &self,
        gpus: &[u32],
        message: impl Into<String>,
        plan: impl Into<Plan>,
    ) -> Finding {
        self.finding(Subject::of_gpus(gpus), message, plan).gpus(gpus)
    }

    /// Returns a finding about these pairs.
    pub(crate) fn on_group(
        &self,
        group: &Group,
        message: impl Into<String>,
        plan: impl Into<Plan>,
    ) -> Finding {
        self.finding(group.subject(), message, plan).pairs(&group.pairs)
    }

    /// Returns a finding of this rule with its own severity.
    pub(crate) fn finding(
        &self,
        subject: Subject,
        message: impl Into<String>,
        plan: impl Into<Plan>,
    ) -> Finding {
        Finding::new(self.id.clone(), self.severity, subject, message, plan.into().into())
    }

    /// Returns its meaning in one sentence: the first of its manual page.
    pub fn summary(&self) -> String {
        let page = self.page();
        let text: Vec<_> =
            page.lines().skip_while(|line| line.starts_with('#') || line.is_empty()).collect();
        let paragraph: Vec<_> = text.into_iter().take_while(|line| !line.is_empty()).collect();
        let paragraph = paragraph.join(" ");
        paragraph.split_once(". ").map_or(paragraph.clone(), |(sentence, _)| format!("{sentence}."))
    }

    /// Returns its manual page, in Markdown.
    pub fn page(&self) -> String {
        let doc = self.source.lines().map_while(|line| line.strip_prefix("//!"));
        let lines: Vec<_> = doc.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        lines.join("\n")
    }
}
