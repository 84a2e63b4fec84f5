//! Hops that flows share: each carries a limited rate, which may depend on the number of flows and on a sleep state.

use super::sharing::{Demand, max_min};
use super::work::{Contention, Flow, SharedHop};
use model::maps::Map;

/// The sleep of a hop: it carries less at first after it was idle for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sleep {
    /// Nanoseconds of idleness after which the hop falls asleep. It is also asleep at first.
    pub after_ns: f64,
    /// Nanoseconds that it takes to wake up.
    pub lasts_ns: f64,
    /// Share of its rate that it carries while it wakes up.
    pub share: f64,
}

#[derive(Debug)]
struct HopState {
    gbps: f64,
    /// Total rate of several flows, if it is less than that of one.
    collapsed_gbps: Option<f64>,
    /// The other direction of the same link.
    opposite: Option<usize>,
    sleep: Option<Sleep>,
    /// Time since which nothing has passed it; `None` while something does.
    idle_since: Option<f64>,
    awake_at: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Hops {
    hops: Vec<HopState>,
    /// Indices of the hops that can fall asleep.
    sleepers: Vec<usize>,
    table: Table,
}

/// The shares of the active flows in the hops.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// By flow: GB/s, and the conditions that it meets now.
    pub flows: Vec<(f64, Contention)>,
    /// Time at which the shares change although no flow begins or ends.
    pub until: Option<f64>,
}

impl Hops {
    /// Adds a hop that carries this many GB/s in all.
    pub(crate) fn add(&mut self, gbps: f64) -> SharedHop {
        self.hops.push(HopState {
            gbps,
            collapsed_gbps: None,
            opposite: None,
            sleep: None,
            idle_since: Some(f64::NEG_INFINITY),
            awake_at: f64::NEG_INFINITY,
        });
        SharedHop(self.hops.len() - 1)
    }

    /// Declares two hops the two directions of one link.
    pub(crate) fn oppose(&mut self, a: SharedHop, b: SharedHop) {
        self.hops[a.0].opposite = Some(b.0);
        self.hops[b.0].opposite = Some(a.0);
    }

    /// Limits a hop to this many GB/s in all as soon as more than one flow passes.
    pub(crate) fn collapse(&mut self, hop: SharedHop, gbps: f64) {
        self.hops[hop.0].collapsed_gbps = Some(gbps);
    }

    /// Makes a hop fall asleep when it is idle.
    pub(crate) fn put_to_sleep(&mut self, hop: SharedHop, sleep: Sleep) {
        self.hops[hop.0].sleep = Some(sleep);
        self.sleepers.push(hop.0);
    }

    /// Shares the hops among these flows.
    pub(crate) fn share(&mut self, now: f64, flows: &[&Flow]) -> Shares {
        let mut table = std::mem::take(&mut self.table);
        table.count(self.hops.len(), flows);
        self.wake(now, |hop| table.passing(hop) > 0);
        let capacities: Vec<f64> = table
            .used
            .iter()
            .map(|hop| self.hops[*hop].carries(now, table.passing(*hop)))
            .collect();
        let opposed = |hop: &SharedHop| {
            self.hops[hop.0].opposite.is_some_and(|other| table.passing(other) > 0)
        };
        let contention: Vec<Contention> = flows
            .iter()
            .zip(&table.ends)
            .map(|(flow, ends)| {
                let any = |is: fn(&AtPlace) -> bool| ends.iter().any(|end| is(&table.places[*end]));
                Contention {
                    opposite: flow.hops.iter().any(opposed),
                    others: any(|place| place.flows > 1),
                    third: any(|place| place.third),
                    flows: 0,
                }
            })
            .collect();
        let mut ways = table.ways.as_slice();
        let demand = |(flow, contention): (&&Flow, &Contention)| {
            let (hops, rest) = ways.split_at(flow.hops.len());
            ways = rest;
            Demand { hops, cap: flow.cap_when(*contention) }
        };
        let demands: Vec<_> = flows.iter().zip(&contention).map(demand).collect();
        let waking = table.used.iter().map(|hop| self.hops[*hop].awake_at).filter(|at| *at > now);
        let until = waking.min_by(f64::total_cmp);
        let rates = max_min(&capacities, &demands);
        self.table = table;
        Shares { until, flows: rates.into_iter().zip(contention).collect() }
    }

    /// Records which hops begin and cease to be used. A link wakes up in both directions.
    fn wake(&mut self, now: f64, is_used: impl Fn(usize) -> bool) {
        for &hop in &self.sleepers {
            let Some(sleep) = self.hops[hop].sleep else {
                continue;
            };
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
    /// Returns the total GB/s of this many flows.
    fn carries(&self, now: f64, flows: usize) -> f64 {
        let gbps = self.collapsed_gbps.filter(|_| flows > 1).unwrap_or(self.gbps);
        match self.sleep {
            Some(sleep) if now < self.awake_at => gbps * sleep.share,
            _ => gbps,
        }
    }
}

/// The hops that each flow passes, counted anew for every share. Its memory is reused.
#[derive(Debug, Default)]
struct Table {
    /// By hop: the number of flows that pass it, and its index in `used`.
    hops: Vec<(usize, usize)>,
    /// The hops in use: a few of many.
    used: Vec<usize>,
    /// The paths of all flows, one after the other, as indices into `used`.
    ways: Vec<usize>,
    /// By flow: its ends, as indices into `places`.
    ends: Vec<[usize; 2]>,
    places: Vec<AtPlace>,
    numbers: Map<u32, usize>,
}

/// The flows at a place, which is an end of flows.
#[derive(Debug)]
struct AtPlace {
    flows: usize,
    /// The first place that it has a flow with.
    partner: u32,
    /// True if it has a flow with another place, too.
    third: bool,
}

impl Table {
    /// Counts what these flows pass, in a machine with this many hops.
    fn count(&mut self, hops: usize, flows: &[&Flow]) {
        self.hops.resize(hops, (0, 0));
        for hop in self.used.drain(..) {
            self.hops[hop] = (0, 0);
        }
        self.ways.clear();
        self.ends.clear();
        self.places.clear();
        self.numbers.clear();
        for flow in flows {
            for hop in flow.hops.iter() {
                let (passing, place) = &mut self.hops[hop.0];
                if *passing == 0 {
                    *place = self.used.len();
                    self.used.push(hop.0);
                }
                *passing += 1;
                self.ways.push(*place);
            }
            let [one, other] = flow.places;
            let ends = [self.place(one, other), self.place(other, one)];
            self.ends.push(ends);
            // A flow within a place has it for both ends, but counts there once.
            for end in ends.into_iter().take(if one == other { 1 } else { 2 }) {
                self.places[end].flows += 1;
            }
        }
    }

    /// Returns the index of a place that has a flow with `partner`.
    fn place(&mut self, place: u32, partner: u32) -> usize {
        let next = self.places.len();
        let number = *self.numbers.entry(place).or_insert(next);
        match self.places.get_mut(number) {
            Some(known) => known.third |= known.partner != partner,
            None => self.places.push(AtPlace { flows: 0, partner, third: false }),
        }
        number
    }

    /// Returns the number of flows that pass a hop.
    fn passing(&self, hop: usize) -> usize {
        self.hops[hop].0
    }
}
