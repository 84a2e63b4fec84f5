//! Properties that hold for every page.

use std::process::Command;

use super::*;
use crate::highlight;
use crate::read::parse;
use model::report::Report;

fn page(report: &Report) -> String {
    render(&Digest::of(report), &Style::PLAIN)
}

fn reports() -> Vec<Report> {
    let topo = Report { measurements: None, ..sample::pcie_box() };
    vec![
        sample::healthy(1),
        sample::healthy(8),
        sample::pcie_box(),
        sample::unknown(3),
        sample::hostile(),
        topo,
    ]
}

#[test]
#[allow(clippy::disallowed_macros, reason = "a skipped test must not look green in silence")]
fn the_policy_allows_the_script_that_there_is() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SCRIPT).unwrap();
    let Ok(output) = Command::new("sha256sum").arg(file.path()).output() else {
        eprintln!("SKIPPED: sha256sum is not installed, the hash of the script was not compared");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let bytes: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect();
    assert_eq!(embed::base64(&bytes), SCRIPT_HASH);
}

#[test]
fn a_page_is_read_back_as_its_report() {
    for report in reports() {
        let back = parse(page(&report).as_bytes()).unwrap();
        assert_eq!(back.verdict, report.verdict);
        let codes = |report: &Report| {
            report.findings.iter().map(|finding| finding.code.clone()).collect::<Vec<_>>()
        };
        assert_eq!(codes(&back), codes(&report));
        assert_eq!(back.snapshot, report.snapshot);
    }
}

#[test]
fn eight_gpus_take_half_a_megabyte_at_most() {
    for report in [sample::healthy(8), sample::pcie_box()] {
        let size = page(&report).len();
        assert!(size < 500_000, "{size} bytes");
    }
}

#[test]
fn every_cell_that_a_finding_is_about_is_marked() {
    let report = sample::pcie_box();
    let text = page(&report);
    let parsed = scraper::Html::parse_document(&text);
    let select = |query: &str| scraper::Selector::parse(query).unwrap();
    let mut checked = 0;
    for finding in
        report.findings.iter().filter(|finding| finding.severity > model::finding::Severity::Info)
    {
        for pair in highlight::pairs(finding) {
            let query = format!(".panel td[data-g=\"{} {}\"]", pair.source, pair.destination);
            for cell in parsed.select(&select(&query)) {
                let classes: Vec<_> = cell.value().classes().collect();
                assert!(
                    classes.contains(&"error") || classes.contains(&"warning"),
                    "{}: {pair}: {classes:?}",
                    finding.code
                );
                assert!(cell.text().any(|text| text.contains('✖') || text.contains('▲')), "{pair}");
                checked += 1;
            }
        }
        for gpu in highlight::gpus(finding) {
            let marked =
                format!(".panel th.error[data-g=\"{gpu}\"], .panel th.warning[data-g=\"{gpu}\"]");
            assert!(
                parsed.select(&select(&marked)).next().is_some(),
                "{}: GPU {gpu}",
                finding.code
            );
        }
    }
    assert!(checked > 10, "{checked}");
}

#[test]
fn findings_come_before_the_picture_and_that_before_the_figures() {
    let text = page(&sample::pcie_box());
    let places = [
        "class=\"verdict",
        "<h2>Findings",
        "<svg class=\"picture",
        "<h2>Pair by pair",
        "<h2>This run",
        "<summary>Figures",
        "<summary>Machine",
        "<summary>For developers",
    ];
    let places = places.map(|what| text.find(what).unwrap_or_else(|| panic!("{what}")));
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn next_steps_suspects_and_tests_are_in_the_card() {
    let report = sample::pcie_box();
    let text = page(&report);
    let finding = report.findings.iter().find(|finding| !finding.suspects.is_empty()).unwrap();
    let suspect = &finding.suspects[0];
    let stages = finding.stages();
    assert!(stages.len() > 1, "{stages:?}");
    for words in stages.iter().chain([&suspect.cause, &suspect.test]) {
        assert!(text.contains(&html! { (words) }.into_string()), "{words}");
    }
    assert_eq!(
        text.matches("type=\"checkbox\"").count(),
        report.findings.iter().map(|finding| finding.suspects.len()).sum::<usize>()
    );
}

#[test]
fn the_other_direction_of_a_bad_pair_is_marked_too() {
    let mut report = sample::healthy(8);
    let mut finding = sample::pcie_box().findings.remove(0);
    finding.severity = model::finding::Severity::Error;
    finding.subject =
        model::finding::Subject::Pair(model::placement::Pair { source: 2, destination: 5 });
    finding.scope.pairs.clear();
    finding.scope.gpus.clear();
    report.findings = vec![finding];
    let text = page(&report);
    let parsed = scraper::Html::parse_document(&text);
    let said = |query: &str| -> Vec<String> {
        let selector = scraper::Selector::parse(query).unwrap();
        parsed.select(&selector).map(|cell| cell.text().collect()).collect()
    };
    let marked = said(".panel td.error");
    assert!(
        !marked.is_empty() && marked.len() == said(".panel td.error[data-g=\"2 5\"]").len(),
        "{marked:?}"
    );
    let back = said(".panel td.reverse");
    assert!(
        back.len() == marked.len() && back.len() == said(".panel td.reverse[data-g=\"5 2\"]").len(),
        "{back:?}"
    );
    assert!(
        marked.iter().all(|cell| cell.contains('✖')) && back.iter().all(|cell| cell.contains('⇄'))
    );
}

#[test]
fn the_ticket_has_what_a_supplier_asks_for_and_codes_are_links() {
    let report = sample::pcie_box();
    let text = page(&report);
    let parsed = scraper::Html::parse_document(&text);
    let select = |query: &str| scraper::Selector::parse(query).unwrap();
    let ticket: String = parsed.select(&select("#ticket")).flat_map(|pre| pre.text()).collect();
    let said = ["FAULTY", "[pcie-narrow]", "part: GPU 3: ", "slot 7", "do: ", "seen: "];
    assert!(said.iter().all(|words| ticket.contains(words)), "{ticket}");
    let (links, named) = (select(".finding a"), select("[id]"));
    let mut links = parsed.select(&links).filter_map(|link| link.attr("href"));
    assert!(links.any(|link| link == "rules/pcie-narrow.html"));
    let ids: Vec<_> = parsed.select(&named).filter_map(|one| one.attr("id")).collect();
    for link in parsed.select(&select("nav a")).filter_map(|link| link.attr("href")) {
        assert!(ids.contains(&link.trim_start_matches('#')), "{link}");
    }
    let mut evil = report;
    evil.findings[0].help_url = "javascript:alert(1)".into();
    assert!(!page(&evil).contains("javascript:"));
}
