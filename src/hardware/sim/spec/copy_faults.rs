//! Faults of what GPUs do with each other's memory.

use serde::{Deserialize, Serialize};

use super::numbers::{error_code, positive};
use super::{FlagTimes, Pairs, Percent, Ratio, Times, text};
use model::placement::{Engine, Path, Side};
use model::units::Bytes;

/// Pairs whose copies go wrong, and the fault.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairFault {
    pub pairs: Pairs,
    pub fault: CopyFault,
    /// Only copies by this engine; both engines if omitted.
    pub engine: Option<Engine>,
    /// Only copies that this side issues. The source issues writes, the destination reads.
    pub issuer: Option<Side>,
    /// Only copies on this path: direct ones, or those through host memory.
    #[serde(default = "direct")]
    pub path: Path,
    /// True if it occurs only while the opposite direction is busy too.
    #[serde(default)]
    pub both_ways: bool,
    /// True if it occurs only while another flow is busy at one of the two GPUs.
    #[serde(default)]
    pub under_load: bool,
    /// True if it occurs only while one of the two GPUs also copies with a third party.
    #[serde(default)]
    pub beside_third: bool,
    /// Occurs only while at least this many flows are active on the whole machine.
    pub flows_at_once: Option<u32>,
    /// Occurs only while one of the two GPUs is at least this hot, degrees Celsius.
    pub above_c: Option<u32>,
    /// Most occurrences until the driver is started again.
    pub times: Option<u32>,
}

impl PairFault {
    /// Creates a fault of direct copies by any engine, regardless of the opposite direction.
    pub const fn new(pairs: Pairs, fault: CopyFault) -> Self {
        let (engine, issuer, path) = (None, None, Path::Direct);
        let (both_ways, under_load, beside_third) = (false, false, false);
        let (flows_at_once, above_c, times) = (None, None, None);
        Self {
            pairs,
            fault,
            engine,
            issuer,
            path,
            both_ways,
            under_load,
            beside_third,
            flows_at_once,
            above_c,
            times,
        }
    }

    /// Returns true if it depends on other traffic.
    pub(crate) const fn is_conditional(&self) -> bool {
        self.both_ways || self.under_load || self.beside_third || self.flows_at_once.is_some()
    }
}

const fn direct() -> Path {
    Path::Direct
}

/// The fault of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CopyFault {
    /// The copy takes its time, but no byte arrives.
    Dropped,
    /// This many 8-byte words, spread evenly, arrive wrong.
    Corrupt {
        #[serde(deserialize_with = "positive")]
        words: u64,
    },
    /// The bytes come from the buffer of another GPU, at the same place.
    WrongSource,
    /// The bytes arrive shifted by this much; those at the end wrap to the beginning.
    Shifted {
        /// Distance of the shift, bytes.
        #[serde(deserialize_with = "positive")]
        bytes: u64,
    },
    /// One bit arrives flipped.
    FlippedBit {
        /// Number of the bit from the beginning. In a shorter copy it wraps to the beginning.
        bit: u64,
    },
    /// The last bytes do not arrive.
    MissingTail {
        #[serde(deserialize_with = "positive")]
        bytes: u64,
    },
    /// One line of 128 bytes of every so many copies does not arrive.
    LostLine {
        /// Number of copies per lost line.
        #[serde(deserialize_with = "positive")]
        every: u32,
    },
    /// One bit of every so many arrives flipped.
    BitErrors {
        /// Number of bits per flipped one.
        #[serde(deserialize_with = "positive")]
        one_in: u64,
    },
    /// The data of the last copy to the same GPU arrive again.
    Stale,
    /// The copy reaches only this share of its rate.
    Slow {
        /// From 0 to 1.
        share: Ratio,
    },
    /// Every copy takes longer by a share drawn evenly between nothing and this much.
    Unstable {
        /// Most extra time, per cent.
        percent: Percent,
    },
    /// One copy in `one_in`, drawn by chance, takes `times` times as long.
    Outliers {
        /// Number of copies per outlier.
        #[serde(deserialize_with = "positive")]
        one_in: u32,
        /// Factor of the time that it takes.
        times: Times,
    },
    /// The copy succeeds. A later call for the device that issued it returns an error, as does every call from then on.
    LateError {
        /// CUDA's code.
        #[serde(deserialize_with = "error_code")]
        code: u32,
        /// Number of the call, counted from the end of the copy.
        #[serde(deserialize_with = "positive")]
        calls: u32,
    },
    /// The copy never ends.
    Hangs,
    /// The copy ends the process.
    Crashes,
}

/// Pairs whose running kernels do not see each other's stores as they should.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairTalkFault {
    pub pairs: Pairs,
    pub fault: TalkFault,
}

/// The fault of stores into another GPU's memory while kernels run on both.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TalkFault {
    /// Stores never arrive.
    LiveWritesLost,
    /// Stores arrive when the kernels have ended.
    Late,
    /// The flag of a line of 128 bytes arrives before its data.
    Torn,
    /// The flags of a line of 16 bytes arrive before its data.
    TornLl,
    /// A flag arrives before data that was stored and fenced ahead of it.
    Order,
    /// The same if one thread fences for others: a flag arrives before data that these stored.
    OrderOfBlocks,
    /// Some atomics are not made.
    AtomicsLost,
    /// The second kernel begins when the first one has ended.
    NeverResident,
    /// The kernels never end.
    Hangs,
    /// Flags take this many times as long.
    Slow { times: FlagTimes },
}

/// A range of a GPU's memory that direct copies of other GPUs do not reach. Addresses count what is allocated, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowFault {
    /// The GPU whose memory it is.
    pub gpu: u32,
    /// Only copies of this GPU; of all others if omitted.
    pub by: Option<u32>,
    /// Only copies by this engine; both engines if omitted.
    pub engine: Option<Engine>,
    /// Its begin.
    #[serde(with = "text")]
    pub from: Bytes,
    /// Its end.
    #[serde(with = "text")]
    pub to: Bytes,
    /// The address that is reached instead of the first one; if omitted, the bytes are lost.
    #[serde(default, with = "text")]
    pub instead: Option<Bytes>,
}
