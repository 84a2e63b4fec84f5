//! Replies of a broken worker, and the parent's handling of them.

use std::collections::{BTreeSet, HashSet};
use std::mem::discriminant;
use std::sync::LazyLock;

use model::choice::Choice;
use serde_json::Value;

use hardware::{ErrorKind, HardwareError};
use model::measurement::{CudaPeerAccess, Probe, Status};
use model::placement::Pair;
use model::report::Report;
use model::timeline::{Attempt, Call, ClockReading, Timeline, Work, WorkKind};
use model::units::{Bytes, GIB};
use probes::plan::profile::Name;
use probes::plan::{self, Profile};
use probes::{Bench, Group, Outcome, Round, Selection, assemble};
use report::{Style, named, render};
use run::worker::protocol::{Reply, Request};
use sim::{builtin, driver};
use topology::with_cuda;

static REPORT: LazyLock<Report> = LazyLock::new(|| sample::healthy(2));

/// A round of each action with its outcome, of every probe on a simulated machine of two GPUs.
static ROUNDS: LazyLock<Vec<(Round, Outcome)>> = LazyLock::new(|| {
    let machine = builtin::get("h200x2").unwrap();
    let select = |index: u32| Selection {
        index,
        pci: Some(machine.gpus[index as usize].pci),
        ..Selection::default()
    };
    let selections = [select(0), select(1)];
    let driver = driver(machine.clone()).unwrap();
    let bench = Bench::open(driver.as_ref(), &selections, Bytes(GIB));
    let mut seen = HashSet::new();
    let rounds = rounds(bench.facts()).into_iter();
    let rounds = rounds.filter(|round| seen.insert(discriminant(&round.task.action)));
    rounds.map(|round| (round.clone(), bench.run_one(&round))).collect()
});

/// One valid reply of each kind.
static REPLIES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut facts = REPORT.measurements.clone().unwrap().driver;
    let access = |pair| CudaPeerAccess {
        pair,
        possible: Some(true),
        failure: None,
        failure_code: None,
        hindered: false,
    };
    facts.peer_access = Pair::ordered(&[0, 1]).into_iter().map(access).collect();
    let broken = [
        Outcome::Failed { error: HardwareError::new(ErrorKind::Other, "CUDA error 700") },
        Outcome::Lost { status: Status::Hung, reason: "late".into() },
    ];
    let outcomes = ROUNDS.iter().map(|(_, outcome)| outcome.clone()).chain(broken);
    let mut replies = vec![
        Reply::NoDriver { error: HardwareError::new(ErrorKind::NoDriver, "no libcuda.so.1") },
        Reply::Ready { facts, floor_seconds: 0.4 },
    ];
    replies.push(Reply::Seen { id: 0, timeline: timeline() });
    let done = |(outcome, id)| Reply::Done { id, outcome, clock: std::time::Duration::ZERO };
    replies.extend(outcomes.zip(0..).map(done));
    replies.iter().map(|reply| serde_json::to_value(reply).unwrap()).collect()
});

/// A copy that a call launched.
fn timeline() -> Timeline {
    let reading = |gpu_ns: f64| ClockReading {
        gpu: 0,
        zero_ns: 1e9,
        gpu_ns,
        not_before_ns: 1e9 + gpu_ns,
        not_after_ns: 1.00001e9 + gpu_ns,
    };
    let call = Call { name: "copy".into(), start_ns: 1.1e9, end_ns: 1.1001e9 };
    let work = Work {
        name: "copy".into(),
        kind: WorkKind::Copy,
        gpu: 0,
        stream: 1,
        start_ns: 1e8,
        end_ns: 1.01e8,
        call: Some(0),
    };
    let part = Attempt {
        probe: "overlap".into(),
        name: "side/side".into(),
        calls: vec![call],
        work: vec![work],
        gates: vec![reading(1e8)],
    };
    Timeline { clocks: vec![reading(0.0), reading(2e8)], parts: vec![part], problem: None }
}

fn rounds(facts: &model::measurement::DriverFacts) -> Vec<Round> {
    let topology = with_cuda(REPORT.topology.clone(), facts);
    plan::rounds(&probes::Request {
        gpus: &[0, 1],
        driver: facts,
        topology: &topology,
        profile: &Profile::load(Name::Full).unwrap(),
        groups: &Group::ALL.iter().copied().collect(),
        deadline: None,
        serial: false,
    })
}

/// Handles a line as the parent does.
fn receive(line: &[u8]) -> Result<(), String> {
    let _ = serde_json::from_slice::<Request>(line);
    match serde_json::from_slice::<Reply>(line) {
        Err(error) => fuzz::assert_is_sentence(&error.to_string()),
        Ok(
            Reply::NoDriver { .. }
            | Reply::Opening { .. }
            | Reply::Apart { .. }
            | Reply::Taken { .. },
        ) => Ok(()),
        Ok(Reply::Seen { timeline, .. }) => {
            let mut drawn = Vec::new();
            let format = named("trace").unwrap();
            report::write(&REPORT, &[timeline], format, &Style::PLAIN, &mut drawn).unwrap();
            let drawn: Value = serde_json::from_slice(&drawn).map_err(|error| error.to_string())?;
            // A figure that JSON cannot have would be null.
            let is_known = |event: &Value, key: &str| event.get(key) != Some(&Value::Null);
            let is_timed = |event: &Value| is_known(event, "ts") && is_known(event, "dur");
            let events = drawn["traceEvents"].as_array();
            match events.is_some_and(|all| all.iter().all(is_timed)) {
                true => Ok(()),
                false => Err(drawn.to_string()),
            }
        }
        Ok(Reply::Ready { facts, .. }) => {
            let planned = rounds(&facts);
            planned.iter().for_each(|round| drop(plan::obstacle(round, &facts)));
            Ok(())
        }
        Ok(Reply::Done { outcome, .. }) => {
            // The same reply answers every round.
            let rounds: Vec<_> = ROUNDS.iter().map(|(round, _)| round.clone()).collect();
            let outcomes = rounds.iter().map(|round| (round.id, outcome.clone())).collect();
            let measurements = assemble(&rounds, &outcomes, &REPORT.topology);
            let report = Report { measurements: Some(measurements), ..REPORT.clone() };
            let text = render(&report, named("text").unwrap(), &Style::PLAIN);
            if text.contains("NaN") || text.contains("inf ") { Err(text) } else { Ok(()) }
        }
    }
}

#[test]
fn the_replies_to_start_from_are_valid() {
    let measured = ROUNDS.iter().map(|(round, outcome)| (round.id, outcome.clone())).collect();
    let rounds: Vec<_> = ROUNDS.iter().map(|(round, _)| round.clone()).collect();
    let measurements = assemble(&rounds, &measured, &REPORT.topology);
    let probes: BTreeSet<_> = measurements.each().map(|one| one.probe()).collect();
    assert_eq!(probes.len(), Probe::ALL.len(), "{probes:?}");
    for reply in REPLIES.iter() {
        serde_json::from_value::<Reply>(reply.clone()).unwrap();
        receive(reply.to_string().as_bytes()).unwrap();
    }
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_replies_of_a_broken_worker() {
    let strategy = (0..REPLIES.len(), fuzz::mutations(), fuzz::edits(2));
    fuzz::run("worker replies", 2.0, &strategy, |(base, mutations, edits)| {
        let line = fuzz::mutated(&REPLIES[base], &mutations).to_string();
        receive(&fuzz::edited(line.as_bytes(), &edits))
    });
}
