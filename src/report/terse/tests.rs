//! Tests of the page of a terminal: its length and its content.

use unicode_width::UnicodeWidthStr;

use super::super::findings::is_usual;
use super::super::format::Style;
use super::super::{named, render};
use model::finding::{Scope, Severity, Subject};
use model::flow::Setup;
use model::measurement::{PeerBandwidth, Status, Verified};
use model::placement::{Pair, Path};
use model::report::Report;
use model::units::GbPerSecond;

const STYLE: Style = Style { width: 80, ..Style::PLAIN };

fn text(report: &Report, style: &Style) -> String {
    render(report, named("text").unwrap(), style)
}

#[test]
fn a_healthy_machine_fits_a_screen_and_a_sentence() {
    for (gpus, pairs) in [(2, "both pairs: "), (8, "all 56 pairs: "), (16, "all 240 pairs: ")] {
        let page = text(&sample::healthy(gpus), &STYLE);
        assert!(page.lines().count() <= 40, "{} lines: {page}", page.lines().count());
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(page.matches(pairs).count(), 1, "{page}");
        assert!(page.contains("bytes verified") && page.contains("as expected"), "{page}");
        assert!(!page.contains("Achieved") && !page.contains("103%"), "{page}");
    }
}

#[test]
fn one_pair_that_is_suspected_brings_the_matrix_back() {
    let healthy = sample::healthy(8);
    let mut report = healthy.clone();
    let mut finding = sample::pcie_box().findings.remove(0);
    let pair = Pair { source: 2, destination: 3 };
    finding.subject = Subject::Pair(pair);
    finding.scope = Scope::from(&finding.subject);
    for (severity, matrix) in
        [(Severity::Info, false), (Severity::Warning, true), (Severity::Error, true)]
    {
        finding.severity = severity;
        report.findings = vec![finding.clone()];
        assert_eq!(text(&report, &STYLE).contains("\nAchieved"), matrix, "{severity}");
    }
    // The matrix also appears for a pair without a figure, regardless of findings, and for one that is far from the
    // others.
    let changes: [fn(&mut PeerBandwidth); 3] = [
        |cell| cell.verified = Verified::Inconclusive,
        |cell| cell.ending.status = Status::Failed,
        |cell| cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 / 2.0)),
    ];
    for change in changes {
        let mut report = healthy.clone();
        let of_pair = |cell: &&mut PeerBandwidth| {
            cell.pair == pair && cell.setup.of_any_size() == Setup::REFERENCE
        };
        report.measurements.as_mut().unwrap().peer.iter_mut().filter(of_pair).for_each(change);
        assert!(text(&report, &STYLE).contains("\nAchieved"));
    }
}

#[test]
fn a_finding_is_described_once_and_has_a_line_of_its_own_only_beside_others() {
    let mut report = sample::pcie_box();
    let message = |report: &Report| report.findings[0].message.clone();
    let count = |report: &Report| {
        let page = text(report, &STYLE);
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let begin = "PCIe link runs at Gen4 x4";
        (page.matches(begin).count(), page.matches(&message(report)).count())
    };
    assert_eq!(count(&report), (2, 1));
    report.findings.truncate(1);
    assert_eq!(count(&report), (1, 1));
}

#[test]
fn on_a_terminal_the_verdict_is_the_last_line_too() {
    let report = sample::pcie_box();
    let page = text(&report, &STYLE);
    let on_terminal = text(&report, &Style { terminal: true, ..STYLE });
    let verdict = page.lines().find(|line| line.starts_with("FAULTY: ")).unwrap();
    assert_eq!(on_terminal, format!("{page}\n{}", &on_terminal[page.len() + 1..]));
    assert!(on_terminal[page.len()..].starts_with(&format!("\n{verdict}")), "{on_terminal}");
    // The verdict is not repeated if measurements were left out on purpose.
    let facts = Report { measurements: None, ..report.clone() };
    assert_eq!(text(&facts, &Style { terminal: true, ..STYLE }), text(&facts, &STYLE));
}

#[test]
fn the_suspected_part_is_named_as_it_is_printed_on_it() {
    let page = text(&sample::pcie_box(), &STYLE).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains("part GPU 5: NVIDIA")
            && page.contains("serial ")
            && page.contains("UUID GPU-"),
        "{page}"
    );
}

#[test]
fn staged_pairs_have_a_headline() {
    let mut report = sample::healthy(4);
    let measurements = report.measurements.as_mut().unwrap();
    measurements.peer.retain(|cell| cell.setup.path == Path::Staged);
    assert!(!measurements.peer.is_empty());
    let page = text(&report, &STYLE);
    let headline = page.lines().nth(1).unwrap();
    assert!(headline.starts_with("12 of 12 pairs copy through host memory at "), "{page}");
}
