//! # What it means
//!
//! NVLinks of a GPU are down.
//!
//! # How it is detected
//!
//! The number of links that a GPU should have is not in its name: machines are wired differently.
//! So GPUs of one model are compared with each other. Fewer active links than the best of its like
//! is an error; no active link at all where others have some to another GPU is a warning, since a
//! bridge may never have been fitted. All links down on a GPU that belongs to an NVSwitch fabric, or
//! that NVML says to reach another over NVLink, is an error whatever its like shows. Links that are down on all GPUs of a model alike are told and
//! are no fault: that is mostly how the machine is wired, and on a machine where it is not, only
//! its specification shows it.
//!
//! # Why it matters
//!
//! Every link that is missing takes its share of the bandwidth; with all missing, copies go over
//! PCIe.
//!
//! # What to do
//!
//! Look for link errors (`nvidia-smi nvlink -s`, `-e`) and Xid 74 (`dmesg | grep -i xid`). With
//! NVSwitch: look at the fabric manager's log, then power-cycle the machine. With bridges: reseat
//! the bridge. If the same links stay down, swap the GPU to see whether the fault moves with it.
//!
//! # Sources
//!
//! NVIDIA fabric manager user guide; NVIDIA's Xid errors page (74); DCGM issue 198, a check that
//! passed with all NVLinks down.

use std::collections::BTreeMap;

use serde_json::json;

use crate::diagnose::rule::{Evidence, Rule, finding};
use crate::diagnose::words;
use crate::model::finding::{Finding, Severity, Subject};
use crate::model::snapshot::{FabricState, Gpu, NvLinkRemote, P2pStatus};

/// See the module's documentation.
pub struct NvlinkInactive;

/// A GPU's links, by number.
struct Links<'a> {
    gpu: &'a Gpu,
    active: Vec<u8>,
    inactive: Vec<u8>,
}

impl<'a> Links<'a> {
    fn of(gpu: &'a Gpu) -> Option<Self> {
        let of_state = |state: bool| -> Option<Vec<u8>> {
            let links = gpu.nvlinks.known()?.iter().filter(|link| link.active.get() == Some(state));
            Some(links.map(|link| link.link).collect())
        };
        Some(Self { gpu, active: of_state(true)?, inactive: of_state(false)? })
    }

    fn in_fabric(&self) -> bool {
        self.gpu.fabric.known().is_some_and(|fabric| fabric.state != FabricState::NotSupported)
    }

    fn leads_to_gpu(&self) -> bool {
        let links = self.gpu.nvlinks.known().into_iter().flatten();
        links.filter(|link| link.active.get() == Some(true)).any(|link| link.remote.get() == Some(NvLinkRemote::Gpu))
    }
}

impl Rule for NvlinkInactive {
    fn code(&self) -> &'static str {
        "nvlink-inactive"
    }

    fn severity(&self) -> Severity {
        Severity::Error
    }

    fn source(&self) -> &'static str {
        include_str!("nvlink_inactive.rs")
    }

    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let mut models: BTreeMap<&str, Vec<Links<'_>>> = BTreeMap::new();
        for gpu in &evidence.snapshot.gpus {
            if let (Some(name), Some(links)) = (gpu.name.known(), Links::of(gpu)) {
                models.entry(name).or_default().push(links);
            }
        }
        models.iter().flat_map(|(model, gpus)| self.judge_model(evidence, model, gpus)).collect()
    }
}

