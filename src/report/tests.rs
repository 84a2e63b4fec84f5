//! What holds for every page: it fits, it is tidy, it cannot be steered by a name.

use unicode_width::UnicodeWidthStr;

use super::{Format, Style, render, sample, text, topo};
use crate::model::report::Report;

fn reports() -> Vec<(&'static str, Report)> {
    vec![
        ("healthy-1", sample::healthy(1)),
        ("healthy-2", sample::healthy(2)),
        ("healthy-8", sample::healthy(8)),
        ("healthy-16", sample::healthy(16)),
        ("pcie", sample::pcie_box()),
        ("unknown-0", sample::unknown(0)),
        ("unknown-3", sample::unknown(3)),
        ("nothing", sample::nothing_measured()),
        ("hostile", sample::hostile()),
    ]
}

fn pages(report: &Report, width: usize, color: bool) -> [String; 4] {
    let style = |verbose| Style { width, color, verbose };
    [
        text::render(report, &style(false)),
        text::render(report, &style(true)),
        topo::render(report, &style(false)),
        topo::render(report, &style(true)),
    ]
}

/// Writes every page below a folder, to be looked at: `PEERSCOPE_PAGES=/tmp/pages cargo test`.
#[test]
fn pages_to_look_at() {
    let Some(folder) = std::env::var_os("PEERSCOPE_PAGES").filter(|folder| !folder.is_empty()) else { return };
    let folder = std::path::PathBuf::from(folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (name, report) in reports() {
        for width in [80, 140] {
            for (page, kind) in pages(&report, width, false).iter().zip(["check", "check-v", "topo", "topo-v"]) {
                std::fs::write(folder.join(format!("{name}.{kind}.{width}.txt")), page).unwrap();
            }
        }
        for (verbose, name) in [(false, format!("{name}.html")), (true, format!("{name}.verbose.html"))] {
            std::fs::write(folder.join(name), super::html::render(&report, verbose)).unwrap();
        }
        std::fs::write(folder.join(format!("{name}.dot")), render(&report, Format::Dot, &STYLE)).unwrap();
        std::fs::write(folder.join(format!("{name}.json")), render(&report, Format::Json, &STYLE)).unwrap();
        std::fs::write(folder.join(format!("{name}.color")), &pages(&report, 80, true)[0]).unwrap();
    }
}

const STYLE: Style = Style { width: 80, color: false, verbose: false };

#[test]
fn every_page_fits_and_is_tidy() {
    for (name, report) in reports() {
        for width in [80, 140] {
            for page in pages(&report, width, false) {
                for line in page.lines() {
                    assert!(line.width() <= width, "{name} at {width}: {} columns: {line}", line.width());
                    assert_eq!(line.trim_end(), line, "{name}: trailing space");
                }
                assert!(!page.contains("\n\n\n"), "{name}: two empty lines");
                assert!(page.ends_with('\n') && !page.ends_with("\n\n") && !page.starts_with('\n'), "{name}");
            }
        }
    }
}

#[test]
fn odd_widths_do_no_harm() {
    let report = sample::pcie_box();
    for width in [0, 1, 60, 79, 81, 100, 1000] {
        for page in pages(&report, width, false) {
            assert!(
                page.lines().all(|line| line.width() <= width.max(super::layout::MINIMUM_WIDTH)),
                "{width}: {page}"
            );
        }
    }
}

#[test]
fn colour_adds_nothing_but_colour() {
    for (name, report) in reports() {
        let plain = pages(&report, 80, false);
        for (plain, colored) in plain.iter().zip(pages(&report, 80, true)) {
            assert!(!plain.contains('\u{1b}'), "{name}");
            assert!(colored.contains("\u{1b}["), "{name}");
            assert_eq!(&without_sgr(&colored), plain, "{name}");
        }
    }
}

/// Takes out the colours: `ESC [ … m`.
fn without_sgr(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (codes, rest) = part.split_once('m').unwrap();
        assert!(codes.chars().all(|c| c.is_ascii_digit() || c == ';'), "{codes:?}");
        plain.push_str(rest);
    }
    plain
}

#[test]
fn names_are_shown_and_never_obeyed() {
    let report = sample::hostile();
    let mut written = pages(&report, 140, false).to_vec();
    written.push(render(&report, Format::Dot, &STYLE));
    written.push(render(&report, Format::Html, &STYLE));
    written.push(render(&report, Format::Json, &STYLE));
    for page in written {
        assert!(page.chars().all(|c| c == '\n' || !super::escape::acts(c)), "{page}");
    }
}

