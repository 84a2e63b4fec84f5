//! Copies into memory that is mapped for several GPUs without peer access between them.

use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::placement::{Engine, Pair};
use super::status::Verified;
use super::units::{Bytes, GbPerSecond};

cell! {
    /// Copies into mapped memory (`cuMemCreate`, `cuMemMap`, `cuMemSetAccess`), beside copies into plain memory.
    Mapped: Mapped
    with {
        /// The ordered pair; the same GPU twice for copies within it.
        #[serde(flatten)]
        pair: Pair,
        /// What moves the bytes.
        engine: Engine,
        /// Size of one copy.
        bytes: Bytes,
    }
    has {
        /// Rate of copies into mapped memory, median over the samples.
        achieved_gbps: Option<GbPerSecond> => main Rate,
        /// Rate of the same copies into plain memory, with peer access.
        plain_gbps: Option<GbPerSecond> => Rate,
        /// The first as a share of the second, per cent.
        percent: Option<f64> => Percent,
        /// Time to create the memory, map it and give access to it, microseconds.
        map_us: Option<f64> => Amount,
        /// Number of samples of each, each a row of copies.
        samples: u32,
        /// (Largest - smallest) / median of the rows into mapped memory, per cent.
        spread_percent: Option<f64> => Amount,
        /// Result of checking the bytes in mapped memory.
        verified: Verified => checked,
    }
}

impl Subject for Mapped {
    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        Setup { engine: self.engine, ..Setup::REFERENCE }.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!("{}, {}", self.what_of_any_size(), self.bytes)
    }

    fn what_of_any_size(&self) -> String {
        format!("into mapped memory, {}", self.engine)
    }
}
