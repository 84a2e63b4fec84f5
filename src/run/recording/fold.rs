//! Folds the entries of a run into its result.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, HashMap};

use super::entry::{Entry, Event};
use crate::discover::without_telemetry;
use hardware::{ErrorKind, HardwareError, LinkSample};
use model::background::Background;
use model::broken_off::BrokenOff;
use model::counted;
use model::measurement::{DriverFacts, LinkUnderLoad, Measurements, SecondLook, Status};
use model::report::Timing;
use model::request::Request;
use model::snapshot::Snapshot;
use model::soak::{Soak, SoakEnd};
use model::timeline::Timeline;
use model::topology::Topology;
use probes::watch::{Counted, summary};
use probes::{Outcome, Round, assemble};

/// A run up to its latest entry: the fold over its entries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    profile: String,
    request: Request,
    snapshot: Option<Snapshot>,
    driver: Option<DriverFacts>,
    rounds: Vec<Round>,
    left_out: Vec<String>,
    thinned_out: Vec<String>,
    second_looks: Vec<SecondLook>,
    outcomes: HashMap<u32, Outcome>,
    timelines: Vec<Timeline>,
    problems: Vec<String>,
    /// Parts of the journal that could not be read, one clause each.
    unread: Vec<String>,
    broken_off: Vec<BrokenOff>,
    background: Vec<Background>,
    /// Counter readings of known traffic.
    traffic: Vec<counted::Counted>,
    limited: Vec<String>,
    /// Readings of the watched links, by GPU.
    links: BTreeMap<u32, Vec<LinkSample>>,
    counted: Option<Counted>,
    soak: Option<Soak>,
    interrupted: bool,
    ended: bool,
    times: Times,
}

/// Times in seconds since the run began; 0 if the event never occurred.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    facts: f64,
    driver: f64,
    /// Duration of the driver's own start.
    driver_floor: f64,
    plan: f64,
    /// End of the last round.
    measured: f64,
    last: f64,
}

/// The result of a run, before it is judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The request of the user.
    pub request: Request,
    pub snapshot: Snapshot,
    /// The graph and the routes, with the facts that CUDA reported about them.
    pub topology: Topology,
    pub measurements: Measurements,
    /// Time spent per stage; `total` is the time of the last entry.
    pub timing: Timing,
    /// Timelines of the followed rounds, which are not part of the report.
    pub timelines: Vec<Timeline>,
}

impl Recording {
    /// Starts an empty run of this profile.
    pub fn new(profile: &str) -> Self {
        Self { profile: profile.to_owned(), ..Self::default() }
    }

    /// Takes the next entry.
    pub fn take(&mut self, Entry { at, event }: Entry) {
        self.times.last = self.times.last.max(at);
        match event {
            Event::Facts { snapshot } => {
                self.snapshot = Some(snapshot);
                self.times.facts = at;
            }
            Event::Late(late) => {
                if let Some(snapshot) = &mut self.snapshot {
                    late.put_into(snapshot);
                }
            }
            Event::Asked { request } => self.request = request,
            Event::Driver { floor_seconds, facts } => {
                self.driver = Some(facts);
                (self.times.driver, self.times.driver_floor) = (at, floor_seconds);
            }
            Event::Background { seen } => self.background.extend(seen),
            Event::Traffic { counted } => self.traffic.extend(counted),
            Event::Plan { rounds, left_out, thinned_out } => {
                (self.rounds, self.left_out, self.thinned_out) = (rounds, left_out, thinned_out);
                self.times.plan = at;
            }
            Event::SecondLooks { looks, rounds } => {
                self.second_looks.extend(looks);
                self.rounds.extend(rounds);
            }
            Event::Watching { gpus } => {
                self.links.extend(gpus.into_iter().map(|gpu| (gpu, Vec::new())));
            }
            Event::Links { readings } => {
                for (gpu, sample) in readings {
                    self.links.entry(gpu).or_default().push(sample);
                }
            }
            Event::Timeline { timeline } => self.timelines.push(timeline),
            Event::Outcome { id, outcome } => match self.outcomes.entry(id) {
                MapEntry::Occupied(known) => known.into_mut().follow_up(outcome),
                MapEntry::Vacant(none) => drop(none.insert(outcome)),
            },
            Event::Problem { problem } => self.problems.push(problem),
            Event::BrokenOff { broken } => {
                match self.broken_off.iter_mut().find(|known| known.is_of(&broken)) {
                    Some(known) => *known = broken,
                    None => self.broken_off.push(broken),
                }
            }
            Event::Limited { why } => self.limited.push(why),
            Event::Soak { seconds, paths } => {
                self.soak = Some(Soak {
                    requested_seconds: seconds,
                    paths,
                    ended: SoakEnd::CutOff,
                    ..Soak::default()
                });
            }
            Event::Minute { minute, events, ran, lost } => {
                if let Some(soak) = &mut self.soak {
                    soak.seconds = minute.until_s;
                    (soak.rounds, soak.rounds_lost) = (ran, lost);
                    soak.minutes.push(minute);
                    events.into_iter().for_each(|event| soak.happened(event));
                }
            }
            Event::SoakEnded { ended, events } => {
                if let Some(soak) = &mut self.soak {
                    soak.ended = ended;
                    events.into_iter().for_each(|event| soak.happened(event));
                }
            }
            Event::Measured { interrupted } => {
                self.interrupted = interrupted;
                self.times.measured = at;
            }
            Event::Counted { counted } => self.counted = Some(counted),
        }
    }

