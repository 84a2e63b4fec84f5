//! Every figure that can be compared is compared by `compare`, `--baseline`, `--expect` and `fleet --since`.

use std::collections::BTreeSet;

use serde_json::json;

use super::baseline::Beside;
use super::compare::compare;
use super::evidence::Evidence;
use super::expectations::Expectations;
use super::figures::{self, Allowances, Figure, Identity, Table};
use super::settings::Settings;
use model::cell::Measurement;
use model::finding::Severity;
use model::measurement::Measurements;
use model::report::Report;

fn full() -> Report {
    serde_json::from_str(include_str!("../../tests/data/h200x4-full.json")).unwrap()
}

/// Returns the factor that makes a figure worse, by the unit that its key ends with.
fn factor(key: &str) -> Option<f64> {
    let times = ["_us", "_ms_per_gib"];
    if key.ends_with("_gbps") {
        Some(0.01)
    } else if times.iter().any(|unit| key.ends_with(unit)) {
        Some(1000.0)
    } else {
        None
    }
}

/// Returns the report with every rate and time of a probe a hundred times worse or more.
fn worse(report: &Report, probe: &str) -> Report {
    let mut measured = serde_json::to_value(&report.measurements).unwrap();
    let table = match probe {
        "bandwidth" => "peer".to_owned(),
        "live talk" => "live".to_owned(),
        "pointer chase" => "chase".to_owned(),
        probe => probe.replace(' ', "_"),
    };
    for cell in measured[&table].as_array_mut().unwrap_or_else(|| panic!("no table {table}")) {
        for (key, value) in cell.as_object_mut().unwrap() {
            let figure = value.as_f64().zip(factor(key));
            if let Some((figure, factor)) = figure {
                *value = json!(figure * factor);
            }
        }
    }
    Report {
        measurements: serde_json::from_value::<Option<Measurements>>(measured).unwrap(),
        ..report.clone()
    }
}

/// Returns the figures of the first table that differ in the second one.
fn changed(then: &Table, now: &Table) -> Vec<Identity> {
    let differs = |(key, figure): (&Identity, &Option<Figure>)| {
        (figure.is_some() && now.get(key) != Some(figure)).then(|| key.clone())
    };
    then.iter().filter_map(differs).collect()
}

/// Returns the GPUs of a measurement.
fn gpus(one: &dyn Measurement) -> Vec<u32> {
    let parts = (0..one.parts()).flat_map(|number| one.part(number).flow.ends());
    crate::words::unique(parts.filter_map(model::flow::Endpoint::gpu))
}

#[test]
fn every_rate_and_time_is_compared_by_all_three() {
    let old = full();
    let measured = old.measurements.as_ref().unwrap();
    let then = figures::table(measured);
    let expected = Expectations::from_report(&old, 5.0);
    let settings = Settings::default();
    let probes: BTreeSet<_> = measured.each().map(|one| one.probe()).collect();
    assert!(probes.len() > 10, "{probes:?}");
    let mut seen = 0;
    for probe in probes {
        let new = worse(&old, &probe.to_string());
        let now = figures::table(new.measurements.as_ref().unwrap());
        let changed = changed(&then, &now);
        // Each measurement whose main figure is a rate or a time has a figure in the table.
        let comparable = measured.each().filter(|one| {
            let main = one.figures().into_iter().next();
            one.probe() == probe
                && one.cell().tested()
                && main.is_some_and(|main| main.value.is_some() && factor(main.key).is_some())
        });
        for one in comparable {
            seen += 1;
            let of_gpus = changed.iter().filter(|(ends, _)| ends.gpus() == gpus(one));
            assert!(of_gpus.count() > 0, "{} is not compared", one.identity());
        }
        // The earlier report and a comparison of two find each of them, in one finding or another.
        let evidence = Evidence { baseline: Some(&old), ..Evidence::of(&new, &settings) };
        let figures = Beside::of(&evidence).unwrap().figures(&evidence);
        let is_worse = |identity: &&Identity| {
            let same = |figure: &&figures::Compared<figures::Ends>| {
                (&figure.identity, &figure.kind) == (&identity.0, &identity.1)
            };
            let figure = figures.iter().find(same);
            figure.is_some_and(|figure| figure.is_worse(&Allowances::default()))
        };
        let missed: Vec<_> = changed.iter().filter(|identity| !is_worse(identity)).collect();
        assert!(missed.is_empty(), "--baseline misses {missed:?}");
        let has = |code: &str, findings: &[model::finding::Finding]| {
            findings.iter().any(|finding| &*finding.code == code)
        };
        let compared = compare(&old, &new, &settings, Severity::Error.into());
        assert_eq!(has("fell-since-baseline", &compared.findings), !changed.is_empty(), "{probe}");
        // Expectations from the earlier report require each of them.
        let checks = expected.checks(new.measurements.as_ref(), &new.topology);
        let crosses = |identity: &&Identity| {
            checks.iter().flat_map(|check| &check.figures).any(|figure| {
                let is_worse = figure.percent_worse().is_some_and(|percent| percent > 0.0);
                is_worse && (&figure.identity, &figure.kind) == (&identity.0, &identity.1)
            })
        };
        let missed: Vec<_> = changed.iter().filter(|identity| !crosses(identity)).collect();
        assert!(missed.is_empty(), "--expect misses {missed:?}");
        assert!(checks.iter().all(|check| !check.figures.is_empty()));
    }
    assert!(seen > 800, "{seen}");
}

#[test]
fn a_comparison_in_which_most_is_missing_is_incomplete() {
    let old = full();
    let mut new = full();
    let measured = new.measurements.as_mut().unwrap();
    measured.profile = "quick".into();
    measured.peer.retain(|cell| cell.setup.of_any_size() == model::flow::Setup::REFERENCE);
    let settings = Settings::default();
    let compared = compare(&old, &new, &settings, Severity::Error.into());
    assert_eq!(compared.verdict.exit_code, 3, "{:#?}", compared.verdict);
    let because = "768 not part of this run (profile quick, earlier full)";
    assert_eq!(compared.not_compared_because, [because]);
    let code = |finding: &model::finding::Finding| finding.code.to_string();
    let codes: Vec<_> = compared.findings.iter().map(code).collect();
    assert_eq!(codes, ["baseline-not-compared"]);
    // A check that was asked for less is complete.
    let evidence = Evidence { baseline: Some(&old), ..Evidence::of(&new, &settings) };
    let found = super::judge(&evidence);
    assert!(found.iter().all(|finding| &*finding.code != "baseline-not-compared"), "{found:#?}");
    let whole = compare(&old, &old, &settings, Severity::Error.into());
    assert_eq!(whole.not_compared_because, [""; 0]);
}
