//! Shared by the rules on counters: the counts around known traffic.

use super::prelude::*;
use model::counted::{MOST_WITH_PACKETS_PERCENT, PCIE_COUNTER_RANGE};

/// Least traffic that counters are judged by. Chosen: a thousand times what small copies and calls add.
const LEAST: u64 = 64 << 20;

/// Returns the counts around known traffic that no other program disturbed.
pub(super) fn sound<'a>(evidence: &Evidence<'a>) -> impl Iterator<Item = &'a Counted> + use<'a> {
    let all = &evidence.measured().counted;
    all.iter().filter(|counted| !counted.disturbed)
}

/// One direction of the counts of a GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Direction {
    /// `sent`, `received`.
    pub word: &'static str,
    /// Bytes that this program copied between GPUs.
    pub known: u64,
    /// Bytes that it copied between this GPU and the host.
    pub with_host: u64,
    /// Data bytes over NVLink.
    pub nvlink: Option<u64>,
    /// Bytes over PCIe.
    pub pcie: Option<u64>,
}

impl Direction {
    /// Returns how many bytes fewer the NVLinks counted than were copied between GPUs.
    pub(crate) fn lacks(&self) -> u64 {
        self.known.saturating_sub(self.nvlink.unwrap_or(self.known))
    }

    /// Returns true if PCIe may have carried the bytes that the NVLinks lack although its counter shows less. Its
    /// counter is unknown, or it may have wrapped: the bytes, with their packets, then fit the value it shows.
    pub(crate) fn may_be_over_pcie(&self) -> bool {
        let Some(shown) = self.pcie else { return true };
        let least = self.lacks().saturating_add(self.with_host);
        let most = least / 100 * MOST_WITH_PACKETS_PERCENT;
        let wraps = least.saturating_sub(shown).div_ceil(PCIE_COUNTER_RANGE);
        shown.saturating_add(wraps.saturating_mul(PCIE_COUNTER_RANGE)) <= most
    }
}

/// Returns the directions in which enough was copied between GPUs to judge by.
pub(super) fn directions(counted: &Counted) -> impl Iterator<Item = Direction> + use<> {
    let of = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
    let both = [
        Direction {
            word: "sent",
            known: counted.sent_bytes.0,
            with_host: counted.sent_to_host_bytes.0,
            nvlink: of(counted.nvlink_sent_bytes),
            pcie: of(counted.pcie_sent_bytes),
        },
        Direction {
            word: "received",
            known: counted.received_bytes.0,
            with_host: counted.received_from_host_bytes.0,
            nvlink: of(counted.nvlink_received_bytes),
            pcie: of(counted.pcie_received_bytes),
        },
    ];
    both.into_iter().filter(|direction| direction.known >= LEAST)
}

/// Returns true if the graph routes all copies of this traffic with this GPU over NVLink.
pub(super) fn is_over_nvlink(evidence: &Evidence<'_>, counted: &Counted) -> bool {
    let measurements = evidence.measured();
    let loads = measurements.load.iter();
    let same = loads.filter(|load| (load.pattern, &load.of) == (counted.pattern, &counted.of));
    let pairs = same.flat_map(|load| &load.flows).filter_map(|flow| flow.flow().pair());
    let mut own = pairs.filter(|pair| pair.touches(counted.gpu)).peekable();
    own.peek().is_some() && own.all(|pair| evidence.over_nvlink(pair))
}

/// Returns a part of a whole, per cent.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
