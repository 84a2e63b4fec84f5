use std::collections::BTreeSet;

use serde_json::Value;

use super::chrome::draw;
use model::reading::{Reading, Unknown};
use model::timeline::{Attempt, Call, ClockReading, Timeline, Work, WorkKind};

/// Returns a reading of a GPU whose clock is 1 ms behind the host's, known to 2 us.
fn reading(gpu: u32) -> ClockReading {
    ClockReading {
        gpu,
        zero_ns: 1e6,
        gpu_ns: 0.0,
        not_before_ns: 1e6 - 2e3,
        not_after_ns: 1e6 + 2e3,
    }
}

fn work(
    name: &str,
    gpu: u32,
    stream: u32,
    [start_us, end_us]: [f64; 2],
    call: Option<usize>,
) -> Work {
    let kind = if name == "kernel" { WorkKind::Kernel } else { WorkKind::Copy };
    Work {
        name: name.into(),
        kind,
        gpu,
        stream,
        start_ns: start_us * 1e3,
        end_ns: end_us * 1e3,
        call,
    }
}

/// Returns a copy on a side stream beside a kernel that follows another on the default stream.
fn timeline() -> Timeline {
    let call = |name: &str, at: f64| Call {
        name: name.into(),
        start_ns: 1e6 + at * 1e3,
        end_ns: 1e6 + at * 1e3 + 5e3,
    };
    let part = Attempt {
        probe: "overlap".into(),
        name: "side/side/non-blocking".into(),
        calls: vec![call("copy 64 MiB to GPU 1", 0.0), call("launch the kernel", 6.0)],
        work: vec![
            work("copy 64 MiB to GPU 1", 0, 2, [20.0, 190.0], Some(0)),
            work("kernel", 0, 0, [60.0, 140.0], Some(1)),
            work("kernel", 0, 0, [139.9, 150.0], None),
            work("kernel", 1, 0, [60.0, 140.0], Some(9)),
        ],
        gates: Vec::new(),
    };
    Timeline { clocks: vec![reading(0), reading(1)], parts: vec![part], problem: None }
}

/// Returns the opening of a gate that the clock shows at 10 us, between these times of the host.
fn gate(gpu: u32, [not_before_us, not_after_us]: [f64; 2]) -> ClockReading {
    let host = |us: f64| 1e6 + us * 1e3;
    let (not_before_ns, not_after_ns) = (host(not_before_us), host(not_after_us));
    ClockReading { gpu_ns: 10e3, not_before_ns, not_after_ns, ..reading(gpu) }
}

fn drawn(timelines: &[Timeline]) -> Value {
    let mut report = sample::healthy(2);
    report.machine = "h200x2".into();
    let [one, other] = &mut report.snapshot.gpus[..] else { panic!("2 GPUs") };
    one.name = Reading::Known("NVIDIA\u{1b} H200".into());
    other.name = Reading::Unknown(Unknown::Unsupported);
    draw(&report, timelines)
}

