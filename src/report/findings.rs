//! The findings, worst first.

use std::cmp::Reverse;

use super::evidence;
use super::figures::by_key;
use super::highlight::paint;
use super::page::{Page, Paint};
use model::fact::Fact;
use model::finding::{Finding, RuleId, Severity, Subject};
use model::report::{Conclusion, Report};
use model::snapshot::Snapshot;
use model::step;
use topology::pcie;

/// Most findings of one rule that are shown in full; the rest is listed by subject.
const SHOWN_PER_RULE: usize = 3;

/// Most symptoms of a root cause that are listed; the JSON report contains all.
const SHOWN_EFFECTS: usize = 3;

/// Most parts that are identified below a finding; if there are more, none is.
const SHOWN_PARTS: usize = 2;

/// Findings of one rule and severity.
struct Alike<'a> {
    severity: Severity,
    code: &'a RuleId,
    findings: Vec<&'a Finding>,
}

impl Alike<'_> {
    fn is_usual(&self) -> bool {
        self.findings.iter().any(|finding| is_usual(finding))
    }
}

/// Returns how many of all to show: one more than the limit takes no more space in full than as a list.
fn shown(page: &Page, all: usize, most: usize) -> usize {
    if page.verbose() || all <= most + 1 { all } else { most }
}

/// Returns all findings, worst first, grouped by rule and severity.
fn by_rule(report: &Report) -> Vec<Alike<'_>> {
    let mut findings: Vec<_> = report.findings.iter().collect();
    findings.sort_by_key(|finding| Reverse(finding.severity));
    let groups = by_key(findings.into_iter().map(|one| ((one.severity, &one.code), one)));
    let alike = |((severity, code), findings)| Alike { severity, code, findings };
    groups.into_iter().map(alike).collect()
}

/// Writes every finding with all evidence, worst first; of those that most machines have, only the codes.
pub(super) fn write(page: &mut Page, report: &Report) {
    let (usual, others): (Vec<_>, Vec<_>) = by_rule(report).into_iter().partition(Alike::is_usual);
    these(page, report, others, in_full);
    let codes: Vec<String> = usual.iter().map(|alike| alike.code.to_string()).collect();
    if !codes.is_empty() {
        page.blank();
        let text = format!("as most machines have: {}", codes.join(", "));
        page.item(0, 9, "info", Paint::Plain, &text);
    }
}

/// Writes the warnings and errors, each as a sentence, what to do at once, and the part. Where nothing can be concluded, the
/// reasons matter: every finding has its whole message.
pub(super) fn in_short(page: &mut Page, report: &Report) {
    if report.verdict.verdict != Conclusion::Inconclusive {
        return these(page, report, worse(report), |page, finding, snapshot| {
            briefly(page, finding, finding.short(), snapshot);
        });
    }
    let mut all = by_rule(report);
    all.retain(|alike| !alike.is_usual());
    these(page, report, all, |page, finding, snapshot| {
        briefly(page, finding, &finding.message, snapshot);
    });
}

fn worse(report: &Report) -> Vec<Alike<'_>> {
    by_rule(report).into_iter().filter(|alike| alike.severity > Severity::Info).collect()
}

/// Rules whose information nearly every healthy machine gets.
const USUAL: [&str; 3] = ["host-memory-saturates", "load-limited-by-design", "pageable-slower"];

/// Returns true for information that nearly every healthy machine gets.
pub(super) fn is_usual(finding: &Finding) -> bool {
    finding.severity == Severity::Info && USUAL.iter().any(|code| *finding.code == **code)
}

fn these(
    page: &mut Page,
    report: &Report,
    all: Vec<Alike<'_>>,
    write: fn(&mut Page, &Finding, &Snapshot),
) {
    for Alike { severity, code, findings: alike } in all {
        if severity > Severity::Info {
            page.at_end(label(severity), code, alike.iter().map(|finding| finding.short()));
        }
        let (full, rest) = alike.split_at(shown(page, alike.len(), SHOWN_PER_RULE));
        for finding in full {
            write(page, finding, &report.snapshot);
        }
        if !rest.is_empty() {
            let subjects = rest.iter().map(|finding| match &finding.subject {
                Subject::Machine => None,
                subject => Some(subject.to_string()),
            });
            // A list of nothing but "machine" says nothing.
            let which = match subjects.collect::<Option<Vec<_>>>() {
                Some(subjects) => format!(": {}", subjects.join(", ")),
                None => ", which --format json lists".to_owned(),
            };
            let text = format!("{} more like this{which} [{code}]", rest.len());
            page.finding(label(severity), &text, Vec::new());
        }
    }
}

