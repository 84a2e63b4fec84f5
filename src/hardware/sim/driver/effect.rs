//! What the end of an operation brings about.

use crate::spec::PairFault;
use hardware::{Buffer, Device, Event};

/// What happens in memory, to an event or to a context, when an operation ends.
#[derive(Debug)]
pub enum Effect {
    /// Bytes have moved for this device.
    Moved {
        issuer: Device,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
        fault: Option<PairFault>,
    },
    Reached(Event),
    /// A kernel touched what it must not: the context is gone.
    IllegalAddress(Device),
}
