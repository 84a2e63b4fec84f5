//! The report as a feature file of Kubernetes' Node Feature Discovery, which turns it into labels of a node.
//!
//! A file in /etc/kubernetes/node-feature-discovery/features.d: `name=value` in each line, comments after `#`. NFD
//! ignores a file after its expiry time, so that a node does not stay healthy for ever because nobody checks it.

use std::fmt::Write as _;

use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::format::{Format, Of, Style};
use model::finding::Severity;
use model::report::Conclusion;
use model::topology::LinkClass;

pub(super) const FORMAT: Format = Format {
    of: Of::One,
    ..Format::new("nfd", &["nfd"], "Labels of a Kubernetes node, for NFD", render)
};

/// Time for which a report makes labels, from the start of its run: two days, so that a daily check may be late.
/// Chosen.
const KEPT: Duration = Duration::hours(48);

/// Most characters of a label's value in Kubernetes.
const LONGEST: usize = 63;

fn render(digest: &Digest<'_>, _: &Style) -> String {
    let mut out = format!(
        "# Written by {} {}.\n",
        plain(&digest.report.tool.name),
        plain(&digest.report.tool.version)
    );
    for caveat in digest.caveats.values() {
        // Writing to a String cannot fail. A comment must not become a directive of NFD, which begins with `# +`.
        let _ = writeln!(out, "# Note: {}", clean(caveat));
    }
    let started = OffsetDateTime::parse(&digest.report.started_at, &Rfc3339).ok();
    let end = started
        .and_then(|started| started.checked_add(KEPT))
        .and_then(|end| end.format(&Rfc3339).ok());
    // A report without a valid start time counts as expired.
    let _ = writeln!(out, "# +expiry-time={}", end.as_deref().unwrap_or("1970-01-01T00:00:00Z"));
    for (name, value) in labels(digest) {
        let _ =
            writeln!(out, "feature.node.kubernetes.io/peerscope-{name}={}", value_of_label(&value));
    }
    out
}

fn labels(digest: &Digest<'_>) -> Vec<(&'static str, String)> {
    let report = digest.report;
    let verdict = match report.verdict.verdict {
        Conclusion::Healthy => "healthy",
        Conclusion::Faulty => "faulty",
        Conclusion::Inconclusive => "inconclusive",
    };
    let profile =
        report.measurements.as_ref().map_or("facts", |measurements| &measurements.profile);
    let worst = digest.findings.iter().find(|finding| finding.severity > Severity::Info);
    let mut labels = vec![
        ("verdict", verdict.to_owned()),
        ("profile", profile.to_owned()),
        ("gpus", report.snapshot.gpus.len().to_string()),
        ("links", links(digest)),
        ("finding", worst.map_or_else(|| "none".to_owned(), |finding| finding.code.to_string())),
    ];
    let caveats = Caveat::ALL.into_iter().filter(|caveat| digest.is(*caveat));
    labels.extend(caveats.map(|caveat| (caveat.word(), "true".to_owned())));
    labels
}

/// Returns the class of the links if all pairs share it, or `mixed`.
fn links(digest: &Digest<'_>) -> String {
    let mut classes: Vec<LinkClass> =
        digest.report.topology.pairs.iter().map(|route| route.class).collect();
    classes.sort_unstable();
    classes.dedup();
    match classes.as_slice() {
        [] => "none".to_owned(),
        [class] => class.to_string(),
        _ => "mixed".to_owned(),
    }
}

/// Returns a valid label value: letters, digits, `-`, `_` and `.`; a letter or digit at both ends; 63 at most.
fn value_of_label(text: &str) -> String {
    let kept: String = plain(text).chars().take(LONGEST).collect();
    kept.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// Replaces characters that a value may not contain with `_`.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::report::Report;

    fn written(report: &Report) -> String {
        render(&Digest::of(report), &Style::PLAIN)
    }

    #[test]
    fn every_line_is_a_comment_or_a_label_that_kubernetes_takes() {
        let mut odd = sample::hostile();
        odd.started_at = "yesterday\n# +no-label".into();
        for report in [sample::healthy(8), sample::pcie_box(), sample::unknown(0), odd] {
            for line in written(&report).lines() {
                if let Some(order) = line.strip_prefix("# +") {
                    assert!(order.starts_with("expiry-time="), "{line}");
                } else if !line.starts_with("# ") {
                    let (name, value) = line.split_once('=').unwrap();
                    assert!(name.starts_with("feature.node.kubernetes.io/peerscope-"), "{line}");
                    assert!(value.len() <= LONGEST && !value.is_empty(), "{line}");
                    assert!(
                        value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)),
                        "{line}"
                    );
                }
            }
        }
    }

    #[test]
    fn labels_follow_the_verdict_and_end_two_days_later() {
        let mut report = sample::healthy(8);
        report.started_at = "2026-11-20T03:00:00Z".into();
        let text = written(&report);
        for line in [
            "# +expiry-time=2026-11-22T03:00:00Z",
            "feature.node.kubernetes.io/peerscope-verdict=healthy",
            "feature.node.kubernetes.io/peerscope-links=NV18",
            "feature.node.kubernetes.io/peerscope-finding=none",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        assert!(!text.contains("peerscope-simulated"), "{text}");
        let text = written(&sample::pcie_box());
        assert!(
            text.contains("peerscope-verdict=faulty\n")
                && text.contains("peerscope-simulated=true\n"),
            "{text}"
        );
        assert!(text.contains("peerscope-links=mixed\n"), "{text}");
    }
}
