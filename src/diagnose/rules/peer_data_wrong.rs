//! # What it means
//!
//! A copy from one GPU to another ended without an error, and the bytes that the destination holds
//! are not those that were sent: they never arrived, or others did.
//!
//! # How it is detected
//!
//! Before timing, the source is filled with a pattern that depends on source, destination and
//! offset, the destination with poison; after a one-way copy the destination GPU checks its own
//! memory. Poison still there means dropped, anything else that is not the pattern means corrupt.
//!
//! # Why it matters
//!
//! Programs compute with wrong numbers and nothing tells them. The bandwidth may look perfect.
//!
//! # What to do
//!
//! Take the machine out of service. The usual suspects are an IOMMU that translates addresses and
//! access control (ACS) that redirects peer requests: look at `iommu=` on the kernel's command
//! line and at `ACSCtl` in `lspci -vvv`, switch them off in BIOS (or use `iommu=pt`) and check
//! again. A virtual machine needs its host to do that. If both are off, test each GPU in another
//! slot.
//!
//! # Sources
//!
//! CUDA Programming Guide 3.4.2.5 (IOMMU on Linux); NCCL's troubleshooting page (ACS); PyTorch
//! issue 84803; FIDESlib issue 28.

use std::collections::BTreeSet;

use serde_json::json;

use crate::diagnose::cluster;
use crate::diagnose::rule::{Evidence, Rule, finding};
use crate::diagnose::words;
use crate::model::finding::{Finding, Severity};
use crate::model::measurement::{PeerBandwidth, Verified};
use crate::topology::pcie;

/// See the module's documentation.
pub struct PeerDataWrong;

impl Rule for PeerDataWrong {
    fn code(&self) -> &'static str {
        "peer-data-wrong"
    }

    fn severity(&self) -> Severity {
        Severity::Error
    }

    fn source(&self) -> &'static str {
        include_str!("peer_data_wrong.rs")
    }

    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(measurements) = evidence.measurements else { return Vec::new() };
        let is_wrong = |cell: &&PeerBandwidth| matches!(cell.verified, Verified::Dropped | Verified::Corrupt);
        let is_judged = |cell: &&PeerBandwidth| is_wrong(cell) || cell.verified == Verified::Ok;
        let wrong: Vec<_> = measurements.peer.iter().filter(is_wrong).collect();
        let bad: BTreeSet<_> = wrong.iter().map(|cell| cell.pair).collect();
        let seen: BTreeSet<_> = measurements.peer.iter().filter(is_judged).map(|cell| cell.pair).collect();
        let (bad, seen): (Vec<_>, Vec<_>) = (bad.into_iter().collect(), seen.into_iter().collect());
        let groups = cluster::groups(&bad, &seen, evidence.topology);
        groups
            .iter()
            .map(|group| {
                let cells: Vec<_> = wrong.iter().copied().filter(|cell| group.pairs.contains(&cell.pair)).collect();
                self.finding(evidence, group, &cells)
            })
            .collect()
    }
}

impl PeerDataWrong {
    fn finding(&self, evidence: &Evidence<'_>, group: &cluster::Group, cells: &[&PeerBandwidth]) -> Finding {
        let how: BTreeSet<_> = cells.iter().map(|cell| format!("{}, {}", cell.engine, cell.path)).collect();
        let how: Vec<_> = how.iter().map(String::as_str).collect();
        let count = |verified| cells.iter().filter(|cell| cell.verified == verified).count();
        let (dropped, corrupt) = (count(Verified::Dropped), count(Verified::Corrupt));
        let what = match (dropped, corrupt) {
            (_, 0) => "never arrived",
            (0, _) => "arrived wrong",
            _ => "never arrived or arrived wrong",
        };
        let seen = words::distinct(cells.iter().filter_map(|cell| cell.verification_detail.as_deref()));
        let iommu = evidence.snapshot.host.iommu_translating.get();
        let redirecting = redirecting_ports(evidence, cells);
        let mut suspects = Vec::new();
        if iommu == Some(true) {
            suspects.push("the IOMMU translates device addresses".to_owned());
        }
        if !redirecting.is_empty() {
            suspects.push(format!("ACS redirects peer requests at {}", redirecting.join(", ")));
        }
        if suspects.is_empty() {
            suspects.push(if evidence.virtual_machine() {
                "IOMMU and ACS of the host, which cannot be seen from this virtual machine".into()
            } else {
                "IOMMU and ACS, of which nothing shows in the facts, then GPU and slot".into()
            });
        }
        let detail = if seen.is_empty() { String::new() } else { format!(": {seen}") };
        let message = format!(
            "Data copied {} {what} ({}){detail}; suspects: {}",
            group.place(evidence.snapshot),
            how.join("; "),
            suspects.join("; "),
        );
        let whose = if evidence.virtual_machine() { "On the host of this virtual machine, switch" } else { "Switch" };
        finding(
            self,
            group.subject(),
            message,
            [
                ("copies_dropped", json!(dropped)),
                ("copies_corrupt", json!(corrupt)),
                ("copies", json!(how)),
                ("iommu_translating", json!(iommu)),
                ("ports_with_acs_redirect", json!(redirecting)),
                ("pairs", group.evidence()),
            ],
            format!(
                "Take the machine out of service: results computed on it may be wrong. {whose} off IOMMU translation \
             (iommu=pt on the kernel's command line, or in BIOS) and ACS (BIOS, or setpci on the bridges; lspci -vvv \
             shows ACSCtl), reboot, and check again. If the fault stays, swap the GPUs' slots to see whether it moves \
             with a GPU"
            ),
        )
    }
}

/// The bridges above the GPUs of these cells that send peer requests up to the root.
fn redirecting_ports(evidence: &Evidence<'_>, cells: &[&PeerBandwidth]) -> Vec<String> {
    let gpus: BTreeSet<_> = cells.iter().flat_map(|cell| [cell.pair.source, cell.pair.destination]).collect();
    let mut ports = BTreeSet::new();
    for address in gpus.into_iter().filter_map(|gpu| evidence.snapshot.gpu(gpu)?.pci.get()) {
        let way = pcie::chain(evidence.snapshot, address);
        ports.extend(
            way.iter().filter(|port| port.acs_redirect.get() == Some(true)).map(|port| port.address.to_string()),
        );
    }
    ports.into_iter().collect()
}
