//! Tests of refused reports, by the cell that contains the impossible value.

use model::impossible::*;
use model::measurement::{Measurements, Status};
use model::units::GbPerSecond;

type Change = fn(&mut Measurements);

#[test]
fn figures_that_cannot_be_are_refused_with_their_cell() {
    assert_eq!(in_report(&sample::healthy(3)), None);
    let changes: [(Change, &str); 14] = [
        (|m| m.peer[4].achieved_gbps = Some(GbPerSecond(-1.0)), "achieved_gbps is -1"),
        (|m| m.peer[4].achieved_gbps = Some(GbPerSecond(f64::NAN)), "achieved_gbps is NaN"),
        (|m| m.peer[4].achieved_gbps = Some(GbPerSecond(1e9)), "achieved_gbps is 1000000000"),
        (
            |m| m.peer[4].theoretical_gbps = Some(GbPerSecond(f64::INFINITY)),
            "theoretical_gbps is inf",
        ),
        (|m| m.peer[4].percent = Some(50_000.0), "percent is 50000"),
        (|m| m.peer[4].percent = Some(-3.0), "percent is -3"),
        (|m| m.peer[4].spread_percent = Some(-0.5), "spread_percent is -0.5"),
        (|m| m.overlap[0].overlap_percent = Some(130.0), "overlap_percent is 130"),
        (|m| m.overlap[0].overlap_percent = Some(-1.0), "overlap_percent is -1"),
        (|m| m.overlap[0].kernel_us = Some(-1.0), "kernel_us is -1"),
        (|m| m.latency[0].latency_us = Some(0.0), "latency_us is 0"),
        (|m| m.latency[0].latency_us = Some(-2.0), "latency_us is -2"),
        (|m| m.latency[0].latency_us = Some(f64::INFINITY), "latency_us is inf"),
        (|m| m.peer[4].pair.destination = m.peer[4].pair.source, "is measured with itself"),
    ];
    for (change, what) in changes {
        let mut report = sample::healthy(3);
        let measurements = report.measurements.as_mut().unwrap();
        let (first, fifth) = (measurements.peer[0].pair, measurements.peer[4].pair);
        assert_ne!((measurements.overlap.len(), measurements.latency.len()), (0, 0));
        change(measurements);
        let why = in_report(&report).unwrap_or_else(|| panic!("{what}: taken"));
        assert!(why.contains(what), "{why}");
        let named = [first, fifth].iter().any(|pair| why.contains(&pair.to_string()))
            || why.contains("with itself");
        assert!(named && !why.contains('\n'), "{why}");
    }
}

#[test]
fn a_measurement_that_is_there_twice_is_refused_and_one_of_another_size_is_not() {
    let repeat: [Change; 3] = [
        |m| m.peer.push(m.peer[2].clone()),
        |m| m.overlap.push(m.overlap[0].clone()),
        |m| m.latency.push(m.latency[1].clone()),
    ];
    for (repeat, probe) in repeat.into_iter().zip(["bandwidth", "overlap", "latency"]) {
        let mut report = sample::healthy(3);
        repeat(report.measurements.as_mut().unwrap());
        let why = in_report(&report).unwrap();
        assert!(why.starts_with(probe) && why.ends_with("is there twice"), "{why}");
    }
    let mut report = sample::healthy(3);
    let measurements = report.measurements.as_mut().unwrap();
    let mut larger = measurements.peer[2].clone();
    larger.setup.bytes.0 *= 2;
    measurements.peer.push(larger);
    assert_eq!(in_report(&report), None);
}

#[test]
fn routes_have_rates_too() {
    let mut report = sample::healthy(2);
    report.topology.pairs[0].theoretical_gbps = Some(GbPerSecond(-450.0));
    let why = in_report(&report).unwrap();
    assert!(why.contains("theoretical_gbps is -450") && why.contains("GPU 0 → GPU 1"), "{why}");
}

#[test]
fn figures_of_several_flows_that_cannot_be_are_refused_and_set_aside() {
    assert_eq!(in_report(&sample::loaded()), None);
    let changes: [(Change, &str); 4] = [
        (
            |m| m.load[0].achieved_gbps = Some(GbPerSecond(-1.0)),
            "load, all to one, GPU 0: achieved_gbps is -1",
        ),
        (
            |m| m.load[1].flows[3].achieved_gbps = Some(GbPerSecond(f64::NAN)),
            "flows[].achieved_gbps is NaN",
        ),
        (|m| m.load[0].expected_percent = Some(-2.0), "expected_percent is -2"),
        (|m| m.load.push(m.load[0].clone()), "all to one, GPU 0: is there twice"),
    ];
    for (change, what) in changes {
        let mut report = sample::loaded();
        change(report.measurements.as_mut().unwrap());
        let why = in_report(&report).unwrap_or_else(|| panic!("{what}: taken"));
        assert!(why.contains(what), "{why}");
    }
    let mut measurements = sample::loaded().measurements.unwrap();
    measurements.load[0].flows[2].achieved_gbps = Some(GbPerSecond(f64::INFINITY));
    set_aside(&mut measurements);
    assert_eq!(
        (measurements.load[0].achieved_gbps, measurements.load[0].ending.status),
        (None, Status::Skipped)
    );
    assert_eq!(measurements.impossible.len(), 1);
}