fn events<'a>(file: &'a Value, phase: &str) -> Vec<&'a Value> {
    file["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn every_track_has_a_name_and_every_arrow_two_ends_on_slices() {
    let file = drawn(&[timeline()]);
    let names: Vec<_> =
        events(&file, "M").iter().filter_map(|event| event["args"]["name"].as_str()).collect();
    for name in [
        "host",
        "GPU 0, NVIDIA H200",
        "GPU 1",
        "default stream",
        "side stream",
        "calls",
        "what is tried",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let tracks = |phase| {
        events(&file, phase).iter().map(|event| event["tid"].as_u64()).collect::<BTreeSet<_>>()
    };
    assert!(tracks("X").is_subset(&tracks("M")), "{file}");
    let (leaves, arrives) = (events(&file, "s"), events(&file, "f"));
    assert_eq!((leaves.len(), arrives.len()), (2, 2), "a call that is not there launches nothing");
    for arrow in leaves.iter().chain(&arrives) {
        let on = |slice: &&&Value| (&slice["tid"], &slice["ts"]) == (&arrow["tid"], &arrow["ts"]);
        assert_eq!(events(&file, "X").iter().filter(on).count(), 1, "{arrow}");
    }
    let of = |events: &[&Value]| {
        events.iter().map(|event| event["id"].as_u64()).collect::<BTreeSet<_>>()
    };
    assert_eq!(of(&leaves), of(&arrives));
}

#[test]
fn times_are_on_the_hosts_clock_and_nothing_overlaps_on_a_track() {
    let file = drawn(&[timeline()]);
    let slices = events(&file, "X");
    let copy = slices.iter().find(|slice| slice["cat"] == "copy").unwrap();
    assert_eq!((copy["ts"].as_f64(), copy["dur"].as_f64()), (Some(20.0), Some(170.0)), "{copy}");
    assert_eq!(copy["args"]["part"], "side/side/non-blocking");
    for slice in &slices {
        let of = |slice: &Value| (slice["ts"].as_f64().unwrap(), slice["dur"].as_f64().unwrap());
        let (begins, lasts) = of(slice);
        assert!(begins >= 0.0 && lasts >= 0.0);
        let others = slices.iter().filter(|other| other["tid"] == slice["tid"] && *other != slice);
        for other in others.map(|other| of(other)) {
            assert!(
                begins + lasts <= other.0 + 1e-9 || other.0 + other.1 <= begins + 1e-9,
                "{slice}"
            );
        }
    }
    let whole = slices.iter().find(|slice| slice["cat"] == "part").unwrap();
    assert_eq!((whole["ts"].as_f64(), whole["dur"].as_f64()), (Some(0.0), Some(190.0)), "{whole}");
}

#[test]
fn an_arrow_arrives_after_it_has_left() {
    let mut early = timeline();
    // The work begins 1 us before its call, within the uncertainty of the clock.
    early.parts[0].work = vec![work("copy", 0, 2, [-1.0, 50.0], Some(0))];
    let file = drawn(&[early]);
    let at = |phase| events(&file, phase)[0]["ts"].as_f64().unwrap();
    let copy = events(&file, "X").into_iter().find(|slice| slice["cat"] == "copy").unwrap();
    assert_eq!(copy["ts"].as_f64(), Some(0.0), "the slice stays where it is");
    assert!((at("s"), at("f")) == (1.0, 1.001), "{file}");
}

#[test]
fn what_a_gate_held_begins_when_it_opened() {
    let copy_at = |gate: ClockReading| {
        let mut timeline = timeline();
        timeline.parts[0].gates = vec![gate];
        let file = drawn(&[timeline]);
        let begins = |slice: &&Value| slice["cat"] == "copy";
        (
            events(&file, "X").into_iter().find(begins).unwrap()["ts"].as_f64(),
            file["otherData"]["clocks"][0].clone(),
        )
    };
    // The gate opened at 10 us by the clock, the copy began 10 us later.
    let (at, clock) = copy_at(gate(0, [7.0, 14.0]));
    assert_eq!(
        (at, &clock["by_gates"]),
        (Some(20.0), &Value::from(0)),
        "the clock agrees, and is finer"
    );
    let (at, clock) = copy_at(gate(0, [11.0, 20.0]));
    assert!(
        (at.unwrap() - 21.5).abs() < 0.01 && clock["by_gates"] == 0,
        "11 to 12 us is what both leave open: {at:?}"
    );
    assert!(clock["uncertainty_us"].as_f64().unwrap() < 2.1, "{clock}");
    for (bounds, begins) in
        [([13.0, 15.0], 23.0), ([1.0, 7.0], 11.0), ([9.0, 60.0], 19.0), ([30.0, 20.0], 40.0)]
    {
        let (at, clock) = copy_at(gate(0, bounds));
        assert_eq!((at, &clock["by_gates"]), (Some(begins), &Value::from(1)), "{bounds:?}");
        assert!(
            clock["uncertainty_us"].as_f64().unwrap() >= (bounds[1] - bounds[0]).abs(),
            "{clock}"
        );
    }
}

#[test]
fn the_file_says_how_well_clocks_are_known_and_what_is_missing() {
    let lost =
        Timeline { clocks: vec![reading(0)], problem: Some("it failed".into()), ..timeline() };
    let about = drawn(&[lost])["otherData"].clone();
    assert_eq!(about["simulated"], true);
    let clock = &about["clocks"][0];
    assert_eq!((clock["gpu"].as_u64(), clock["readings"].as_u64()), (Some(0), Some(1)));
    assert!((2.0..2.1).contains(&clock["uncertainty_us"].as_f64().unwrap()), "{clock}");
    assert_eq!(clock["drift_ppm"], Value::Null);
    let missing: Vec<_> =
        about["missing"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(missing, ["it failed", "the work of GPU 1, whose clock was not read"]);
}

#[test]
fn without_parts_there_is_nothing_to_draw() {
    let no_part = Timeline { clocks: vec![reading(0)], ..Timeline::default() };
    for timelines in [&[][..], &[no_part]] {
        assert!(events(&drawn(timelines), "X").is_empty());
    }
}
