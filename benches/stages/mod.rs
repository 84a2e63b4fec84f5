//! Runs the stages one by one on a simulated machine.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diagnose::{Evidence, Settings};
use hardware::{HardwareError, Machine};
use model::choice::Choice;
use model::measurement::{DriverFacts, Measurements};
use model::report::{Report, SCHEMA, Timing, Tool, Verdict};
use model::request::Request;
use model::snapshot::{SlowFact, Snapshot};
use model::topology::Topology;
use model::units::{Bytes, GIB};
use probes::plan::{self, Profile, profile};
use probes::{Bench, Group, Outcome, Round, Selection, assemble};
use report::{self, Style};
use run::recording::{Event, Header, Journal, Recorder, SCHEMA as JOURNAL};

/// Time limit for reading the facts. No simulated machine takes this long.
const READING_LIMIT: Duration = Duration::from_secs(60);

/// The results of all stages of a check.
pub(crate) struct Stages {
    driver: DriverFacts,
    rounds: Vec<Round>,
    outcomes: HashMap<u32, Outcome>,
    profile: Profile,
    report: Report,
}

impl Stages {
    /// Checks a machine by the profile `quick`, in this process.
    ///
    /// # Errors
    ///
    /// The machine has no driver, or the program no profile.
    pub(crate) fn of(machine: &Arc<dyn Machine>) -> Result<Self, String> {
        Self::by(machine, profile::Name::Quick)
    }

    /// Checks a machine by the profile `standard`, in this process.
    ///
    /// # Errors
    ///
    /// As [`Self::of`].
    pub(crate) fn standard(machine: &Arc<dyn Machine>) -> Result<Self, String> {
        Self::by(machine, profile::Name::Standard)
    }

    fn by(machine: &Arc<dyn Machine>, profile: profile::Name) -> Result<Self, String> {
        let said = |error: HardwareError| error.to_string();
        let telemetry = run::discover::open(machine, READING_LIMIT).map_err(said)?;
        let snapshot = run::discover::discover(telemetry, SlowFact::ALL, READING_LIMIT);
        let driver = machine.driver(READING_LIMIT).map_err(said)?;
        let bench = Bench::open(driver.as_ref(), &selections(&snapshot), Bytes(GIB));
        let profile = Profile::load(profile).map_err(|error| error.to_string())?;
        let facts = bench.facts().clone();
        let topology = topology::with_cuda(topology::build(&snapshot), &facts);
        let rounds = planned(&snapshot, &topology, &facts, &profile);
        let outcomes = rounds.iter().map(|round| (round.id, bench.run_one(round))).collect();
        let measurements =
            Measurements { driver: facts.clone(), ..assemble(&rounds, &outcomes, &topology) };
        let report = unjudged(machine, snapshot, topology, measurements);
        Ok(Self { driver: facts, rounds, outcomes, profile, report })
    }

    /// Computes the routes of all pairs and returns their number.
    pub(crate) fn routes(&self) -> usize {
        topology::build(&self.report.snapshot).pairs.len()
    }

    /// Plans the rounds and returns their number.
    pub(crate) fn plan(&self) -> usize {
        planned(&self.report.snapshot, &self.report.topology, &self.driver, &self.profile).len()
    }

    /// Runs all rules and returns the number of findings.
    pub(crate) fn diagnose(&self) -> usize {
        diagnose::judge(&Evidence::of(&self.report, &Settings::default())).len()
    }

    /// Renders the report in a format and returns its length in bytes.
    ///
    /// # Errors
    ///
    /// There is no such format.
    pub(crate) fn render(&self, format: &str) -> Result<usize, String> {
        let format = report::named(format).ok_or_else(|| format!("there is no format {format}"))?;
        let mut to = Vec::new();
        report::write(&self.report, &[], format, &Style::PLAIN, &mut to)
            .map_err(|error| error.to_string())?;
        Ok(to.len())
    }

    /// Writes a journal, folds its entries and returns the number of figures between pairs.
    ///
    /// # Errors
    ///
    /// The journal cannot be begun.
    pub(crate) fn journal(&self, path: &Path) -> Result<usize, String> {
        let mut recorder = Recorder::new(
            Journal::begin_at(path, &header(&self.report), &Arc::default())?,
            "quick",
            Instant::now(),
        );
        recorder.take(Event::Facts { snapshot: self.report.snapshot.clone() });
        recorder.take(Event::Driver { floor_seconds: 0.0, facts: self.driver.clone() });
        recorder.take(Event::Plan {
            rounds: self.rounds.clone(),
            left_out: Vec::new(),
            thinned_out: Vec::new(),
        });
        for id in self.rounds.iter().map(|round| round.id) {
            let outcome = self.outcomes.get(&id).cloned();
            outcome.into_iter().for_each(|outcome| recorder.take(Event::Outcome { id, outcome }));
        }
        let (recorded, journal) = recorder.finish();
        journal.remove();
        Ok(recorded.measurements.peer.len())
    }
}

fn selections(snapshot: &Snapshot) -> Vec<Selection> {
    let select = |gpu: &model::snapshot::Gpu| Selection {
        index: gpu.index,
        uuid: gpu.uuid.known().cloned(),
        pci: gpu.pci.get(),
        ..Selection::default()
    };
    snapshot.gpus.iter().map(select).collect()
}

fn planned(
    snapshot: &Snapshot,
    topology: &Topology,
    driver: &DriverFacts,
    profile: &Profile,
) -> Vec<Round> {
    let gpus: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let groups: BTreeSet<Group> = Group::ALL.iter().copied().collect();
    plan::rounds(&probes::Request {
        gpus: &gpus,
        driver,
        topology,
        profile,
        groups: &groups,
        deadline: None,
        serial: false,
    })
}

fn unjudged(
    machine: &Arc<dyn Machine>,
    snapshot: Snapshot,
    topology: Topology,
    measurements: Measurements,
) -> Report {
    Report {
        schema: SCHEMA.into(),
        tool: Tool::this(),
        started_at: "2026-01-01T00:00:00Z".into(),
        machine: machine.name().to_owned(),
        request: Request::default(),
        read_from: None,
        watched: None,
        snapshot,
        topology,
        measurements: Some(measurements),
        findings: Vec::new(),
        changes: None,
        advice: Vec::new(),
        verdict: Verdict::default(),
        timing: Timing::default(),
    }
}

fn header(report: &Report) -> Header {
    Header {
        schema: JOURNAL.into(),
        tool: report.tool.clone(),
        started_at: report.started_at.clone(),
        machine: report.machine.clone(),
        profile: "quick".into(),
        pid: std::process::id(),
        args: Vec::new(),
    }
}