impl NvlinkInactive {
    fn judge_model(&self, evidence: &Evidence<'_>, model: &str, gpus: &[Links<'_>]) -> Vec<Finding> {
        let most = gpus.iter().map(|links| links.active.len()).max().unwrap_or(0);
        let mut findings = Vec::new();
        let mut alike: Vec<&Links<'_>> = Vec::new();
        for links in gpus.iter().filter(|links| !links.inactive.is_empty()) {
            let all_down = links.active.is_empty();
            let expected = links.in_fabric() || said_to_reach_others(evidence, links.gpu.index);
            if links.active.len() < most || (all_down && expected) {
                let bridge = all_down && !expected && gpus.iter().any(Links::leads_to_gpu);
                findings.push(self.fault(evidence, links, most, bridge));
            } else {
                alike.push(links);
            }
        }
        if !alike.is_empty() {
            findings.push(self.as_wired(model, &alike));
        }
        findings
    }

    fn fault(&self, evidence: &Evidence<'_>, links: &Links<'_>, most: usize, bridge: bool) -> Finding {
        let index = links.gpu.index;
        let gpu = words::gpu(evidence.snapshot, index);
        let (subject, which) = match links.inactive.as_slice() {
            [link] => (Subject::Link { index, link: *link }, format!("NVLink {link} of {gpu} is down")),
            many => (Subject::Gpu { index }, format!("NVLinks {} of {gpu} are down", numbers(many))),
        };
        let compared = if most > links.active.len() {
            format!("{} active, other GPUs of its model have {most}", links.active.len())
        } else {
            "none is active, although it belongs to an NVSwitch fabric or NVML says that it reaches others by NVLink"
                .into()
        };
        let next_step = if bridge {
            format!("See whether an NVLink bridge should sit on GPU {index}, and reseat it")
        } else if links.in_fabric() {
            "Look at the fabric manager (systemctl status nvidia-fabricmanager, its log) and for Xid 74 (dmesg | grep \
             -i xid); power-cycle the machine; if the same links stay down, swap the GPU to see whether the fault moves"
                .into()
        } else {
            "Look for Xid 74 (dmesg | grep -i xid) and link errors (nvidia-smi nvlink -e); reseat the GPU and its NVLink \
             bridge; if the same links stay down, swap the GPU to see whether the fault moves"
                .into()
        };
        let mut found = finding(
            self,
            subject,
            format!("{which} ({compared})"),
            [
                ("inactive_links", json!(links.inactive)),
                ("active_count", json!(links.active.len())),
                ("active_count_of_like_gpus", json!(most)),
            ],
            next_step,
        );
        if bridge {
            found.severity = Severity::Warning;
        }
        found
    }

    /// One line for the GPUs of a model none of which has more active links than the others.
    fn as_wired(&self, model: &str, gpus: &[&Links<'_>]) -> Finding {
        let indices: Vec<_> = gpus.iter().map(|links| links.gpu.index).collect();
        let lists: Vec<_> = gpus.iter().map(|links| numbers(&links.inactive)).collect();
        let active = gpus.first().map_or(0, |links| links.active.len());
        let by_gpu: BTreeMap<_, _> =
            gpus.iter().map(|links| (format!("gpu{}", links.gpu.index), &links.inactive)).collect();
        let mut found = finding(
            self,
            Subject::Machine,
            format!(
                "NVLinks {} of {} ({model}) are not active. No GPU of this model here has more than {active} active, so \
                 this is probably how the machine is wired",
                words::distinct(lists.iter().map(String::as_str)),
                words::gpus(&indices),
            ),
            [("active_count", json!(active)), ("inactive_links", json!(by_gpu))],
            "Compare with the machine's specification; nothing to do if it has no more links, or no bridge",
        );
        found.severity = Severity::Info;
        found
    }
}

/// Whether NVML says that this GPU reaches another over NVLink.
fn said_to_reach_others(evidence: &Evidence<'_>, index: u32) -> bool {
    let mut pairs = evidence.snapshot.pairs.iter().filter(|pair| pair.source == index || pair.destination == index);
    pairs.any(|pair| pair.p2p_nvlink.get() == Some(P2pStatus::Ok))
}

/// `0-3, 7`.
fn numbers(links: &[u8]) -> String {
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for &link in links {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(link) => *last = link,
            _ => runs.push((link, link)),
        }
    }
    let texts =
        runs.iter().map(|&(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    texts.collect::<Vec<_>>().join(", ")
}
