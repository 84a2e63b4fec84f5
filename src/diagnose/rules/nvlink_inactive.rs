//! # What it means
//!
//! NVLinks of a GPU are down.
//!
//! # How it is detected
//!
//! The number of links that a GPU should have is not in its name: machines are wired differently.
//! So GPUs of one model are compared with each other. Fewer active links than the best GPU of the
//! model is an error; no active link at all on several GPUs where others have some to another GPU is a
//! warning, since a bridge may never have been fitted, and on one GPU it is information: a bridge
//! connects two, and there is no other one left. All links down on a GPU that belongs to an NVSwitch
//! fabric, in a machine with NVSwitches on its PCI bus, or that reaches another over NVLink according
//! to NVML, is an error whatever the other GPUs show. Links that are down on all GPUs of a model are
//! wired nowhere: they are reported as information and held against no GPU; if the machine should have
//! them, only its specification shows it. A link between two GPUs has two ends that both show it:
//! links that two GPUs lost together, or one GPU and several others, are one finding, and so are all
//! GPUs that lost every link; fewer links on one GPU alone are how its board is wired. A tray of a
//! larger NVLink domain that runs without the switches of its rack has none (`fabric-not-ready`).
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

use super::fabric_not_ready;
use super::prelude::*;
use crate::model::snapshot::NvLinkRemote;

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

/// The rule.
pub const RULE: Rule = Rule::new("nvlink-inactive", Severity::Error, include_str!("nvlink_inactive.rs"), judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut models: BTreeMap<&str, Vec<Links<'_>>> = BTreeMap::new();
    for gpu in &evidence.snapshot.gpus {
        if let (Some(name), Some(links)) = (gpu.name.known(), Links::of(gpu)) {
            models.entry(name).or_default().push(links);
        }
    }
    models.iter().flat_map(|(model, gpus)| judge_model(evidence, model, gpus)).collect()
}

fn judge_model(evidence: &Evidence<'_>, model: &str, gpus: &[Links<'_>]) -> Vec<Finding> {
    let most = gpus.iter().map(|links| links.active.len()).max().unwrap_or(0);
    let never = never_wired(gpus);
    let tray = fabric_not_ready::is_tray_by_itself(evidence.snapshot);
    let (mut bridges, mut whole, mut part) = (Vec::new(), Vec::new(), Vec::new());
    let mut alike: Vec<&Links<'_>> = Vec::new();
    for links in gpus.iter().filter(|links| !links.inactive.is_empty()) {
        let all_down = links.active.is_empty();
        let switches = !evidence.snapshot.nvswitches.is_empty() && links.gpu.mig.get() != Some(true);
        let expected = (links.in_fabric() && !tray) || switches || said_to_reach_others(evidence, links.gpu.index);
        if links.active.len() < most || (all_down && expected) {
            let bridge = all_down && !expected && gpus.iter().any(Links::leads_to_gpu);
            let kind = match (bridge, all_down) {
                (true, _) => &mut bridges,
                (_, true) => &mut whole,
                _ => &mut part,
            };
            kind.push(links);
        } else {
            alike.push(links);
        }
    }
    let mut findings = Vec::new();
    if part.len() == 1 && whole.is_empty() {
        // A link that is lost between two GPUs is down at both ends. One that only this GPU shows leads to none
        // of the others: their boards are wired so.
        if gpus.iter().all(Links::leads_to_gpu) {
            alike.extend(part.pop());
        }
    }
    for (gpus, bridge) in [(&bridges, true), (&whole, false)] {
        match gpus.as_slice() {
            [odd] if bridge => findings.push(without_partner(evidence, odd)),
            [one] => findings.push(fault(evidence, one, most, &never)),
            [] => {}
            many => findings.push(faults(evidence, Subject::Machine, many, most, bridge)),
        }
    }
    match common_end(&part) {
        Some(subject) => findings.push(faults(evidence, subject, &part, most, false)),
        None => findings.extend(part.iter().map(|links| fault(evidence, links, most, &never))),
    }
    if !alike.is_empty() {
        findings.push(as_wired(model, &alike));
    }
    findings
}

