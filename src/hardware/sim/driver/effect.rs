//! The effects of the end of an operation.

use crate::spec::PairFault;
use hardware::{Buffer, Device, Event, Sent};

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
        /// The words that were sent, and the number of the counts, of copies that are compared.
        compared: Option<(Sent, u32)>,
        /// Number of copies that this stands for.
        copies: u32,
        bytes: u64,
        fault: Option<PairFault>,
    },
    /// A kernel of this device has compared memory, and poisoned it.
    Compared {
        device: Device,
        buffer: Buffer,
        bytes: u64,
        sent: Sent,
        tally: u32,
    },
    Reached(Event),
    /// A kernel accessed memory that it may not access: the context is broken.
    IllegalAddress(Device),
}
