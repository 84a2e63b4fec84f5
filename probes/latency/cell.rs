//! Latency of small copies.

use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::placement::{Pair, Path};
use super::units::Bytes;

cell! {
    /// Time of one small copy in a row of small copies.
    Latency: Latency
    with {
        /// The ordered pair.
        #[serde(flatten)]
        pair: Pair,
        /// Direct, or through host memory.
        path: Path,
        /// Size of one copy.
        bytes: Bytes,
    }
    has {
        /// Median time of one copy, microseconds.
        latency_us: Option<f64> => main Duration,
        /// Number of samples.
        samples: u32,
        /// (Largest - smallest) / median, per cent.
        spread_percent: Option<f64> => Amount,
    }
}

impl Subject for Latency {
    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_path(self.path).with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!("{}, {}", self.what_of_any_size(), self.bytes)
    }

    fn what_of_any_size(&self) -> String {
        self.setup().to_string()
    }
}
