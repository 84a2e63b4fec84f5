//! A comparison of two reports, for people and for scripts.

use super::digest::{Caveat, Digest};
use super::figures::count;
use super::format::Style;
use super::page::{Page, Paint};
use super::text::lay_out;
use super::{findings, partial};
use crate::diagnose::compare::Comparison;
use crate::model::report::{Conclusion, Report};

/// For people: the conclusion, what is worse, what is different, and findings that are new or gone.
pub fn text(comparison: &Comparison, [old, new]: [&Report; 2], style: &Style) -> String {
    let mut page = Page::new(style.verbose);
    if let Some(simulated) = Digest::of(new).caveats.get(&Caveat::Simulated) {
        page.banner(simulated);
    }
    let mut missing = "nothing is missing";
    for (when, report) in [("then", old), ("now", new)] {
        let chosen = partial::chosen(report);
        if !chosen.is_empty() {
            page.banner(&format!("PARTIAL {when}: {}", chosen.join("; ")));
            missing = "nothing of what both looked at is missing";
        }
    }
    let no_worse = format!("no figure fell by more than its noise, and {missing}");
    let (word, paint, said) = match comparison.verdict.verdict {
        Conclusion::Healthy => ("no worse:", Paint::Good, no_worse.as_str()),
        Conclusion::Faulty => ("WORSE:", Paint::Error, "something is worse than in the earlier report"),
        Conclusion::Inconclusive => ("inconclusive:", Paint::Warning, "not all of it could be compared"),
    };
    let figures = count(comparison.compared, "figure");
    let missing = match comparison.not_compared {
        0 => String::new(),
        missing => format!(", {missing} from the earlier report not measured again"),
    };
    page.verdict(word.trim_end_matches(':'), paint, &format!("{said}; {figures} compared{missing}"));
    let side =
        |name: &str, side: &crate::diagnose::compare::Side| format!("{name} {} ({})", side.started_at, side.machine);
    page.line(Paint::Faint, &format!("{}, {}", side("then", &comparison.old), side("now", &comparison.new)));
    let shown = Report { findings: comparison.findings.clone(), ..new.clone() };
    findings::write(&mut page, &shown);
    for (heading, list) in [("New findings", &comparison.appeared), ("Findings that are gone", &comparison.gone)] {
        if !list.is_empty() {
            page.heading(heading);
            for finding in list {
                page.note(Paint::Plain, &format!("{}: {} [{}]", finding.severity, finding.message, finding.code));
            }
        }
    }
    lay_out(&page, style)
}

/// For scripts.
pub fn json(comparison: &Comparison) -> String {
    super::json::tidy(comparison)
}
