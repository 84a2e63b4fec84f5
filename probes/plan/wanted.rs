//! The tasks planned for each pair, and the rounds that can be run at once.

use std::collections::BTreeSet;

use crate::contention::plan as contention;
use crate::latency::plan as latency;
use crate::overlap::plan as overlap;
use crate::peers::plan as peers;
use crate::plan::slot::Slot;
use crate::plan::{batches, in_full};
use crate::{Request, Task};
use model::placement::{Pair, Path};

/// The tasks planned for each pair.
pub(crate) struct Wanted<'a> {
    request: &'a Request<'a>,
    /// Pairs that can be tested, in order.
    pub(crate) pairs: Vec<Pair>,
    /// Pairs on which everything is measured. `None` if that is every pair.
    in_full: Option<BTreeSet<Pair>>,
    /// Direct pairs whose staged path is measured too.
    also_staged: BTreeSet<Pair>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(request: &'a Request<'a>) -> Self {
        let can = |pair: &Pair| request.buffer_of(*pair).is_some();
        let pairs: Vec<_> = Pair::ordered(request.gpus).into_iter().filter(can).collect();
        let in_full = in_full::in_full(request.gpus);
        let also_staged = peers::also_staged(request, &pairs);
        Self { request, pairs, in_full, also_staged }
    }

    fn is_in_full(&self, pair: Pair) -> bool {
        self.in_full.as_ref().is_none_or(|some| some.contains(&pair))
    }

    /// Returns the pairs on which everything is measured.
    pub(crate) fn in_full(&self) -> Vec<Pair> {
        self.pairs.iter().copied().filter(|pair| self.is_in_full(*pair)).collect()
    }

    /// Returns the tasks of this pair for copies through the host.
    pub(crate) fn staged(&self, pair: Pair) -> Vec<Task> {
        let Some(buffer) = self.request.buffer_of(pair) else {
            return Vec::new();
        };
        let direct = self.request.driver.is_direct(pair);
        if !self.is_in_full(pair) {
            return if direct {
                Vec::new()
            } else {
                peers::reference(self.request, pair, buffer, Path::Staged)
            };
        }
        if direct && !self.also_staged.contains(&pair) {
            return Vec::new();
        }
        let mut tasks = peers::staged(self.request, pair, buffer);
        tasks.extend(latency::tasks(self.request, Path::Staged));
        tasks
    }

    /// Returns the direct pairs in batches.
    pub(crate) fn batches(&self) -> Vec<Vec<Pair>> {
        let direct = |pair: &Pair| self.request.driver.is_direct(*pair);
        if self.request.serial {
            return self.pairs.iter().copied().filter(direct).map(|pair| vec![pair]).collect();
        }
        let can: BTreeSet<_> = self.pairs.iter().copied().filter(direct).collect();
        let batches = batches::batches(self.request.gpus, self.request.topology).into_iter();
        batches.map(|batch| batch.into_iter().filter(|pair| can.contains(pair)).collect()).collect()
    }

    /// Returns the pairs with access both ways, each in one order, in batches that share nothing.
    pub(crate) fn heats(&self) -> Vec<Vec<Pair>> {
        let both = |pair: &Pair| {
            let reversed = pair.reversed();
            pair.source < pair.destination
                && (self.is_in_full(*pair) || self.is_in_full(reversed))
                && self.request.driver.is_direct(reversed)
        };
        let batches = self.batches().into_iter();
        batches
            .map(|batch| batch.into_iter().filter(both).collect::<Vec<_>>())
            .filter(|batch| !batch.is_empty())
            .collect()
    }

    /// Returns the rows of direct copies of one batch, task by task, each for all pairs that have it.
    pub(crate) fn direct(&self, batch: &[Pair]) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        for &pair in batch {
            let Some(buffer) = self.request.buffer_of(pair) else {
                continue;
            };
            let tasks = match self.is_in_full(pair) {
                true => peers::direct(self.request, pair, buffer),
                false => peers::reference(self.request, pair, buffer, Path::Direct),
            };
            for task in tasks.into_iter().filter(|task| !task.is_both_ways()) {
                match slots.iter_mut().find(|slot| slot.task == task) {
                    Some(slot) => slot.of.push(vec![pair.into()]),
                    None => slots.push(Slot::one(task, vec![pair.into()])),
                }
            }
        }
        slots
    }

    /// Returns the tasks of a pair that run while no other pair is copied.
    pub(crate) fn one_at_a_time(&self, pair: Pair) -> Vec<Task> {
        if !self.request.driver.is_direct(pair) || !self.is_in_full(pair) {
            return Vec::new();
        }
        let Some(buffer) = self.request.buffer_of(pair) else {
            return Vec::new();
        };
        let mut tasks = overlap::tasks(self.request, pair);
        tasks.extend(contention::tasks(self.request, pair, buffer));
        tasks.extend(latency::tasks(self.request, Path::Direct));
        tasks.extend(
            peers::direct(self.request, pair, buffer).into_iter().filter(Task::is_both_ways),
        );
        tasks
    }
}
