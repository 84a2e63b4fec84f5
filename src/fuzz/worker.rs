//! Replies of a broken worker, and the parent's handling of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

use hardware::{ErrorKind, HardwareError};
use measure::{Check, Outcome, OverlapSample, Row, Span, assemble};
use model::measurement::{CudaPeerAccess, Measurements, Status};
use model::placement::{Pair, StreamKind};
use model::report::Report;
use model::timeline::{Call, ClockReading, Part, Timeline, Work, WorkKind};
use plan::profile::Name;
use plan::{self, Group, Profile, Round};
use report::{Style, named, render};
use topology::with_cuda;
use trace::{self, About};
use worker::protocol::{Reply, Request};

static REPORT: LazyLock<Report> = LazyLock::new(|| sample::healthy(2));

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
    let sample = OverlapSample {
        copy: Span {
            start_ns: 1e9,
            end_ns: 1.0014e9,
        },
        on_source: Span {
            start_ns: 1.0002e9,
            end_ns: 1.0012e9,
        },
        on_destination: Span {
            start_ns: 1.0002e9,
            end_ns: 1.0012e9,
        },
        host_ns: 7e3,
        blocking_ns: 1.4e6,
    };
    let span = |ns: f64| Span {
        start_ns: 1e9,
        end_ns: 1e9 + ns,
    };
    let spans = || [1.1e6, 1.2e6, 1.3e6, 1.2e6].map(span).to_vec();
    let row = Row {
        stream: StreamKind::Side,
        copies: 2,
        rows: spans(),
        small: vec![span(1e5)],
        marked: spans(),
        host_ns: vec![7e3],
        at_once: 1,
        alone: spans(),
        check: Some(Check::OK),
        ..Row::default()
    };
    let outcomes = [
        Outcome::Verified {
            flows: vec![Check::OK; 2],
        },
        Outcome::Rows { rows: vec![row; 2] },
        Outcome::Overlap {
            samples: vec![sample; 3],
        },
        Outcome::Failed {
            error: HardwareError::new(ErrorKind::Other, "CUDA error 700"),
        },
        Outcome::Lost {
            status: Status::Hung,
            reason: "late".into(),
        },
    ];
    let mut replies = vec![
        Reply::NoDriver {
            error: HardwareError::new(ErrorKind::NoDriver, "no libcuda.so.1"),
        },
        Reply::Ready {
            facts,
            floor_seconds: 0.4,
        },
    ];
    replies.push(Reply::Seen {
        id: 0,
        timeline: timeline(),
    });
    let done = |(outcome, id)| Reply::Done {
        id,
        outcome,
        clock: std::time::Duration::ZERO,
    };
    replies.extend(outcomes.into_iter().zip(0..).map(done));
    replies
        .iter()
        .map(|reply| serde_json::to_value(reply).unwrap())
        .collect()
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
    let call = Call {
        name: "copy".into(),
        start_ns: 1.1e9,
        end_ns: 1.1001e9,
    };
    let work = Work {
        name: "copy".into(),
        kind: WorkKind::Copy,
        gpu: 0,
        stream: 1,
        start_ns: 1e8,
        end_ns: 1.01e8,
        call: Some(0),
    };
    let part = Part {
        probe: "overlap".into(),
        name: "side/side".into(),
        calls: vec![call],
        work: vec![work],
        gates: vec![reading(1e8)],
    };
    Timeline {
        clocks: vec![reading(0.0), reading(2e8)],
        parts: vec![part],
        problem: None,
    }
}

static ROUNDS: LazyLock<Vec<Round>> = LazyLock::new(|| {
    let Ok(Reply::Ready { facts, .. }) = serde_json::from_value(REPLIES[1].clone()) else {
        return Vec::new();
    };
    rounds(&facts)
});

fn rounds(facts: &model::measurement::DriverFacts) -> Vec<Round> {
    let topology = with_cuda(REPORT.topology.clone(), facts);
    plan::rounds(&plan::Request {
        gpus: &[0, 1],
        driver: facts,
        topology: &topology,
        profile: &Profile::load(Name::Full).unwrap(),
        groups: &BTreeSet::from(Group::ALL),
        overlap_bytes: None,
        deadline: None,
        serial: false,
    })
}

/// Handles a line as the parent does.
fn receive(line: &[u8]) -> Result<(), String> {
    let _ = serde_json::from_slice::<Request>(line);
    match serde_json::from_slice::<Reply>(line) {
        Err(error) => fuzz::assert_is_sentence(&error.to_string()),
        Ok(Reply::NoDriver { .. } | Reply::Opening { .. } | Reply::Apart { .. }) => Ok(()),
        Ok(Reply::Seen { timeline, .. }) => {
            let about = About {
                machine: "live",
                started_at: "",
                is_simulated: false,
                tool: &REPORT.tool,
                names: &BTreeMap::new(),
            };
            let text = trace::draw(&[timeline], &about);
            serde_json::from_str::<Value>(&text)
                .map(drop)
                .map_err(|error| format!("{error}: {text}"))
        }
        Ok(Reply::Ready { facts, .. }) => {
            let planned = rounds(&facts);
            planned
                .iter()
                .for_each(|round| drop(plan::obstacle(round, &facts)));
            Ok(())
        }
        Ok(Reply::Done { outcome, .. }) => {
            // The same reply answers every round.
            let rounds = &ROUNDS[..ROUNDS.len().min(60)];
            let outcomes = rounds
                .iter()
                .map(|round| (round.id, outcome.clone()))
                .collect();
            let assembled = assemble(rounds, &outcomes, &REPORT.topology);
            let measurements = Measurements {
                peer: assembled.peer,
                overlap: assembled.overlap,
                latency: assembled.latency,
                at_once: assembled.at_once,
                ..Measurements::default()
            };
            let report = Report {
                measurements: Some(measurements),
                ..REPORT.clone()
            };
            let text = render(&report, named("text").unwrap(), &Style::PLAIN);
            if text.contains("NaN") || text.contains("inf ") {
                Err(text)
            } else {
                Ok(())
            }
        }
    }
}

#[test]
fn the_replies_to_start_from_are_valid() {
    assert!(ROUNDS.len() > 60);
    for reply in REPLIES.iter() {
        serde_json::from_value::<Reply>(reply.clone()).unwrap();
        receive(reply.to_string().as_bytes()).unwrap();
    }
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_replies_of_a_broken_worker() {
    let strategy = (0..REPLIES.len(), fuzz::mutations(), fuzz::edits(2));
    fuzz::run(
        "worker replies",
        2.0,
        &strategy,
        |(base, mutations, edits)| {
            let line = fuzz::mutated(&REPLIES[base], &mutations).to_string();
            receive(&fuzz::edited(line.as_bytes(), &edits))
        },
    );
}
