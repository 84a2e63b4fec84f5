//! # What it means
//!
//! Driver and CUDA grant peer access between GPUs on PCIe, but data copied over it between all or
//! most of them does not arrive.
//!
//! # How it is detected
//!
//! The check of the bytes (see `peer-data-wrong`) fails on three of four PCIe pairs or more, and on
//! at least two, in every way of copying that was checked on those pairs. The destination still
//! holds what was there before, or a setting that causes it is known: an IOMMU that translates, or
//! ACS that redirects peer requests. One finding then names the setting of the machine.
//! `peer-data-wrong` reports fewer pairs, single engines, and bytes that arrive wrong without such
//! a setting.
//!
//! # Why it matters
//!
//! Programs compute with wrong numbers and get no error. The bandwidth looks perfect, and a copy
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

use super::prelude::*;
use super::wrong_bytes::{self, Broken};
use crate::diagnose::suspects::{self, gpus_of};

/// The rule.
pub const RULE: Rule = Rule::new("peer-access-broken", Severity::Error, include_str!("peer_access_broken.rs"), judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    wrong_bytes::broken(evidence).map(|broken| finding(evidence, &broken)).into_iter().collect()
}

fn finding(evidence: &Evidence<'_>, broken: &Broken) -> Finding {
    let iommu = evidence.snapshot.host.iommu_translating.get();
    let ports = suspects::redirecting_ports(evidence, &gpus_of(&broken.pairs));
    let suspects = suspects::of_pcie_settings(evidence, &broken.pairs);
    let settings = suspects.iter().filter(|suspect| suspect.setting.is_some());
    let settings: Vec<_> = settings.map(|suspect| suspect.cause.clone()).collect();
    let because = match (settings.is_empty(), evidence.virtual_machine()) {
        (false, _) => format!(": {}", settings.join(", and ")),
        (true, true) => "; IOMMU and ACS of the host cannot be seen from this virtual machine".into(),
        (true, false) => "; the facts show neither an IOMMU that translates nor ACS that redirects".into(),
    };
    let what = if broken.corrupt { "does not arrive as it was sent" } else { "never arrives" };
    let measurements = evidence.measurements.into_iter().flat_map(|measurements| &measurements.peer);
    let of_pairs = measurements.filter(|cell| cell.verified.is_wrong() && broken.pairs.contains(&cell.pair));
    let seen = words::distinct(of_pairs.filter_map(|cell| cell.verification_detail.as_deref()).take(1));
    let mut found = RULE
        .finding(
            Subject::Machine,
            format!(
                "Peer access is granted and broken: data copied directly between {} of {} PCIe pairs of GPUs {what}\
                 {because}",
                broken.pairs.len(),
                broken.checked,
            ),
            wrong_bytes::next_step(evidence, "Until then run without peer access (NCCL_P2P_DISABLE=1)"),
        )
        .fact("pairs_checked", broken.checked)
        .fact("seen_on_destination", seen)
        .fact("iommu_translating", iommu)
        .fact("ports_with_acs_redirect", ports)
        .pairs(&broken.pairs);
    found.suspects = suspects;
    if settings.is_empty() {
        found.suspects.push(suspect(
            "a patched driver that grants what the hardware does not carry",
            "check again with the stock driver; compare modinfo nvidia with the package",
        ));
    }
    found
}
