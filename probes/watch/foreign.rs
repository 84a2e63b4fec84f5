//! Finds NVLink traffic of other programs while load patterns ran: counted bytes beyond those of this program.

use std::collections::{BTreeSet, HashMap};

use crate::Outcome;
use crate::load::run::copied;
use crate::{Action, Round};
use hardware::Counts;
use model::background::{Background, LeftAlone, Moment};
use model::flow::{Endpoint, Flow};
use model::units::{Bytes, GbPerSecond};

/// Largest excess of counters over the bytes of this program, per cent of these bytes. Chosen: five times that of
/// healthy machines (8 x H200: within 1%).
const BEYOND_PERCENT: f64 = 5.0;
/// Least excess that counts as foreign, bytes. Chosen: a thousand times the bytes that small copies and calls add.
const LEAST: f64 = (64_u64 << 20) as f64;
/// Least spread of the excess over all GPUs and directions, per cent of the bytes of this program. Below it, the
/// counters just count in another way, and nobody else copied. Chosen: healthy machines agree this well.
const ALIKE_PERCENT: f64 = 1.0;

/// The bytes that flows have copied.
type Copied = Vec<(Flow, Bytes)>;

/// All load patterns of a run, from the first whose traffic is counted to the last.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    /// The patterns that have not ended, by round number.
    left: HashMap<u32, Round>,
    /// Counters before the first pattern; none if they, or the bytes copied since, are unknown.
    pub(crate) before: Option<HashMap<u32, Counts>>,
    /// Bytes that this program has copied since.
    own: Copied,
}

impl Whole {
    pub(crate) fn of(rounds: &[Round]) -> Self {
        let loads = rounds.iter().filter(|round| matches!(round.task.action, Action::Load(_)));
        Self { left: loads.map(|round| (round.id, round.clone())).collect(), ..Self::default() }
    }

    /// Called with the counters read before a round, while nothing else is copied.
    pub(crate) fn begin(&mut self, read: &HashMap<u32, Counts>) {
        if self.before.is_none() {
            (self.before, self.own) = (Some(read.clone()), Vec::new());
        }
    }

    /// Called when a round ends. Returns the bytes copied by a load pattern; none for a failed one, whose bytes are
    /// unknown.
    pub(crate) fn ended(&mut self, id: u32, outcome: &Outcome) -> Option<Copied> {
        let round = self.left.remove(&id)?;
        let moved = copied(&round, outcome);
        match &moved {
            Some(moved) => self.own.extend(moved),
            None => self.before = None,
        }
        moved
    }

    /// Returns the counters read before, and the bytes copied since, once all patterns have ended.
    pub(crate) fn take(&mut self) -> Option<(HashMap<u32, Counts>, Copied)> {
        let before = self.before.take_if(|_| self.left.is_empty())?;
        Some((before, std::mem::take(&mut self.own)))
    }
}

/// The excess in one direction of a GPU's NVLinks.
struct Beyond {
    gpu: u32,
    way: usize,
    bytes: f64,
    own: f64,
    seconds: f64,
}

impl Beyond {
    fn percent(&self) -> f64 {
        100.0 * self.bytes / self.own.max(1.0)
    }

    fn is_foreign(&self) -> bool {
        self.bytes >= LEAST && self.percent() > BEYOND_PERCENT
    }
}

/// Returns the GPUs whose NVLinks carried more than this program copied.
pub(crate) fn foreign(
    before: &HashMap<u32, Counts>,
    after: &HashMap<u32, Counts>,
    own: &[(Flow, Bytes)],
) -> Vec<Background> {
    let mut gpus: Vec<u32> = before.keys().copied().collect();
    gpus.sort_unstable();
    let all: Vec<Beyond> =
        gpus.iter().flat_map(|gpu| beyond(*gpu, before, after, own)).flatten().collect();
    let percents = || all.iter().map(Beyond::percent);
    let span = percents().fold(f64::MIN, f64::max) - percents().fold(f64::MAX, f64::min);
    if all.len() > 2 && span < ALIKE_PERCENT {
        return Vec::new();
    }
    let foreign: BTreeSet<u32> =
        all.iter().filter(|beyond| beyond.is_foreign()).map(|beyond| beyond.gpu).collect();
    let rate = |gpu: u32, way: usize| {
        let beyond = all.iter().find(|beyond| (beyond.gpu, beyond.way) == (gpu, way))?;
        let bytes = if beyond.is_foreign() { beyond.bytes } else { 0.0 };
        Some(GbPerSecond(bytes / 1e9 / beyond.seconds))
    };
    let seen = |gpu: u32| Background {
        nvlink_sent_gbps: rate(gpu, 0),
        nvlink_received_gbps: rate(gpu, 1),
        ..Background::unread(LeftAlone { gpu, ..LeftAlone::default() }, Moment::Load, None)
    };
    foreign.into_iter().map(seen).collect()
}

