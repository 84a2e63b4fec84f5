//! Bandwidth between GPUs.

use serde::{Deserialize, Serialize};

use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::placement::Pair;
use super::status::Verified;
use super::units::GbPerSecond;

cell! {
    /// Bandwidth from one GPU to another in one configuration.
    PeerBandwidth: Bandwidth
    with {
        /// The ordered pair.
        #[serde(flatten)]
        pair: Pair,
        /// Setup of the copy.
        #[serde(flatten)]
        setup: Setup,
    }
    has {
        /// Bytes divided by the time of a plain row of copies, for this direction only, median over the rows. Nothing is
        /// subtracted.
        achieved_gbps: Option<GbPerSecond> => main Rate,
        /// Payload rate of the narrowest hop of the route.
        theoretical_gbps: Option<GbPerSecond> => given Rate,
        /// Achieved rate as a percentage of the theoretical rate.
        percent: Option<f64> => Percent,
        /// Rate that healthy machines reach on a route of this class. Null if the theoretical rate is not known.
        #[serde(default)]
        expected_gbps: Option<GbPerSecond> => given Rate,
        /// Lowest rate that healthy machines are known to have reached there. Null if none is known.
        #[serde(default)]
        expected_low_gbps: Option<GbPerSecond> => given Rate,
        /// Highest rate that healthy machines are known to have reached there. Null if none is known.
        #[serde(default)]
        expected_high_gbps: Option<GbPerSecond> => given Rate,
        /// Achieved rate as a percentage of the expected rate.
        #[serde(default)]
        expected_percent: Option<f64> => Percent,
        /// Rate that this pair reaches on a healthy machine of this kind: every link as wide and fast as both its ends can
        /// be, all NVLinks of the model up; the middle of what healthy machines reach. Null if none is known.
        #[serde(default)]
        healthy_gbps: Option<GbPerSecond> => given Rate,
        /// Achieved rate as a percentage of the healthy rate.
        #[serde(default)]
        healthy_percent: Option<f64> => Percent,
        /// Number of rows.
        samples: u32,
        /// (Largest - smallest) / median of the rows, per cent.
        spread_percent: Option<f64> => Amount,
        /// Number of rows that took far longer than the median of the rows (1.4 times and more), those included that ran
        /// before the figure had settled. Null in older reports.
        #[serde(default)]
        slow_rows: Option<u32>,
        /// Fixed cost of one copy in a row, beside its bytes, microseconds, from rows of small copies. Null if not
        /// measured. Reports from before 2026-11-22 subtracted it in `achieved_gbps`.
        #[serde(default)]
        fixed_cost_us: Option<f64> => Amount,
        /// Rate that a copy of unlimited size would reach, without the fixed cost. Null if not measured.
        #[serde(default)]
        asymptotic_gbps: Option<GbPerSecond> => Rate,
        /// Time that the host spent in the calls that enqueued one copy with its ordering, waiting included,
        /// microseconds.
        host_blocked_us: Option<f64> => Amount,
        /// Pairs that were copied at the same time, this one included. 1 is this pair alone.
        #[serde(default = "alone")]
        at_once: u32 = 1,
        /// Result of checking the bytes, when they were verified and after the timed copies.
        verified: Verified => checked,
        /// Description of the wrong bytes. Null if nothing was wrong.
        #[serde(default)]
        verification_detail: Option<String>,
    }
}

impl Subject for PeerBandwidth {
    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        self.setup
    }

    fn what(&self) -> String {
        format!("{}, {}", self.setup, self.setup.bytes)
    }
}

const fn alone() -> u32 {
    1
}

/// One of several pairs that were copied at once, and the same pair alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AtOnce {
    /// The ordered pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Setup of the copy.
    #[serde(flatten)]
    pub setup: Setup,
    /// Rate while others were copied, median of the rows.
    pub at_once_gbps: GbPerSecond,
    /// Rate alone, median of the rows.
    pub alone_gbps: GbPerSecond,
    /// Amount by which `at_once_gbps` exceeds `alone_gbps`, per cent.
    pub difference_percent: f64,
    /// True if the rates differ so much that pairs of this kind were copied one at a time from then on.
    pub apart: bool,
}
