//! Jobs of equal size, without a GPU in common, from some GPUs: dynamic programming over the GPUs that are left.

use std::collections::HashMap;

/// What is wanted of the scores of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// The lowest one as high as possible.
    Most,
    /// Their sum as low as possible.
    LeastSum,
}

/// Returns the best jobs from these sets, as many as fit, with their lowest score or its sum. `sets` are of this size and
/// in the order of their members.
pub(super) fn solve(
    of: &[u32],
    size: usize,
    sets: &[Vec<u32>],
    scores: &[f64],
    goal: Goal,
) -> (f64, Vec<Vec<u32>>) {
    let mut groups: Vec<Vec<(u32, usize)>> = vec![Vec::new(); of.len()];
    for (number, set) in sets.iter().enumerate() {
        let place = |gpu: &u32| of.iter().position(|other| other == gpu);
        let mask = set.iter().filter_map(place).fold(0, |mask, at| mask | 1 << at);
        if let Some(groups) = groups.get_mut(u32::trailing_zeros(mask) as usize) {
            groups.push((mask, number));
        }
    }
    let mut known = HashMap::new();
    let mut solver = Solver {
        groups: &groups,
        scores,
        size: u32::try_from(size).unwrap_or(u32::MAX),
        goal,
        known: &mut known,
    };
    let mut left = (0..of.len()).fold(0_u32, |mask, at| mask | 1 << at);
    let best = solver.best(left);
    let mut jobs = Vec::new();
    while let Some((_, Some(step))) = known.get(&left) {
        match step {
            Step::Skip => left &= left - 1,
            Step::Take(mask, number) => {
                left &= !mask;
                jobs.extend(sets.get(*number).cloned());
            }
        }
    }
    (best.unwrap_or_default(), jobs)
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The first GPU that is left is in no job.
    Skip,
    Take(u32, usize),
}

struct Solver<'a> {
    /// Sets by their first GPU, as masks with their numbers.
    groups: &'a [Vec<(u32, usize)>],
    scores: &'a [f64],
    size: u32,
    goal: Goal,
    known: &'a mut HashMap<u32, (Option<f64>, Option<Step>)>,
}

impl Solver<'_> {
    /// Returns the best score of jobs from these GPUs; `None` if not as many as fit can be made.
    fn best(&mut self, left: u32) -> Option<f64> {
        if left.count_ones() < self.size {
            return Some(match self.goal {
                Goal::Most => f64::INFINITY,
                Goal::LeastSum => 0.0,
            });
        }
        if let Some((score, _)) = self.known.get(&left) {
            return *score;
        }
        let groups = self.groups;
        let with_first = groups.get(left.trailing_zeros() as usize);
        let mut best: Option<(f64, Step)> = None;
        for (mask, number) in with_first.into_iter().flatten() {
            if mask & left != *mask {
                continue;
            }
            let own = self.scores.get(*number).copied();
            let Some((own, rest)) = own.zip(self.best(left & !mask)) else {
                continue;
            };
            let score = match self.goal {
                Goal::Most => own.min(rest),
                Goal::LeastSum => own + rest,
            };
            self.take(&mut best, score, Step::Take(*mask, *number));
        }
        if !left.count_ones().is_multiple_of(self.size)
            && let Some(score) = self.best(left & (left - 1))
        {
            self.take(&mut best, score, Step::Skip);
        }
        let (score, step) = best.unzip();
        self.known.insert(left, (score, step));
        score
    }

    fn take(&self, best: &mut Option<(f64, Step)>, score: f64, step: Step) {
        let is_better = |(known, _): (f64, Step)| match self.goal {
            Goal::Most => score > known,
            Goal::LeastSum => score < known,
        };
        if best.is_none_or(is_better) {
            *best = Some((score, step));
        }
    }
}