    /// Returns the hours under load so far, if there are any.
    pub fn soak(&self) -> Option<&Soak> {
        self.soak.as_ref()
    }

    /// Returns the rounds of single links, and of addresses, that have measured something.
    pub fn to_repeat(&self) -> impl Iterator<Item = &Round> {
        let measured = |outcome: Option<&Outcome>| {
            matches!(outcome, Some(Outcome::Links { .. } | Outcome::Addresses { .. }))
        };
        self.rounds.iter().filter(move |round| measured(self.outcomes.get(&round.id)))
    }

    /// Marks the run as ended. No entry records this: the report replaces the journal, so any journal that still exists
    /// was cut off.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Notes a part of the journal that could not be read, such as `its last line is not complete`.
    pub fn unread(&mut self, what: String) {
        self.problems.push(format!("the journal was not read in full: {what}"));
        self.unread.push(what);
    }

    /// Returns the parts of the journal that could not be read.
    pub fn not_read(&self) -> &[String] {
        &self.unread
    }

    /// Returns the number of GPUs. Their routes are built before anything else is looked at.
    pub fn gpus(&self) -> usize {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.gpus.len())
    }

    #[cfg(test)]
    pub fn outcomes(&self) -> &HashMap<u32, Outcome> {
        &self.outcomes
    }

    /// Returns the result of the run. For a run that was cut off, the result covers the part before the cut. Missing
    /// measurements then have the cut as their reason, and the first problem reports its place.
    pub fn conclude(mut self) -> Recorded {
        let cut_off = (!self.ended).then(|| self.cut_off());
        let unread = || {
            let why = cut_off.clone().unwrap_or_else(|| "no facts were recorded".into());
            without_telemetry(&HardwareError::new(ErrorKind::Other, why))
        };
        let snapshot = self.snapshot.unwrap_or_else(unread);
        let driver = self
            .driver
            .unwrap_or_else(|| DriverFacts { failure: cut_off.clone(), ..DriverFacts::default() });
        if cut_off.is_some() {
            for round in &self.rounds {
                self.outcomes.entry(round.id).or_insert_with(|| Outcome::Lost {
                    status: Status::Skipped,
                    reason: "the run was cut off before this measurement".into(),
                });
            }
        }
        let topology = topology::with_cuda(topology::build(&snapshot), &driver);
        let figures = assemble(&self.rounds, &self.outcomes, &topology);
        let counted = self.counted.as_ref();
        let links = self.links.iter().map(|(gpu, samples)| LinkUnderLoad {
            nvlink_errors: counted.and_then(|counted| counted.nvlink_of(*gpu)),
            nvlink_corrected: counted.and_then(|counted| counted.corrected_of(*gpu)),
            reason: match counted {
                None => Some("the run was cut off while the link was watched".into()),
                Some(counted) => {
                    counted.late.contains(gpu).then(|| "NVML did not answer in time".into())
                }
            },
            ..summary(*gpu, samples)
        });
        let measurements = Measurements {
            profile: self.profile,
            driver,
            links: links.collect(),
            aer_added: counted.map(|counted| counted.aer.clone()).unwrap_or_default(),
            background: self.background,
            counted: self.traffic,
            broken_off: self.broken_off,
            problems: self.problems,
            limited: self.limited,
            left_out: self.left_out,
            thinned_out: self.thinned_out,
            second_looks: self.second_looks,
            soak: self.soak.map(|mut soak| {
                soak.find_equilibrium();
                Box::new(soak)
            }),
            interrupted: self.interrupted,
            cut_off: cut_off.is_some(),
            ..figures
        };
        let times = self.times;
        let measured = if times.measured > 0.0 { times.measured } else { times.last };
        let timing = Timing {
            discover: times.facts,
            driver_start: times.driver,
            driver_floor: times.driver_floor,
            measure: if times.plan > 0.0 { measured - times.plan } else { 0.0 },
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

    /// Returns a sentence that names the place of the cut, and adds it as the first problem.
    fn cut_off(&mut self) -> String {
        let before = match (&self.snapshot, &self.driver, self.rounds.is_empty()) {
            (None, ..) => "its facts were read",
            (_, None, _) => "the CUDA driver had started",
            (.., true) => "the first measurement",
            _ => "its end",
        };
        let cut_off = format!("the run was cut off before {before}");
        // Name the round that was running: it may be the reason why somebody ended the run.
        let at = self.rounds.iter().find(|round| !self.outcomes.contains_key(&round.id));
        let at = at
            .map(|round| format!(", about {} of {}", round.task, round.way()))
            .unwrap_or_default();
        self.problems.insert(0, format!("{cut_off}{at}; what follows is what its journal has"));
        cut_off
    }
}
