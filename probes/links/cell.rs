//! Single NVLinks between two GPUs.

use super::axis::axes;
use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::placement::{Engine, Pair};
use super::status::Verified;
use super::units::GbPerSecond;

axes!(u8);

cell! {
    /// One NVLink between two GPUs by itself, while all links of the pair carry as much.
    SingleLink: Links
    with {
        /// The GPU whose kernel stores and loads, and the GPU whose memory it reaches.
        #[serde(flatten)]
        pair: Pair,
        /// Number of the link at the source. Null if links cannot be told apart.
        source_link: Option<u8>,
        /// Number of the link at the destination by which the same blocks come. Null if it is not known.
        destination_link: Option<u8>,
    }
    has {
        /// Rate of loads, fastest sample. They have their data from the destination.
        load_gbps: Option<GbPerSecond> => main Rate,
        /// Rate of stores that are loaded back one by one, fastest sample. The waits bound it, not the link.
        store_gbps: Option<GbPerSecond> => Rate,
        /// Time of a load, nanoseconds, fastest sample.
        latency_ns: Option<f64> => Duration,
        /// Spread of the loads' rate.
        spread_percent: Option<f64> => Amount,
        /// Share of the stored bytes that the link's own counter has seen, per cent. The rate is of those.
        counted_percent: Option<f64> => Percent,
        /// Samples of the loads.
        samples: u32,
        /// Result of comparing what was stored, by the destination and over the link.
        verified: Verified => checked,
    }
}

impl Subject for SingleLink {
    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        Setup { engine: Engine::Kernel, ..Setup::REFERENCE }
    }

    fn what(&self) -> String {
        let number =
            |link: Option<u8>| link.map_or_else(|| "?".to_owned(), |link| link.to_string());
        format!("link {} to link {}", number(self.source_link), number(self.destination_link))
    }
}
