//! What flows share on their way: hops that carry so much, alone or together, awake or not yet.

use super::sharing::{Demand, max_min};
use super::work::{Flow, SharedHop};

/// A hop that carries less at first when nothing has passed it for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sleep {
    /// Falls asleep after so many nanoseconds, and is asleep at first.
    pub after_ns: f64,
    /// Takes so many nanoseconds to wake up,
    pub lasts_ns: f64,
    /// and carries this share meanwhile.
    pub share: f64,
}

/// What a flow has met on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Met {
    /// The opposite direction of one of its hops was busy.
    pub opposite: bool,
    /// Another flow had one of its places.
    pub others: bool,
    /// One of its places had a flow with a third one.
    pub third: bool,
    /// A flow with the host had one of its places.
    pub host: bool,
}

#[derive(Debug)]
struct HopState {
    gbps: f64,
    /// What several flows have together, where that is less.
    collapsed_gbps: Option<f64>,
    /// The place whose flows have too little of it when several pass, and the most that they have.
    starved: Option<(u32, f64)>,
    /// The other direction of the same link.
    opposite: Option<usize>,
    sleep: Option<Sleep>,
    /// Since when nothing has passed it; none while something does.
    idle_since: Option<f64>,
    awake_at: f64,
}

/// All hops.
#[derive(Debug, Default)]
pub struct Hops {
    hops: Vec<HopState>,
    /// Those that fall asleep.
    sleepers: Vec<usize>,
}

/// How the flows that are on their way share them.
#[derive(Debug, Default)]
pub struct Shares {
    /// By flow: GB/s, and what it meets now.
    pub flows: Vec<(f64, Met)>,
    /// When this changes although no flow begins or ends.
    pub until: Option<f64>,
}

impl Hops {
    /// A new hop that carries this many GB/s in all.
    pub fn add(&mut self, gbps: f64) -> SharedHop {
        self.hops.push(HopState {
            gbps,
            collapsed_gbps: None,
            starved: None,
            opposite: None,
            sleep: None,
            idle_since: Some(f64::NEG_INFINITY),
            awake_at: f64::NEG_INFINITY,
        });
        SharedHop(self.hops.len() - 1)
    }

    /// Declares two hops the two directions of one link.
    pub fn oppose(&mut self, a: SharedHop, b: SharedHop) {
        self.hops[a.0].opposite = Some(b.0);
        self.hops[b.0].opposite = Some(a.0);
    }

    /// Lets a hop carry this many GB/s in all as soon as more than one flow passes.
    pub fn collapse(&mut self, hop: SharedHop, gbps: f64) {
        self.hops[hop.0].collapsed_gbps = Some(gbps);
    }

    /// Lets the flows of a place have no more than this part of a hop as soon as several pass.
    pub fn starve(&mut self, hop: SharedHop, place: u32, part: f64) {
        self.hops[hop.0].starved = Some((place, part));
    }

    /// Lets a hop fall asleep.
    pub fn put_to_sleep(&mut self, hop: SharedHop, sleep: Sleep) {
        self.hops[hop.0].sleep = Some(sleep);
        self.sleepers.push(hop.0);
    }

