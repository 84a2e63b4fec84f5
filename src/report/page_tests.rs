//! Tests of the page for people: its order, its length, its tables and matrices.

use super::{Level, Style, named, render};
use model::flow::Setup;
use model::measurement::{PeerBandwidth, Probe, Status, Verified};
use model::report::Report;
use model::units::GbPerSecond;

const STYLE: Style = Style { width: 80, ..Style::PLAIN };

fn text(report: &Report, style: &Style) -> String {
    render(report, named("text").unwrap(), style)
}

/// Asserts that the page has these words in this order.
fn assert_order(page: &str, order: &[&str]) {
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("no '{words}' in {page}"));
    for pair in order.windows(2) {
        assert!(at(pair[0]) < at(pair[1]), "{pair:?}: {page}");
    }
}

/// A report in which one pair of GPUs reaches half of the others.
fn one_slow_pair(gpus: u8) -> Report {
    let mut report = sample::healthy(gpus);
    let peer = &mut report.measurements.as_mut().unwrap().peer;
    let cell = peer.iter_mut().find(|cell| cell.setup.of_any_size() == Setup::REFERENCE).unwrap();
    cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 / 2.0));
    report
}

#[test]
fn the_verdict_comes_first_then_what_is_wrong_and_what_to_do() {
    let page = text(&sample::pcie_box(), &STYLE);
    let order = [
        "FAULTY: 4 errors, 1 warning;",
        "\nERROR ",
        "\n         do  ",
        "\nwarning ",
        "\nFigures ",
        "\nRun ",
    ];
    assert_order(&page, &order);
    assert!(!page.contains("suspect") && !page.contains("Machine\n"), "{page}");
    for level in [Level::Figures, Level::Every] {
        let page = text(&sample::pcie_box(), &Style { level, ..STYLE });
        let order = [
            "FAULTY: 4 errors, 1 warning;",
            "\nERROR ",
            "\n         suspect ",
            "\nwarning  ",
            "\nRun ",
            "\nMachine\n",
            "\nBetween GPUs\n",
            "\nAchieved",
            "\nBandwidth: ",
            "\nLatency: ",
            "\nOverlap: ",
        ];
        assert_order(&page, &order);
        assert!(page.contains("GPU 3 (slot 7)"), "{page}");
    }
    assert!(text(&sample::healthy(8), &STYLE).starts_with("healthy: nothing is at fault; all "));
    let interrupted = text(&sample::nothing_measured(), &STYLE);
    assert!(interrupted.starts_with("INTERRUPTED"), "{interrupted}");
    assert!(
        interrupted.contains("\ninconclusive: 1 warning; nothing was measured, 728 "),
        "{interrupted}"
    );
}

#[test]
fn a_healthy_machine_has_twelve_lines_and_one_or_two_findings_a_screen() {
    for gpus in [1, 2, 8, 16] {
        let page = text(&sample::healthy(gpus), &STYLE);
        assert!(page.lines().count() <= 12, "{} lines: {page}", page.lines().count());
    }
    let mut report = sample::pcie_box();
    for number in [2, 1] {
        report.findings.truncate(number);
        let page = text(&report, &Style { terminal: true, ..STYLE });
        assert!(page.lines().count() <= 24, "{} lines: {page}", page.lines().count());
    }
}

#[test]
fn a_page_longer_than_a_screen_ends_with_a_line_for_each_finding_and_the_verdict() {
    let report = sample::pcie_box();
    let style = Style { level: Level::Figures, ..STYLE };
    let page = text(&report, &style);
    let on_terminal = text(&report, &Style { terminal: true, ..style });
    let end = on_terminal.strip_prefix(&page).unwrap();
    assert_eq!(end.lines().filter(|line| line.starts_with("ERROR ")).count(), 4, "{end}");
    assert!(end.lines().last().unwrap().starts_with("FAULTY: 4 errors"), "{end}");
    assert!(end.contains("[pcie-narrow]"), "{end}");
}

#[test]
fn the_end_of_a_page_fits_a_screen_and_counts_what_does_not() {
    let mut report = sample::pcie_box();
    let template = report.findings.remove(0);
    let of = |number: usize| {
        let mut finding = template.clone();
        finding.code = format!("code-{number}").into();
        finding
    };
    report.findings = (0..30).map(of).collect();
    let page = text(&report, &STYLE);
    let on_terminal = text(&report, &Style { terminal: true, ..STYLE });
    let end = on_terminal.strip_prefix(&page).unwrap();
    assert!((20..24).contains(&end.lines().count()), "{end}");
    let shown = end.lines().filter(|line| line.starts_with("ERROR ")).count();
    assert!(end.contains(&format!("\n         {} more above\n", 30 - shown)), "{end}");
    assert!(end.contains("\nFAULTY: 30 errors"), "{end}");
}

#[test]
fn the_suspected_part_is_named_as_it_is_printed_on_it() {
    let page = text(&sample::pcie_box(), &STYLE).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("part GPU 5: NVIDIA") && page.contains("serial "), "{page}");
    assert!(!page.contains("UUID"), "{page}");
}

