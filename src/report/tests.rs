//! Properties of every page: it fits, it is tidy, and no name in it can act.

use unicode_width::UnicodeWidthStr;

use super::{FORMATS, Level, Style, for_path, named, render};
use diagnose::collectives;
use model::finding::{RuleId, Severity};
use model::flow::Setup;
use model::measurement::{PeerBandwidth, Probe, Status, Verified};
use model::report::Report;
use model::request::Silenced;
use model::units::GbPerSecond;

fn text(report: &Report, style: &Style) -> String {
    render(report, named("text").unwrap(), style)
}

/// Returns the report of `topo`.
fn facts(report: &Report) -> Report {
    Report { measurements: None, ..report.clone() }
}

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
    let style = |verbose| Style { width, color, level: level(verbose), ..STYLE };
    let facts = facts(report);
    [
        text(report, &style(false)),
        text(report, &style(true)),
        text(&facts, &style(false)),
        text(&facts, &style(true)),
    ]
}

const STYLE: Style = Style { width: 80, ..Style::PLAIN };

#[test]
fn every_page_fits_and_is_tidy() {
    for (name, report) in reports() {
        for width in [80, 140] {
            for page in pages(&report, width, false) {
                for line in page.lines() {
                    assert!(
                        line.width() <= width,
                        "{name} at {width}: {} columns: {line}",
                        line.width()
                    );
                    assert_eq!(line.trim_end(), line, "{name}: trailing space");
                }
                assert!(!page.contains("\n\n\n"), "{name}: two empty lines");
                assert!(
                    page.ends_with('\n') && !page.ends_with("\n\n") && !page.starts_with('\n'),
                    "{name}"
                );
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
                page.lines().all(|line| line.width() <= width.max(super::text::MINIMUM_WIDTH)),
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

/// Removes the colours: `ESC [ … m`.
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

/// A change of a report, and words for it; every format contains one of them.
type Case = (fn(&mut Report), &'static [&'static str]);

#[test]
fn every_format_says_alike_what_must_be_known_first() {
    let cases: [Case; 7] = [
        (
            |report| report.machine = "demo".into(),
            &[
                "SIMULATED machine demo:",
                "SIMULATED demo:",
                "\npeerscope_simulated 1",
                "\"machine\": \"demo\"",
            ],
        ),
        (
            |report| report.measurements.as_mut().unwrap().interrupted = true,
            &["INTERRUPTED:", "interrupted;", "\npeerscope_interrupted 1", "\"interrupted\": true"],
        ),
        (
            |report| report.measurements.as_mut().unwrap().cut_off = true,
            &["RECOVERED:", "recovered;", "\npeerscope_recovered 1", "\"cut_off\": true"],
        ),
        (
            |report| {
                report.measurements.as_mut().unwrap().left_out.push("half of the pairs".into())
            },
            &["half of the pairs", "partial;", "\npeerscope_partial 1"],
        ),
        (
            |report| (report.request.gpus, report.request.gpus_left_out) = (vec!["0-1".into()], 6),
            &[
                "6 of 8 GPUs were left out (--gpus 0-1)",
                "partial; --gpus 0-1",
                "\"gpus_left_out\": 6",
            ],
        ),
        (
            |report| {
                (report.request.only, report.request.probes_left_out) =
                    (vec!["peers".into()], vec!["latency".into()]);
            },
            &[
                "probes, latency were left out (--only peers)",
                "--only peers;",
                "\"probes_left_out\": [\n      \"latency\"",
            ],
        ),
        (
            |report| {
                let rule = |code, severity| Silenced { code: RuleId::new(code), severity };
                report.request.silenced =
                    vec![rule("pcie-narrow", None), rule("not-tested", Some(Severity::Info))];
                report.request.config = Some("site.toml".into());
            },
            &[
                "SILENCED by site.toml: pcie-narrow is off, not-tested is info at most",
                "silenced; pcie-narrow, not-tested;",
                "\npeerscope_rule_silenced{code=\"pcie-narrow\",severity=\"off\"} 1",
                "\"config\": \"site.toml\",\n    \"silenced\": [\n      {\n        \"code\": \"pcie-narrow\",",
            ],
        ),
    ];
    let mut all = sample::healthy(2);
    for (set, _) in cases {
        set(&mut all);
    }
    for (set, words) in cases {
        let mut one = sample::healthy(2);
        set(&mut one);
        for format in FORMATS {
            let says =
                |report| words.iter().any(|word| render(report, format, &STYLE).contains(word));
            let said = [&sample::healthy(2), &one, &all].map(says);
            assert_eq!(said, [false, true, true], "{words:?} in {}", format.name);
        }
    }
    // The verdict covers the whole machine only if nothing was left out.
    let whole = ["nothing is at fault; all", "PEERSCOPE OK - 2 GPUs"];
    for set in cases.iter().skip(4).map(|(set, _)| set) {
        let mut one = sample::healthy(2);
        set(&mut one);
        for format in ["text", "html", "markdown", "line"].map(|name| named(name).unwrap()) {
            let [complete, partial] =
                [&sample::healthy(2), &one].map(|report| render(report, format, &STYLE));
            assert!(whole.iter().any(|words| complete.contains(words)), "{complete}");
            assert!(!whole.iter().any(|words| partial.contains(words)), "{partial}");
        }
        let xml = render(&one, named("junit").unwrap(), &STYLE);
        let verdict =
            xml.split("<system-out>").nth(1).unwrap().split("; exit code").next().unwrap();
        assert!(
            verdict.contains("; PARTIAL: --") || verdict.contains("; 2 rules SILENCED"),
            "{verdict}"
        );
    }
    for page in pages(&sample::pcie_box(), 80, false) {
        assert!(page.starts_with("SIMULATED machine demo"), "{page}");
    }
}

#[test]
fn a_run_is_repeated_with_what_was_chosen() {
    let mut report = sample::healthy(2);
    let again = |report: &Report| {
        let page = render(report, named("markdown").unwrap(), &STYLE);
        page.split("## See it again\n\n`").nth(1).unwrap().split('`').next().unwrap().to_owned()
    };
    assert_eq!(again(&report), "peerscope check --profile standard");
    report.machine = "my machines/it's.toml".into();
    report.request.gpus = vec!["0-1".into(), "GPU-5".into()];
    report.request.skip = vec!["latency".into(), "overlap".into()];
    report.request.config = Some("site.toml".into());
    assert_eq!(
        again(&report),
        "peerscope check --profile standard --machine 'my machines/it'\\''s.toml' --gpus 0-1,GPU-5 --skip \
         latency,overlap --config site.toml"
    );
}

#[test]
fn the_documents_list_every_format() {
    let rows =
        include_str!("../../docs/formats.md").lines().skip_while(|line| !line.starts_with("|---"));
    let rows: Vec<Vec<&str>> = rows
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let row = |format: &&super::Format| {
        let extensions: Vec<_> =
            format.extensions.iter().map(|extension| format!("`.{extension}`")).collect();
        let commands = match format.of {
            super::Of::All => "`check`, `topo`, `diagnose`, `recover`, `fleet`",
            super::Of::One => "`check`, `topo`, `diagnose`, `recover`",
            super::Of::Topology => "`topo`",
            super::Of::Fleet | super::Of::Comparison => "`fleet`",
        };
        [format!("`{}`", format.name), extensions.join(", "), commands.to_owned()]
    };
    let wanted: Vec<_> = FORMATS.iter().map(row).collect();
    let listed: Vec<_> = rows.iter().map(|row| [row[0], row[1], row[3]]).collect();
    assert_eq!(
        listed, wanted,
        "the table of docs/formats.md: name, extensions, what it is for, commands"
    );
}

/// Asserts that the page has these words in this order.
fn assert_order(page: &str, order: &[&str]) {
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("no '{words}' in {page}"));
    for pair in order.windows(2) {
        assert!(at(pair[0]) < at(pair[1]), "{pair:?}: {page}");
    }
}

#[test]
fn the_verdict_comes_first_and_what_was_written_last_is_what_to_do() {
    let page = text(&sample::pcie_box(), &STYLE);
    let order = ["FAULTY: 4 errors, 1 warning;", "\nFigures ", "\nRun ", "\nERROR ", "\nwarning "];
    assert_order(&page, &order);
    let last = page.split("\nwarning ").last().unwrap();
    assert!(last.contains("\n         do  "), "{page}");
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
            "\nOverlap: ",
            "\nLatency: ",
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
    let page = text(&report, &Style { terminal: true, ..STYLE });
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

/// A report in which one pair of GPUs reaches half of the others.
fn one_slow_pair(gpus: u8) -> Report {
    let mut report = sample::healthy(gpus);
    let peer = &mut report.measurements.as_mut().unwrap().peer;
    let cell = peer.iter_mut().find(|cell| cell.setup.of_any_size() == Setup::REFERENCE).unwrap();
    cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 / 2.0));
    report
}

#[test]
fn wide_matrices_are_split_and_lose_nothing() {
    let page = text(&one_slow_pair(16), &Style { level: Level::Every, ..STYLE });
    let achieved = page.split("Achieved").nth(1).unwrap().split("\n\nBandwidth").next().unwrap();
    let labels = |gpu: &str| achieved.split_whitespace().filter(|word| *word == gpu).count();
    // Once as a caption, and as a row of each of two blocks.
    assert_eq!([labels("GPU0"), labels("GPU15")], [3, 3], "{achieved}");
    let shares = achieved.split_whitespace().filter(|word| word.parse() == Ok(100_u32));
    assert!(shares.count() >= 200, "{achieved}");
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
    let every = |report: &Report| text(report, &Style { level: Level::Every, ..STYLE });
    assert!(every(&sample::pcie_box()).contains("\nLatency, "), "{}", every(&sample::pcie_box()));
    assert!(!every(&sample::healthy(8)).contains("\nOverlap, "));
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

#[test]
fn a_file_name_chooses_its_format() {
    use std::path::Path;
    for (name, format) in
        [("a.json", "json"), ("a.b.TXT", "text"), ("x/y.svg", "svg"), ("r.htm", "html")]
    {
        assert_eq!(for_path(Path::new(name)).unwrap().name, format);
    }
    let error = for_path(Path::new("report.pdf")).unwrap_err();
    let start = "'report.pdf' does not say which format to write: let its name end in .txt, .json, .html, .htm, ";
    assert!(error.starts_with(start), "{error}");
    assert!(for_path(Path::new("json")).is_err());
}

/// Checks that latency and overlap do not appear if the bytes of a pair did not arrive. Every page for people and every
/// gauge stays the same, whatever was measured of such pairs.
#[test]
fn latency_and_overlap_of_bytes_that_did_not_arrive_are_on_no_page() {
    let pages = |verified: Verified, latency: f64, overlap: f64| -> Vec<(String, String)> {
        let mut report = sample::healthy(2);
        let measurements = report.measurements.as_mut().unwrap();
        for cell in &mut measurements.peer {
            cell.verified = verified;
            if verified.is_wrong() {
                (cell.ending.status, cell.achieved_gbps, cell.percent) =
                    (Status::Failed, None, None);
            }
        }
        measurements.latency.iter_mut().for_each(|cell| cell.latency_us = Some(latency));
        measurements.overlap.iter_mut().for_each(|cell| cell.overlap_percent = Some(overlap));
        // The other formats, for programs, contain every figure and the result of verification.
        let names =
            FORMATS.iter().map(|format| format.name).filter(|name| !["json", "csv"].contains(name));
        let shown = names.flat_map(|name| {
            [false, true].map(|verbose| {
                let page = render(
                    &report,
                    named(name).unwrap(),
                    &Style { level: level(verbose), ..STYLE },
                );
                // The page contains the packed report.
                let lines = page.lines().filter(|line| !line.contains("application/gzip"));
                (format!("{name}, verbose {verbose}"), lines.collect::<Vec<_>>().join("\n"))
            })
        });
        shown.collect()
    };
    for verified in [Verified::Corrupt, Verified::Dropped] {
        for ((name, one), (_, other)) in
            pages(verified, 2.5, 99.0).into_iter().zip(pages(verified, 777.7, 13.0))
        {
            assert!(one == other, "{name} shows latency or overlap of bytes that are {verified:?}");
        }
    }
    let differ = pages(Verified::Ok, 2.5, 99.0).into_iter().zip(pages(Verified::Ok, 777.7, 13.0));
    let differ: Vec<_> =
        differ.filter(|((_, one), (_, other))| one != other).map(|((name, _), _)| name).collect();
    for format in ["text", "html", "prometheus"] {
        assert!(
            differ.iter().any(|name| name.starts_with(format)),
            "{format} shows none at all: {differ:?}"
        );
    }
}

#[test]
fn a_ring_has_what_its_slowest_gpu_sends_and_trees_a_little_less() {
    let mut measurements = sample::loaded().measurements.unwrap();
    measurements.load[1].flows[5].achieved_gbps = Some(GbPerSecond(384.0));
    let [ring, tree] = collectives::of(&measurements).try_into().unwrap();
    assert_eq!(
        (ring.gpus, ring.bus_gbps, ring.algorithm_gbps),
        (8, GbPerSecond(384.0), GbPerSecond(219.4286))
    );
    assert_eq!((tree.bus_gbps, tree.algorithm_gbps), (GbPerSecond(336.0), GbPerSecond(192.0)));
    assert_eq!(tree.pattern, "ring");
    measurements.load[1].ending.disturbed = true;
    assert_eq!(collectives::of(&measurements), []);
}

const fn level(verbose: bool) -> Level {
    if verbose { Level::Every } else { Level::Short }
}
