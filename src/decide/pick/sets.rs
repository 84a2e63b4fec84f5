//! Sets of GPUs and how good they are.

use model::placement::Pair;

use super::super::outlook::{Outlook, between as flow_between};
use super::super::place::{nodes, shared_uplinks};
use super::super::ring::{Between, NOISE, Shape};
use super::partition::{self, Goal};
use super::rate_of;

/// Most GPUs of which all sets are compared: 12 870 sets of 8.
const MOST_COMPARED: usize = 16;

/// Sets of GPUs of one size.
pub(super) struct Sets<'a> {
    outlook: &'a Outlook<'a>,
    between: &'a Between,
    size: usize,
    /// False once a set was left out of a comparison.
    pub exact: bool,
}

impl<'a> Sets<'a> {
    pub(super) const fn of(outlook: &'a Outlook<'a>, between: &'a Between, size: usize) -> Self {
        Self { outlook, between, size, exact: true }
    }

    /// Returns true if a GPU has a figure that sets of this size are compared by.
    pub(super) fn is_measured(&self, gpu: u32) -> bool {
        self.size < 2 || self.outlook.gpus().iter().any(|other| self.rate(gpu, *other) > 0.0)
    }

    /// Returns the rate of a pair alone, GB/s; 0 if it was not measured or is of no use.
    fn rate(&self, source: u32, destination: u32) -> f64 {
        let flow = flow_between(source, destination);
        self.outlook.alone(flow).filter(|_| source != destination).unwrap_or(0.0)
    }

    /// Returns the slowest pair of a set, and its rate.
    pub(super) fn slowest(&self, gpus: &[u32]) -> Option<(Pair, f64)> {
        let pairs = Pair::ordered(gpus).into_iter();
        let rates = pairs.map(|pair| (pair, self.rate(pair.source, pair.destination)));
        rates.reduce(|one, other| if other.1 < one.1 { other } else { one })
    }

    /// Returns the figure by which sets are compared first: the rate of the slowest pair, or of a single GPU with the
    /// host.
    fn first(&self, gpus: &[u32]) -> f64 {
        match (self.slowest(gpus), gpus) {
            (Some((_, rate)), _) => rate,
            (None, [gpu]) => self.outlook.with_host(*gpu).unwrap_or(0.0),
            _ => 0.0,
        }
    }

    /// Returns the best ring of a set with its rate; `None` for one GPU.
    pub(super) fn ring(&self, gpus: &[u32]) -> Option<(Vec<u32>, f64)> {
        if gpus.len() < 2 {
            return None;
        }
        let found = self.between.best(&self.between.places(gpus), Shape::Ring, 0.0);
        Some((self.between.gpus(&found.order), found.gbps))
    }

    /// Returns the rate of a ring of this set that is faster than `above`, or else that of the natural one.
    fn ring_above(&mut self, gpus: &[u32], above: f64) -> f64 {
        if gpus.len() < 2 {
            return f64::INFINITY;
        }
        let found = self.between.best(&self.between.places(gpus), Shape::Ring, above);
        self.exact &= found.exact;
        found.gbps
    }

    /// Returns what decides between sets of equal rates.
    fn place(&self, gpus: &[u32]) -> (usize, usize) {
        let report = self.outlook.report();
        (nodes(self.outlook, gpus).len(), shared_uplinks(report, gpus))
    }

    /// Returns the sets to compare, in the order of their indices: all of them, or those that grow from one GPU each.
    fn candidates(&mut self, of: &[u32]) -> Vec<Vec<u32>> {
        if of.len() <= MOST_COMPARED {
            return subsets(of, self.size);
        }
        self.exact = false;
        let mut grown: Vec<Vec<u32>> = of.iter().map(|seed| self.grown(*seed, of)).collect();
        grown.sort();
        grown.dedup();
        grown
    }

    /// Adds the GPU with the fastest slowest pair, again and again.
    fn grown(&self, seed: u32, of: &[u32]) -> Vec<u32> {
        let mut set = vec![seed];
        while set.len() < self.size {
            let with = |gpu: &u32| set.iter().copied().chain([*gpu]).collect::<Vec<_>>();
            let left = of.iter().filter(|gpu| !set.contains(gpu));
            let left: Vec<(f64, (usize, usize), u32)> =
                left.map(|gpu| (self.first(&with(gpu)), self.place(&with(gpu)), *gpu)).collect();
            let fastest = left.iter().map(|(rate, ..)| *rate).fold(0.0, f64::max);
            let next = left.iter().filter(|(rate, ..)| *rate * NOISE >= fastest);
            let Some((.., gpu)) = next.min_by_key(|(_, place, gpu)| (*place, *gpu)) else {
                break;
            };
            set.push(*gpu);
        }
        set.sort_unstable();
        set
    }

