//! The order of GPUs in a ring or a chain whose slowest flow is fastest.
//!
//! With max-min fair shares, the rate of the slowest of some flows is the lowest of their rates alone and of the equal
//! parts of each limit that they share. It never rises when a flow is added. So a search that adds one GPU after the
//! other can leave an order as soon as its first flows are too slow.

use std::collections::HashMap;

use model::flow::Flow;

use topology::shares::Passage;

use super::outlook::{Outlook, Table, between};

/// Most GPUs whose orders are all looked at: 9! rings of 10.
pub(crate) const MOST_EXACT: usize = 10;
/// Gain below which an order is no better than another one. Chosen: repeated runs differ by less
/// (docs/dev/method.md).
pub(crate) const NOISE: f64 = 1.01;
/// Most flows that one search adds. Counted and not timed, so a report gives the same answer everywhere.
const BUDGET: u64 = 20_000_000;

/// What the flows of an order are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each GPU sends to the next, the last to the first.
    Ring,
    /// Each GPU sends to the next and back, the last one only back.
    Chain,
}

/// The rates and limits of all flows between some GPUs.
pub(crate) struct Between {
    gpus: Vec<u32>,
    /// By source and destination, as places in `gpus`.
    flows: HashMap<(usize, usize), Rates>,
    limits: Vec<Limit>,
}

/// A flow.
struct Rates {
    /// Its rate while nothing passes its hops the other way, and while something does, GB/s.
    alone: f64,
    opposed: f64,
    /// The limits that it shares.
    on: Vec<usize>,
}

/// A limit of several flows, GB/s.
struct Limit {
    /// While nothing passes the other way, and while something does.
    alone: f64,
    opposed: f64,
    /// The other direction of the same hop.
    opposite: Option<usize>,
}

impl Between {
    /// Creates the table of these GPUs.
    pub(crate) fn of(outlook: &Outlook<'_>, gpus: &[u32]) -> Self {
        let places = || 0..gpus.len();
        let ends: Vec<(usize, usize)> = places()
            .flat_map(|from| places().map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
            .collect();
        let flow = |(from, to): &(usize, usize)| between(gpus[*from], gpus[*to]);
        let all: Vec<Flow> = ends.iter().map(flow).collect();
        // With every flow there, every hop has flows both ways.
        let Table { caps, hops, joint } = outlook.table(&all);
        let single = all.iter().map(|flow| outlook.table(&[*flow]));
        let single: Vec<Table> = single.collect();
        let alone_of: HashMap<Passage, f64> = single
            .iter()
            .flat_map(|table| table.hops.iter().map(|(hop, limit)| (*hop, limit.gbps)))
            .collect();
        let number: HashMap<Passage, usize> =
            hops.iter().enumerate().map(|(at, (hop, _))| (*hop, at)).collect();
        let of_hops = hops.iter().map(|(hop, limit)| Limit {
            alone: alone_of.get(hop).map_or(limit.gbps, |alone| alone.max(limit.gbps)),
            opposed: limit.gbps,
            opposite: number.get(&(hop.1, hop.0)).copied(),
        });
        let of_joint = joint.iter().map(|limit| Limit {
            alone: limit.gbps,
            opposed: limit.gbps,
            opposite: None,
        });
        let mut on: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
        let passed = hops.iter().map(|(_, limit)| limit).chain(&joint);
        for (number, limit) in passed.enumerate() {
            for flow in &limit.flows {
                if let Some(on) = on.get_mut(*flow) {
                    on.push(number);
                }
            }
        }
        // A pair whose bytes were wrong, or that was not measured, is of no use.
        let rates = |(((flow, opposed), table), on): (((&Flow, f64), &Table), Vec<usize>)| {
            let known = outlook.alone(*flow).is_some();
            let alone = table.caps.first().copied().unwrap_or(opposed);
            Rates {
                alone: if known { alone.max(opposed) } else { 0.0 },
                opposed: if known { opposed } else { 0.0 },
                on,
            }
        };
        let all = all.iter().zip(caps).zip(&single).zip(on).map(rates);
        Self {
            gpus: gpus.to_vec(),
            flows: ends.into_iter().zip(all).collect(),
            limits: of_hops.chain(of_joint).collect(),
        }
    }

    /// Returns the places of these GPUs.
    pub(crate) fn places(&self, gpus: &[u32]) -> Vec<usize> {
        let place = |gpu: &u32| self.gpus.iter().position(|other| other == gpu);
        gpus.iter().filter_map(place).collect()
    }

    /// Returns the GPUs at these places.
    pub(crate) fn gpus(&self, places: &[usize]) -> Vec<u32> {
        let gpu = |place: &usize| self.gpus.get(*place).copied();
        places.iter().filter_map(gpu).collect()
    }

    /// Returns the rate of the slowest flow of this order, GB/s.
    pub(crate) fn rate(&self, order: &[usize], shape: Shape) -> f64 {
        let mut tally = Tally::of(self);
        let next = order.iter().copied().zip(order.iter().copied().skip(1));
        next.for_each(|(from, to)| tally.add(from, to, shape));
        if let (Shape::Ring, [first, .., last]) = (shape, order) {
            tally.add(*last, *first, shape);
        }
        tally.lowest()
    }

    /// Returns the order that is best, the one given if no other is better than by noise, with its rate and whether
    /// all orders were looked at.
    pub(crate) fn best(&self, given: &[usize], shape: Shape, above: f64) -> Found {
        let mut search = Search {
            between: self,
            shape,
            tally: Tally::of(self),
            order: Vec::new(),
            left: given.to_vec(),
            best: given.to_vec(),
            // A shortfall of the given order counts from what is known to be possible elsewhere.
            rate: self.rate(given, shape),
            least: above,
            budget: BUDGET,
        };
        if given.len() <= MOST_EXACT {
            search.all();
        } else {
            search.improve();
        }
        Found {
            exact: given.len() <= MOST_EXACT && search.budget > 0,
            order: search.best,
            gbps: search.rate,
        }
    }
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// Places.
    pub order: Vec<usize>,
    /// Rate of its slowest flow, GB/s.
    pub gbps: f64,
    /// False if a better order may exist.
    pub exact: bool,
}

/// Flows that were added, and what limits the slowest one.
struct Tally<'a> {
    between: &'a Between,
    /// Flows on each limit.
    on: Vec<u32>,
    added: Vec<(usize, usize)>,
    /// The lowest rate after each added step.
    lowest: Vec<f64>,
}

