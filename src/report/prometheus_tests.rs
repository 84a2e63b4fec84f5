//! Tests of the metrics: their values, and that unmeasured ones are absent.

use std::collections::BTreeSet;

use super::*;
use crate::gauges::in_base_units;
use crate::gauges::number;
use model::asynchrony::LaunchLoop;
use model::report::Report;

fn metrics(report: &Report, pairs: bool) -> String {
    render(&Digest::of(report), &Style { pairs, ..Style::PLAIN })
}

/// Returns the value of a sample; `sample` includes its labels.
fn value<'a>(text: &'a str, sample: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))
}

#[test]
fn figures_are_in_base_units() {
    let report = sample::healthy(8);
    let text = metrics(&report, true);
    let cell = Digest::of(&report).reference()[0];
    let pair = "source=\"0\",destination=\"1\",class=\"NV18\",path=\"direct\"";
    let rate: f64 = value(&text, &format!("peerscope_pair_bandwidth_bytes_per_second{{{pair}}}"))
        .unwrap()
        .parse()
        .unwrap();
    assert!((rate - cell.achieved_gbps.unwrap().0 * 1e9).abs() < 1.0, "{rate}");
    let share: f64 = value(&text, &format!("peerscope_pair_bandwidth_ratio{{{pair}}}"))
        .unwrap()
        .parse()
        .unwrap();
    assert!((share - cell.percent.unwrap() / 100.0).abs() < 1e-9, "{share}");
    let least: f64 =
        value(&text, "peerscope_class_bandwidth_min_ratio{class=\"NV18\",path=\"direct\"}")
            .unwrap()
            .parse()
            .unwrap();
    assert!((0.8..1.0).contains(&least), "{least}");
    assert_eq!(value(&text, "peerscope_verdict{verdict=\"healthy\"}"), Some("1"));
    assert_eq!(value(&text, "peerscope_verdict{verdict=\"faulty\"}"), Some("0"));
    assert_eq!(value(&text, "peerscope_class_pairs{class=\"NV18\"}"), Some("56"));
    assert_eq!(value(&text, "peerscope_gpus"), Some("8"));
    assert_eq!(value(&text, "peerscope_rule_findings{code=\"pcie-narrow\"}"), Some("0"));
}

#[test]
fn every_pair_only_on_request() {
    for gpus in [2, 16] {
        assert!(!metrics(&sample::healthy(gpus), false).contains("peerscope_pair_"));
    }
    let lines = |gpus| metrics(&sample::healthy(gpus), false).lines().count();
    assert_eq!(lines(2), lines(16), "the number of GPUs adds no series");
    assert_eq!(
        metrics(&sample::healthy(8), true).matches("\npeerscope_pair_latency_seconds{").count(),
        112
    );
}

#[test]
fn a_probe_without_series_of_its_own_has_those_that_its_cell_declares() {
    let mut report = sample::healthy(2);
    let mut turns = LaunchLoop::blank(0, 1, 100, 5.0);
    turns.turn_us = Some(12.5);
    let mut disturbed = LaunchLoop::blank(1, 0, 100, 5.0);
    disturbed.turn_us = Some(90.0);
    disturbed.ending.disturbed = true;
    report.measurements.as_mut().unwrap().launch_loop = vec![turns, disturbed];
    let text = metrics(&report, true);
    let sample = "peerscope_launch_loop_turn_seconds{gpu=\"0\",synchronized=\"1\",turns=\"100\",kernel_us=\"5.0\"}";
    assert_eq!(value(&text, sample), Some("0.0000125"), "{text}");
    assert_eq!(text.matches("\npeerscope_launch_loop_").count(), 1, "{text}");
    assert!(!metrics(&report, false).contains("launch_loop"));
}

#[test]
fn the_name_of_a_figure_ends_in_its_base_unit() {
    let names = [
        ("turn_us", "turn_seconds"),
        ("achieved_gbps", "achieved_bytes_per_second"),
        ("percent", "ratio"),
        ("free_ms_per_gib", "free_seconds_per_gib"),
        ("bus", "bus"),
        ("speed_up", "speed_up"),
    ];
    for (key, name) in names {
        assert_eq!(in_base_units(key, 1.0).0, name);
    }
}

#[test]
fn what_was_not_measured_has_no_series_and_no_zero() {
    let text = metrics(&sample::nothing_measured(), true);
    for absent in ["_bandwidth_", "_latency_"] {
        assert!(!text.contains(absent), "{text}");
    }
    assert_eq!(value(&text, "peerscope_measurements{state=\"tested\"}"), Some("0"));
    assert_eq!(value(&text, "peerscope_measurements{state=\"untested\"}"), Some("728"));
    assert_eq!(value(&text, "peerscope_interrupted"), Some("1"));
}

#[test]
fn the_text_is_well_formed_whatever_the_machine_is_called() {
    for report in
        [sample::healthy(1), sample::pcie_box(), sample::nothing_measured(), sample::hostile()]
    {
        let text = metrics(&report, true);
        let mut described = BTreeSet::new();
        let mut samples = BTreeSet::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                rest.split_once(' ').unwrap().0.clone_into(&mut current);
                assert!(described.insert(current.clone()), "{current} twice");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert_eq!(rest, format!("{current} gauge"));
            } else {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(name.starts_with(&current), "{line} below {current}");
                value.parse::<f64>().unwrap();
                assert!(samples.insert(name.to_owned()), "{name} twice");
                assert_labels(&name[current.len()..]);
            }
        }
        assert!(text.ends_with('\n') && described.len() >= 10);
    }
}

/// Checks that labels are empty or `{a="…",b="…"}`, with every quote inside a value escaped.
fn assert_labels(text: &str) {
    if text.is_empty() {
        return;
    }
    let mut rest = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap();
    while !rest.is_empty() {
        let (key, value) = rest.split_once("=\"").unwrap();
        assert!(
            !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{text}"
        );
        let mut escape = false;
        let end = value.char_indices().find(|&(_, c)| {
            let ends = c == '"' && !escape;
            escape = c == '\\' && !escape;
            ends
        });
        rest = &value[end.unwrap().0 + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

#[test]
fn numbers_carry_no_noise() {
    assert_eq!(
        [0.1 + 0.2, 396_300_000_000.0, 0.0, 2.5e-6].map(number),
        ["0.3", "396300000000", "0", "0.0000025"]
    );
}
