//! Several flows at once: the rates of each and of all together, and the counters' view of known traffic.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::cell::{Cell, Figure, Measurement, Quantity, ended};
use super::flow::{Endpoint, Flow, HostMemory, Setup};
use super::probe::Probe;
use super::status::{Status, Verified};
use super::units::{Bytes, GbPerSecond};

/// Range of NVML's counter of PCIe bytes. It has 32 bits on H200 and wraps after this many bytes.
pub const PCIE_COUNTER_RANGE: u64 = 1 << 32;

/// Upper bound of the bytes that pass a PCIe link per payload byte, per cent. The smallest payload of 128 bytes
/// carries 24 to 28 bytes of overhead (PCI Express Base Specification, transaction and data link layer). With
/// payloads of 256 bytes, H200 counts 108 to 109.
pub const MOST_WITH_PACKETS_PERCENT: u64 = 125;

/// The arrangement that the flows of a load have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Two flows into one GPU.
    TwoIntoOne,
    /// Two flows of different GPUs that pass the same hop of the graph.
    ThroughOneHop,
    /// One GPU to all others.
    OneToAll,
    /// All others to one GPU.
    AllToOne,
    /// Every GPU to the next one, the last to the first.
    Ring,
    /// Every GPU to the next one and to the one before.
    RingBothWays,
    /// Every GPU to the one a fixed number of places further: a permutation.
    Shift,
    /// Every GPU to every other.
    AllPairs,
    /// Each GPU of one half to one of the other half, and back.
    Bisection,
    /// Every GPU below one PCIe switch to the next one there.
    BelowOneSwitch,
    /// Every GPU of one NUMA node to the next one there.
    WithinOneNode,
    /// The memory of the host to all GPUs.
    HostToAll,
    /// All GPUs to the memory of the host.
    AllToHost,
    /// Neighbours copy to each other while one of them copies from the host.
    NeighboursBesideHost,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::TwoIntoOne => "two into one",
            Self::ThroughOneHop => "through one hop",
            Self::OneToAll => "one to all",
            Self::AllToOne => "all to one",
            Self::Ring => "ring",
            Self::RingBothWays => "ring, both ways",
            Self::Shift => "shift",
            Self::AllPairs => "all pairs",
            Self::Bisection => "bisection",
            Self::BelowOneSwitch => "below one switch",
            Self::WithinOneNode => "within one NUMA node",
            Self::HostToAll => "host to all",
            Self::AllToHost => "all to host",
            Self::NeighboursBesideHost => "neighbours beside host",
        })
    }
}

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
            verified: None,
            verification_detail: None,
        }
    }

    /// Returns true if its bytes are known to be wrong.
    pub fn is_wrong(&self) -> bool {
        self.verified.is_some_and(Verified::is_wrong)
    }

    /// Returns its source and destination.
    pub const fn flow(&self) -> Flow {
        Flow {
            from: self.from,
            to: self.to,
        }
    }
}

/// Several flows that ran at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct LoadPattern {
    /// The arrangement that the flows have in common.
    pub pattern: Pattern,
    /// Name among several such patterns: `GPU 3`, `by 2`, `link from 0000:00:01.0 to 0000:01:00.0`. Empty if there is
    /// only one of its kind.
    #[serde(default)]
    pub of: String,
    /// The flows, all of which ran at the same time.
    pub flows: Vec<LoadFlow>,
    /// Size of one copy.
    pub bytes: Bytes,
    /// Rate of all flows together while all of them ran, from the first start to the last end, median over the
    /// samples. Null if not measured.
    pub achieved_gbps: Option<GbPerSecond>,
    /// Sum that the capacities of the graph allow, shared max-min fairly. Null if one of the flows has no such share.
    #[serde(default)]
    pub theoretical_gbps: Option<GbPerSecond>,
    /// Achieved rate as a percentage of the theoretical rate.
    #[serde(default)]
    pub percent: Option<f64>,
    /// Sum that healthy machines reach on those ways. Null if one of the flows has no such rate.
    #[serde(default)]
    pub expected_gbps: Option<GbPerSecond>,
    /// Achieved rate as a percentage of the expected rate.
    #[serde(default)]
    pub expected_percent: Option<f64>,
    /// Jain's index of the flows' rates, each divided by its expected share. It is 1 if all flows have the same part
    /// of their shares, and 1/n if one of n flows has everything. Null for one flow.
    #[serde(default)]
    pub fairness: Option<f64>,
    /// The hop that limits the pattern, for people. Null if none is known.
    #[serde(default)]
    pub limited_by: Option<String>,
    /// Number of samples.
    pub samples: u32,
    /// (Largest - smallest) / median of the samples' sums, per cent.
    pub spread_percent: Option<f64>,
    /// Result of checking the bytes of all flows.
    pub verified: Verified,
    /// Description of the wrong bytes, for the first flow with wrong bytes. Null if nothing was wrong.
    #[serde(default)]
    pub verification_detail: Option<String>,
    /// Status of the measurement.
    pub status: Status,
    /// Reason why there is no figure.
    pub reason: Option<String>,
    /// True if another program moved data over the same links or worked on the same GPUs. The figure is shown but not
    /// judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
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
        Self {
            pattern,
            of,
            flows: flows.iter().copied().map(LoadFlow::of).collect(),
            bytes: Bytes(0),
            achieved_gbps: None,
            theoretical_gbps: None,
            percent: None,
            expected_gbps: None,
            expected_percent: None,
            fairness: None,
            limited_by: None,
            samples: 0,
            spread_percent: None,
            verified: Verified::Skipped,
            verification_detail: None,
            status,
            reason,
            disturbed: false,
        }
    }

    /// Returns its name, unique within a report: `all to one, GPU 3`.
    pub fn name(&self) -> String {
        name(self.pattern, &self.of)
    }

    /// Returns its rate, if it was measured, undisturbed, and its bytes are not wrong.
    pub fn rate(&self) -> Option<GbPerSecond> {
        let sound = self.status == Status::Measured && !self.disturbed && !self.verified.is_wrong();
        self.achieved_gbps.filter(|_| sound)
    }

    /// Returns the cell of each flow.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        (0..self.flows.len()).map(|number| self.part(number))
    }
}