impl<'a> Tally<'a> {
    fn of(between: &'a Between) -> Self {
        Self {
            between,
            on: vec![0; between.limits.len()],
            added: Vec::new(),
            lowest: vec![f64::INFINITY],
        }
    }

    fn lowest(&self) -> f64 {
        self.lowest.last().copied().unwrap_or(f64::INFINITY)
    }

    fn is_opposed(&self, limit: usize) -> bool {
        let opposite = self.between.limits.get(limit).and_then(|limit| limit.opposite);
        opposite.is_some_and(|opposite| self.on.get(opposite).is_some_and(|flows| *flows > 0))
    }

    /// Returns the rate of a flow as far as its own cap and the equal parts of its limits go.
    fn rate(&self, ends: (usize, usize)) -> f64 {
        let Some(flow) = self.between.flows.get(&ends) else {
            return 0.0;
        };
        let mut rate = flow.alone;
        for &limit in &flow.on {
            let (Some(limits), Some(on)) = (self.between.limits.get(limit), self.on.get(limit))
            else {
                continue;
            };
            let opposed = self.is_opposed(limit);
            let carries = if opposed { limits.opposed } else { limits.alone };
            rate = rate.min(carries / f64::from((*on).max(1)));
            if opposed {
                rate = rate.min(flow.opposed);
            }
        }
        rate
    }

    /// Adds a step of an order.
    fn add(&mut self, from: usize, to: usize, shape: Shape) {
        for ends in ends(from, to, shape) {
            self.count(ends, 1);
            self.added.push(ends);
        }
        // A flow that is added may slow all others.
        let rates = self.added.iter().map(|ends| self.rate(*ends));
        let lowest = rates.fold(f64::INFINITY, f64::min);
        self.lowest.push(lowest);
    }

    /// Takes the step that was added last away.
    fn remove(&mut self, from: usize, to: usize, shape: Shape) {
        for ends in ends(from, to, shape) {
            self.count(ends, -1);
            self.added.pop();
        }
        self.lowest.pop();
    }

