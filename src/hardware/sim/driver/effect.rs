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
        /// The source of the copy before, of copies that were made in turn.
        before: Option<Buffer>,
        /// Number of copies that this stands for.
        copies: u32,
        bytes: u64,
        fault: Option<PairFault>,
    },
    Reached(Event),
    /// A kernel accessed memory that it may not access: the context is broken.
    IllegalAddress(Device),
}
