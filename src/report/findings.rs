//! The top of a page: what stands out, worst first, and why some of it could not be measured.

use std::collections::BTreeMap;

use super::evidence;
use super::figures::count;
use super::highlight::paint;
use super::page::{Page, Paint};
use crate::model::finding::{Finding, RuleId, Severity, Subject};
use crate::model::measurement::{Measurements, Status};
use crate::model::placement::Pair;
use crate::model::report::Report;
use crate::model::snapshot::Snapshot;
use crate::topology::pcie;

/// Findings of one rule that are shown in full; the rest is listed by subject.
const SHOWN_PER_RULE: usize = 3;

/// Reasons for missing measurements that are shown.
const SHOWN_REASONS: usize = 6;

/// Effects of a cause that are spelt out; the JSON report has them all.
const SHOWN_EFFECTS: usize = 3;

/// Says at the very top when the machine is not a real one. Every format of text begins so.
pub(super) fn simulated(page: &mut Page, report: &Report) {
    if report.machine != "live" {
        let name = &report.machine;
        page.banner(&format!("SIMULATED machine {name}: no figure below comes from real hardware"));
    }
}

/// Says so when the run did not come to its end.
pub(super) fn interrupted(page: &mut Page, report: &Report) {
    if report.measurements.as_ref().is_some_and(|measurements| measurements.interrupted) {
        page.banner("INTERRUPTED: this report is partial and holds what was measured until then");
    }
    if report.measurements.as_ref().is_some_and(|measurements| measurements.cut_off) {
        page.banner("RECOVERED: the run was cut off, and this report holds what its journal has");
    }
}

/// Every finding, the worst first.
pub(super) fn write(page: &mut Page, report: &Report) {
    let mut findings: Vec<_> = report.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let mut seen: BTreeMap<(Severity, &RuleId), Vec<&Finding>> = BTreeMap::new();
    for finding in &findings {
        seen.entry((finding.severity, &finding.code)).or_default().push(finding);
    }
    let mut done: Vec<(Severity, &RuleId)> = Vec::new();
    for finding in findings {
        let key = (finding.severity, &finding.code);
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let alike = seen.remove(&key).unwrap_or_default();
        // One more than the limit takes no more room in full than in a list.
        let shown = if page.verbose() || alike.len() <= SHOWN_PER_RULE + 1 { alike.len() } else { SHOWN_PER_RULE };
        for finding in &alike[..shown] {
            finding_in_full(page, finding, &report.snapshot);
        }
        if shown < alike.len() {
            let subjects: Vec<_> = alike[shown..].iter().map(|finding| finding.subject.to_string()).collect();
            let text = format!("{} more like this: {} [{}]", subjects.len(), subjects.join(", "), finding.code);
            page.finding(label(finding.severity), &text, Vec::new());
        }
    }
}