    fn count(&mut self, ends: (usize, usize), by: i32) {
        for limit in self.between.flows.get(&ends).iter().flat_map(|flow| &flow.on) {
            if let Some(on) = self.on.get_mut(*limit) {
                *on = on.saturating_add_signed(by);
            }
        }
    }
}

fn ends(from: usize, to: usize, shape: Shape) -> impl Iterator<Item = (usize, usize)> {
    let back = (shape == Shape::Chain).then_some((to, from));
    [(from, to)].into_iter().chain(back)
}

struct Search<'a> {
    between: &'a Between,
    shape: Shape,
    tally: Tally<'a>,
    order: Vec<usize>,
    left: Vec<usize>,
    best: Vec<usize>,
    rate: f64,
    /// Rate that an order must exceed to be looked at.
    least: f64,
    budget: u64,
}

impl Search<'_> {
    fn enough(&self) -> f64 {
        (self.rate * NOISE).max(self.least)
    }

    fn all(&mut self) {
        // A ring may begin anywhere.
        let starts = match self.shape {
            Shape::Ring => self.left.len().min(1),
            Shape::Chain => self.left.len(),
        };
        for at in 0..starts {
            let first = self.left.remove(at);
            self.order.push(first);
            self.extend();
            self.order.pop();
            self.left.insert(at, first);
        }
    }

    fn extend(&mut self) {
        let (Some(&first), Some(&last)) = (self.order.first(), self.order.last()) else {
            return;
        };
        if self.left.is_empty() {
            let closes = self.shape == Shape::Ring && first != last;
            if closes {
                self.tally.add(last, first, self.shape);
            }
            if self.tally.lowest() > self.enough() {
                self.rate = self.tally.lowest();
                self.best.clone_from(&self.order);
            }
            if closes {
                self.tally.remove(last, first, self.shape);
            }
            return;
        }
        for at in 0..self.left.len() {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            let next = self.left[at];
            self.tally.add(last, next, self.shape);
            if self.tally.lowest() > self.enough() {
                self.left.remove(at);
                self.order.push(next);
                self.extend();
                self.order.pop();
                self.left.insert(at, next);
            }
            self.tally.remove(last, next, self.shape);
        }
    }

    /// Improves the order by moving parts of it elsewhere (or-opt) and by turning them round (2-opt), until nothing
    /// helps.
    fn improve(&mut self) {
        let mut starts = vec![self.best.clone(), self.greedy()];
        for start in &mut starts {
            let mut rate = self.between.rate(start, self.shape);
            while let Some((better, faster)) = self.step(start, rate) {
                (*start, rate) = (better, faster);
            }
            if rate > self.enough() {
                self.rate = rate;
                self.best.clone_from(start);
            }
        }
    }

    /// Takes the fastest flow that is left, again and again.
    fn greedy(&self) -> Vec<usize> {
        let mut left = self.best.clone();
        let mut order: Vec<usize> = left.drain(..left.len().min(1)).collect();
        while let Some(last) = order.last().copied() {
            let rate = |next: &usize| {
                let flow = self.between.flows.get(&(last, *next));
                flow.map_or(0.0, |flow| flow.alone)
            };
            let fastest = |one: &(usize, &usize), other: &(usize, &usize)| {
                // The first of several.
                rate(one.1).total_cmp(&rate(other.1)).then(other.0.cmp(&one.0))
            };
            let Some((at, _)) = left.iter().enumerate().max_by(fastest) else {
                break;
            };
            order.push(left.remove(at));
        }
        order
    }

    fn step(&mut self, order: &[usize], rate: f64) -> Option<(Vec<usize>, f64)> {
        for from in 0..order.len() {
            for to in from + 1..=order.len() {
                let mut turned = order.to_vec();
                turned[from..to].reverse();
                let moved = (0..=order.len() - (to - from)).map(|at| {
                    let mut moved = order.to_vec();
                    let part: Vec<usize> = moved.drain(from..to).collect();
                    moved.splice(at..at, part);
                    moved
                });
                let short = to - from <= 3;
                for other in [turned].into_iter().chain(moved.filter(|_| short)) {
                    self.budget = self.budget.checked_sub(order.len() as u64)?;
                    let found = self.between.rate(&other, self.shape);
                    if found > rate * NOISE {
                        return Some((other, found));
                    }
                }
            }
        }
        None
    }
}
