//! # What it means
//!
//! Peer access over PCIe is granted, but copies of most pairs do not arrive. Programs compute with wrong numbers, and
//! the bandwidth looks perfect.
//!
//! # What to do
//!
//! Until repaired, use no peer access (`NCCL_P2P_DISABLE=1`, or `NCCL_P2P_LEVEL` if only far pairs suffer). Switch
//! off what the finding shows to be on (on the host of a virtual machine): IOMMU translation (`iommu=pt` on the
//! kernel's command line, or in BIOS) and ACS (BIOS, or `setpci` on the bridges named), and check again. If both are
//! off, suspect a patched driver, the switch, memory without ECC.
//!
//! # How it is detected
//!
//! The bytes are wrong on three of four PCIe pairs or more, at least two, in every way of copying that was checked on
//! them. The destination still holds its previous bytes, or a translating IOMMU or redirecting ACS is known; else it
//! is `data-wrong`.
//!
//! # Sources
//!
//! CUDA Programming Guide 3.4.2.5 (IOMMU on Linux); NCCL's troubleshooting page (ACS); PyTorch issue 84803; FIDESlib
//! issue 28; a virtual machine whose window was mirrored, in which 27 GB/s passed and no byte arrived.

use super::prelude::*;
use super::remedy;
use super::wrong_bytes::{self, Broken};
use crate::suspects::{self, gpus_of};

rule! {
    "peer-access-broken", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    wrong_bytes::broken(evidence).map(|broken| finding(evidence, &broken)).into_iter().collect()
}

fn finding(evidence: &Evidence<'_>, broken: &Broken) -> Finding {
    let gpus = gpus_of(&broken.pairs);
    let iommu = suspects::iommu_translates(evidence, &gpus);
    let group = Group { common: Common::Everything, pairs: broken.pairs.clone(), seen_back: false };
    let mut suspects = wrong_bytes::suspects(evidence, &group);
    // One GPU does not explain pairs that share no GPU.
    if !gpus.iter().any(|gpu| broken.pairs.iter().all(|pair| pair.touches(*gpu))) {
        let of_gpus = wrong_bytes::of_gpus(evidence, &group);
        suspects.retain(|suspect| *suspect != of_gpus);
        if suspects.is_empty() {
            suspects
                .push(suspect(Cause::Everything, [Step::UpdateBiosAndDriver, Step::CheckAgain]));
        }
    }
    let settings: Vec<_> = suspects
        .iter()
        .filter(|suspect| suspects::is_setting(suspect))
        .map(|suspect| suspect.cause.clone())
        .collect();
    let because = match (settings.is_empty(), evidence.virtual_machine()) {
        (false, _) => format!("; {}", settings.join(", and ")),
        (true, true) => {
            "; IOMMU and ACS of the host cannot be seen from this virtual machine".into()
        }
        (true, false) if iommu.is_none() || suspects::acs_is_unread(evidence, &gpus) => {
            "; whether the IOMMU translates, or ACS redirects, could not all be read".into()
        }
        (true, false) => {
            "; the facts show neither an IOMMU that translates nor ACS that redirects".into()
        }
    };
    let what = if broken.corrupt { "does not arrive as it was sent" } else { "never arrives" };
    let find = if remedy::settings(evidence, &broken.pairs).is_empty() {
        vec![Step::UpdateBiosAndDriver, Step::CheckAlone(All(Vec::new()))]
    } else {
        Vec::new()
    };
    let mut found = RULE
        .on_machine(format!(
                "Peer access is granted and broken: data of {} of {} pairs over PCIe {what}{because}",
                broken.pairs.len(),
                broken.checked,
            ),
            remedy::plan(evidence, &group, find)
                .and(When::Afterwards, [Step::ComputeAgain]),
        )
        .pairs(&broken.pairs);
    found.suspects = suspects;
    found
}