fn finding_in_full(page: &mut Page, finding: &Finding, snapshot: &Snapshot) {
    let text = match subject(finding, snapshot) {
        Some(subject) => format!("{subject}: {} [{}]", finding.message, finding.code),
        None => format!("{} [{}]", finding.message, finding.code),
    };
    let mut below: Vec<(&'static str, String)> = Vec::new();
    // Where no more than the subject is known, the message has said it.
    if !finding.location.is_empty() && finding.location != finding.subject.to_string() {
        below.push(("where", finding.location.clone()));
    }
    below.push(("seen", evidence::text(finding)));
    let effects = evidence::effects(finding);
    let shown = if page.verbose() || effects.len() <= SHOWN_EFFECTS + 1 { effects.len() } else { SHOWN_EFFECTS };
    below.extend(effects[..shown].iter().map(|effect| ("explains", effect.to_string())));
    if shown < effects.len() {
        below.push(("explains", format!("{} more, all in the JSON report", effects.len() - shown)));
    }
    let suspects = finding.suspects.iter();
    below.extend(suspects.map(|suspect| ("suspect", format!("{}. Test: {}", suspect.cause, suspect.test))));
    below.push(("do", finding.next_step.clone()));
    page.finding(label(finding.severity), &text, below);
}

/// The subject and its place, where the message does not name it by itself.
pub(super) fn subject(finding: &Finding, snapshot: &Snapshot) -> Option<String> {
    let gpus = match finding.subject {
        Subject::Machine | Subject::PcieLink { .. } => return None,
        Subject::Gpu { index } | Subject::Link { index, .. } => vec![index],
        Subject::Pair(Pair { source, destination }) => vec![source, destination],
    };
    if gpus.iter().all(|index| names(&finding.message, *index)) {
        return None;
    }
    Some(match place(&finding.subject, snapshot) {
        Some(place) => format!("{} ({place})", finding.subject),
        None => finding.subject.to_string(),
    })
}

/// Whether a sentence names this GPU: "GPU 10" is not GPU 1.
fn names(sentence: &str, gpu: u32) -> bool {
    let name = format!("GPU {gpu}");
    sentence.split(&name).skip(1).any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

const fn label(severity: Severity) -> (&'static str, Paint) {
    let word = match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "ERROR",
    };
    (word, paint(severity))
}

/// Where the subject is found in the chassis: PCI address, and slot where the firmware names it.
fn place(subject: &Subject, snapshot: &Snapshot) -> Option<String> {
    let of = |index: u32| {
        let address = *snapshot.gpu(index)?.pci.known()?;
        Some(match pcie::slot(snapshot, address) {
            Some(slot) => format!("{address}, slot {slot}"),
            None => address.to_string(),
        })
    };
    match *subject {
        Subject::Machine => None,
        Subject::PcieLink { address } => Some(address.to_string()),
        Subject::Gpu { index } | Subject::Link { index, .. } => of(index),
        Subject::Pair(Pair { source, destination }) => {
            let address = |index: u32| snapshot.gpu(index)?.pci.get();
            Some(format!("{} → {}", address(source)?, address(destination)?))
        }
    }
}

/// Why CUDA or single GPUs could not be used, what else went wrong, and which measurements have no
/// figure, by reason.
pub(super) fn trouble(page: &mut Page, report: &Report) {
    let mut lines: Vec<(String, String)> = Vec::new();
    let none = Measurements::default();
    let measurements = report.measurements.as_ref().unwrap_or(&none);
    let driver = &measurements.driver;
    lines.extend(driver.failure.iter().map(|why| ("CUDA".into(), format!("could not be used: {why}"))));
    lines.extend(driver.kernels_failure.iter().map(|why| ("kernels".into(), format!("could not be loaded: {why}"))));
    for device in &driver.devices {
        lines.extend(device.failure.iter().map(|why| (format!("GPU {}", device.index), format!("not tested: {why}"))));
    }
    lines.extend(report.snapshot.problems.iter().map(|problem| ("facts".into(), problem.clone())));
    lines.extend(measurements.problems.iter().map(|problem| ("run".into(), problem.clone())));
    lines.extend(measurements.left_out.iter().map(|what| ("plan".into(), what.clone())));
    let missing = missing(measurements);
    let shown = if page.verbose() { missing.len() } else { SHOWN_REASONS };
    lines.extend(missing.iter().take(shown).cloned());
    if missing.len() > shown {
        let rest = count(missing.len() - shown, "more reason");
        lines.push(("...".into(), format!("{rest}, all in the JSON report")));
    }
    if lines.is_empty() {
        return;
    }
    page.heading("Not tested, or not as planned");
    let hang = lines.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0).min(20) + 4;
    for (label, text) in lines {
        page.item(2, hang, &label, Paint::Plain, &text);
    }
}

/// Measurements without a figure, by status and reason, with the pairs they concern.
fn missing(measurements: &Measurements) -> Vec<(String, String)> {
    let peer = measurements.peer.iter().map(|peer| (peer.status, &peer.reason, peer.pair));
    let overlap = measurements.overlap.iter().map(|overlap| (overlap.status, &overlap.reason, overlap.pair));
    let latency = measurements.latency.iter().map(|latency| (latency.status, &latency.reason, latency.pair));
    let mut groups: BTreeMap<(u8, &str), (usize, Vec<Pair>)> = BTreeMap::new();
    let mut all: Vec<Pair> = Vec::new();
    for (status, reason, pair) in peer.chain(overlap).chain(latency) {
        all.push(pair);
        let rank = match status {
            Status::Measured => continue,
            Status::Hung => 0,
            Status::Failed => 1,
            Status::Skipped => 2,
        };
        let (number, pairs) = groups.entry((rank, reason.as_deref().unwrap_or("no reason given"))).or_default();
        *number += 1;
        pairs.push(pair);
    }
    all.sort_unstable();
    all.dedup();
    let word = ["hung", "failed", "skipped"];
    let line = |((rank, reason), (number, mut pairs)): ((u8, &str), (usize, Vec<Pair>))| {
        pairs.sort_unstable();
        pairs.dedup();
        let pairs = if pairs.len() == all.len() && all.len() > 2 { "all pairs".to_owned() } else { list(&pairs) };
        (format!("{number} {}", word[usize::from(rank)]), format!("{reason} ({pairs})"))
    };
    groups.into_iter().map(line).collect()
}

/// `2→5, 5→2`, and how many more.
fn list(pairs: &[Pair]) -> String {
    const SHOWN: usize = 8;
    let mut shown: Vec<_> =
        pairs.iter().take(SHOWN).map(|pair| format!("{}→{}", pair.source, pair.destination)).collect();
    if pairs.len() > SHOWN {
        shown.push(format!("{} more", pairs.len() - SHOWN));
    }
    format!("GPU {}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_sentence_about_gpu_10_does_not_name_gpu_1() {
        for (sentence, gpu, named) in [
            ("GPU 10 is slow", 1, false),
            ("GPU 10 is slow", 10, true),
            ("from GPU 10 to GPU 1", 1, true),
            ("GPU 1: slow", 1, true),
            ("GPU 11, GPU 1 and GPU 12", 1, true),
            ("slow", 1, false),
        ] {
            assert_eq!(names(sentence, gpu), named, "{sentence}, {gpu}");
        }
    }
}
