//! From the entries of a run to what it came to.

use std::collections::{BTreeMap, HashMap};

use super::disturbed;
use super::entry::{Entry, Event};
use discover::LateFacts;
use hardware::{ErrorKind, HardwareError, LinkSample};
use measure::around_load::{self, During};
use measure::watch::{Counted, summary};
use measure::{Outcome, assemble};
use model::background::Background;
use model::broken_off::BrokenOff;
use model::impossible;
use model::load;
use model::measurement::{DriverFacts, LinkUnderLoad, Measurements, Status};
use model::report::Timing;
use model::request::Request;
use model::snapshot::Snapshot;
use model::timeline::Timeline;
use model::topology::Topology;
use plan::{Action, Round};

/// A run as far as it has come: the fold over its entries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    profile: String,
    request: Request,
    snapshot: Option<Snapshot>,
    driver: Option<DriverFacts>,
    rounds: Vec<Round>,
    left_out: Vec<String>,
    thinned_out: Vec<String>,
    outcomes: HashMap<u32, Outcome>,
    timelines: Vec<Timeline>,
    problems: Vec<String>,
    /// What of the journal could not be read, a clause each.
    unread: Vec<String>,
    broken_off: Vec<BrokenOff>,
    background: Vec<Background>,
    /// What counters saw of known traffic.
    traffic: Vec<load::Counted>,
    limited: Vec<String>,
    /// Readings of the links that were watched, by GPU.
    links: BTreeMap<u32, Vec<LinkSample>>,
    counted: Option<Counted>,
    /// Which of these readings were taken while load patterns ran, by GPU.
    loaded: BTreeMap<u32, During>,
    /// Whether the last round that was placed among the readings was a load pattern; none once others were taken.
    placed: Option<bool>,
    interrupted: bool,
    ended: bool,
    times: Times,
}

/// Seconds after the run's beginning at which something was there; 0 where it never was.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    facts: f64,
    driver: f64,
    /// The driver's own start alone, as long as it took.
    driver_floor: f64,
    plan: f64,
    /// The last round's end.
    measured: f64,
    last: f64,
}

/// What a run came to, before it is judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// What was asked for.
    pub request: Request,
    pub snapshot: Snapshot,
    /// The graph and the routes, with what CUDA said of them.
    pub topology: Topology,
    pub measurements: Measurements,
    /// Where the time went; `total` is the time of the last entry.
    pub timing: Timing,
    /// The rounds that were followed, which are no part of the report.
    pub timelines: Vec<Timeline>,
}

impl Recording {
    /// A run of this profile that has found nothing yet.
    pub fn new(profile: &str) -> Self {
        Self {
            profile: profile.to_owned(),
            ..Self::default()
        }
    }

    /// Takes the next entry.
    pub fn take(&mut self, Entry { at, event }: Entry) {
        self.times.last = self.times.last.max(at);
        match event {
            Event::Facts { snapshot } => {
                self.snapshot = Some(snapshot);
                self.times.facts = at;
            }
            Event::Late {
                pairs,
                links,
                problems,
            } => {
                if let Some(snapshot) = &mut self.snapshot {
                    LateFacts {
                        pairs,
                        links,
                        problems,
                    }
                    .put_into(snapshot);
                }
            }
            Event::Asked { request } => self.request = request,
            Event::Driver {
                floor_seconds,
                facts,
            } => {
                self.driver = Some(facts);
                (self.times.driver, self.times.driver_floor) = (at, floor_seconds);
            }
            Event::Background { seen } => self.background.extend(seen),
            Event::Traffic { counted } => self.traffic.extend(counted),
            Event::Plan {
                rounds,
                left_out,
                thinned_out,
            } => {
                (self.rounds, self.left_out, self.thinned_out) = (rounds, left_out, thinned_out);
                self.times.plan = at;
            }
            Event::Watching { gpus } => {
                self.placed = None;
                self.links
                    .extend(gpus.into_iter().map(|gpu| (gpu, Vec::new())));
            }
            Event::Links { readings } => {
                self.placed = None;
                for (gpu, sample) in readings {
                    self.links.entry(gpu).or_default().push(sample);
                }
            }
            Event::Timeline { timeline } => self.timelines.push(timeline),
            Event::Outcome { id, outcome } => {
                self.place_readings(id, &outcome);
                self.outcomes.insert(id, outcome);
            }
            Event::Problem { problem } => self.problems.push(problem),
            Event::BrokenOff { broken } => match self
                .broken_off
                .iter_mut()
                .find(|known| known.is_of(&broken))
            {
                Some(known) => *known = broken,
                None => self.broken_off.push(broken),
            },
            Event::Limited { why } => self.limited.push(why),
            Event::Measured { interrupted } => {
                self.interrupted = interrupted;
                self.times.measured = at;
            }
            Event::Counted { counted } => self.counted = Some(counted),
        }
    }

    /// Notes whether the readings up to now were taken before the load patterns or while they ran. What was skipped never
    /// ran.
    fn place_readings(&mut self, id: u32, outcome: &Outcome) {
        if matches!(
            outcome,
            Outcome::Lost {
                status: Status::Skipped,
                ..
            }
        ) {
            return;
        }
        let round = self
            .rounds
            .binary_search_by_key(&id, |round| round.id)
            .ok()
            .and_then(|at| self.rounds.get(at));
        let is_load = round.is_some_and(|round| matches!(round.task.action, Action::Load { .. }));
        // Between two readings most rounds say nothing new.
        if self.placed.replace(is_load) == Some(is_load) {
            return;
        }
        for (gpu, samples) in &self.links {
            self.loaded
                .entry(*gpu)
                .or_default()
                .ended(is_load, samples.len());
        }
    }

