//! Stores and loads over each NVLink of a pair, all links at once, each with a time of its own.

use serde::{Deserialize, Serialize};

use super::map::foreign;
use crate::Outcome;
use crate::bench::Bench;
use crate::figures::{count, no_samples, without_figures};
use crate::statistics::{median, spread_percent};
use hardware::{BlockList, BlockWork, HardwareError, LinkBytes, Passed};
use model::links::SingleLink;
use model::placement::{Pair, Path};
use model::status::Verified;
use model::units::GbPerSecond;

/// Stores of a block, 1.6 ms on H100, and loads of a group, about as long.
const STORES: u32 = 16_384;
const LOADS: u32 = 512;
/// Loads that follow each other.
const HOPS: u32 = 1000;
/// Samples of the time of a load.
const CHASES: u32 = 3;
/// Loads of the destination's own by which it compares.
const LOOKS: u32 = 4;
/// Largest difference of the two fastest samples, of which no more are needed: those of one link differ by 0.5% [M].
const AGREE: f64 = 0.01;
/// Share of more bytes than were sent from which other data passed too.
const FOREIGN: f64 = 0.02;

/// What was measured over one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Way {
    pub source_link: u8,
    pub destination_link: Option<u8>,
    /// GB/s of each sample, by what the kernels moved.
    pub stores: Vec<f64>,
    pub loads: Vec<f64>,
    /// Share of the stored bytes that the link's counter saw.
    pub counted: f64,
    pub load_ns: f64,
    /// Loads that were wrong: of the destination itself, and over the link.
    pub wrong: [u64; 2],
}

impl Bench<'_> {
    /// Measures each link from one GPU to another.
    pub(crate) fn single_links(&self, pair: Pair, samples: u32) -> Result<Outcome, HardwareError> {
        self.set_path(pair, Path::Direct)?;
        let (map, far) = self.block_map(pair)?;
        let memory = self.blocks_of(pair.destination)?;
        let lists = |repeats: u32| -> Vec<BlockList> {
            map.values().map(|blocks| BlockList { blocks: blocks.clone(), repeats }).collect()
        };
        let seed = self.seeds.flags(0);
        let begin = self.driver.link_bytes(pair.source)?;
        let (stores, _) = self.rates(pair, BlockWork::Store, &lists(STORES), samples, (seed, 0))?;
        let stored = self.driver.link_bytes(pair.source)?;
        let last = (seed, STORES - 1);
        self.pass(pair.destination, memory, BlockWork::Load, &lists(LOOKS), last)?;
        let device = self.open_gpu(pair.destination)?.device;
        let seen = self.driver.passed(device, map.len())?;
        let (loads, wrong) = self.rates(pair, BlockWork::Load, &lists(LOADS), samples, last)?;
        let loaded = self.driver.link_bytes(pair.source)?;
        let mut fastest = vec![f64::INFINITY; map.len()];
        for _ in 0..CHASES {
            for (ns, passed) in
                fastest.iter_mut().zip(self.times(pair, BlockWork::Chase, &lists(HOPS), last)?)
            {
                *ns = ns.min(nanoseconds(passed) / f64::from(HOPS));
            }
        }
        let share = |before: &[LinkBytes],
                     after: &[LinkBytes],
                     of: fn(&LinkBytes) -> u64,
                     link: u8,
                     bytes: f64| {
            let at = |all: &[LinkBytes]| all.iter().find(|one| one.link == link).map_or(0, of);
            #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
            let rise = at(after).saturating_sub(at(before)) as f64;
            rise / bytes
        };
        let mut ways = Vec::new();
        for (at, (link, blocks)) in map.iter().enumerate() {
            // The first pass of each is not among the samples.
            let moved = |work: BlockWork, repeats: u32, passes: &[f64]| {
                let list = BlockList { blocks: blocks.clone(), repeats };
                #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
                let bytes = list.bytes(work) as f64;
                bytes * f64::from(count(passes) + 1)
            };
            let sent = moved(BlockWork::Store, STORES, &stores[at]);
            let received = moved(BlockWork::Load, LOADS, &loads[at]);
            let counted = share(&begin, &stored, |of| of.sent, *link, sent);
            let came = share(&stored, &loaded, |of| of.received, *link, received);
            if counted.max(came) > 1.0 + FOREIGN {
                return Err(foreign(pair.source));
            }
            ways.push(Way {
                source_link: *link,
                destination_link: far.get(link).copied(),
                stores: stores[at].clone(),
                loads: loads[at].clone(),
                counted: counted.min(1.0),
                load_ns: fastest[at],
                wrong: [seen.get(at).map_or(0, |seen| seen.wrong), wrong[at]],
            });
        }
        Ok(Outcome::Links { ways })
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
        for pass in 0..=samples.max(1) {
            for (at, passed) in self.times(pair, work, lists, last)?.into_iter().enumerate() {
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

fn agree(rates: &[f64]) -> bool {
    let mut fastest = rates.to_vec();
    fastest.sort_by(|one, other| other.total_cmp(one));
    matches!(fastest[..], [one, other, ..] if one - other <= AGREE * one)
}

/// Adds the samples of a later look at the same pair, if there are any.
pub(crate) fn looked_again(known: &mut Vec<Way>, again: Vec<Way>) {
    for way in again {
        let Some(known) = known.iter_mut().find(|known| known.source_link == way.source_link)
        else {
            known.push(way);
            continue;
        };
        known.stores.extend(way.stores);
        known.loads.extend(way.loads);
        known.counted = known.counted.min(way.counted);
        known.load_ns = known.load_ns.min(way.load_ns);
        known.wrong = [0, 1].map(|at| known.wrong[at] + way.wrong[at]);
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
    // What the link's counter has not seen did not pass it.
    cell.store_gbps = median(&way.stores).map(|rate| GbPerSecond(rate * way.counted));
    cell.load_gbps = median(&way.loads).map(GbPerSecond);
    cell.latency_ns = Some(way.load_ns).filter(|ns| ns.is_finite());
    cell.spread_percent = spread_percent(&way.stores);
    cell.counted_percent = Some(100.0 * way.counted);
    cell.samples = count(&way.stores);
    cell.verified = match way.wrong {
        [0, 0] => Verified::Ok,
        _ => Verified::Corrupt,
    };
    if way.stores.is_empty() {
        cell.ending = no_samples();
    }
    cell
}
