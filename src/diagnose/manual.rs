//! Writes the manual of the rules as files. docs/rules contains the output of this module, and a test checks that.

use super::rule::{Parameter, Rule};
use super::rules;

/// Returns the manual page of a rule in Markdown, as `explain` prints it below its first line.
pub fn page(rule: &Rule) -> String {
    let mut page = format!("{}\n", rule.page().trim_end());
    if !rule.parameters.is_empty() {
        page.push_str("\n# Parameters\n\n");
        for Parameter { name, default, about, .. } in rule.parameters {
            page.push_str(&format!("- `{name}` = {default}:{about}\n"));
        }
    }
    page
}

/// Returns the output of `explain` for a rule; `None` if no rule has this code.
pub fn explain(code: &str) -> Option<String> {
    let rule = rules::find(&code.to_lowercase())?;
    Some(format!("{} (usually {})\n\n{}", rule.id, rule.severity, page(rule)))
}

#[cfg(test)]
#[path = "manual_tests.rs"]
pub(crate) mod pages;
