//! Memory of a GPU, at addresses all over it, as another GPU reaches it.

use serde::{Deserialize, Serialize};

use super::axis::axes;
use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::placement::{Engine, Pair};
use super::status::Verified;
use super::units::Bytes;

words! {
    /// The way in which a GPU reaches the memory of another.
    Access {
        /// It writes, and the other one reads.
        Write = "write",
        /// The other one has written, and it reads.
        Read = "read",
    }
}

axes!(Access);

words! {
    /// What comes of bytes at an address.
    Fate {
        /// They never arrive.
        Lost = "never arrive",
        /// They arrive at another address, or those of another address come.
        Elsewhere = "arrive elsewhere",
        /// Other bytes arrive.
        Corrupt = "arrive wrong",
    }
}

/// Neighbouring addresses with the same fate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct WrongRange {
    /// Begin and end, bytes from the begin of the memory that was tried.
    pub from_bytes: Bytes,
    pub to_bytes: Bytes,
    pub fate: Fate,
    /// The address that is reached instead of the first one.
    pub instead_bytes: Option<Bytes>,
}

cell! {
    /// Addresses all over a GPU's memory, as another GPU reaches them.
    MemoryReach: Addresses
    with {
        /// The GPU that writes or reads, and the GPU whose memory it is.
        #[serde(flatten)]
        pair: Pair,
        /// The engine of the first one that moves the bytes.
        engine: Engine,
        access: Access,
    }
    has {
        /// Share of the addresses at which all bytes are right.
        right_percent: Option<f64> => main Share,
        /// Number of addresses, 64 KiB at each.
        addresses: u64,
        /// Number of those at which bytes are wrong.
        wrong: u64,
        /// Size of the memory over which they are spread.
        span_bytes: Bytes = Bytes(0),
        /// Ranges of wrong addresses, the first ones.
        ranges: Vec<WrongRange>,
        /// Result of comparing all bytes, once all were written.
        verified: Verified => checked,
        /// Why that is not known of all memory.
        verification_detail: Option<String>,
    }
}

impl Subject for MemoryReach {
    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        Setup { engine: self.engine, ..Setup::REFERENCE }
    }

    fn what(&self) -> String {
        format!("{} by {}", self.access, self.engine)
    }
}