impl Measurement for LoadPattern {
    fn probe(&self) -> Probe {
        Probe::Load
    }

    /// Returns the first flow; without flows, one that stays in host memory.
    fn flow(&self) -> Flow {
        let nowhere = Endpoint::Host {
            node: None,
            memory: HostMemory::Pinned,
        };
        let none = Flow {
            from: nowhere,
            to: nowhere,
        };
        self.flows.first().map_or(none, LoadFlow::flow)
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        self.name()
    }

    fn identity(&self) -> String {
        format!("{}, {}", Probe::Load, self.name())
    }

    fn figures(&self) -> Vec<Figure> {
        // A field that is not named here does not compile.
        let Self {
            achieved_gbps,
            theoretical_gbps,
            percent,
            expected_gbps,
            expected_percent,
            fairness,
            spread_percent,
            flows,
            pattern: _,
            of: _,
            bytes: _,
            limited_by: _,
            samples: _,
            verified: _,
            verification_detail: _,
            status: _,
            reason: _,
            disturbed: _,
        } = self;
        let own = [
            Figure::new("achieved_gbps", achieved_gbps, Quantity::Rate),
            Figure::new("percent", percent, Quantity::Percent),
            Figure::new("expected_percent", expected_percent, Quantity::Percent),
            Figure::new("fairness", fairness, Quantity::Index),
            Figure::new("spread_percent", spread_percent, Quantity::Amount),
            Figure::new("theoretical_gbps", theoretical_gbps, Quantity::Rate),
            Figure::new("expected_gbps", expected_gbps, Quantity::Rate),
        ];
        let of_flows = flows.iter().flat_map(|flow| {
            [
                ("flows[].achieved_gbps", flow.achieved_gbps),
                ("flows[].expected_gbps", flow.expected_gbps),
            ]
        });
        let of_flows = of_flows.map(|(key, rate)| Figure::new(key, &rate, Quantity::Rate));
        own.into_iter().chain(of_flows).collect()
    }

    fn forget(&mut self) {
        (self.achieved_gbps, self.percent, self.expected_percent) = (None, None, None);
        (self.fairness, self.spread_percent) = (None, None);
        for flow in &mut self.flows {
            flow.achieved_gbps = None;
        }
    }

    fn has_figure(&self) -> bool {
        self.achieved_gbps.is_some()
    }

    fn verified(&self) -> Verified {
        self.verified
    }

    fn parts(&self) -> usize {
        self.flows.len()
    }

    fn part(&self, number: usize) -> Cell<'_> {
        Cell {
            flow: self.flows[number].flow(),
            ..self.cell()
        }
    }

    ended!();
}

fn name(pattern: Pattern, of: &str) -> String {
    if of.is_empty() {
        pattern.to_string()
    } else {
        format!("{pattern}, {of}")
    }
}

/// The counters of a GPU during known traffic, beside the bytes that this program sent. Counters may count more than
/// that: the overhead around data, and traffic of other programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Counted {
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// Pattern of the known traffic.
    pub pattern: Pattern,
    /// Name among several such patterns, as in `load[]`.
    #[serde(default)]
    pub of: String,
    /// Bytes that this program sent directly from this GPU to others.
    pub sent_bytes: Bytes,
    /// Bytes that this program sent directly from others to this GPU.
    pub received_bytes: Bytes,
    /// Bytes that this program sent from this GPU to host memory.
    pub sent_to_host_bytes: Bytes,
    /// Bytes that this program sent from host memory to this GPU.
    pub received_from_host_bytes: Bytes,
    /// Data sent over its NVLinks. Null if not counted.
    pub nvlink_sent_bytes: Option<Bytes>,
    /// Data received over its NVLinks. Null if not counted.
    pub nvlink_received_bytes: Option<Bytes>,
    /// Bytes sent over its PCIe link, at least: the counter wraps. Null if not counted.
    pub pcie_sent_bytes: Option<Bytes>,
    /// Bytes received over its PCIe link, at least. Null if not counted.
    pub pcie_received_bytes: Option<Bytes>,
    /// Counts of each of its active NVLinks. Empty if there are no counts per link.
    #[serde(default)]
    pub links: Vec<LinkShare>,
    /// Reason why a count is missing that this GPU and driver support, or a note that they support none. Null if none
    /// is missing.
    #[serde(default)]
    pub reason: Option<String>,
    /// True if another program moved data over the same links. The counts are shown but not judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

