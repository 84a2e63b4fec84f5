//! Measures the cost of page-locking host memory: time, and memory of this process.

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::Round;
use crate::bench::Bench;
use crate::bench::host_pool::of_host;
use crate::figures::{count, without_figures};
use crate::statistics::median;
use hardware::{Buffer, Device, ErrorKind, HardwareError, HostRoom, Location};
use model::flow::{Endpoint, HostMemory, Setup};
use model::host::Pinning;
use model::units::{Bytes, GIB};

/// Costs of page-locking, one entry per sample; nanoseconds, and bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pinned {
    /// Time to allocate page-locked memory.
    pub allocate_ns: Vec<f64>,
    pub free_ns: Vec<f64>,
    /// Time to page-lock existing memory.
    pub register_ns: Vec<f64>,
    /// Time to unlock it.
    pub unregister_ns: Vec<f64>,
    /// Memory of this process that the allocation took.
    pub allocating_takes: Vec<u64>,
    /// Memory of this process that a buffer and its page-locked copy took.
    pub copying_takes: Vec<u64>,
    /// The tightest limit, and the bytes that it leaves.
    pub limit: Option<(String, u64)>,
    /// The error that ended the samples early.
    pub refused: Option<HardwareError>,
}

impl Bench<'_> {
    /// Times page-locking on a node.
    pub(crate) fn pinning(&self, round: &Round, samples: u32) -> Result<Outcome, HardwareError> {
        let node = match round.flows.first().map(|flow| flow.from) {
            Some(Endpoint::Host { node, .. }) => node,
            _ => {
                return Err(HardwareError::new(
                    ErrorKind::Other,
                    "page-locking needs memory of the host",
                ));
            }
        };
        let limit = self.driver.host_room().ok().and_then(nearest);
        let mut pinned = Pinned { limit, ..Pinned::default() };
        for _ in 0..samples.max(1) {
            if let Err(error) = self.pin(node, round.task.setup, &mut pinned) {
                if error.kind == ErrorKind::Sticky {
                    return Err(error);
                }
                pinned.refused = Some(error);
                break;
            }
        }
        Ok(Outcome::Pinned { pinned: Box::new(pinned) })
    }

    /// Takes one sample. Frees the memory in any case, and reports the first error.
    fn pin(&self, node: Option<u32>, setup: Setup, into: &mut Pinned) -> Result<(), HardwareError> {
        let (device, bytes) = (self.any_device()?, setup.bytes.0);
        self.make_room(2 * bytes, &[])?;
        let before = self.resident();
        let location = |memory| Location::Host { memory, node };
        let pageable = self.take_host(device, location(HostMemory::Pageable), bytes)?;
        let locked = self
            .allocate_beside(device, location(HostMemory::Pinned), bytes, before, into)
            .and_then(|()| self.register(device, pageable, into));
        let freed = self.free_host(pageable);
        locked.and(freed)
    }

    /// Times allocating page-locked memory beside ordinary memory that was taken since `before`: it is the copy that a
    /// program would make.
    fn allocate_beside(
        &self,
        device: Device,
        pinned: Location,
        bytes: u64,
        before: Option<u64>,
        into: &mut Pinned,
    ) -> Result<(), HardwareError> {
        let rise = |before: Option<u64>| Some(self.resident()?.saturating_sub(before?));
        let before_pinned = self.resident();
        let (buffer, allocate) = self.clocked(|| self.take_host(device, pinned, bytes))?;
        into.allocate_ns.push(allocate.length_ns());
        into.allocating_takes.extend(rise(before_pinned));
        into.copying_takes.extend(rise(before));
        let (_, free) = self.clocked(|| self.free_host(buffer))?;
        into.free_ns.push(free.length_ns());
        Ok(())
    }

    /// Times page-locking of existing memory, if the platform can do it.
    fn register(
        &self,
        device: Device,
        pageable: Buffer,
        into: &mut Pinned,
    ) -> Result<(), HardwareError> {
        let locked = self.clocked(|| self.driver.host_register(device, pageable).map_err(of_host));
        let (buffer, register) = match locked {
            Err(error) if error.kind == ErrorKind::Impossible => return Ok(()),
            locked => locked?,
        };
        let (_, unregister) = self.clocked(|| self.driver.host_unregister(buffer))?;
        into.register_ns.push(register.length_ns());
        into.unregister_ns.push(unregister.length_ns());
        Ok(())
    }

    /// Returns the memory that the system counts for this process, bytes.
    fn resident(&self) -> Option<u64> {
        self.driver.process_memory().map(|memory| memory.resident.0)
    }
}

/// Returns the tightest limit, in words, and the bytes that it leaves.
fn nearest(room: HostRoom) -> Option<(String, u64)> {
    let locked = room.lock_limit.map(|limit| {
        (format!("the limit of locked memory (ulimit -l) is {} KiB", limit.0 >> 10), limit.0)
    });
    let group = room
        .group_leaves
        .map(|left| (format!("the control group or container leaves {left}"), left.0));
    locked.into_iter().chain(group).min_by_key(|(_, left)| *left)
}

/// Returns the cell of a round.
pub(crate) fn cell(node: Option<u32>, setup: Setup, outcome: &Outcome) -> Pinning {
    let mut cell = Pinning::blank(node, setup.bytes);
    let Outcome::Pinned { pinned } = outcome else {
        cell.refused = matches!(outcome, Outcome::Failed { .. });
        cell.ending = without_figures(outcome);
        return cell;
    };
    let per_gib = |ns: &[f64]| median(ns).map(|ns| ns / 1e6 * in_gib(setup.bytes));
    let bytes = |taken: &[u64]| {
        let mut sorted = taken.to_vec();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).map(|taken| Bytes(*taken))
    };
    cell.allocate_ms_per_gib = per_gib(&pinned.allocate_ns);
    cell.free_ms_per_gib = per_gib(&pinned.free_ns);
    cell.register_ms_per_gib = per_gib(&pinned.register_ns);
    cell.unregister_ms_per_gib = per_gib(&pinned.unregister_ns);
    cell.allocating_takes_bytes = bytes(&pinned.allocating_takes);
    cell.copying_takes_bytes = bytes(&pinned.copying_takes);
    cell.samples = count(&pinned.allocate_ns);
    // A limit below the page-locked size does not bind: the driver's locks do not count, or this is root.
    let binds = |left: u64| pinned.refused.is_some() || left >= setup.bytes.0;
    let limit = pinned.limit.clone().filter(|(_, left)| binds(*left));
    (cell.limit, cell.limit_bytes) =
        limit.map_or((None, None), |(limit, left)| (Some(limit), Some(Bytes(left))));
    if let Some(error) = &pinned.refused {
        let refused = without_figures(&Outcome::Failed { error: error.clone() });
        cell.ending.reason = refused.reason;
        if cell.samples == 0 || cell.register_ms_per_gib.is_none() {
            (cell.ending.status, cell.refused) = (refused.status, true);
        }
    }
    cell
}

/// Returns the number of times that a size goes into a GiB.
#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn in_gib(bytes: Bytes) -> f64 {
    GIB as f64 / bytes.0.max(1) as f64
}
