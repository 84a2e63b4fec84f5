//! Properties of every page: it fits, it is tidy, and no name in it can act.

use unicode_width::UnicodeWidthStr;

use super::{FORMATS, Level, Style, for_path, named, render};
use diagnose::collectives;
use model::finding::{RuleId, Severity};
use model::measurement::{Status, Verified};
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
        for format in FORMATS.iter().filter(|format| format.of != super::Of::Traced) {
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
            super::Of::Traced => "`check`, `soak`, `recover`",
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
