//! Findings as cards: what is wrong, what to do, the remaining causes with a test for each, and the evidence.

use maud::{Markup, html};

use super::super::declared::capital;
use super::super::digest::Digest;
use super::super::escape::clean;
use super::super::evidence;
use super::super::findings::{is_usual, part};
use super::super::page::GLUE;
use super::blocks::NEW_LINE;
use model::finding::{Finding, RuleId, Severity};
use model::snapshot::Snapshot;

/// Most findings of one rule that have a card each; the others are listed.
const SHOWN_PER_RULE: usize = 4;

/// Renders warnings and errors, worst first.
pub(super) fn write(digest: &Digest<'_>) -> Markup {
    section("Findings", &of(digest, false), &digest.report.snapshot)
}

/// Renders the information, which needs no action. What nearly every healthy machine gets is one line that unfolds.
pub(super) fn notes(digest: &Digest<'_>) -> Markup {
    let snapshot = &digest.report.snapshot;
    let (usual, own): (Vec<_>, Vec<_>) =
        of(digest, true).into_iter().partition(|finding| is_usual(finding));
    let mut codes: Vec<&str> = usual.iter().map(|finding| &*finding.code).collect();
    codes.dedup();
    html! {
        (section("Notes", &own, snapshot))
        @if !usual.is_empty() {
            (NEW_LINE) details .usual {
                summary { "As most machines have: " (clean(&codes.join(", "))) }
                @for finding in &usual { (NEW_LINE) (card(finding, snapshot)) }
            }
        }
    }
}

fn of<'a>(digest: &Digest<'a>, information: bool) -> Vec<&'a Finding> {
    let findings = digest.findings.iter().copied();
    findings.filter(|finding| (finding.severity == Severity::Info) == information).collect()
}

/// Renders findings below a heading, in their order. Renders nothing if there are none.
pub(super) fn section(title: &str, findings: &[&Finding], snapshot: &Snapshot) -> Markup {
    let mut groups: Vec<((Severity, &RuleId), Vec<&Finding>)> = Vec::new();
    for &finding in findings {
        let key = (finding.severity, &finding.code);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, alike)) => alike.push(finding),
            None => groups.push((key, vec![finding])),
        }
    }
    html! {
        @if !groups.is_empty() {
            (NEW_LINE) section .findings aria-label=(title) {
                h2 { (title) }
                div .cards {
                    @for (_, alike) in &groups {
                        @let (shown, rest) = alike.split_at(alike.len().min(SHOWN_PER_RULE));
                        @for finding in shown { (NEW_LINE) (card(finding, snapshot)) }
                        @if !rest.is_empty() { (more(rest)) }
                    }
                }
            }
        }
    }
}

const fn word(severity: Severity) -> (&'static str, &'static str, &'static str) {
    match severity {
        Severity::Error => ("error", "✖", "Error"),
        Severity::Warning => ("warning", "▲", "Warning"),
        Severity::Info => ("info", "ℹ", "Note"),
    }
}

/// Renders a card; information is folded to its sentence.
fn card(finding: &Finding, snapshot: &Snapshot) -> Markup {
    let (class, sign, name) = word(finding.severity);
    // A report from elsewhere may have any address.
    let url = Some(clean(&finding.help_url));
    let url = url.filter(|url| url.starts_with("https://") || !url.contains(':'));
    let title = html! {
        span .badge { span aria-hidden="true" { (sign) } " " (name) }
        " " (clean(finding.short())) " " a href=[url] { code { (clean(&finding.code)) } }
    };
    html! {
        @if finding.severity == Severity::Info {
            details .finding.(class) { summary { (title) } (inside(finding, snapshot)) }
        } @else {
            article .finding.(class) { h3 { (title) } (inside(finding, snapshot)) }
        }
    }
}

/// Renders what to do and the part; the causes and the evidence unfold.
fn inside(finding: &Finding, snapshot: &Snapshot) -> Markup {
    let mut seen = evidence::sentences(finding);
    // The title has the short sentence.
    seen.splice(..0, finding.message.split_once("; ").map(|(_, rest)| capital(rest)));
    let (stages, part) = (finding.stages(), part(finding, snapshot));
    let place = (finding.location != finding.subject.to_string()).then_some(&finding.location);
    let place = place.filter(|text| !text.is_empty());
    let (first, later) =
        stages.split_first().map_or((None, &[][..]), |(one, rest)| (Some(one), rest));
    html! {
        @if let Some(first) = first {
            p .next { strong { "Do: " } (clean(first)) }
        }
        @if !part.is_empty() { p .where { (clean(&part)) } }
        @if !seen.is_empty() || !finding.suspects.is_empty() {
            details {
                summary { "What was seen" @if !later.is_empty() { ", and what to do next" } }
                ul {
                    @if let Some(place) = place { li { (clean(place)) } }
                    @for sentence in seen { li { (clean(&sentence)) } }
                }
                @if !later.is_empty() { ul .next { @for stage in later { li { (clean(stage)) } } } }
                (suspects(finding))
            }
        }
        (effects(finding))
    }
}

/// Returns the verdict and the findings as plain text for a ticket: what is wrong, the part, what to do, what was seen.
pub(super) fn ticket(digest: &Digest<'_>) -> String {
    let report = digest.report;
    let title = super::title(digest);
    let mut lines = vec![format!("{title}, {}", clean(&report.started_at))];
    lines.extend(digest.caveats.values().map(|caveat| clean(caveat).into_owned()));
    lines.push(clean(&format!("{} {}", digest.word(), digest.headline())).into_owned());
    for finding in of(digest, false) {
        let (_, _, word) = word(finding.severity);
        lines.push(format!("\n{word}: {} [{}]", clean(&finding.message), clean(&finding.code)));
        let part = part(finding, &report.snapshot);
        let below =
            [("part", part), ("do", finding.next_step.clone()), ("seen", evidence::text(finding))];
        let below = below.into_iter().filter(|(_, text)| !text.is_empty());
        lines.extend(below.map(|(label, text)| format!("{label}: {}", clean(&text))));
    }
    lines.join("\n").replace(GLUE, " ")
}

/// Renders the possible causes as a checklist.
fn suspects(finding: &Finding) -> Markup {
    html! {
        ul .suspects {
            @for suspect in &finding.suspects {
                li { label { input type="checkbox"; span { strong { (clean(&suspect.cause)) } " · " (clean(&suspect.test)) } } }
            }
        }
    }
}

fn effects(finding: &Finding) -> Markup {
    let effects = evidence::effects(finding);
    html! {
        @if !effects.is_empty() {
            details {
                summary { "Explains " (super::super::figures::count(effects.len(), "other finding")) }
                ul { @for effect in effects { li { (clean(&effect.to_string())) } } }
            }
        }
    }
}

fn more(rest: &[&Finding]) -> Markup {
    let (class, ..) = word(rest[0].severity);
    html! {
        details .finding.(class) {
            summary { (rest.len()) " more like this " code { (clean(&rest[0].code)) } }
            ul { @for finding in rest { li { (clean(&finding.message)) } } }
        }
    }
}
