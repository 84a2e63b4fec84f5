//! What hangs may cost. Each costs its deadline and another start of the driver, and on a machine
//! where every copy hangs, waiting for all of them would take hours and tell nothing new.
//!
//! Pairs of a GPU that keeps hanging are put off, not given up: what hangs may be the way between
//! two groups of GPUs, each of which is sound in itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::placement::Pair;
use crate::plan::Round;

/// So many pairs of one GPU in a row, and the GPU itself is suspected: chosen. One such pair may be
/// a bad link, two the two directions of it.
const IN_A_ROW: u32 = 3;
/// So many pairs in all where none has ended, and no more are tried: chosen.
const MOST_IF_NONE_ENDS: usize = 12;
/// So many in all, whatever else has ended: chosen, some minutes with the usual deadlines.
const MOST: usize = 32;

/// Rounds of one pair that follow each other: both ways comes after everything else.
pub type Batch = (Pair, bool);

/// Which rounds a round goes together with.
pub const fn batch_of(round: &Round) -> Batch {
    (round.pair, round.task.is_both_ways())
}

/// What has hung so far, and what follows from it.
#[derive(Debug, Default)]
pub struct Hangs {
    /// Pairs of a GPU that hung since one of it ended.
    in_a_row: BTreeMap<u32, u32>,
    /// Suspects that got another chance since then.
    tried: BTreeSet<u32>,
    ended: BTreeSet<Batch>,
    /// Pairs that hung.
    hung: BTreeSet<Pair>,
}

impl Hangs {
    /// All rounds of a batch have ended, well or not: both GPUs still do something.
    pub fn ended(&mut self, batch: Batch) {
        for gpu in [batch.0.source, batch.0.destination] {
            self.in_a_row.remove(&gpu);
            self.tried.remove(&gpu);
        }
        self.ended.insert(batch);
    }

    /// A round of this pair hung.
    pub fn hung(&mut self, pair: Pair) {
        self.hung.insert(pair);
        for gpu in [pair.source, pair.destination] {
            *self.in_a_row.entry(gpu).or_default() += 1;
        }
    }

    /// Why nothing more is tried, if so.
    pub fn enough(&self) -> Option<String> {
        let hung = self.hung.len();
        if self.ended.is_empty() && hung >= MOST_IF_NONE_ENDS {
            return Some(format!("not run, since {hung} pairs hung and none ended"));
        }
        (hung >= MOST).then(|| format!("not run, since {hung} pairs hung"))
    }

    /// Whether a batch is to wait until everything else is done.
    pub fn puts_off(&self, batch: Batch) -> bool {
        // Where the opposite direction ended, the path is there.
        let (pair, both_ways) = batch;
        let known = !both_ways && self.ended.contains(&(pair.reversed(), false));
        !known && self.suspects(pair).next().is_some()
    }

    /// Which of the batches that were put off is tried next, the most promising. None where none is
    /// worth it.
    pub fn another_chance(&mut self, batches: impl Iterator<Item = Batch>) -> Option<Batch> {
        let rank = |batch: Batch| {
            let (pair, _) = batch;
            let tried = || self.suspects(pair).any(|gpu| self.tried.contains(&gpu));
            Some(match self.suspects(pair).count() {
                _ if !self.puts_off(batch) => 0,
                _ if tried() || self.hung.contains(&pair.reversed()) => return None,
                // Two that hang with a third may be of one group, and sound between themselves.
                2 if self.hung_with(pair.source).intersection(&self.hung_with(pair.destination)).next().is_some() => 1,
                2 => 2,
                _ => 3,
            })
        };
        let ranked = batches.filter_map(|batch| Some(((batch.1, rank(batch)?), batch)));
        let (_, best) = ranked.min_by_key(|(rank, _)| *rank)?;
        let suspects: Vec<u32> = self.suspects(best.0).collect();
        self.tried.extend(suspects);
        Some(best)
    }

    /// Why a batch that was put off is not run at all.
    pub fn reason(&self, (pair, _): Batch) -> String {
        let gpus: Vec<String> = self.suspects(pair).map(|gpu| format!("GPU {gpu}")).collect();
        let them = if gpus.is_empty() { pair.to_string() } else { gpus.join(" and of ") };
        format!("not run, since {IN_A_ROW} pairs or more of {them} hung one after the other")
    }

    fn hung_with(&self, gpu: u32) -> BTreeSet<u32> {
        let of_gpu = self.hung.iter().filter(|pair| pair.source == gpu || pair.destination == gpu);
        of_gpu.map(|pair| if pair.source == gpu { pair.destination } else { pair.source }).collect()
    }

    fn suspects(&self, pair: Pair) -> impl Iterator<Item = u32> {
        [pair.source, pair.destination]
            .into_iter()
            .filter(|gpu| self.in_a_row.get(gpu).is_some_and(|count| *count >= IN_A_ROW))
    }
}