/// Links of several GPUs that are down for one reason: all links of each, or the two ends of the same
/// links.
fn faults(evidence: &Evidence<'_>, subject: Subject, gpus: &[&Links<'_>], most: usize, bridge: bool) -> Finding {
    let indices: Vec<_> = gpus.iter().map(|links| links.gpu.index).collect();
    let names = words::gpus(&indices);
    let (what, next_step) = match &subject {
        Subject::Machine if bridge => (
            format!("All NVLinks of {names} are down, while other GPUs of their model are bridged"),
            "See whether NVLink bridges should sit on these GPUs, and reseat them".to_owned(),
        ),
        Subject::Machine => (
            format!(
                "All NVLinks of {names} are down, although the machine has NVSwitches or NVML says that they reach others \
                 by NVLink"
            ),
            "Look at the fabric manager (systemctl status nvidia-fabricmanager, its log) and for Xid 74 (dmesg | grep \
             -i xid); power-cycle the machine; if they stay down, have the NVLink board looked at"
                .to_owned(),
        ),
        place => {
            let place = match place {
                Subject::Pair(pair) => format!(
                    "between {} and {}",
                    words::gpu(evidence.snapshot, pair.source),
                    words::gpu(evidence.snapshot, pair.destination)
                ),
                Subject::Gpu { index } => format!("of {}", words::gpu(evidence.snapshot, *index)),
                _ => format!("of {names}"),
            };
            let text = format!(
                "NVLinks {place} are down, as both ends show ({} active, other GPUs of the model have {most})",
                gpus.iter().map(|links| links.active.len()).min().unwrap_or(0)
            );
            let next_step = "Look for Xid 74 (dmesg | grep -i xid) and link errors (nvidia-smi nvlink -e); reseat \
                 these GPUs and the NVLink bridge between them, if there is one; if the same links stay down, swap one \
                 GPU to see whether the fault moves";
            (text, next_step.to_owned())
        }
    };
    let mut found = RULE
        .finding(subject, what, next_step)
        .fact("inactive_links", inactive_by_gpu(gpus))
        .fact("active_count_of_like_gpus", most)
        .gpus(&indices);
    if bridge {
        found.severity = Severity::Warning;
    }
    found
}

