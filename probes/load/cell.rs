//! Several flows at once: the rates of each and of all together.

use serde::{Deserialize, Serialize};

use super::axis::axes;
use super::cell::{Apart, Cell, Figure, Measurement, Quantity, Subject, cell};
pub use super::flow::Pattern;
use super::flow::{Endpoint, Flow, HostMemory, Setup};
use super::status::{Ending, Status, Verified};
use super::units::{Bytes, GbPerSecond};

axes!(Pattern);

/// One flow of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct LoadFlow {
    /// Source of its bytes.
    pub from: Endpoint,
    /// Destination of its bytes.
    pub to: Endpoint,
    /// Rate of the flow while all flows ran, median over the samples.
    pub achieved_gbps: Option<GbPerSecond>,
    /// Its max-min fair share of the hops on its way. Null if no rate on the way is known.
    #[serde(default)]
    pub expected_gbps: Option<GbPerSecond>,
    /// The same share on a healthy machine of this kind.
    #[serde(default)]
    pub healthy_gbps: Option<GbPerSecond>,
    /// Bytes of further copies, of which each was compared. Left out if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_bytes: Option<Bytes>,
    /// Rate of these copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_gbps: Option<GbPerSecond>,
    /// Result of checking its bytes. Null if nothing was copied, and in reports that record it only for the whole
    /// pattern.
    #[serde(default)]
    pub verified: Option<Verified>,
    /// Description of its wrong bytes. Left out if nothing was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_detail: Option<String>,
}

impl LoadFlow {
    /// Creates a flow without measurements.
    pub const fn of(flow: Flow) -> Self {
        let Flow { from, to } = flow;
        Self {
            from,
            to,
            achieved_gbps: None,
            expected_gbps: None,
            healthy_gbps: None,
            compared_bytes: None,
            compared_gbps: None,
            verified: None,
            verification_detail: None,
        }
    }

    /// Returns its figures, those of the flow with this number.
    pub(crate) fn figures(&self, number: usize) -> [Figure; 3] {
        let rate = |key, rate| Figure::new(key, rate, Quantity::Rate).of_flow(number);
        [
            rate("flows[].achieved_gbps", &self.achieved_gbps),
            rate("flows[].expected_gbps", &self.expected_gbps).given(),
            rate("flows[].healthy_gbps", &self.healthy_gbps).given(),
        ]
    }

    /// Removes what was measured.
    pub(crate) fn forget(&mut self) {
        self.achieved_gbps = None;
    }

    /// Returns true if its bytes are known to be wrong.
    pub fn is_wrong(&self) -> bool {
        self.verified.is_some_and(Verified::is_wrong)
    }

    /// Returns its source and destination.
    pub const fn flow(&self) -> Flow {
        Flow { from: self.from, to: self.to }
    }
}

cell! {
    /// Several flows that ran at the same time.
    LoadPattern: Load
    with {
        /// The arrangement that the flows have in common.
        pattern: Pattern,
        /// Name among several such patterns: `GPU 3`, `by 2`, `link from 0000:00:01.0 to 0000:01:00.0`. Empty if there is
        /// only one of its kind.
        #[serde(default)]
        of: String,
        /// The flows, all of which ran at the same time.
        flows: Vec<LoadFlow> => flows,
        /// Size of one copy.
        bytes: Bytes,
    }
    has {
        /// Rate of all flows together while all of them ran, from the first start to the last end, median over the
        /// samples. Null if not measured.
        achieved_gbps: Option<GbPerSecond> => main Rate,
        /// Sum that the capacities of the graph allow, shared max-min fairly. Null if one of the flows has no such share.
        #[serde(default)]
        theoretical_gbps: Option<GbPerSecond> => given Rate,
        /// Achieved rate as a percentage of the theoretical rate.
        #[serde(default)]
        percent: Option<f64> => Percent,
        /// Sum that healthy machines reach on those ways. Null if one of the flows has no such rate.
        #[serde(default)]
        expected_gbps: Option<GbPerSecond> => given Rate,
        /// Achieved rate as a percentage of the expected rate.
        #[serde(default)]
        expected_percent: Option<f64> => Percent,
        /// The same sum on a healthy machine of this kind: every link as wide and fast as both its ends can be, all NVLinks
        /// of the model up.
        #[serde(default)]
        healthy_gbps: Option<GbPerSecond> => given Rate,
        /// Achieved rate as a percentage of the healthy rate.
        #[serde(default)]
        healthy_percent: Option<f64> => Percent,
        /// The hop that limits the pattern, for people. Null if none is known.
        #[serde(default)]
        limited_by: Option<String>,
        /// Number of samples.
        samples: u32,
        /// (Largest - smallest) / median of the samples' sums, per cent.
        spread_percent: Option<f64> => Amount,
        /// Result of checking the bytes of all flows.
        verified: Verified => checked,
        /// Description of the wrong bytes, for the first flow with wrong bytes. Null if nothing was wrong.
        #[serde(default)]
        verification_detail: Option<String>,
    }
}

