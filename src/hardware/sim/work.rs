//! The operations that the engine runs.

use std::sync::Arc;

/// The conditions that a flow has met on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Contention {
    /// The opposite direction of one of its hops was busy.
    pub opposite: bool,
    /// Another flow had one of its places.
    pub others: bool,
    /// One of its places had a flow with a third place.
    pub third: bool,
    /// The most flows that were active at the same time, this one included.
    pub flows: u32,
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Op(pub(super) usize);

impl Op {
    /// Returns its number. Operations are numbered consecutively.
    pub(crate) const fn number(self) -> usize {
        self.0
    }
}

/// An order in which operations run one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane(pub(super) usize);

/// A resource that only a limited number of operations can use at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Server(pub(super) usize);

/// A hop that flows share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharedHop(pub(super) usize);

/// The work of an operation.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// Does nothing; it marks a position in its lanes.
    Mark,
    /// Marks the record of an event. It costs time if a flow ends before it and another follows it.
    Record,
    /// Takes this many nanoseconds.
    Busy(f64),
    /// Moves bytes.
    Flow(Flow),
    /// Ends when the gates are opened, or somewhat later. Ends by itself after a time limit.
    Gate {
        /// Nanoseconds after which it opens by itself.
        limit: f64,
        /// Nanoseconds from the opening of all gates to that of this one.
        late: f64,
    },
    /// A gate whose turn has come. Opens this many nanoseconds later than the others.
    Waiting(f64),
    /// A gate that was opened, from this time on.
    Opened(f64),
    /// Never ends.
    Never,
}

/// A transfer of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub bytes: f64,
    pub hops: Arc<[SharedHop]>,
    /// Source and destination, numbered by the caller.
    pub places: [u32; 2],
    /// The highest rate that the flow reaches by itself, GB/s.
    pub cap: f64,
    /// Factor of the cap while a hop's opposite direction is busy.
    pub both_ways: f64,
    /// Factor of the cap while another flow has one of its places.
    pub beside_others: f64,
    /// Factor of the cap while one of its places has a flow with a third place.
    pub beside_third: f64,
    /// Nanoseconds before the first byte moves.
    pub each_ns: f64,
    /// Additional nanoseconds if the lane's last flow has not just ended.
    pub first_ns: f64,
    /// Additional nanoseconds if it has, and an event was recorded in between.
    pub event_ns: f64,
}

impl Flow {
    /// Creates a flow of this rate without fixed costs, which nothing slows down.
    pub(crate) fn new(bytes: f64, cap: f64) -> Self {
        let (hops, places) = (Arc::default(), [0; 2]);
        let (both_ways, beside_others) = (1.0, 1.0);
        let (each_ns, first_ns, event_ns) = (0.0, 0.0, 0.0);
        Self {
            bytes,
            hops,
            places,
            cap,
            both_ways,
            beside_others,
            beside_third: 1.0,
            each_ns,
            first_ns,
            event_ns,
        }
    }

    /// Returns the highest rate that it reaches by itself under these conditions, GB/s.
    pub(crate) fn cap_when(&self, contention: Contention) -> f64 {
        let opposite = if contention.opposite { self.both_ways } else { 1.0 };
        let others = if contention.others { self.beside_others } else { 1.0 };
        let third = if contention.third { self.beside_third } else { 1.0 };
        self.cap * opposite * others * third
    }
}

/// One or two values, or none. There are millions of operations, and a list would need an allocation for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Few<T>([Option<T>; 2]);

impl<T: Copy> Few<T> {
    pub(crate) const NONE: Self = Self([None; 2]);

    /// Returns a single value.
    pub(crate) const fn one(one: T) -> Self {
        Self([Some(one), None])
    }

    /// Returns two values, in this order.
    pub(crate) const fn two(one: T, other: T) -> Self {
        Self([Some(one), Some(other)])
    }

    /// Returns the value at this index, from 0 on.
    pub(crate) fn get(&self, place: usize) -> Option<T> {
        self.0.get(place).copied().flatten()
    }

    /// Returns an iterator over the values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = T> + use<T> {
        self.0.into_iter().flatten()
    }
}

/// An operation to be enqueued.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    /// Lanes that it belongs to; the first is the one it is issued on.
    pub lanes: Few<Lane>,
    /// Another operation it waits for.
    pub after: Option<Op>,
    /// Time at which the host enqueued it, nanoseconds.
    pub at: f64,
    /// The servers that it needs one place of each, taken in this order.
    pub servers: Few<Server>,
    pub work: Work,
}

/// An operation that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ended {
    pub op: Op,
    /// Time of its end, nanoseconds.
    pub at: f64,
    /// The conditions that a flow met on its way.
    pub contention: Contention,
}

/// The operation that is waited for cannot end: something before it never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stuck;

/// Nanoseconds with the order that a heap needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Time(pub(super) f64);

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
