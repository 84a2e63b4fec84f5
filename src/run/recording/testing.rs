//! A complete recording of a small run, made by the real stages.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use super::{Event, Header, Journal, Recorded, Recorder, SCHEMA};
use hardware::Machine;
use model::choice::Choice;
use model::report::Tool;
use model::units::Bytes;
use probes::plan::{self, Profile, profile};
use probes::watch::Watch;
use probes::{Bench, Group, Selection};

/// The journal of `quick` on two GPUs of the machine with a narrow slot, and the result of the run.
pub static RUN: LazyLock<(Vec<u8>, Recorded)> = LazyLock::new(|| {
    let machine = sim::Simulated::find("demo").unwrap();
    let telemetry = machine.telemetry();
    let mut snapshot = crate::discover::discover(
        telemetry.clone(),
        model::snapshot::SlowFact::ALL,
        Duration::from_secs(60),
    );
    snapshot.gpus.truncate(2);
    snapshot.pairs.retain(|pair| pair.source < 2 && pair.destination < 2);
    let driver = sim::driver(machine.spec.clone()).unwrap();
    let select = |index: u32| Selection {
        index,
        pci: snapshot.gpus[index as usize].pci.get(),
        ..Selection::default()
    };
    let bench = Bench::open(driver.as_ref(), &[select(0), select(1)], Bytes(1 << 30));
    let facts = bench.facts().clone();
    let topology = topology::with_cuda(topology::build(&snapshot), &facts);
    let rounds = plan::rounds(&probes::Request {
        gpus: &[0, 1],
        driver: &facts,
        topology: &topology,
        profile: &Profile::load(profile::Name::Quick).unwrap(),
        groups: &Group::ALL.iter().copied().collect::<BTreeSet<_>>(),
        deadline: None,
        serial: true,
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let header = Header {
        schema: SCHEMA.into(),
        tool: Tool::this(),
        started_at: "2026-11-20T17:42:44Z".into(),
        machine: "demo".into(),
        profile: "quick".into(),
        pid: 1,
        args: Vec::new(),
    };
    let mut recorder = Recorder::new(
        Journal::begin_at(&path, &header, &Arc::default()).unwrap(),
        "quick",
        Instant::now(),
    );
    recorder.take(Event::Facts { snapshot: snapshot.clone() });
    recorder.take(Event::Driver { floor_seconds: 0.1, facts });
    recorder.take(Event::Plan {
        rounds: rounds.clone(),
        left_out: vec!["nothing".into()],
        thinned_out: Vec::new(),
    });
    let watch = Watch::start(&telemetry, &[0, 1]);
    recorder.take(Event::Watching { gpus: vec![0, 1] });
    for round in rounds {
        recorder.take(Event::Outcome { id: round.id, outcome: bench.run_one(&round) });
    }
    recorder.take(Event::Problem { problem: "something".into() });
    recorder.take(Event::Measured { interrupted: false });
    let (readings, counted) = watch.finish(&snapshot);
    recorder.take(Event::Links { readings });
    recorder.take(Event::Counted { counted });
    let bytes = std::fs::read(path).unwrap();
    (bytes, recorder.finish().0)
});
