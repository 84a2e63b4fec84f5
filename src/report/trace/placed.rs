//! Places timelines on one clock, the host's. The file for trace viewers and the page are both drawn from the result.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::{Clock, ClockFacts, ClockId, clocks, id};
use model::timeline::{Attempt, Call, ClockReading, Timeline, Work};

/// All recorded activity, on the host's clock.
#[derive(Debug, Default)]
pub(crate) struct Placed<'a> {
    /// Parts in the order of the run.
    pub parts: Vec<PlacedPart<'a>>,
    /// Activity that cannot be drawn, with the reason, one sentence each.
    pub missing: BTreeSet<String>,
    /// The facts about each clock that was used.
    pub clocks: Vec<ClockFacts>,
}

impl Placed<'_> {
    /// Returns the largest error of a GPU's times, microseconds.
    pub(crate) fn uncertainty_us(&self, gpu: u32) -> f64 {
        let of_gpu = self.clocks.iter().filter(|clock| clock.gpu == gpu);
        of_gpu.map(|clock| clock.uncertainty_us).fold(0.0, f64::max)
    }
}

/// Returns the names of a GPU's streams, in their order; 0 is the legacy default stream.
pub(crate) fn stream_names(streams: &BTreeSet<u32>) -> Vec<String> {
    let sides = streams.iter().filter(|stream| **stream != 0).count();
    let name = |(place, stream): (usize, &u32)| match (*stream, sides) {
        (0, _) => "default stream".to_owned(),
        (_, 1) => "side stream".to_owned(),
        _ => format!("side stream {}", place + usize::from(!streams.contains(&0))),
    };
    streams.iter().enumerate().map(name).collect()
}

/// One variant that was tried.
#[derive(Debug)]
pub(crate) struct PlacedPart<'a> {
    /// The probe, such as `overlap`.
    pub probe: &'a str,
    /// The variant of the probe, such as `side/default/blocking`.
    pub name: &'a str,
    pub calls: &'a [Call],
    /// The GPU work that the calls launched.
    pub work: Vec<PlacedWork<'a>>,
}

impl PlacedPart<'_> {
    /// Returns the first and the last moment, nanoseconds; none if neither calls nor work are known.
    pub(crate) fn span_ns(&self) -> Option<[f64; 2]> {
        let calls = self.calls.iter().map(|call| [call.start_ns, call.end_ns]);
        let all = calls.chain(self.work.iter().map(|work| [work.start_ns, work.end_ns]));
        all.reduce(|[start, end], [other, last]| [start.min(other), end.max(last)])
    }
}

/// One activity of a GPU.
#[derive(Debug)]
pub(crate) struct PlacedWork<'a> {
    /// The activity, on the GPU's clock.
    pub work: &'a Work,
    /// Start, nanoseconds on the host's clock.
    pub start_ns: f64,
    /// End, nanoseconds on the host's clock. The length is by the GPU's own clock.
    pub end_ns: f64,
    /// Largest error of both times, nanoseconds.
    pub off_ns: f64,
}

/// The opening of a gate by the GPU's clock and by the host's, and the largest error of the latter, nanoseconds.
#[derive(Clone, Copy)]
struct Opening {
    gpu_ns: f64,
    host_ns: f64,
    off_ns: f64,
}

/// Brings everything onto the host's clock.
pub(crate) fn place(timelines: &[Timeline]) -> Placed<'_> {
    let mut placing =
        Placing { clocks: clocks(timelines), used: BTreeMap::new(), placed: Placed::default() };
    timelines.iter().for_each(|timeline| placing.timeline(timeline));
    let Placing { clocks, used, mut placed } = placing;
    let facts = |(id, (off, by_gates)): (&ClockId, &(f64, usize))| {
        clocks.get(id)?.facts(id.0, *off, *by_gates)
    };
    placed.clocks = used.iter().filter_map(facts).collect();
    placed
}

struct Placing<'a> {
    clocks: BTreeMap<ClockId, Clock>,
    /// For each used clock, the worst uncertainty, nanoseconds, and the number of parts whose gates it contradicts.
    used: BTreeMap<ClockId, (f64, usize)>,
    placed: Placed<'a>,
}

impl<'a> Placing<'a> {
    fn timeline(&mut self, timeline: &'a Timeline) {
        self.placed.missing.extend(timeline.problem.clone());
        let ids: BTreeMap<u32, ClockId> =
            timeline.clocks.iter().map(|reading| (reading.gpu, id(reading))).collect();
        for part in &timeline.parts {
            let part = self.part(part, &ids);
            self.placed.parts.push(part);
        }
    }

    fn part(&mut self, part: &'a Attempt, ids: &BTreeMap<u32, ClockId>) -> PlacedPart<'a> {
        let openings: BTreeMap<u32, Opening> =
            part.gates.iter().filter_map(|gate| Some((gate.gpu, self.opening(gate)?))).collect();
        let mut placed = Vec::new();
        for work in &part.work {
            match ids.get(&work.gpu) {
                Some(&clock) => {
                    placed.extend(self.work(work, clock, openings.get(&work.gpu).copied()))
                }
                None => {
                    let why = format!("the work of GPU {}, whose clock was not read", work.gpu);
                    self.placed.missing.insert(why);
                }
            }
        }
        PlacedPart { probe: &part.probe, name: &part.name, calls: &part.calls, work: placed }
    }

    fn opening(&mut self, gate: &ClockReading) -> Option<Opening> {
        let (host_ns, off_ns, by_gate) = self.clocks.get(&id(gate))?.opening(gate);
        self.used.entry(id(gate)).or_default().1 += usize::from(by_gate);
        Some(Opening { gpu_ns: gate.gpu_ns, host_ns, off_ns })
    }

    fn work(
        &mut self,
        work: &'a Work,
        id: ClockId,
        opening: Option<Opening>,
    ) -> Option<PlacedWork<'a>> {
        let after_gate = opening
            .map(|opening| (opening.host_ns + work.start_ns - opening.gpu_ns, opening.off_ns));
        let (start_ns, off_ns) =
            after_gate.or_else(|| self.clocks.get(&id)?.on_host(work.start_ns))?;
        let (worst, _) = self.used.entry(id).or_default();
        *worst = worst.max(off_ns);
        Some(PlacedWork {
            work,
            start_ns,
            end_ns: start_ns + (work.end_ns - work.start_ns),
            off_ns,
        })
    }
}