    /// Returns the best set of these GPUs.
    pub(super) fn best(&mut self, of: &[u32]) -> Vec<u32> {
        let mut sets = self.candidates(of);
        let first: Vec<f64> = sets.iter().map(|set| self.first(set)).collect();
        let most = first.iter().copied().fold(0.0, f64::max);
        let mut rates = first.iter();
        sets.retain(|_| rates.next().is_some_and(|rate| *rate * NOISE >= most));
        let mut fastest = 0.0_f64;
        for set in &sets {
            // Only a ring above the fastest one so far is looked for.
            fastest = fastest.max(self.ring_above(set, fastest));
        }
        sets.sort_by_key(|set| (self.place(set), set.clone()));
        let enough = fastest / NOISE;
        let found = sets.iter().position(|set| self.ring_above(set, enough) >= enough);
        sets.swap_remove(found.unwrap_or(0))
    }

    /// Returns the set with the slowest pair of all, and of these the one with the slowest ring. `None` if there is one
    /// set only.
    pub(super) fn worst(&self, of: &[u32]) -> Option<Vec<u32>> {
        if of.len() <= self.size {
            return None;
        }
        let sets = if of.len() <= MOST_COMPARED {
            subsets(of, self.size)
        } else {
            let (pair, _) = self.slowest(of)?;
            let others = of.iter().filter(|gpu| !pair.touches(**gpu)).copied();
            let ends = [pair.source, pair.destination].into_iter();
            let mut set: Vec<u32> = ends.chain(others).take(self.size).collect();
            set.sort_unstable();
            vec![set]
        };
        let rated = sets.into_iter().map(|set| {
            let rates = (self.first(&set), rate_of(self.between, &set).unwrap_or(0.0));
            (rates, set)
        });
        let slower = |one: &((f64, f64), _), other: &((f64, f64), _)| {
            (one.0.0.total_cmp(&other.0.0)).then(one.0.1.total_cmp(&other.0.1))
        };
        rated.min_by(slower).map(|(_, set)| set)
    }

    /// Returns jobs of as many of these GPUs as possible.
    pub(super) fn partition(&mut self, of: &[u32]) -> Vec<Vec<u32>> {
        if of.len() > MOST_COMPARED {
            return self.one_after_the_other(of);
        }
        let mut sets = subsets(of, self.size);
        let by_first = |sets: &Self, set: &[u32]| sets.first(set);
        self.keep_best(of, &mut sets, by_first);
        let mut rings: Vec<f64> = sets.iter().map(|set| self.ring_above(set, 0.0)).collect();
        let least = partition::solve(of, self.size, &sets, &rings, Goal::Most).0;
        let mut kept = rings.drain(..);
        sets.retain(|_| kept.next().is_some_and(|rate| rate * NOISE >= least));
        drop(kept);
        #[allow(clippy::cast_precision_loss, reason = "numbers of nodes and links")]
        let cost = |set: &Vec<u32>| {
            let (nodes, uplinks) = self.place(set);
            (nodes * 1000 + uplinks) as f64
        };
        let costs: Vec<f64> = sets.iter().map(cost).collect();
        partition::solve(of, self.size, &sets, &costs, Goal::LeastSum).1
    }

    /// Keeps the sets that are as good as the worst one of the best partition.
    fn keep_best(&self, of: &[u32], sets: &mut Vec<Vec<u32>>, rate: fn(&Self, &[u32]) -> f64) {
        let rates: Vec<f64> = sets.iter().map(|set| rate(self, set)).collect();
        let least = partition::solve(of, self.size, sets, &rates, Goal::Most).0;
        let mut rates = rates.into_iter();
        sets.retain(|_| rates.next().is_some_and(|rate| rate * NOISE >= least));
    }

    fn one_after_the_other(&mut self, of: &[u32]) -> Vec<Vec<u32>> {
        let mut left = of.to_vec();
        let mut jobs = Vec::new();
        while left.len() >= self.size {
            let job = self.best(&left);
            left.retain(|gpu| !job.contains(gpu));
            jobs.push(job);
        }
        jobs
    }
}

/// Returns all sets of this size, in the order of their members.
fn subsets(of: &[u32], size: usize) -> Vec<Vec<u32>> {
    let Some((first, rest)) = of.split_first() else {
        return if size == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    if size == 0 {
        return vec![Vec::new()];
    }
    let with = subsets(rest, size - 1).into_iter().map(|mut set| {
        set.insert(0, *first);
        set
    });
    with.chain(subsets(rest, size)).collect()
}
