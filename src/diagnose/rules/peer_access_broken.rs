//! # What it means
//!
//! Driver and CUDA grant peer access between GPUs on PCIe, and what is copied over it does not
//! arrive: not between two GPUs, but between all of them or most.
//!
//! # How it is detected
//!
//! The check of the bytes (see `peer-data-wrong`) fails on three of four PCIe pairs or more, and on
//! at least two, in every way of copying that was checked on those pairs. The destination still holds
//! what was there before, or a setting is known that would do it: an IOMMU that translates, or ACS
//! that redirects peer requests. One finding then names the setting of the machine; fewer pairs,
//! single engines, and bytes that arrive wrong without such a setting are `peer-data-wrong`'s.
//!
//! # Why it matters
//!
//! Programs compute with wrong numbers and nothing tells them. The bandwidth looks perfect, and a copy
//! there and back that compares equal proves nothing.
//!
//! # What to do
//!
//! Take the machine out of service. Switch IOMMU translation off (`iommu=pt` on the kernel's command
//! line, or in BIOS) and ACS (BIOS, or `setpci` on the bridges), reboot and check again. In a virtual
//! machine its host must do that. Until then programs must not use peer access
//! (`NCCL_P2P_DISABLE=1`).
//!
//! # Sources
//!
//! CUDA Programming Guide 3.4.2.5 (IOMMU on Linux); NCCL's troubleshooting page (ACS); PyTorch issue
//! 84803; FIDESlib issue 28; a virtual machine whose window was mirrored, where 27 GB/s passed and no
//! byte arrived.

use serde_json::json;

use super::wrong_bytes::{self, Broken};
use crate::diagnose::rule::{Evidence, Rule, finding};
use crate::diagnose::suspects::{self, gpus_of, suspect};
use crate::diagnose::words;
use crate::model::finding::{Finding, Severity, Subject};

/// See the module's documentation.
pub struct PeerAccessBroken;

impl Rule for PeerAccessBroken {
    fn code(&self) -> &'static str {
        "peer-access-broken"
    }

    fn severity(&self) -> Severity {
        Severity::Error
    }

    fn source(&self) -> &'static str {
        include_str!("peer_access_broken.rs")
    }

    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        wrong_bytes::broken(evidence).map(|broken| self.finding(evidence, &broken)).into_iter().collect()
    }
}

impl PeerAccessBroken {
    fn finding(&self, evidence: &Evidence<'_>, broken: &Broken) -> Finding {
        let iommu = evidence.snapshot.host.iommu_translating.get();
        let ports = suspects::redirecting_ports(evidence, &gpus_of(&broken.pairs));
        let mut settings = Vec::new();
        if iommu == Some(true) {
            settings.push("the IOMMU translates device addresses".to_owned());
        }
        if !ports.is_empty() {
            settings.push(format!("ACS redirects peer requests at {}", ports.join(", ")));
        }
        let because = match (settings.is_empty(), evidence.virtual_machine()) {
            (false, _) => format!(": {}", settings.join(", and ")),
            (true, true) => "; IOMMU and ACS of the host cannot be seen from this virtual machine".into(),
            (true, false) => "; the facts show neither an IOMMU that translates nor ACS that redirects".into(),
        };
        let what = if broken.corrupt { "does not arrive as it was sent" } else { "never arrives" };
        let whose = if evidence.virtual_machine() { "On the host of this virtual machine, switch" } else { "Switch" };
        let measurements = evidence.measurements.into_iter().flat_map(|measurements| &measurements.peer);
        let of_pairs = measurements.filter(|cell| wrong_bytes::is_wrong(cell) && broken.pairs.contains(&cell.pair));
        let seen = words::distinct(of_pairs.filter_map(|cell| cell.verification_detail.as_deref()).take(1));
        let mut found = finding(
            self,
            Subject::Machine,
            format!(
                "Peer access is granted and broken: data copied directly between {} of {} PCIe pairs of GPUs {what}\
                 {because}",
                broken.pairs.len(),
                broken.checked,
            ),
            [
                ("pairs_checked", json!(broken.checked)),
                ("seen_on_destination", json!(seen)),
                ("iommu_translating", json!(iommu)),
                ("ports_with_acs_redirect", json!(ports)),
                ("pairs", json!(broken.pairs.iter().map(ToString::to_string).collect::<Vec<_>>())),
            ],
            format!(
                "Take the machine out of service: results computed on it may be wrong. {whose} off IOMMU translation \
                 (iommu=pt on the kernel's command line, or in BIOS) and ACS (BIOS, or setpci on the bridges; lspci -vvv \
                 shows ACSCtl), reboot, and check again. Until then run without peer access (NCCL_P2P_DISABLE=1)"
            ),
        );
        found.suspects = suspects::of_pcie_settings(evidence, &broken.pairs);
        if settings.is_empty() {
            found.suspects.push(suspect(
                "a patched driver that grants what the hardware does not carry",
                "check again with the stock driver; compare modinfo nvidia with the package",
            ));
        }
        found
    }
}