/// The counts of one NVLink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct LinkShare {
    /// NVML's number of the link.
    pub link: u8,
    /// Data that it sent.
    pub sent_bytes: Option<Bytes>,
    /// Data that it received.
    pub received_bytes: Option<Bytes>,
    /// Sent bytes as a percentage of what all links of the GPU sent. Null if nothing was sent.
    #[serde(default)]
    pub sent_percent: Option<f64>,
    /// Received bytes as a percentage of what all links of the GPU received. Null if nothing was received.
    #[serde(default)]
    pub received_percent: Option<f64>,
}

impl Counted {
    /// Creates a record for a GPU none of whose counters is known, for this reason.
    pub const fn unread(gpu: u32, pattern: Pattern, of: String, reason: Option<String>) -> Self {
        Self {
            gpu,
            pattern,
            of,
            sent_bytes: Bytes(0),
            received_bytes: Bytes(0),
            sent_to_host_bytes: Bytes(0),
            received_from_host_bytes: Bytes(0),
            nvlink_sent_bytes: None,
            nvlink_received_bytes: None,
            pcie_sent_bytes: None,
            pcie_received_bytes: None,
            links: Vec::new(),
            reason,
            disturbed: false,
        }
    }

    /// Returns the name of its pattern, as [`LoadPattern::name`] does.
    pub fn name(&self) -> String {
        name(self.pattern, &self.of)
    }

    /// Sets the share of each link from the counts. Calling it twice changes nothing.
    pub fn share(&mut self) {
        let sent = self
            .links
            .iter()
            .filter_map(|link| link.sent_bytes)
            .map(|bytes| bytes.0)
            .sum();
        let received = self
            .links
            .iter()
            .filter_map(|link| link.received_bytes)
            .map(|bytes| bytes.0)
            .sum();
        for link in &mut self.links {
            link.sent_percent = link.sent_bytes.and_then(|bytes| share(bytes.0, sent));
            link.received_percent = link
                .received_bytes
                .and_then(|bytes| share(bytes.0, received));
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::HostMemory;
    use crate::placement::Pair;

    fn two_into_one() -> LoadPattern {
        let flows = [1, 2].map(|source| {
            Flow::from(Pair {
                source,
                destination: 0,
            })
        });
        LoadPattern::without(
            Pattern::TwoIntoOne,
            "GPU 0".into(),
            &flows,
            Status::Skipped,
            Some("no time".into()),
        )
    }

    #[test]
    fn a_pattern_has_a_name_and_a_cell_for_each_flow() {
        let mut load = two_into_one();
        assert_eq!(load.name(), "two into one, GPU 0");
        assert_eq!(
            load.cells()
                .map(|cell| cell.flow.to_string())
                .collect::<Vec<_>>(),
            ["GPU 1 → GPU 0", "GPU 2 → GPU 0"]
        );
        assert!(load.cells().all(|cell| !cell.tested()) && load.rate().is_none());
        (load.status, load.achieved_gbps) = (Status::Measured, Some(GbPerSecond(399.0)));
        assert!(load.cells().all(|cell| cell.tested()) && load.rate().is_some());
        load.disturbed = true;
        assert_eq!(load.rate(), None);
    }

    #[test]
    fn it_is_written_as_the_contract_says() {
        let host = Endpoint::Host {
            node: Some(1),
            memory: HostMemory::Pinned,
        };
        let mut load = two_into_one();
        load.flows.push(LoadFlow::of(Flow {
            from: host,
            to: Endpoint::Gpu(0),
        }));
        let written = serde_json::to_value(&load).unwrap();
        assert_eq!(written["pattern"], "two-into-one");
        assert_eq!(written["flows"][0]["from"], serde_json::json!({ "gpu": 1 }));
        assert_eq!(
            written["flows"][2]["from"],
            serde_json::json!({ "host": { "node": 1, "memory": "pinned" } })
        );
        assert_eq!(
            serde_json::from_value::<LoadPattern>(written).unwrap(),
            load
        );
    }

    #[test]
    fn each_link_has_its_share_of_what_all_counted() {
        let mut counted = Counted::unread(0, Pattern::Ring, String::new(), None);
        let link = |link, sent| LinkShare {
            link,
            sent_bytes: Some(Bytes(sent)),
            received_bytes: Some(Bytes(0)),
            sent_percent: None,
            received_percent: None,
        };
        counted.links = vec![link(0, 30), link(1, 10)];
        counted.share();
        assert_eq!(
            counted
                .links
                .iter()
                .map(|link| link.sent_percent)
                .collect::<Vec<_>>(),
            [Some(75.0), Some(25.0)]
        );
        assert!(
            counted
                .links
                .iter()
                .all(|link| link.received_percent.is_none())
        );
    }
}
