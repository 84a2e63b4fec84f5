//! What the engine is given to do.

use std::sync::Arc;

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op(pub(super) usize);

/// An order in which operations run one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane(pub(super) usize);

/// Something that only so many operations can use at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server(pub(super) usize);

/// A hop that flows share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedHop(pub(super) usize);

/// What an operation does.
#[derive(Debug, Clone)]
pub enum Work {
    /// Nothing; it marks a place in its lanes.
    Mark,
    /// Takes this many nanoseconds.
    Busy(f64),
    /// Moves bytes.
    Flow(Flow),
    /// Ends when the gates are opened, and by itself after this many nanoseconds.
    Gate(f64),
    /// Never ends.
    Never,
}

/// Bytes on their way.
#[derive(Debug, Clone)]
pub struct Flow {
    /// How many.
    pub bytes: f64,
    /// What they pass.
    pub hops: Arc<[SharedHop]>,
    /// The most that the flow reaches by itself, GB/s.
    pub cap: f64,
    /// What is left of the cap while a hop's opposite direction is busy.
    pub both_ways: f64,
    /// Nanoseconds before the first byte moves.
    pub each_ns: f64,
    /// Nanoseconds besides, where the lane's last flow has not just ended.
    pub first_ns: f64,
}

/// An operation to be enqueued.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Lanes it takes its place in; the first is the one it is issued on.
    pub lanes: Vec<Lane>,
    /// Other operations it waits for.
    pub after: Vec<Op>,
    /// When the host enqueued it, nanoseconds.
    pub at: f64,
    /// What it needs one of.
    pub server: Option<Server>,
    /// What it does.
    pub work: Work,
}

/// The operation that is waited for cannot end: something before it never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck;

/// Nanoseconds with the order that a heap needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time(pub(super) f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
