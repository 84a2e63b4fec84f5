//! Compares two reports of the same machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::baseline::Beside;
use super::evidence::Evidence;
use super::figures::{Compared, Ends};
use super::judge::judge;
use super::kind::Kind;
use super::rule::Rule;
use super::rules::{
    baseline_not_compared, changed_since_baseline, counters_rose_since, fell_since_baseline,
};
use super::settings::Settings;
use super::verdict::{Terms, is_gap, verdict};
use model::finding::Finding;
use model::placement::{Pair, Path};
use model::report::{Report, Verdict};

/// Rules that read an earlier report. The others report on each report alone.
pub(crate) static OF_BOTH: [Rule; 4] = [
    fell_since_baseline::RULE,
    changed_since_baseline::RULE,
    baseline_not_compared::RULE,
    counters_rose_since::RULE,
];

/// Schema of the JSON form.
pub const SCHEMA: &str = "peerscope.comparison/1";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub schema: &'static str,
    pub old: ComparedReport,
    pub new: ComparedReport,
    /// True if no GPU of the earlier report is in the later one: the reports are of two machines.
    pub of_two_machines: bool,
    /// Figures that both reports have.
    pub compared: usize,
    /// Figures of the earlier report that the later one lacks.
    pub not_compared: usize,
    /// The reasons why, each with its number of figures.
    pub not_compared_because: Vec<String>,
    /// Figures of the later report, of GPUs in both, that the earlier one lacks.
    pub only_in_new: usize,
    /// Findings on what is worse, and what is different.
    pub findings: Vec<Finding>,
    /// Findings of today's rules in the later report and not in the earlier one.
    pub appeared: Vec<Finding>,
    /// Findings of today's rules in the earlier report and no longer in the later one.
    pub gone: Vec<Finding>,
    /// Rates of one-way copies of each pair in both reports. Not written: both reports have them.
    #[serde(skip)]
    pub pairs: Vec<Change>,
    /// The conclusion, with its exit code.
    pub verdict: Verdict,
}

/// Rates of a pair in both reports, in the way of copying that pairs are judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The pair, by the indices of the later report.
    pub pair: Pair,
    /// Rate in the earlier report, GB/s.
    pub old_gbps: f64,
    /// Rate in the later report, GB/s.
    pub new_gbps: f64,
    /// True if the pair copied directly in the earlier report and CUDA no longer allows it: the new rate goes through
    /// the host.
    pub staged_now: bool,
}

/// Returns rates of the later report through the host, of pairs that CUDA does not let copy directly.
fn refused(new: &Report) -> BTreeMap<Pair, f64> {
    let Some(measurements) = &new.measurements else {
        return BTreeMap::new();
    };
    let refused =
        measurements.driver.peer_access.iter().filter(|access| access.possible == Some(false));
    let refused: BTreeSet<Pair> = refused.map(|access| access.pair).collect();
    let staged =
        measurements.reference(Path::Staged).into_iter().filter(|(pair, _)| refused.contains(pair));
    staged.filter_map(|(pair, cell)| Some((pair, cell.achieved_gbps?.0))).collect()
}

impl Change {
    fn of(figure: &Compared<Ends>, on: Path, refused: &BTreeMap<Pair, f64>) -> Option<Self> {
        if figure.kind != Kind::reference(on) {
            return None;
        }
        let pair = figure.identity.pair()?;
        let staged = || refused.get(&pair).copied().filter(|_| on == Path::Direct);
        let (new_gbps, staged_now) = match figure.now {
            Some(now) => (now.value, false),
            None => (staged()?, true),
        };
        Some(Self { pair, old_gbps: figure.then.value, new_gbps, staged_now })
    }

    /// Returns how far the later figure lies above the earlier one, per cent of it.
    pub fn percent(&self) -> f64 {
        if self.old_gbps > 0.0 {
            100.0 * (self.new_gbps - self.old_gbps) / self.old_gbps
        } else {
            0.0
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComparedReport {
    pub started_at: String,
    pub machine: String,
    /// Number of GPUs that `--gpus` left out.
    pub gpus_left_out: u32,
}

impl ComparedReport {
    fn of(report: &Report) -> Self {
        Self {
            started_at: report.started_at.clone(),
            machine: report.machine.clone(),
            gpus_left_out: report.request.gpus_left_out,
        }
    }
}

/// Returns the findings that only the first of two judgements has, and those that only the second has.
pub(crate) fn between(before: &[Finding], now: &[Finding]) -> [Vec<Finding>; 2] {
    let key = |finding: &Finding| (finding.code.clone(), finding.subject.clone());
    [(before, now), (now, before)].map(|(one, other)| {
        let known: BTreeSet<_> = other.iter().map(key).collect();
        one.iter().filter(|finding| !known.contains(&key(finding))).cloned().collect()
    })
}

/// Compares two reports; both are judged by today's rules.
pub fn compare(old: &Report, new: &Report, settings: &Settings, terms: Terms) -> Comparison {
    let before = judge(&Evidence::of(old, settings));
    let evidence = Evidence { baseline: Some(old), ..Evidence::of(new, settings) };
    let now = judge(&evidence);
    let beside = Beside::new(old, &new.snapshot);
    let (figures, counts) = (beside.figures(&evidence), beside.counterparts(&evidence));

    // Prefer a direct copy to a staged one of the same pair.
    let refused = &refused(new);
    let on = |path| figures.iter().filter_map(move |figure| Change::of(figure, path, refused));
    let mut pairs: Vec<Change> = on(Path::Direct).chain(on(Path::Staged)).collect();
    pairs.sort_by_key(|change| change.pair);
    pairs.dedup_by_key(|change| change.pair);

    let (mut findings, now): (Vec<_>, Vec<_>) =
        now.into_iter().partition(|finding| OF_BOTH.iter().any(|rule| rule.id == finding.code));
    // A check that has less to measure than the earlier one is complete, a comparison with it is not.
    findings.extend(baseline_not_compared::mostly(&beside, &evidence, counts));
    let gaps: Vec<_> = now.iter().filter(|finding| is_gap(&finding.code)).cloned().collect();
    let [mut gone, appeared] = between(&before, &now);
    // If a GPU was left out, it is not known if its fault is still there.
    gone.retain(|finding| beside.is_looked_at(&evidence, finding));

    // A fault that the earlier report lacks is worse than before, whatever the figures. What the later report did not
    // test is unknown, whether or not the earlier one tested it.
    let all: Vec<_> = findings.iter().chain(&appeared).chain(&gaps).cloned().collect();
    let tested = u32::try_from(counts.compared).unwrap_or(u32::MAX);
    let untested = u32::try_from(counts.missing()).unwrap_or(u32::MAX);
    let verdict = Verdict { tested, untested, ..verdict(&all, None, terms) };
    Comparison {
        schema: SCHEMA,
        old: ComparedReport::of(old),
        new: ComparedReport::of(new),
        of_two_machines: !old.snapshot.gpus.is_empty() && beside.gpus(&evidence).is_empty(),
        compared: counts.compared,
        not_compared: counts.missing() + counts.without_gpu,
        not_compared_because: counts.reasons(old, new.measurements.as_ref()),
        only_in_new: counts.only_now,
        findings,
        appeared,
        gone,
        pairs,
        verdict,
    }
}
