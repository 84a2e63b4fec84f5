//! The times of rows of copies.

use serde::{Deserialize, Serialize};

use crate::bench::check::Check;
use crate::peers::plan::FIXED_COST_COPIES;
use model::placement::StreamKind;

/// A span of time, nanoseconds on the worker's clock. The opening of a device's gate brings the device's times onto
/// this clock, exact to some microseconds. Differences between times of one device are exact.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub start_ns: f64,
    pub end_ns: f64,
}

impl Span {
    /// Returns the length.
    pub(crate) fn length_ns(self) -> f64 {
        self.end_ns - self.start_ns
    }

    /// Returns the time during which both ran.
    pub fn together_ns(self, other: Self) -> f64 {
        (self.end_ns.min(other.end_ns) - self.start_ns.max(other.start_ns)).max(0.0)
    }
}

/// The plain rows of one flow, each behind a gate of its own: from before its first copy to after its last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The GPU of the stream, by NVML index.
    pub gpu: u32,
    pub stream: StreamKind,
    /// Copies per row.
    pub copies: u32,
    /// The rows, in the order in which they ran.
    pub rows: Vec<Span>,
    /// One row of [`FIXED_COST_COPIES`] copies of [`crate::peers::plan::FIXED_COST_BYTES`]; empty if the fixed cost is not measured.
    pub small: Vec<Span>,
    /// The copies of one more row, each by itself, if the directions of a round did not run at the same time. The first
    /// copy carries the start-up of the row and is not counted.
    pub marked: Vec<Span>,
    /// Nanoseconds of host time for one copy with its ordering, one per row.
    pub host_ns: Vec<f64>,
    /// Number of pairs that were copied at the same time, including this one.
    pub at_once: u32,
    /// Rows of this flow alone, if it was compared with the rows of several at once.
    pub alone: Vec<Span>,
    /// The rows of several at once that `alone` was compared with, if they differed and are not `rows`.
    pub together: Vec<Span>,
    /// Check of the bytes after the last row; none if they cannot be checked.
    pub check: Option<Check>,
}

impl Row {
    /// Returns the nanoseconds per copy of each row.
    pub fn copy_ns(&self) -> Vec<f64> {
        each(&self.rows, self.copies)
    }

    /// Returns the worst check of these: bytes known to be wrong come first.
    pub(crate) fn worst_check<'r>(rows: impl IntoIterator<Item = &'r Self>) -> Check {
        let check = |row: &Self| row.check.clone().unwrap_or_else(Check::without_kernels);
        Check::worst(rows.into_iter().map(check))
    }

    /// Returns the nanoseconds per small copy of each row of them.
    pub(crate) fn small_ns(&self) -> Vec<f64> {
        each(&self.small, FIXED_COST_COPIES)
    }
}

/// Returns the nanoseconds per copy of rows of this many copies.
pub(crate) fn each(rows: &[Span], copies: u32) -> Vec<f64> {
    rows.iter().map(|row| row.length_ns() / f64::from(copies.max(1))).collect()
}