    /// Shares the hops among these flows.
    pub fn share(&mut self, now: f64, flows: &[&Flow]) -> Shares {
        // The hops in use, numbered anew: they are few among many.
        let mut used: Vec<usize> = flows.iter().flat_map(|flow| flow.hops.iter().map(|hop| hop.0)).collect();
        used.sort_unstable();
        let passed =
            |hop: usize| used.partition_point(|other| *other <= hop) - used.partition_point(|other| *other < hop);
        self.wake(now, |hop| passed(hop) > 0);
        let users: Vec<(usize, usize)> = runs(&used);
        let place = |hop: usize| users.binary_search_by_key(&hop, |(hop, _)| *hop).ok();
        let capacities: Vec<f64> = users.iter().map(|(hop, users)| self.hops[*hop].carries(now, *users)).collect();
        let mut places: Vec<u32> = flows.iter().flat_map(|flow| ends(flow)).collect();
        places.sort_unstable();
        let crowded = runs(&places);
        let is_crowded =
            |end: u32| crowded.binary_search_by_key(&end, |(end, _)| *end).is_ok_and(|at| crowded[at].1 > 1);
        let mut hosted: Vec<u32> = flows.iter().filter(|flow| flow.with_host).flat_map(|flow| ends(flow)).collect();
        hosted.sort_unstable();
        let partners = partners(flows);
        let has_third =
            |end: u32| partners.binary_search_by_key(&end, |(end, _)| *end).is_ok_and(|at| partners[at].1 > 1);
        let opposed = |hop: &SharedHop| self.hops[hop.0].opposite.is_some_and(|other| place(other).is_some());
        let met: Vec<Met> = flows
            .iter()
            .map(|flow| Met {
                opposite: flow.hops.iter().any(opposed),
                others: ends(flow).any(is_crowded),
                third: ends(flow).any(has_third),
                host: ends(flow).any(|end| hosted.binary_search(&end).is_ok()),
            })
            .collect();
        let demand = |(flow, met): (&&Flow, &Met)| Demand {
            hops: flow.hops.iter().filter_map(|hop| place(hop.0)).collect(),
            cap: flow
                .hops
                .iter()
                .filter_map(|hop| self.part_of(*hop, flow, passed(hop.0)))
                .fold(flow.cap_when(*met), f64::min),
        };
        let demands: Vec<_> = flows.iter().zip(&met).map(demand).collect();
        let waking = users.iter().map(|(hop, _)| self.hops[*hop].awake_at).filter(|at| *at > now);
        Shares {
            until: waking.min_by(f64::total_cmp),
            flows: max_min(&capacities, &demands).into_iter().zip(met).collect(),
        }
    }

    /// The most that a flow has of a hop that so many pass, GB/s, where it has too little.
    fn part_of(&self, hop: SharedHop, flow: &Flow, passing: usize) -> Option<f64> {
        let hop = &self.hops[hop.0];
        let (_, part) = hop.starved.filter(|(place, _)| passing > 1 && flow.places.contains(place))?;
        Some(part * hop.gbps)
    }

    /// Notes which hops begin and cease to be used. A link wakes up in both directions.
    fn wake(&mut self, now: f64, is_used: impl Fn(usize) -> bool) {
        for &hop in &self.sleepers {
            let Some(sleep) = self.hops[hop].sleep else { continue };
            let used = is_used(hop) || self.hops[hop].opposite.is_some_and(&is_used);
            let hop = &mut self.hops[hop];
            match hop.idle_since {
                Some(since) if used => {
                    hop.idle_since = None;
                    if now - since >= sleep.after_ns {
                        hop.awake_at = now + sleep.lasts_ns;
                    }
                }
                None if !used => hop.idle_since = Some(now),
                _ => {}
            }
        }
    }
}

impl HopState {
    /// GB/s that so many flows have together.
    fn carries(&self, now: f64, flows: usize) -> f64 {
        let gbps = self.collapsed_gbps.filter(|_| flows > 1).unwrap_or(self.gbps);
        match self.sleep {
            Some(sleep) if now < self.awake_at => gbps * sleep.share,
            _ => gbps,
        }
    }
}

/// The places at the ends of a flow, each once.
fn ends(flow: &Flow) -> impl Iterator<Item = u32> + use<> {
    let [one, other] = flow.places;
    std::iter::once(one).chain((one != other).then_some(other))
}

/// With how many others each place has flows.
fn partners(flows: &[&Flow]) -> Vec<(u32, usize)> {
    let both = |flow: &&Flow| [flow.places, [flow.places[1], flow.places[0]]];
    let mut pairs: Vec<[u32; 2]> = flows.iter().flat_map(both).collect();
    pairs.sort_unstable();
    pairs.dedup();
    runs(&pairs.into_iter().map(|[end, _]| end).collect::<Vec<_>>())
}

/// What stands in a sorted list, and how often.
fn runs<T: Copy + PartialEq>(sorted: &[T]) -> Vec<(T, usize)> {
    sorted.chunk_by(PartialEq::eq).map(|run| (run[0], run.len())).collect()
}