impl LoadPattern {
    /// Creates a pattern that was not measured, for this reason.
    pub fn without(
        pattern: Pattern,
        of: String,
        flows: &[Flow],
        status: Status,
        reason: Option<String>,
    ) -> Self {
        let flows = flows.iter().copied().map(LoadFlow::of).collect();
        Self {
            ending: Ending::without(status, reason),
            ..Self::blank(pattern, of, flows, Bytes(0))
        }
    }

    /// Returns its name, unique within a report: `all to one, GPU 3`.
    pub fn name(&self) -> String {
        name(self.pattern, &self.of)
    }

    /// Returns its rate, if it was measured, undisturbed, and its bytes are not wrong.
    pub fn rate(&self) -> Option<GbPerSecond> {
        self.achieved_gbps.filter(|_| self.is_sound())
    }

    /// Returns the cell of each flow.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        (0..self.flows.len()).map(|number| self.part(number))
    }
}

impl Subject for LoadPattern {
    /// Returns the first flow; without flows, one that stays in host memory.
    fn flow(&self) -> Flow {
        let nowhere = Endpoint::Host { node: None, memory: HostMemory::Pinned };
        let none = Flow { from: nowhere, to: nowhere };
        self.flows.first().map_or(none, LoadFlow::flow)
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_engine(self.pattern.engine()).with_bytes(self.bytes)
    }

    fn apart(&self) -> Apart {
        Apart::Load(self.pattern, self.of.clone())
    }

    fn what(&self) -> String {
        self.name()
    }

    fn title(&self) -> String {
        self.name()
    }
}

pub(crate) fn name(pattern: Pattern, of: &str) -> String {
    if of.is_empty() { pattern.to_string() } else { format!("{pattern}, {of}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::HostMemory;
    use crate::placement::Pair;

    fn all_to_one() -> LoadPattern {
        let flows = [1, 2].map(|source| Flow::from(Pair { source, destination: 0 }));
        LoadPattern::without(
            Pattern::AllToOne,
            "GPU 0".into(),
            &flows,
            Status::Skipped,
            Some("no time".into()),
        )
    }

    #[test]
    fn a_pattern_has_a_name_and_a_cell_for_each_flow() {
        let mut load = all_to_one();
        assert_eq!(load.name(), "all to one, GPU 0");
        assert_eq!(
            load.cells().map(|cell| cell.flow.to_string()).collect::<Vec<_>>(),
            ["GPU 1 → GPU 0", "GPU 2 → GPU 0"]
        );
        assert!(load.cells().all(|cell| !cell.tested()) && load.rate().is_none());
        (load.ending, load.achieved_gbps) = (Ending::MEASURED, Some(GbPerSecond(399.0)));
        assert!(load.cells().all(|cell| cell.tested()) && load.rate().is_some());
        load.ending.disturbed = true;
        assert_eq!(load.rate(), None);
    }

    #[test]
    fn it_is_written_as_the_contract_says() {
        let host = Endpoint::Host { node: Some(1), memory: HostMemory::Pinned };
        let mut load = all_to_one();
        load.flows.push(LoadFlow::of(Flow { from: host, to: Endpoint::Gpu(0) }));
        let written = serde_json::to_value(&load).unwrap();
        assert_eq!(written["pattern"], "all-to-one");
        assert_eq!(written["flows"][0]["from"], serde_json::json!({ "gpu": 1 }));
        assert_eq!(
            written["flows"][2]["from"],
            serde_json::json!({ "host": { "node": 1, "memory": "pinned" } })
        );
        assert_eq!(serde_json::from_value::<LoadPattern>(written).unwrap(), load);
    }
}
