//! Flows that share nothing with any other. Of hundreds of GPUs hundreds of such flows begin and end, each by itself, and
//! all of one kind have the same rate: while one of a kind is on its way, another one changes nobody's share.

use std::sync::Arc;

use super::hops::Met;
use super::work::{Flow, SharedHop};
use crate::model::maps::Map;

/// More kinds than this are not told apart: to look through them would take longer than to share anew.
const MOST_KINDS: usize = 16;

/// What flows have on their way, and which kinds of flows there are that have it alone.
#[derive(Debug, Default)]
pub(super) struct InUse {
    /// By hop: how many pass it.
    hops: Vec<u32>,
    /// How many flows a place has.
    places: Map<u32, u32>,
    /// None from a change on that all have to share anew after, until they have.
    kinds: Vec<Kind>,
}

/// Flows that have their ways alone, can reach as much, and pass hops that carry as much.
#[derive(Debug)]
struct Kind {
    cap: f64,
    /// What one of them passes.
    hops: Arc<[SharedHop]>,
    flows: usize,
    /// What each of them has, GB/s.
    rate: f64,
}

/// What hops are by themselves.
pub(super) trait Ways {
    /// GB/s that a hop carries.
    fn gbps(&self, hop: SharedHop) -> f64;
    /// The other direction of its link.
    fn opposite(&self, hop: SharedHop) -> Option<SharedHop>;
}

impl InUse {
    /// Counts a flow that begins; its rate, where it is known and nobody else's changes.
    pub fn begin(&mut self, ways: &impl Ways, flow: &Flow) -> Option<f64> {
        for hop in flow.hops.iter() {
            if self.hops.len() <= hop.0 {
                self.hops.resize(hop.0 + 1, 0);
            }
            self.hops[hop.0] += 1;
        }
        ends(flow).for_each(|place| *self.places.entry(place).or_default() += 1);
        let is_alone = self.is_alone(ways, flow);
        let rate = self.kind_of(ways, flow).filter(|_| is_alone).map(|kind| {
            kind.flows += 1;
            kind.rate
        });
        if rate.is_none() {
            self.kinds.clear();
        }
        rate
    }

    /// Counts a flow out that ends; whether nobody else's rate changes.
    pub fn end(&mut self, ways: &impl Ways, flow: &Flow) -> bool {
        let others_stay = self.is_alone(ways, flow)
            && self.kind_of(ways, flow).is_some_and(|kind| {
                kind.flows = kind.flows.saturating_sub(1);
                kind.flows > 0
            });
        if !others_stay {
            self.kinds.clear();
        }
        flow.hops.iter().for_each(|hop| self.hops[hop.0] -= 1);
        ends(flow).for_each(|place| *self.places.entry(place).or_default() -= 1);
        others_stay
    }

    /// Hears how all flows on their way share what there is.
    pub fn learn<'a>(&mut self, ways: &impl Ways, flows: impl Iterator<Item = (&'a Flow, f64)>) {
        self.kinds.clear();
        for (flow, rate) in flows {
            if !self.is_alone(ways, flow) {
                continue;
            }
            let has_room = self.kinds.len() < MOST_KINDS;
            match self.kind_of(ways, flow) {
                Some(kind) => kind.flows += 1,
                None if has_room => {
                    self.kinds.push(Kind {
                        cap: cap(flow),
                        hops: Arc::clone(&flow.hops),
                        flows: 1,
                        rate,
                    });
                }
                None => {}
            }
        }
    }

    /// Whether no other flow has anything of what this one has, in either direction.
    fn is_alone(&self, ways: &impl Ways, flow: &Flow) -> bool {
        let users = |hop: SharedHop| self.hops.get(hop.0).copied().unwrap_or(0);
        flow.hops
            .iter()
            .all(|hop| users(*hop) == 1 && ways.opposite(*hop).is_none_or(|back| users(back) == 0))
            && ends(flow).all(|place| self.places.get(&place) == Some(&1))
    }

    fn kind_of(&mut self, ways: &impl Ways, flow: &Flow) -> Option<&mut Kind> {
        let cap = cap(flow).to_bits();
        let carries_as_much = |(one, other): (&SharedHop, &SharedHop)| {
            one == other || ways.gbps(*one).to_bits() == ways.gbps(*other).to_bits()
        };
        self.kinds.iter_mut().find(|kind| {
            kind.cap.to_bits() == cap
                && kind.hops.len() == flow.hops.len()
                && kind.hops.iter().zip(flow.hops.iter()).all(carries_as_much)
        })
    }
}

/// The most that a flow reaches that meets no other.
fn cap(flow: &Flow) -> f64 {
    flow.cap_when(Met {
        host: flow.with_host,
        ..Met::default()
    })
}

