//! Copies within a GPU.

use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::status::Verified;
use super::units::{Bytes, GbPerSecond};

cell! {
    /// Copies within one GPU.
    LocalCopy: Local
    with {
        /// The GPU, by NVML's index.
        gpu: u32,
        /// Size of one copy.
        bytes: Bytes,
    }
    has {
        /// Bytes copied per second, not read plus written, median over the samples.
        achieved_gbps: Option<GbPerSecond> => main Rate,
        /// Number of samples, each a row of copies.
        samples: u32,
        /// (Largest - smallest) / median, per cent.
        spread_percent: Option<f64> => Amount,
        /// Result of checking the bytes. Earlier versions did not check them.
        #[serde(default)]
        verified: Verified => sometimes checked,
        /// Description of the wrong bytes. Null if nothing was wrong.
        #[serde(default)]
        verification_detail: Option<String>,
    }
}

impl Subject for LocalCopy {
    fn flow(&self) -> Flow {
        Flow::inside(self.gpu)
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        self.bytes.to_string()
    }

    fn what_of_any_size(&self) -> String {
        "copies".to_owned()
    }
}
