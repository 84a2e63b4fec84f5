//! Stores and loads over each NVLink of a pair, all links at once, each with a time of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::map::{FAR, OWN, PairLinks, RECEIVED, SENT, foreign, impossible, rise};
use crate::Outcome;
use crate::bench::Bench;
use crate::figures::{count, no_samples, without_figures};
use crate::statistics::{median, spread_percent};
use hardware::{BlockList, BlockWork, HardwareError, Passed};
use model::links::SingleLink;
use model::placement::{Pair, Path};
use model::status::Verified;
use model::units::GbPerSecond;

/// Stores and loads of a group, about a millisecond on H200.
const STORES: u32 = 4096;
const LOADS: u32 = 2048;
/// Loads that follow each other.
const HOPS: u32 = 1000;
/// Places by which the lists are turned from pass to pass. Chosen.
const TURN: usize = 5;
/// Samples of the time of a load.
const CHASES: u32 = 3;
/// Loads of the destination's own by which it compares.
const LOOKS: u32 = 4;
/// Largest difference of the two fastest samples, of which no more are needed: those of one link differ by 0.2% [M: 2 x H200].
const AGREE: f64 = 0.01;
/// Share of the stored bytes that half of the links' counters must have seen at least. Chosen: counters that lag, or stores that
/// did not leave the GPU, say nothing of a link.
const LEAST_COUNTED: f64 = 0.95;
/// Share of more bytes than were sent from which other data passed too.
const FOREIGN: f64 = 0.02;

/// The samples of one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Way {
    pub source_link: u8,
    pub destination_link: Option<u8>,
    /// GB/s of each sample, by what the kernels moved.
    pub stores: Vec<f64>,
    pub loads: Vec<f64>,
    /// Shares of the bytes stored and loaded that the link's counter saw.
    pub counted: [f64; 2],
    pub load_ns: f64,
    /// Loads that were wrong: of the destination itself, and over the link.
    pub wrong: [u64; 2],
}

