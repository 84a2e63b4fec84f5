//! The files of docs/rules.

use super::page;
use crate::expected;
use crate::rule::Rule;
use crate::rules::ALL;
use model::rounding::{one_place, range, short};

/// Returns every file of docs/rules, with its name.
pub(crate) fn files() -> Vec<(String, String)> {
    let mut files: Vec<_> = ALL
        .iter()
        .map(|rule| {
            let title = format!("# {} ({})\n\n", rule.id, rule.severity);
            (
                format!("{}.md", rule.id),
                title + &page(rule).replace("\n# ", "\n## ").replacen("# ", "## ", 1),
            )
        })
        .collect();
    files.push(("README.md".into(), index()));
    files
}

/// Returns the source of a row of the tables: the comment above its key.
pub(crate) fn source_of(key: &str) -> String {
    let tables =
        [include_str!("expected.rs"), include_str!("expected_pcie.rs"), include_str!("models.rs")];
    let key = format!("\"{key}\",");
    let places = tables.iter().filter_map(|table| {
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        let at = lines
            .iter()
            .position(|line| line.strip_prefix('(').unwrap_or(line).starts_with(&key))?;
        let above = lines.get(..at)?.iter().rev();
        let comment = above.map_while(|line| line.strip_prefix("// "));
        Some(comment.collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(" "))
    });
    places.collect()
}

fn index() -> String {
    let mut text = String::from(
        "# Rules\n\nOne page for each problem that peerscope reports; `peerscope explain CODE` prints it. \
         `scripts/goldens` writes the pages from the doc comments of src/diagnose/rules.\n\n\
         | code | severity | what it means |\n|---|---|---|\n",
    );
    for rule in ALL {
        let Rule { id, severity, .. } = rule;
        text.push_str(&format!("| [{id}]({id}.md) | {severity} | {} |\n", rule.summary()));
    }
    text.push_str(
        "\n## What healthy machines reach\n\n\
         A share of the theoretical rate, which is the payload rate of the narrowest link of the route. A rate that is \
         lower by more than the margin is a finding (`peer-bandwidth-low`, `staged-slow`). Pairs of a listed model \
         have its row instead of that of their links, unless `--config` sets the latter; a copy of theirs may take \
         5 us beside its bytes. Copies by kernel and both ways reach a share of these rates (src/diagnose/expected.rs).\n\n\
         | class or model | % of theoretical | margin, % of that | healthy machines were seen at, % | source |\n\
         |---|---|---|---|---|\n",
    );
    for row in expected::rows() {
        let expected::Share { percent, margin_percent } = row.share;
        let (percent, margin_percent) = (one_place(percent), one_place(margin_percent));
        let reached = row.reached.map_or("-".into(), |[low, high]| range(low, high, short, " to "));
        text.push_str(&format!(
            "| `{}` | {percent} | {margin_percent} | {reached} | {} |\n",
            row.key,
            source_of(row.key)
        ));
    }
    text.push_str(
        "\n## Setting severities and figures\n\nA TOML file given by `--config`; unknown keys are refused.\n\n```toml\n[severity]\n\
         # info, warning or error: the severity of all its findings, and the most that they raise a root cause to\n\
         # off: not applied, symptoms are reported by themselves; refused for rules on what was not tested\n\
         placement-serialises = \"off\"\n\n[parameters.peer-copy-uneven]\nfloor_copy_percent = 60\n\n\
         [expected.nvlink-4]\npercent = 88\nmargin_percent = 5\n```\n",
    );
    text
}