/// Returns the bytes that a GPU counted beyond those of this program, sent and received.
#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn beyond(
    gpu: u32,
    before: &HashMap<u32, Counts>,
    after: &HashMap<u32, Counts>,
    own: &[(Flow, Bytes)],
) -> [Option<Beyond>; 2] {
    let end = Endpoint::Gpu(gpu);
    let is_own = [
        |flow: &Flow, end: Endpoint| flow.from == end,
        |flow: &Flow, end: Endpoint| flow.to == end,
    ];
    [0, 1].map(|way| {
        let (before, after) = (before.get(&gpu)?, after.get(&gpu)?);
        // Heads of packets would be taken for foreign traffic.
        if after.with_heads {
            return None;
        }
        let counted = after.nvlink?[way].saturating_sub(before.nvlink?[way]) as f64;
        // This is the longest possible time, which makes the foreign rate a lower bound.
        let seconds = after.answered.saturating_sub(before.asked).as_secs_f64();
        let of_way = own.iter().filter(|(flow, _)| flow.pair().is_some() && is_own[way](flow, end));
        let own: f64 = of_way.map(|(_, bytes)| bytes.0 as f64).sum();
        (seconds > 0.0).then_some(Beyond {
            gpu,
            way,
            bytes: (counted - own).max(0.0),
            own,
            seconds,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use model::placement::Pair;

    const GB: u64 = 1_000_000_000;

    fn counts(at_ms: u64, nvlink: [[u64; 2]; 3]) -> HashMap<u32, Counts> {
        let of = |nvlink: [u64; 2]| {
            let at = Duration::from_millis(at_ms);
            Counts { asked: at, answered: at, nvlink: Some(nvlink), ..Counts::default() }
        };
        (0..).zip(nvlink).map(|(gpu, nvlink)| (gpu, of(nvlink))).collect()
    }

    /// Returns the foreign traffic found after each of three GPUs sent 10 GB to the next, in 100 ms.
    fn seen(after: [[u64; 2]; 3]) -> Vec<(u32, f64, f64)> {
        let own: Vec<(Flow, Bytes)> = (0..3)
            .map(|source| (Pair { source, destination: (source + 1) % 3 }.into(), Bytes(10 * GB)))
            .collect();
        let found = foreign(&counts(50, [[7, 7]; 3]), &counts(150, after), &own);
        assert!(found.iter().all(|seen| seen.moment == Moment::Load && seen.uses_nvlink()));
        let rates = |seen: &Background| {
            (
                seen.gpu,
                seen.nvlink_sent_gbps.unwrap().0.round(),
                seen.nvlink_received_gbps.unwrap().0.round(),
            )
        };
        found.iter().map(rates).collect()
    }

    #[test]
    fn what_nvlinks_carried_beyond_own_bytes_is_somebody_elses() {
        let own = 10 * GB + 7;
        assert_eq!(seen([[own; 2]; 3]), []);
        // Small copies add this much, and healthy machines differ by it.
        assert_eq!(seen([[own + GB / 10, own], [own; 2], [own; 2]]), []);
        assert_eq!(
            seen([[own + 3 * GB, own], [own; 2], [own, own + 3 * GB]]),
            [(0, 30.0, 0.0), (2, 0.0, 30.0)]
        );
    }

    #[test]
    fn counters_that_all_count_more_are_no_traffic() {
        let all = 11 * GB + 7;
        assert_eq!(seen([[all; 2]; 3]), []);
        assert_eq!(seen([[all; 2], [all, all + GB], [all; 2]]).len(), 3);
    }

    #[test]
    fn counters_that_were_not_read_say_nothing() {
        let (own, whole) = (Vec::new(), counts(50, [[0, 0]; 3]));
        assert_eq!(foreign(&whole, &HashMap::new(), &own), []);
        let without = HashMap::from([(0, Counts::default())]);
        assert_eq!(foreign(&without, &without, &own), []);
    }
}