impl Bench<'_> {
    /// Measures each link from one GPU to another.
    pub(crate) fn single_links(&self, pair: Pair, samples: u32) -> Result<Outcome, HardwareError> {
        self.set_path(pair, Path::Direct)?;
        let PairLinks { map, far, counted: begin } = self.pair_links(pair)?;
        let memory = self.blocks_of(pair.destination)?;
        let lists = |repeats: u32| -> Vec<BlockList> {
            map.values().map(|blocks| BlockList { blocks: blocks.clone(), repeats }).collect()
        };
        let seed = self.seeds.flags(0);
        let (stores, _) = self.rates(pair, BlockWork::Store, &lists(STORES), samples, (seed, 0))?;
        let stored = self.counted(pair)?;
        let last = (seed, STORES - 1);
        self.pass(pair.destination, memory, BlockWork::Load, &lists(LOOKS), last)?;
        let device = self.open_gpu(pair.destination)?.device;
        let seen = self.driver.passed(device, map.len())?;
        let (loads, wrong) = self.rates(pair, BlockWork::Load, &lists(LOADS), samples, last)?;
        let loaded = self.counted(pair)?;
        let mut fastest = vec![f64::INFINITY; map.len()];
        for _ in 0..CHASES {
            let times = self.times(pair, BlockWork::Chase, &lists(HOPS), last)?;
            for (ns, passed) in fastest.iter_mut().zip(times) {
                *ns = ns.min(nanoseconds(passed) / f64::from(HOPS));
            }
        }
        let of_stores =
            [rise(&begin[OWN], &stored[OWN], SENT), rise(&begin[FAR], &stored[FAR], RECEIVED)];
        let of_loads =
            [rise(&stored[OWN], &loaded[OWN], RECEIVED), rise(&stored[FAR], &loaded[FAR], SENT)];
        let mut ways = Vec::new();
        for (at, (link, blocks)) in map.iter().enumerate() {
            // The first pass of each is not among the samples.
            let share =
                |work: BlockWork, repeats: u32, passes: &[f64], rises: &[BTreeMap<u8, u64>; 2]| {
                    let list = BlockList { blocks: blocks.clone(), repeats };
                    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
                    let of = |rise: Option<&u64>| {
                        let moved = list.bytes(work) as f64 * f64::from(count(passes) + 1);
                        rise.map_or(0.0, |rise| *rise as f64 / moved)
                    };
                    let ends = [
                        of(rises[OWN].get(link)),
                        of(far.get(link).and_then(|far| rises[FAR].get(far))),
                    ];
                    match ends.iter().position(|share| *share > 1.0 + FOREIGN) {
                        Some(OWN) => Err(foreign(pair.source)),
                        Some(_) => Err(foreign(pair.destination)),
                        None => Ok(ends[OWN].min(1.0)),
                    }
                };
            ways.push(Way {
                source_link: *link,
                destination_link: far.get(link).copied(),
                stores: stores[at].clone(),
                loads: loads[at].clone(),
                counted: [
                    share(BlockWork::Store, STORES, &stores[at], &of_stores)?,
                    share(BlockWork::Load, LOADS, &loads[at], &of_loads)?,
                ],
                load_ns: fastest[at],
                wrong: [seen.get(at).map_or(0, |seen| seen.wrong), wrong[at]],
            });
        }
        let seen: Vec<f64> = ways.iter().map(|way| way.counted[0]).collect();
        match median(&seen) {
            Some(share) if share < LEAST_COUNTED => Err(impossible(&format!(
                "their counters saw {:.0}% of what was stored",
                100.0 * share
            ))),
            _ => Ok(Outcome::Links { ways }),
        }
    }

    /// Returns the rates of each list until their fastest agree, GB/s, and the loads that were wrong. A first pass is not
    /// among them.
    fn rates(
        &self,
        pair: Pair,
        work: BlockWork,
        lists: &[BlockList],
        samples: u32,
        last: (u32, u32),
    ) -> Result<(Vec<Vec<f64>>, Vec<u64>), HardwareError> {
        let (mut rates, mut wrong) = (vec![Vec::new(); lists.len()], vec![0; lists.len()]);
        let mut turned: Vec<usize> = (0..lists.len()).collect();
        for pass in 0..=samples.max(1) {
            // In each pass other multiprocessors serve a link: where a single one is decides some per cent.
            turned.rotate_left(TURN % lists.len().max(1));
            let in_turn: Vec<BlockList> = turned.iter().map(|at| lists[*at].clone()).collect();
            let times = self.times(pair, work, &in_turn, last)?;
            for (at, passed) in turned.iter().copied().zip(times) {
                wrong[at] += passed.wrong;
                if pass > 0 {
                    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
                    rates[at].push(lists[at].bytes(work) as f64 / nanoseconds(passed));
                }
            }
            if rates.iter().all(|rates| agree(rates)) {
                break;
            }
        }
        Ok((rates, wrong))
    }

    fn times(
        &self,
        pair: Pair,
        work: BlockWork,
        lists: &[BlockList],
        last: (u32, u32),
    ) -> Result<Vec<Passed>, HardwareError> {
        let memory = self.blocks_of(pair.destination)?;
        self.pass(pair.source, memory, work, lists, last)?;
        let device = self.open_gpu(pair.source)?.device;
        self.driver.passed(device, lists.len())
    }
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds")]
fn nanoseconds(passed: Passed) -> f64 {
    passed.ns.max(1) as f64
}

/// Returns the fastest sample: other causes than the link make it slower, never faster.
fn fastest(rates: &[f64]) -> Option<f64> {
    rates.iter().copied().reduce(f64::max)
}

fn agree(rates: &[f64]) -> bool {
    let mut fastest = rates.to_vec();
    fastest.sort_by(|one, other| other.total_cmp(one));
    matches!(fastest[..], [one, other, ..] if one - other <= AGREE * one)
}

/// Adds later samples of the same pair.
pub(crate) fn add(known: &mut Vec<Way>, again: Vec<Way>) {
    join(known, again, |known, again| {
        known.stores.extend(again.stores);
        known.loads.extend(again.loads);
        known.counted = [0, 1].map(|at| known.counted[at].min(again.counted[at]));
        known.load_ns = known.load_ns.min(again.load_ns);
    });
}

/// Keeps the worse of two sets of samples of each link, by their medians.
pub(crate) fn keep_worse(known: &mut Vec<Way>, again: Vec<Way>) {
    join(known, again, |known, again| {
        for (known, again) in [(&mut known.stores, again.stores), (&mut known.loads, again.loads)] {
            if median(&again).is_some_and(|again| median(known).is_none_or(|known| again < known)) {
                *known = again;
            }
        }
        known.counted = [0, 1].map(|at| known.counted[at].min(again.counted[at]));
        known.load_ns = known.load_ns.max(again.load_ns);
    });
}

