//! Known traffic as the counters of a GPU and its links show it.

use serde::{Deserialize, Serialize};

use super::load::{Pattern, name};
use super::units::Bytes;

/// Range of NVML's counter of PCIe bytes. It has 32 bits on H200 and wraps after this many bytes.
pub const PCIE_COUNTER_RANGE: u64 = 1 << 32;

/// Upper bound of the bytes that pass a PCIe link per payload byte, per cent. The smallest payload of 128 bytes
/// carries 24 to 28 bytes of overhead (PCI Express Base Specification, transaction and data link layer). With
/// payloads of 256 bytes, H200 counts 108 to 109.
pub const MOST_WITH_PACKETS_PERCENT: u64 = 125;

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

    /// Returns the name of its pattern, as [`LoadPattern::name`](crate::load::LoadPattern::name) does.
    pub fn name(&self) -> String {
        name(self.pattern, &self.of)
    }

    /// Sets the share of each link from the counts. Calling it twice changes nothing.
    pub fn share(&mut self) {
        let sent = self.links.iter().filter_map(|link| link.sent_bytes).map(|bytes| bytes.0).sum();
        let received =
            self.links.iter().filter_map(|link| link.received_bytes).map(|bytes| bytes.0).sum();
        for link in &mut self.links {
            link.sent_percent = link.sent_bytes.and_then(|bytes| share(bytes.0, sent));
            link.received_percent = link.received_bytes.and_then(|bytes| share(bytes.0, received));
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
            counted.links.iter().map(|link| link.sent_percent).collect::<Vec<_>>(),
            [Some(75.0), Some(25.0)]
        );
        assert!(counted.links.iter().all(|link| link.received_percent.is_none()));
    }
}
