//! What the short formats have in common: findings by weight, and figures by class of link.

use std::collections::BTreeMap;

use super::figures::Spread;
use super::findings;
use crate::model::finding::{Finding, Severity};
use crate::model::flow::Setup;
use crate::model::measurement::{Latency, PeerBandwidth, Status, Verified};
use crate::model::placement::{Pair, Path};
use crate::model::report::Report;
use crate::model::topology::LinkClass;

/// All severities, the worst first.
pub(super) const SEVERITIES: [Severity; 3] = [Severity::Error, Severity::Warning, Severity::Info];

/// The findings, the worst first; those of one severity as they stand in the report.
pub(super) fn worst_first(report: &Report) -> Vec<&Finding> {
    let mut findings: Vec<_> = report.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// How many findings are of this severity.
pub(super) fn count_of(report: &Report, severity: Severity) -> usize {
    report.findings.iter().filter(|finding| finding.severity == severity).count()
}

/// The class of an ordered pair.
pub(super) fn class(report: &Report, pair: Pair) -> LinkClass {
    report.topology.route(pair).map_or(LinkClass::Unknown, |route| route.class)
}

/// The cells that pairs are judged by, direct before staged, by pair, and of several sizes the
/// largest. Figures of copies whose bytes are known to be wrong are none.
pub(super) fn reference(report: &Report) -> Vec<&PeerBandwidth> {
    let mut cells: BTreeMap<(Path, Pair), &PeerBandwidth> = BTreeMap::new();
    for path in [Path::Direct, Path::Staged] {
        let setup = Setup::REFERENCE.with_path(path);
        for cell in report.measurements.iter().flat_map(|measurements| super::figures::of_setup(measurements, setup)) {
            let key = (path, cell.pair);
            let counts = cell.status == Status::Measured
                && !matches!(cell.verified, Verified::Dropped | Verified::Corrupt)
                && cells.get(&key).is_none_or(|other| other.setup.bytes < cell.setup.bytes);
            if counts {
                cells.insert(key, cell);
            }
        }
    }
    cells.into_values().collect()
}

/// The same, one for each pair: the direct one where there is one.
pub(super) fn reference_by_pair(report: &Report) -> BTreeMap<Pair, &PeerBandwidth> {
    let mut pairs = BTreeMap::new();
    for cell in reference(report) {
        pairs.entry(cell.pair).or_insert(cell);
    }
    pairs
}

/// A finding in one sentence, with its subject where the sentence does not name it by itself.
pub(super) fn sentence(report: &Report, finding: &Finding) -> String {
    match findings::subject(finding, &report.snapshot) {
        Some(subject) => format!("{subject}: {}", finding.message),
        None => finding.message.clone(),
    }
}

/// The latencies that were measured.
pub(super) fn latencies(report: &Report) -> impl Iterator<Item = &Latency> {
    let cells = report.measurements.iter().flat_map(|measurements| &measurements.latency);
    cells.filter(|cell| cell.status == Status::Measured)
}

/// Figures of one class of link and one path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ClassFigures {
    pub(super) class: LinkClass,
    pub(super) path: Path,
    /// GB/s.
    pub(super) rates: Option<Spread>,
    /// Achieved as per cent of theoretical.
    pub(super) percents: Option<Spread>,
    /// Microseconds.
    pub(super) latencies: Option<Spread>,
}

/// What the pairs of each class reach in the reference configuration.
pub(super) fn by_class(report: &Report) -> Vec<ClassFigures> {
    let mut groups: BTreeMap<(LinkClass, Path), [Vec<f64>; 3]> = BTreeMap::new();
    for cell in reference(report) {
        let [rates, percents, _] = groups.entry((class(report, cell.pair), cell.setup.path)).or_default();
        rates.extend(cell.achieved_gbps.map(|rate| rate.0));
        percents.extend(cell.percent);
    }
    for cell in latencies(report) {
        let [.., latencies] = groups.entry((class(report, cell.pair), cell.path)).or_default();
        latencies.extend(cell.latency_us);
    }
    let figures = groups.into_iter().map(|((class, path), values)| {
        let [rates, percents, latencies] = values.map(Spread::of);
        ClassFigures { class, path, rates, percents, latencies }
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn figures_are_those_of_their_class() {
        let figures = by_class(&sample::healthy(8));
        let [direct, staged] = figures.as_slice() else { panic!("{figures:#?}") };
        assert_eq!((direct.class, direct.path), (LinkClass::NvLink(18), Path::Direct));
        assert_eq!(direct.rates.unwrap().count, 56);
        assert_eq!((staged.class, staged.path), (LinkClass::NvLink(18), Path::Staged));
        assert!(by_class(&sample::nothing_measured()).is_empty());
        assert!(by_class(&sample::pcie_box()).len() > 3, "classes are told apart");
    }

    #[test]
    fn a_copy_of_wrong_bytes_has_no_figure() {
        let mut report = sample::healthy(2);
        let before = reference(&report).len();
        let cell = reference(&report)[0].clone();
        let cells = &mut report.measurements.as_mut().unwrap().peer;
        cells.iter_mut().find(|other| **other == cell).unwrap().verified = Verified::Corrupt;
        assert_eq!(reference(&report).len(), before - 1);
    }
}