/// Keeps the median of the samples of each link.
pub(crate) fn summed_up(ways: &mut [Way]) {
    for samples in ways.iter_mut().flat_map(|way| [&mut way.stores, &mut way.loads]) {
        *samples = median(samples).into_iter().collect();
    }
}

fn join(known: &mut Vec<Way>, again: Vec<Way>, with: impl Fn(&mut Way, Way)) {
    for way in again {
        match known.iter_mut().find(|known| known.source_link == way.source_link) {
            Some(known) => {
                known.wrong = [0, 1].map(|at| known.wrong[at] + way.wrong[at]);
                with(known, way);
            }
            None => known.push(way),
        }
    }
}

/// Returns the cells of a pair: one for each link, or one with the reason why there are none.
pub(crate) fn cells(pair: Pair, outcome: &Outcome) -> Vec<SingleLink> {
    let Outcome::Links { ways } = outcome else {
        let mut cell = SingleLink::blank(pair, None, None);
        cell.ending = without_figures(outcome);
        return vec![cell];
    };
    ways.iter().map(|way| cell(pair, way)).collect()
}

fn cell(pair: Pair, way: &Way) -> SingleLink {
    let mut cell = SingleLink::blank(pair, Some(way.source_link), way.destination_link);
    // Bytes that the link's counter has not seen did not pass it.
    cell.store_gbps = fastest(&way.stores).map(|rate| GbPerSecond(rate * way.counted[0]));
    cell.load_gbps = fastest(&way.loads).map(|rate| GbPerSecond(rate * way.counted[1]));
    cell.latency_ns = Some(way.load_ns).filter(|ns| ns.is_finite());
    cell.spread_percent = spread_percent(&way.loads);
    cell.counted_percent = Some(100.0 * way.counted[0]);
    cell.samples = count(&way.loads);
    cell.verified = match way.wrong {
        [0, 0] => Verified::Ok,
        _ => Verified::Corrupt,
    };
    if way.loads.is_empty() {
        cell.ending = no_samples();
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;
    use hardware::{ErrorKind, HardwareError};

    fn links(stores: &[f64], load_ns: f64, wrong: u64) -> Outcome {
        let way = Way {
            source_link: 3,
            destination_link: Some(5),
            stores: stores.to_vec(),
            loads: vec![13.7],
            counted: [1.0, 1.0],
            load_ns,
            wrong: [wrong, 0],
        };
        Outcome::Links { ways: vec![way] }
    }

    #[test]
    fn the_worse_hour_of_a_link_counts_and_wrong_bytes_stay() {
        let mut known = links(&[21.4, 21.3], 890.0, 0);
        known.add(links(&[21.0, 21.2, 9.0], 900.0, 1));
        known.sum_up();
        let Outcome::Links { ways } = &known else { panic!("{known:?}") };
        assert_eq!((ways[0].stores.as_slice(), ways[0].load_ns), ([21.2].as_slice(), 890.0));
        known.follow_up(links(&[12.0], 950.0, 0));
        known.follow_up(links(&[21.4], 880.0, 0));
        let cell = &cells(Pair { source: 0, destination: 1 }, &known)[0];
        assert_eq!((cell.store_gbps, cell.latency_ns), (Some(GbPerSecond(12.0)), Some(950.0)));
        assert_eq!(cell.verified, Verified::Corrupt);
        // Traffic of others is no fault; a round that failed is.
        let failed = |kind| Outcome::Failed { error: HardwareError::new(kind, "why") };
        known.follow_up(failed(ErrorKind::Hindered));
        assert!(matches!(known, Outcome::Links { .. }));
        known.follow_up(failed(ErrorKind::Other));
        assert!(matches!(known, Outcome::Failed { .. }));
    }

    #[test]
    fn what_a_links_counter_did_not_see_did_not_pass_it() {
        let mut outcome = links(&[20.0], 890.0, 0);
        let Outcome::Links { ways } = &mut outcome else { return };
        ways[0].counted = [0.5, 0.9];
        let cell = &cells(Pair { source: 0, destination: 1 }, &outcome)[0];
        assert_eq!((cell.store_gbps, cell.counted_percent), (Some(GbPerSecond(10.0)), Some(50.0)));
        assert_eq!(cell.load_gbps, Some(GbPerSecond(13.7 * 0.9)));
    }
}
