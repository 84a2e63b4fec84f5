//! Tests of the metrics: their values, and that unmeasured ones are absent.

use std::collections::BTreeSet;

use super::*;
use crate::gauges::number;
use model::flow::Setup;
use model::measurement::Probe;
use model::report::Report;

fn metrics(report: &Report) -> String {
    render(&Digest::of(report), &Style::PLAIN)
}

/// Returns the value of a sample; `sample` includes its labels.
fn value<'a>(text: &'a str, sample: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))
}

#[test]
fn figures_are_in_base_units_the_worst_and_the_median() {
    let text = metrics(&sample::healthy(8));
    let how = "{placement=\"side/side/non-blocking\",issuer=\"source\",engine=\"copy\",direction=\"one-way\",path=\"direct\",class=\"NV18\"}";
    let of = |name: &str, labels: &str| -> f64 {
        let found = value(&text, &format!("peerscope_{name}{labels}"));
        found.unwrap_or_else(|| panic!("{name}{labels}: {text}")).parse().unwrap()
    };
    let lowest = of("bandwidth_achieved_min_bytes_per_second", how);
    assert!((390e9..=of("bandwidth_achieved_median_bytes_per_second", how)).contains(&lowest));
    assert!((0.8..1.0).contains(&of("bandwidth_min_ratio", how)));
    let small = "{path=\"direct\",class=\"NV18\"}";
    let longest = of("latency_latency_max_seconds", small);
    assert!(
        (2e-6..5e-6).contains(&longest) && of("latency_latency_median_seconds", small) < longest
    );
    assert_eq!((of("verdict", "{verdict=\"healthy\"}"), of("gpus", "")), (1.0, 8.0));
}

#[test]
fn the_number_of_gpus_adds_no_series() {
    let lines = |gpus| metrics(&sample::healthy(gpus)).lines().count();
    assert_eq!(lines(2), lines(16));
    let quick = |mut report: Report| {
        let measured = report.measurements.as_mut().unwrap();
        // As the profile quick: the eight placements of one way to copy.
        let one_way = |setup: Setup| setup.with_placement(Setup::REFERENCE.placement).of_any_size();
        measured.retain(|one| {
            one.probe() == Probe::Local
                || one.probe() == Probe::Bandwidth && one_way(one.setup()) == Setup::REFERENCE
        });
        metrics(&report).lines().filter(|line| !line.starts_with('#')).count()
    };
    for report in [sample::healthy(8), sample::pcie_box()] {
        let series = quick(report);
        assert!(series < 400, "{series}");
    }
}

#[test]
fn what_was_not_measured_has_no_series_and_no_zero() {
    let text = metrics(&sample::nothing_measured());
    for absent in ["_bytes_per_second", "_latency_"] {
        assert!(!text.contains(absent), "{text}");
    }
    assert_eq!(value(&text, "peerscope_measurements{state=\"untested\"}"), Some("728"));
}

#[test]
fn the_text_is_well_formed_whatever_the_machine_is_called() {
    for report in
        [sample::healthy(1), sample::pcie_box(), sample::nothing_measured(), sample::hostile()]
    {
        let text = metrics(&report);
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
