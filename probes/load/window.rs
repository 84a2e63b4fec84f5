//! Computes the rates of flows that run together, from the moments at which their copies ended.
//!
//! The first copy of each flow is not counted, nor is the time after the first flow has ended: flows share their
//! resources only while all of them run. If one engine copies the flows of a GPU in turn, each of them ends far from
//! the others. None of their times then shows its speed. They count as one flow, and each gets its part of the rate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use model::units::GbPerSecond;

/// Least distance between the ends of copies that take turns, as a share of the mean distance.
const IN_TURN: f64 = 0.5;

/// The engine that a GPU copies with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Engine {
    ToPeers,
    ToHost,
    FromHost,
    /// Kernels, which run at the same time.
    Multiprocessors,
}

/// The times of a flow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlowTimes {
    /// The GPU that issued the copies.
    pub(crate) gpu: u32,
    pub(crate) engine: Engine,
    /// Bytes per copy.
    pub(crate) bytes: u64,
    /// Start of the first copy, nanoseconds.
    pub(crate) begin: f64,
    /// End of each copy, nanoseconds.
    pub(crate) ends: Vec<f64>,
}

impl FlowTimes {
    /// Returns the time from its beginning to its end, nanoseconds.
    pub(crate) fn length(&self) -> f64 {
        self.ends.last().map_or(0.0, |end| end - self.begin)
    }
}

/// The rates of flows in one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Rate of all flows together.
    pub gbps: f64,
    /// Rate of each flow, in the order of the round.
    pub flows_gbps: Vec<f64>,
}

/// Flows whose copies follow each other: one, or those of one engine that takes turns.
struct Runner {
    /// The flows, by their places.
    flows: Vec<usize>,
    /// End and bytes of every copy, in the order of the ends.
    ends: Vec<(f64, u64)>,
}

impl Runner {
    fn of(ran: &[FlowTimes], flows: Vec<usize>) -> Self {
        let ends = flows
            .iter()
            .flat_map(|&flow| ran[flow].ends.iter().map(move |end| (*end, ran[flow].bytes)));
        let mut ends: Vec<(f64, u64)> = ends.collect();
        ends.sort_by(|one, other| one.0.total_cmp(&other.0));
        Self { flows, ends }
    }

    /// Returns true if each copy waited for the one before it.
    fn takes_turns(&self) -> bool {
        let (Some(first), Some(last)) = (self.ends.first(), self.ends.last()) else {
            return false;
        };
        let gaps = || self.ends.windows(2).map(|ends| ends[1].0 - ends[0].0);
        #[allow(clippy::cast_precision_loss, reason = "few copies")]
        let mean = (last.0 - first.0) / gaps().count().max(1) as f64;
        mean > 0.0 && gaps().all(|gap| gap >= IN_TURN * mean)
    }

    fn has_copy_within(&self, from: f64, until: f64) -> bool {
        self.ends.windows(2).any(|ends| ends[0].0 >= from && ends[1].0 <= until)
    }

    /// Returns the bytes copied within a time, evenly distributed within each copy.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    fn bytes_within(&self, from: f64, until: f64) -> f64 {
        let part = |ends: &[(f64, u64)]| {
            let (begin, end, bytes) = (ends[0].0, ends[1].0, ends[1].1 as f64);
            if end <= begin {
                return if begin >= from && end <= until { bytes } else { 0.0 };
            }
            bytes * ((end.min(until) - begin.max(from)) / (end - begin)).max(0.0)
        };
        self.ends.windows(2).map(part).sum()
    }
}

/// Returns the rates of these flows while all of them ran; none if there was no such time.
pub(crate) fn while_all_run(ran: &[FlowTimes]) -> Option<Sample> {
    let runners = runners(ran);
    let from = runners
        .iter()
        .map(|runner| runner.ends.first().map(|end| end.0))
        .collect::<Option<Vec<f64>>>()?;
    let until = runners
        .iter()
        .map(|runner| runner.ends.last().map(|end| end.0))
        .collect::<Option<Vec<f64>>>()?;
    let (from, until) = (from.into_iter().reduce(f64::max)?, until.into_iter().reduce(f64::min)?);
    // Every flow needs a complete copy within that time, or the rate of the slowest is a guess.
    if until <= from || !runners.iter().all(|runner| runner.has_copy_within(from, until)) {
        return None;
    }
    let mut sample = Sample { gbps: 0.0, flows_gbps: vec![0.0; ran.len()] };
    for runner in &runners {
        // Bytes per nanosecond are GB/s.
        let gbps = runner.bytes_within(from, until) / (until - from);
        sample.gbps += gbps;
        let copies =
            |flow: usize| GbPerSecond::of(ran[flow].bytes, 1.0).0 * ran[flow].ends.len() as f64;
        let all: f64 = runner.flows.iter().map(|flow| copies(*flow)).sum();
        runner.flows.iter().for_each(|&flow| sample.flows_gbps[flow] = gbps * copies(flow) / all);
    }
    Some(sample)
}