#[test]
fn many_findings_of_a_rule_are_folded_with_every_subject_named() {
    let mut report = sample::pcie_box();
    let mut template = report.findings.remove(0);
    (template.code, template.message) =
        ("copy-hung".to_owned().into(), "a direct copy never ended; it hung".into());
    report.findings = (0..6)
        .map(|index| {
            let mut finding = template.clone();
            finding.subject = model::finding::Subject::Gpu { index };
            finding
        })
        .collect();
    let style = Style { terminal: true, level: Level::Figures, ..STYLE };
    let page = text(&report, &style);
    // Three times in full, and once in the line for all at the end.
    assert_eq!(page.matches("a direct copy never ended").count(), 3 + 1, "{page}");
    assert!(page.contains("ended, and 5 more [copy-hung]"), "{page}");
    assert!(page.contains("3 more like this: GPU 3, GPU 4, GPU 5 [copy-hung]"), "{page}");
    let verbose = text(&report, &Style { level: Level::Every, ..STYLE });
    assert_eq!(verbose.matches("a direct copy never ended; it hung").count(), 6);
}

#[test]
fn words_stand_where_figures_are_missing() {
    let page = text(&sample::pcie_box(), &Style { level: Level::Figures, width: 140, ..STYLE });
    let rows: Vec<_> = page.split("Achieved").nth(1).unwrap().lines().skip(1).take(9).collect();
    assert!(rows[5].contains("hung"), "{rows:#?}");
    assert!(rows[7].contains("BAD"), "{rows:#?}");
    assert!(rows[3].contains("18s"), "{rows:#?}");
    assert!(rows[1].contains("28?"), "{rows:#?}");
    assert!(page.contains("  s     staged through host memory"), "{page}");
}

#[test]
fn wide_matrices_are_split_and_lose_nothing() {
    let page = text(&one_slow_pair(16), &Style { level: Level::Every, ..STYLE });
    let achieved = page.split("Achieved").nth(1).unwrap().split("\n\nBandwidth").next().unwrap();
    let labels = |gpu: &str| achieved.split_whitespace().filter(|word| *word == gpu).count();
    // Once as a caption, and as a row of each of two blocks.
    assert_eq!([labels("GPU0"), labels("GPU15")], [3, 3], "{achieved}");
    // The rate of every pair and its per cent.
    let numbers = achieved.split_whitespace().filter(|word| word.parse::<f64>().is_ok());
    assert_eq!(numbers.count(), 2 * 240, "{achieved}");
}

#[test]
fn a_matrix_appears_where_its_cells_differ_and_only_there() {
    let page = |report: &Report| text(report, &Style { level: Level::Figures, ..STYLE });
    assert!(!page(&sample::healthy(8)).contains("\nAchieved"));
    assert!(page(&one_slow_pair(8)).contains("\nAchieved"));
    let changes: [fn(&mut PeerBandwidth); 2] =
        [|cell| cell.verified = Verified::Inconclusive, |cell| cell.ending.status = Status::Failed];
    for change in changes {
        let mut report = sample::healthy(8);
        let peer = &mut report.measurements.as_mut().unwrap().peer;
        change(peer.iter_mut().find(|cell| cell.setup.of_any_size() == Setup::REFERENCE).unwrap());
        assert!(page(&report).contains("\nAchieved"));
    }
    // With --verbose, every way to copy whose pairs differ has one.
    let every = |report: &Report| text(report, &Style { level: Level::Every, ..STYLE });
    let mut slow = sample::healthy(8);
    let peer = &mut slow.measurements.as_mut().unwrap().peer;
    let pair = peer[0].pair;
    for cell in peer.iter_mut().filter(|cell| cell.pair == pair) {
        cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 / 2.0));
    }
    let page = every(&slow);
    for title in [
        "Bandwidth, default/default/non-blocking,",
        "Bandwidth, issued by destination,",
        "Bandwidth, kernel on source (writes),",
        "Bandwidth, both ways,",
        "Bandwidth, staged,",
    ] {
        assert_eq!(page.matches(&format!("\n{title}")).count(), 1, "{title}: {page}");
    }
    assert!(every(&sample::pcie_box()).contains("\nLatency, "), "{}", every(&sample::pcie_box()));
    let healthy = every(&sample::healthy(8));
    assert!(!healthy.contains("\nOverlap, ") && !healthy.contains("\nBandwidth, "), "{healthy}");
}

#[test]
fn every_level_has_the_figures_of_every_probe_that_measured() {
    let report = sample::healthy(8);
    let page = text(&report, &Style { level: Level::Figures, ..STYLE });
    for probe in Probe::ALL {
        let measurements = report.measurements.as_ref().unwrap();
        let name = super::declared::capital(&probe.to_string());
        let measured = measurements.each().any(|cell| cell.probe() == *probe);
        assert_eq!(page.contains(&format!("{name}: ")), measured, "{name}: {page}");
    }
}