/// Links that are down on every GPU of a model, where each has others: the board has no wires for them.
fn never_wired(gpus: &[Links<'_>]) -> Vec<u8> {
    let Some((first, rest)) = gpus.split_first().filter(|(_, rest)| !rest.is_empty()) else { return Vec::new() };
    let everywhere = |link: &&u8| rest.iter().all(|links| links.inactive.contains(link));
    first.inactive.iter().filter(everywhere).copied().collect()
}

/// The one GPU of a model that no bridge connects, while bridges connect others: there is none left that it
/// could be connected to.
fn without_partner(evidence: &Evidence<'_>, links: &Links<'_>) -> Finding {
    let index = links.gpu.index;
    RULE.finding(
        Subject::Gpu { index },
        format!(
            "{} has no active NVLink: bridges connect the other GPUs of its model in pairs, and none is left for it",
            words::gpu(evidence.snapshot, index)
        ),
        "Nothing to do; a bridge connects two GPUs",
    )
    .at(Severity::Info)
    .fact("inactive_links", link_numbers(&links.inactive))
}

fn fault(evidence: &Evidence<'_>, links: &Links<'_>, most: usize, never: &[u8]) -> Finding {
    let index = links.gpu.index;
    let gpu = words::gpu(evidence.snapshot, index);
    let lost: Vec<u8> = links.inactive.iter().filter(|link| !never.contains(link)).copied().collect();
    let lost = if lost.is_empty() { links.inactive.clone() } else { lost };
    let (subject, which) = match lost.as_slice() {
        [link] => (Subject::Link { index, link: *link }, format!("NVLink {link} of {gpu} is down")),
        many => (Subject::Gpu { index }, format!("NVLinks {} of {gpu} are down", numbers(many))),
    };
    let compared = if most > links.active.len() {
        format!("{} active, other GPUs of its model have {most}", links.active.len())
    } else {
        "none is active, although the machine has NVSwitches or NVML says that it reaches others by NVLink".into()
    };
    let next_step = if links.in_fabric() {
        "Look at the fabric manager (systemctl status nvidia-fabricmanager, its log) and for Xid 74 (dmesg | grep \
         -i xid); power-cycle the machine; if the same links stay down, swap the GPU to see whether the fault moves"
    } else {
        "Look for Xid 74 (dmesg | grep -i xid) and link errors (nvidia-smi nvlink -e); reseat the GPU and its NVLink \
         bridge; if the same links stay down, swap the GPU to see whether the fault moves"
    };
    RULE.finding(subject, format!("{which} ({compared})"), next_step)
        .fact("inactive_links", link_numbers(&lost))
        .fact("active_count", links.active.len())
        .fact("active_count_of_like_gpus", most)
}

/// One line for the GPUs of a model none of which has more active links than the others.
fn as_wired(model: &str, gpus: &[&Links<'_>]) -> Finding {
    let indices: Vec<_> = gpus.iter().map(|links| links.gpu.index).collect();
    let active = gpus.iter().map(|links| links.active.len()).max().unwrap_or(0);
    let mut found = RULE
        .finding(
            Subject::Machine,
            format!(
                "NVLinks {} of {} ({model}) are not active. No GPU of this model here has more than {active} active, \
             so this is probably how the machine is wired",
                words::distinct(gpus.iter().map(|links| numbers(&links.inactive))),
                words::gpus(&indices),
            ),
            "Compare with the machine's specification; nothing to do if it has no more links, or no bridge",
        )
        .fact("active_count", active)
        .fact("inactive_links", inactive_by_gpu(gpus));
    found.severity = Severity::Info;
    found
}

/// What GPUs that lost some links have in common where links lead from GPU to GPU: each such link has
/// two ends, and both show it. Two GPUs that lost as many are the ends of the same links; one that
/// lost as many as all others together is their common end.
fn common_end(gpus: &[&Links<'_>]) -> Option<Subject> {
    if !gpus.iter().all(|links| links.leads_to_gpu()) {
        return None;
    }
    let lost = |links: &Links<'_>| links.inactive.len();
    match gpus {
        [one, other] if lost(one) == lost(other) => Some(Subject::Pair(Pair {
            source: one.gpu.index.min(other.gpu.index),
            destination: one.gpu.index.max(other.gpu.index),
        })),
        [_, _, _, ..] => {
            let all: usize = gpus.iter().map(|links| lost(links)).sum();
            let most = gpus.iter().max_by_key(|links| lost(links))?;
            (lost(most) * 2 == all).then_some(Subject::Gpu { index: most.gpu.index })
        }
        _ => None,
    }
}

/// Whether NVML says that this GPU reaches another over NVLink.
fn said_to_reach_others(evidence: &Evidence<'_>, index: u32) -> bool {
    let mut pairs = evidence.snapshot.pairs.iter().filter(|pair| pair.source == index || pair.destination == index);
    pairs.any(|pair| pair.p2p_nvlink.get() == Some(P2pStatus::Ok))
}

fn inactive_by_gpu(gpus: &[&Links<'_>]) -> Facts {
    gpus.iter().map(|links| (format!("gpu{}", links.gpu.index), link_numbers(&links.inactive))).collect()
}

fn link_numbers(links: &[u8]) -> Fact {
    Fact::Numbers(links.iter().copied().map(u64::from).collect())
}

fn numbers(links: &[u8]) -> String {
    words::ranges(links.iter().copied().map(u32::from))
}