/// Returns the flows that follow each other, by their places.
pub(crate) fn in_turn(ran: &[FlowTimes]) -> Vec<Vec<usize>> {
    runners(ran).into_iter().map(|runner| runner.flows).collect()
}

/// Groups the flows of one engine if it takes turns, and leaves all others by themselves.
fn runners(ran: &[FlowTimes]) -> Vec<Runner> {
    let mut engines: BTreeMap<(u32, Engine), Vec<usize>> = BTreeMap::new();
    for (place, ran) in ran.iter().enumerate() {
        engines.entry((ran.gpu, ran.engine)).or_default().push(place);
    }
    let of_engine = |flows: Vec<usize>| match Runner::of(ran, flows) {
        runner if runner.flows.len() > 1 && !runner.takes_turns() => {
            runner.flows.into_iter().map(|flow| Runner::of(ran, vec![flow])).collect()
        }
        runner => vec![runner],
    };
    engines.into_values().flat_map(of_engine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a flow of this GPU whose copies of 100 bytes end at these times.
    fn ran(gpu: u32, ends: &[f64]) -> FlowTimes {
        FlowTimes { gpu, engine: Engine::ToPeers, bytes: 100, begin: 0.0, ends: ends.to_vec() }
    }

    fn rates(ran: &[FlowTimes]) -> (f64, Vec<f64>) {
        let tenth = |rate: f64| (rate * 10.0).round() / 10.0;
        let sample = while_all_run(ran).unwrap();
        (tenth(sample.gbps), sample.flows_gbps.into_iter().map(tenth).collect())
    }

    #[test]
    fn the_tail_of_a_lone_flow_does_not_count() {
        // Both have 50 until 6, and then the second has 100.
        let flows = [ran(0, &[2.0, 4.0, 6.0]), ran(1, &[2.0, 4.0, 6.0, 7.0, 8.0, 9.0])];
        assert_eq!(rates(&flows), (100.0, vec![50.0, 50.0]));
        // The time before the slowest flow's first copy has ended does not count either.
        let flows = [ran(0, &[1.0, 2.0, 4.0, 6.0]), ran(1, &[2.0, 4.0, 6.0])];
        assert_eq!(rates(&flows), (100.0, vec![50.0, 50.0]));
    }

    #[test]
    fn a_copy_that_is_under_way_counts_by_its_part() {
        let flows = [ran(0, &[2.0, 4.0, 6.0, 8.0]), ran(1, &[3.0, 6.0, 9.0])];
        assert_eq!(rates(&flows), (83.3, vec![50.0, 33.3]));
    }

    #[test]
    fn flows_that_one_engine_copies_in_turn_have_their_parts_of_it() {
        let in_turn =
            [ran(0, &[1.0, 4.0, 7.0]), ran(0, &[2.0, 5.0, 8.0]), ran(0, &[3.0, 6.0, 9.0])];
        assert_eq!(rates(&in_turn), (100.0, vec![33.3; 3]));
        // One stream runs after the other: the times of each would add to three times that.
        let behind = [ran(0, &[1.0, 2.0, 3.0]), ran(0, &[4.0, 5.0, 6.0]), ran(0, &[7.0, 8.0, 9.0])];
        assert_eq!(rates(&behind), (100.0, vec![33.3; 3]));
        // With an engine for each, the flows end together.
        let at_once = [ran(0, &[1.0, 2.0, 3.0]), ran(0, &[1.0, 2.0, 3.0])];
        assert_eq!(rates(&at_once), (200.0, vec![100.0; 2]));
    }

    #[test]
    fn flows_that_never_run_together_have_no_figure() {
        assert_eq!(while_all_run(&[ran(0, &[1.0, 2.0]), ran(1, &[3.0, 4.0])]), None);
        // The second flow's time between 1 and 5 was shared only partly.
        assert_eq!(while_all_run(&[ran(0, &[1.0, 2.0, 3.0]), ran(1, &[1.0, 5.0])]), None);
        assert_eq!(while_all_run(&[ran(0, &[])]), None);
        assert_eq!(while_all_run(&[]), None);
    }
}