/// The places that a flow has: of one within a place, it is both ends.
fn ends(flow: &Flow) -> impl Iterator<Item = u32> {
    let [one, other] = flow.places;
    [one, other]
        .into_iter()
        .take(if one == other { 1 } else { 2 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hardware::sim::hops::Hops;

    const GPUS: usize = 6;

    /// Hops of some GPUs: one up and one down each, the two directions of a link. Of some the rates differ.
    fn machine() -> (Hops, Vec<[SharedHop; 2]>) {
        let mut hops = Hops::default();
        let both = (0..GPUS).map(|gpu| {
            let gbps = if gpu == 5 { 7.0 } else { 10.0 };
            let [up, down] = [hops.add(gbps), hops.add(gbps)];
            hops.oppose(up, down);
            [up, down]
        });
        let both = both.collect();
        (hops, both)
    }

    fn flow(gpus: &[[SharedHop; 2]], from: usize, to: usize, cap: f64) -> Flow {
        let hops = if from == to {
            Vec::new()
        } else {
            vec![gpus[from][0], gpus[to][1]]
        };
        let places = [u32::try_from(from).unwrap(), u32::try_from(to).unwrap()];
        Flow {
            hops: hops.into(),
            places,
            both_ways: 0.75,
            beside_others: 0.9,
            beside_third: 0.8,
            ..Flow::new(1.0, cap)
        }
    }

    /// The rates of all flows, shared anew.
    fn shared(hops: &mut Hops, flows: &[(Flow, f64)]) -> Vec<f64> {
        let all: Vec<&Flow> = flows.iter().map(|(flow, _)| flow).collect();
        hops.share(0.0, &all)
            .flows
            .into_iter()
            .map(|(rate, _)| rate)
            .collect()
    }

    /// Begins a flow, or ends it where it is on its way; whether all have to share anew.
    fn turned(
        hops: &mut Hops,
        gpus: &[[SharedHop; 2]],
        flows: &mut Vec<(Flow, f64)>,
        (from, to, kind): (usize, usize, usize),
    ) -> bool {
        let flow = flow(gpus, from, to, [3.0, 4.1, 9.9, 20.0][kind]);
        let is_same =
            |(other, _): &(Flow, f64)| other.places == flow.places && other.cap == flow.cap;
        if let Some(place) = flows.iter().position(is_same) {
            return hops.end(&flows.remove(place).0);
        }
        let rate = hops.begin(&flow);
        flows.push((flow, rate.unwrap_or(0.0)));
        rate.is_none()
    }

    /// Two that meet at a GPU, of which one has its way alone for a moment, and one that had its way alone all along.
    #[test]
    fn flows_that_end_together_are_counted_right() {
        let (mut hops, gpus) = machine();
        let [one, other, third] =
            [(0, 1), (2, 3), (3, 4)].map(|(from, to)| flow(&gpus, from, to, 4.0));
        let all = [&one, &other, &third];
        for flow in all {
            hops.begin(flow);
        }
        hops.share(0.0, &all);
        assert_eq!([&third, &other, &one].map(|flow| hops.end(flow)), [true; 3]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn rates_are_those_that_sharing_anew_gives(
            turns in prop::collection::vec(prop::collection::vec((0..GPUS, 0..GPUS, 0..4_usize), 1..5), 1..40),
        ) {
            let (mut hops, gpus) = machine();
            let (mut anew, _) = machine();
            let mut flows: Vec<(Flow, f64)> = Vec::new();
            for at_once in turns {
                let changed = at_once.into_iter().fold(false, |changed, turn| turned(&mut hops, &gpus, &mut flows, turn) | changed);
                if changed {
                    let rates = shared(&mut hops, &flows);
                    flows.iter_mut().zip(rates).for_each(|((_, rate), new)| *rate = new);
                }
                let expected: Vec<u64> = shared(&mut anew, &flows).into_iter().map(f64::to_bits).collect();
                let found: Vec<u64> = flows.iter().map(|(_, rate)| rate.to_bits()).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn of_flows_of_one_kind_only_the_first_and_the_last_change_a_share() {
        let (mut hops, gpus) = machine();
        let [one, other] = [(0, 1), (2, 3)].map(|(from, to)| flow(&gpus, from, to, 4.0));
        assert_eq!(hops.begin(&one), None);
        hops.share(0.0, &[&one]);
        assert_eq!(hops.begin(&other), Some(4.0));
        assert!(!hops.end(&one));
        assert!(
            hops.end(&other),
            "none of its kind is left to know the rate of"
        );
        let third = flow(&gpus, 3, 4, 4.0);
        hops.begin(&other);
        hops.share(0.0, &[&other]);
        assert_eq!(hops.begin(&third), None, "they meet at a GPU");
    }
}
