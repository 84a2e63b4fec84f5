//! The state of a round that is followed for a timeline.

use std::cell::RefCell;
use std::collections::HashMap;

use hardware::{Event, Stream};
use model::timeline::{Attempt, Timeline};

/// Name of the call that opens the gates.
pub(crate) const OPEN_GATES: &str = "open the gates";

/// The round that is followed now, and the clocks that were set.
#[derive(Default)]
pub(crate) struct Following {
    pub clocks: RefCell<HashMap<u32, GpuClock>>,
    pub round: RefCell<Option<Timeline>>,
    /// The part that is recorded now.
    pub part: RefCell<Option<Attempt>>,
}

/// A GPU's clock: the time since an event that is never recorded again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GpuClock {
    pub stream: Stream,
    pub zero: Event,
    pub zero_ns: f64,
    /// The event of the last reading, and its time.
    pub mark: Event,
    pub mark_ns: f64,
}