/// Writes a finding with the steps to take at once and its part.
fn briefly(page: &mut Page, finding: &Finding, sentence: &str, snapshot: &Snapshot) {
    let text = format!("{sentence} [{}]", finding.code);
    let parts = parts(finding, snapshot).into_iter().map(|part| ("part", printed(part)));
    let below = [("do", at_once(finding))].into_iter().chain(parts).collect();
    page.finding(label(finding.severity), &text, below);
}

/// Returns the steps to take at once.
pub fn at_once(finding: &Finding) -> String {
    match step::at_once(&finding.steps) {
        [] => finding.next_step.clone(),
        steps => step::sentences(steps),
    }
}

/// Returns the suspected part as it is printed on it; empty if there is none, or there are many.
pub fn part(finding: &Finding, snapshot: &Snapshot) -> String {
    parts(finding, snapshot).into_iter().map(printed).collect::<Vec<_>>().join("; ")
}

/// Removes the UUID where the serial number is known, which is what is printed on the part.
fn printed(part: String) -> String {
    match part.split_once(", UUID ") {
        Some((known, _)) if known.contains("serial ") => known.to_owned(),
        _ => part,
    }
}

fn in_full(page: &mut Page, finding: &Finding, snapshot: &Snapshot) {
    let text = format!("{} [{}]", finding.message, finding.code);
    // The next step comes first: the reader must see it without scrolling.
    let mut below = vec![("do", finding.next_step.clone())];
    // A location that only repeats the subject is already in the message.
    if !finding.location.is_empty() && finding.location != finding.subject.to_string() {
        below.push(("where", finding.location.clone()));
    }
    below.extend(parts(finding, snapshot).into_iter().map(|part| ("part", part)));
    below.push(("seen", evidence::text(finding)));
    let effects = finding.evidence.effects();
    let (listed, rest) = effects.split_at(shown(page, effects.len(), SHOWN_EFFECTS));
    below.extend(listed.iter().map(|effect| ("explains", effect.to_string())));
    if !rest.is_empty() {
        below.push(("explains", format!("{} more, all in the JSON report", rest.len())));
    }
    let suspects = finding.suspects.iter();
    below.extend(suspects.map(|of| ("suspect", format!("{}. Test: {}", of.cause, of.test))));
    page.finding(label(finding.severity), &text, below);
}

/// Returns the word for a severity, and its paint.
pub(super) const fn label(severity: Severity) -> (&'static str, Paint) {
    let word = match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "ERROR",
    };
    (word, paint(severity))
}

/// Identifies the suspected parts if they are few: model, slot and what is printed on them.
fn parts(finding: &Finding, snapshot: &Snapshot) -> Vec<String> {
    let of_finding = |name: &str| {
        let mut facts = finding.evidence.into_iter();
        facts.find_map(|(key, fact)| match fact {
            Fact::Gpus(gpus) if key == name => Some(gpus.clone()),
            _ => None,
        })
    };
    let gpus = match finding.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => vec![index],
        Subject::Pair(pair) => pair.gpus().to_vec(),
        Subject::PcieLink { .. } => of_finding("gpus_behind").unwrap_or_default(),
        // A few GPUs, such as both ends of a bridge.
        Subject::Machine => of_finding("gpus").unwrap_or_default(),
        Subject::PciFunction { .. } => Vec::new(),
    };
    if finding.severity == Severity::Info || gpus.len() > SHOWN_PARTS {
        return Vec::new();
    }
    gpus.into_iter().filter_map(|index| board(index, snapshot)).collect()
}

/// Returns `GPU 5: NVIDIA L40S, slot 6, 0000:44:00.0, serial 1560000000005, UUID GPU-…`; `None` if nothing is known that is
/// printed on it.
fn board(index: u32, snapshot: &Snapshot) -> Option<String> {
    let gpu = snapshot.gpu(index);
    let address = snapshot.address_of(index);
    let slot = address.and_then(|address| pcie::slot(snapshot, address));
    let known = [
        gpu.and_then(|gpu| gpu.name.known().cloned()),
        slot.map(|slot| format!("slot {slot}")),
        address.map(|address| address.to_string()),
        gpu.and_then(|gpu| Some(format!("serial {}", gpu.serial.known()?))),
        gpu.and_then(|gpu| Some(format!("UUID {}", gpu.uuid.known()?))),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    (!known.is_empty()).then(|| format!("GPU {index}: {}", known.join(", ")))
}
