//! The effects of the end of an operation.

use crate::spec::PairFault;
use hardware::{Buffer, Device, Event};

/// The effect on memory, an event or a context when an operation ends.
#[derive(Debug)]
pub(super) enum Effect {
    /// Bytes have moved on behalf of `issuer`.
    Moved {
        issuer: Device,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
        fault: Option<PairFault>,
    },
    Reached(Event),
    /// A kernel accessed memory that it may not access: the context is broken.
    IllegalAddress(Device),
}