    /// The run came to its end. No entry says so: its report takes the journal away, and a journal that is
    /// there was cut off.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Notes something of its journal that could not be read: `its last line is not complete`.
    pub fn unread(&mut self, what: String) {
        self.problems
            .push(format!("the journal was not read in full: {what}"));
        self.unread.push(what);
    }

    /// What of its journal could not be read.
    pub fn not_read(&self) -> &[String] {
        &self.unread
    }

    /// The GPUs whose routes are made before anything else is looked at.
    pub fn gpus(&self) -> usize {
        self.snapshot
            .as_ref()
            .map_or(0, |snapshot| snapshot.gpus.len())
    }

    /// The outcomes that were recorded.
    #[cfg(test)]
    pub fn outcomes(&self) -> &HashMap<u32, Outcome> {
        &self.outcomes
    }

    /// What the run came to. Of one that was cut off, as far as it came: what is missing has that
    /// reason, and the first problem says where it was.
    pub fn conclude(mut self) -> Recorded {
        let cut_off = (!self.ended).then(|| self.cut_off());
        let unread = || {
            let why = cut_off
                .clone()
                .unwrap_or_else(|| "no facts were recorded".into());
            discover::without_telemetry(&HardwareError::new(ErrorKind::Other, why))
        };
        let snapshot = self.snapshot.unwrap_or_else(unread);
        let driver = self.driver.unwrap_or_else(|| DriverFacts {
            failure: cut_off.clone(),
            ..DriverFacts::default()
        });
        if cut_off.is_some() {
            for round in &self.rounds {
                self.outcomes
                    .entry(round.id)
                    .or_insert_with(|| Outcome::Lost {
                        status: Status::Skipped,
                        reason: "the run was cut off before this measurement".into(),
                    });
            }
        }
        let mut topology = topology::with_cuda(topology::build(&snapshot), &driver);
        let figures = assemble(&self.rounds, &self.outcomes, &topology);
        let counted = self.counted.as_ref();
        let links = self.links.iter().map(|(gpu, samples)| LinkUnderLoad {
            nvlink_errors: counted.and_then(|counted| counted.nvlink_of(*gpu)),
            reason: match counted {
                None => Some("the run was cut off while the link was watched".into()),
                Some(counted) => counted
                    .late
                    .contains(gpu)
                    .then(|| "NVML did not answer in time".into()),
            },
            ..summary(*gpu, samples)
        });
        let load = counted.and_then(|counted| counted.load.as_ref());
        let around_load = self.links.iter().filter_map(|(gpu, samples)| {
            let during = self
                .loaded
                .get(gpu)
                .copied()
                .filter(|during| during.is_some())?;
            Some(around_load::summary(*gpu, samples, during, load))
        });
        let mut measurements = Measurements {
            profile: self.profile,
            driver,
            links: links.collect(),
            aer_added: counted
                .map(|counted| counted.aer.clone())
                .unwrap_or_default(),
            around_load: around_load.collect(),
            aer_added_around_load: load.map(|load| load.aer.clone()).unwrap_or_default(),
            background: self.background,
            counted: self.traffic,
            broken_off: self.broken_off,
            problems: self.problems,
            limited: self.limited,
            left_out: self.left_out,
            thinned_out: self.thinned_out,
            interrupted: self.interrupted,
            cut_off: cut_off.is_some(),
            ..figures
        };
        topology::refute::readings(&snapshot, &mut topology, &mut measurements);
        topology::host::fill(&snapshot, &topology, &mut measurements.host);
        topology::load::refuse(&snapshot, &topology, &mut measurements);
        topology::load::fill(&snapshot, &topology, &mut measurements.load);
        impossible::set_aside(&mut measurements);
        disturbed::mark(&mut measurements, &snapshot, &topology);
        let times = self.times;
        let measured = if times.measured > 0.0 {
            times.measured
        } else {
            times.last
        };
        let timing = Timing {
            discover: times.facts,
            driver_start: times.driver,
            driver_floor: times.driver_floor,
            measure: if times.plan > 0.0 {
                measured - times.plan
            } else {
                0.0
            },
            total: times.last,
            ..Timing::default()
        };
        Recorded {
            request: self.request,
            snapshot,
            topology,
            measurements,
            timing,
            timelines: self.timelines,
        }
    }

    /// Where the run was cut off, which becomes the first of its problems.
    fn cut_off(&mut self) -> String {
        let before = match (&self.snapshot, &self.driver, self.rounds.is_empty()) {
            (None, ..) => "its facts were read",
            (_, None, _) => "the CUDA driver had started",
            (.., true) => "the first measurement",
            _ => "its end",
        };
        let cut_off = format!("the run was cut off before {before}");
        // Where it was is worth knowing: it may be what made somebody end it.
        let at = self
            .rounds
            .iter()
            .find(|round| !self.outcomes.contains_key(&round.id));
        let at = at
            .map(|round| format!(", about {} of {}", round.task, round.way()))
            .unwrap_or_default();
        self.problems.insert(
            0,
            format!("{cut_off}{at}; what follows is what its journal has"),
        );
        cut_off
    }
}
