//! What the engine is given to do.

use std::sync::Arc;

/// What a flow has met on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Met {
    /// The opposite direction of one of its hops was busy.
    pub opposite: bool,
    /// Another flow had one of its places.
    pub others: bool,
    /// One of its places had a flow with a third one.
    pub third: bool,
    /// A flow with the host had one of its places.
    pub host: bool,
    /// The most flows that were on their way at the same time, this one included.
    pub flows: u32,
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op(pub(super) usize);

impl Op {
    /// Its number: each has the next one.
    pub const fn number(self) -> usize {
        self.0
    }
}

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
    /// The same for an event: a flow that comes behind another one and this pays for it.
    Record,
    /// Takes this many nanoseconds.
    Busy(f64),
    /// Moves bytes.
    Flow(Flow),
    /// Ends when the gates are opened, or somewhat later, and by itself after so many nanoseconds.
    Gate {
        /// Nanoseconds after which it opens by itself.
        limit: f64,
        /// Nanoseconds from the opening of all gates to that of this one.
        late: f64,
    },
    /// A gate whose turn has come: so much later than the others it opens.
    Waiting(f64),
    /// A gate that was opened, from this time on.
    Opened(f64),
    /// Never ends.
    Never,
}

/// Bytes on their way.
#[derive(Debug, Clone)]
pub struct Flow {
    pub bytes: f64,
    pub hops: Arc<[SharedHop]>,
    /// Where they come from and go to, numbered by whoever enqueues.
    pub places: [u32; 2],
    /// The most that the flow reaches by itself, GB/s.
    pub cap: f64,
    /// What is left of the cap while a hop's opposite direction is busy.
    pub both_ways: f64,
    /// What is left of the cap while another flow has one of its places.
    pub beside_others: f64,
    /// What is left of it while one of its places has a flow with a third one.
    pub beside_third: f64,
    /// What is left of the cap while a flow with the host has one of its places; of such a flow nothing is lost.
    pub beside_host: f64,
    /// Whether it is one with the host.
    pub with_host: bool,
    /// Nanoseconds before the first byte moves.
    pub each_ns: f64,
    /// Nanoseconds besides, where the lane's last flow has not just ended.
    pub first_ns: f64,
    /// Nanoseconds besides, where it has, and an event was recorded in between.
    pub event_ns: f64,
}

impl Flow {
    /// Some bytes at this rate that cost nothing besides and that nothing slows down.
    pub fn new(bytes: f64, cap: f64) -> Self {
        let (hops, places) = (Arc::default(), [0; 2]);
        let (both_ways, beside_others, beside_host) = (1.0, 1.0, 1.0);
        let (each_ns, first_ns, event_ns) = (0.0, 0.0, 0.0);
        Self {
            bytes,
            hops,
            places,
            cap,
            both_ways,
            beside_others,
            beside_third: 1.0,
            beside_host,
            with_host: false,
            each_ns,
            first_ns,
            event_ns,
        }
    }

    /// The most that it reaches by itself while it meets this, GB/s.
    pub fn cap_when(&self, met: Met) -> f64 {
        let opposite = if met.opposite { self.both_ways } else { 1.0 };
        let others = if met.others { self.beside_others } else { 1.0 };
        let host = if met.host { self.beside_host } else { 1.0 };
        let third = if met.third { self.beside_third } else { 1.0 };
        self.cap * opposite * others * third * host
    }
}

/// One or two of something, or none. There are millions of operations, and each would have to find room for a list.
#[derive(Debug, Clone, Copy)]
pub struct Few<T>([Option<T>; 2]);

impl<T: Copy> Few<T> {
    pub const NONE: Self = Self([None; 2]);

    /// One.
    pub const fn one(one: T) -> Self {
        Self([Some(one), None])
    }

    /// Two, in this order.
    pub const fn two(one: T, other: T) -> Self {
        Self([Some(one), Some(other)])
    }

    /// The one at this place, from 0 on.
    pub fn get(&self, place: usize) -> Option<T> {
        self.0.get(place).copied().flatten()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<T> {
        self.0.into_iter().flatten()
    }
}

/// An operation to be enqueued.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Lanes it takes its place in; the first is the one it is issued on.
    pub lanes: Few<Lane>,
    /// Another operation it waits for.
    pub after: Option<Op>,
    /// When the host enqueued it, nanoseconds.
    pub at: f64,
    /// What it needs one of each, taken in this order.
    pub servers: Few<Server>,
    pub work: Work,
}

/// An operation that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    pub op: Op,
    /// When, nanoseconds.
    pub at: f64,
    /// Of a flow, what it met on its way.
    pub met: Met,
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