#[test]
fn a_simulated_machine_is_called_so_first() {
    for page in pages(&sample::pcie_box(), 80, false) {
        assert!(page.starts_with("SIMULATED machine demo"), "{page}");
    }
    for page in pages(&sample::healthy(2), 80, false) {
        assert!(!page.contains("SIMULATED"), "{page}");
    }
}

#[test]
fn the_verdict_comes_first_and_the_worst_finding_next() {
    let page = text::render(&sample::pcie_box(), &STYLE);
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("no '{words}' in {page}"));
    let order = [
        "FAULTY: 3 errors, 1 warning;",
        "ERROR ",
        "warning  GPU 2",
        "info  ",
        "Machine\n",
        "Topology",
        "Achieved",
        "Stream placements",
        "Latency",
        "Other ways",
        "\nTime ",
    ];
    for pair in order.windows(2) {
        assert!(at(pair[0]) < at(pair[1]), "{pair:?}: {page}");
    }
    assert!(page.contains("GPU 3 (0000:44:00.0, slot 7)"), "{page}");
    assert!(text::render(&sample::healthy(8), &STYLE).starts_with("healthy: nothing is at fault; all "));
    let interrupted = text::render(&sample::nothing_measured(), &STYLE);
    assert!(interrupted.starts_with("INTERRUPTED"), "{interrupted}");
    assert!(interrupted.contains("\ninconclusive: nothing was measured, 728 "), "{interrupted}");
}

#[test]
fn many_findings_of_a_rule_are_folded_with_every_subject_named() {
    let mut report = sample::pcie_box();
    let template = report.findings.remove(2);
    report.findings = (0..6)
        .map(|index| {
            let mut finding = template.clone();
            finding.subject = crate::model::finding::Subject::Gpu { index };
            finding
        })
        .collect();
    let page = text::render(&report, &STYLE);
    assert_eq!(page.matches("a direct copy never ended").count(), 3, "{page}");
    assert!(page.contains("3 more like this: GPU 3, GPU 4, GPU 5 [copy-hung]"), "{page}");
    let verbose = text::render(&report, &Style { verbose: true, ..STYLE });
    assert_eq!(verbose.matches("a direct copy never ended").count(), 6);
}

#[test]
fn words_stand_where_figures_are_missing() {
    let page = text::render(&sample::pcie_box(), &STYLE);
    let rows: Vec<_> = page.split("Achieved").nth(1).unwrap().lines().skip(1).take(9).collect();
    assert!(rows[5].contains("hung"), "{rows:#?}");
    assert!(rows[7].contains("BAD"), "{rows:#?}");
    assert!(rows[3].contains("18s"), "{rows:#?}");
    assert!(rows[1].contains("22?"), "{rows:#?}");
    assert!(page.contains("  s     staged through host memory"), "{page}");
}

#[test]
fn wide_matrices_are_split_and_lose_nothing() {
    let page = text::render(&sample::healthy(16), &STYLE);
    let achieved = page.split("Achieved").nth(1).unwrap().split("\n\nStream").next().unwrap();
    let labels = |gpu: &str| achieved.split_whitespace().filter(|word| *word == gpu).count();
    // Once as a caption, and as a row of each of two blocks.
    assert_eq!([labels("GPU0"), labels("GPU15")], [3, 3], "{achieved}");
    assert_eq!(achieved.matches("88%").count(), 240, "{achieved}");
}

#[test]
fn files_tell_their_format() {
    use std::path::Path;
    for (name, format) in
        [("a.json", Format::Json), ("a.b.TXT", Format::Text), ("x/y.dot", Format::Dot), ("r.html", Format::Html)]
    {
        assert_eq!(Format::for_path(Path::new(name)), Ok(format));
    }
    let error = Format::for_path(Path::new("report.pdf")).unwrap_err();
    assert_eq!(
        error,
        "'report.pdf' does not say which format to write: let its name end in .json, .txt, .html, .htm, .md, .xml, .prom, .dot, .gv"
    );
    assert!(Format::for_path(Path::new("json")).is_err());
}

#[test]
fn verbose_shows_every_matrix() {
    let report = sample::healthy(2);
    let page = text::render(&report, &Style { verbose: true, ..STYLE });
    for title in [
        "PCIe links while copies ran",
        "Achieved, default/default/non-blocking,",
        "Achieved, copy engine, issued by destination,",
        "Achieved, kernel on source (writes),",
        "Achieved, both ways,",
        "Achieved, staged,",
        "Latency direct,",
        "Latency staged,",
        "Overlap with a kernel on the destination, side/side/blocking,",
    ] {
        assert_eq!(page.matches(title).count(), 1, "{title}: {page}");
    }
    assert_eq!(page.matches("\nOverlap with a kernel").count(), 16);
}
