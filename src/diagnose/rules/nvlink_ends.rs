//! The NVLinks of a GPU that are up and down, where they lead, and words for their ends.

use super::prelude::*;

/// A GPU's links, by number.
pub(super) struct Links<'a> {
    pub gpu: &'a Gpu,
    /// Numbers of the links that are up.
    pub active: Vec<u8>,
    /// Numbers of the links that are down.
    pub inactive: Vec<u8>,
}

impl<'a> Links<'a> {
    /// Returns the links of this GPU, if they are known.
    pub(super) fn of(gpu: &'a Gpu) -> Option<Self> {
        let of_state = |state: bool| -> Option<Vec<u8>> {
            let links = gpu.nvlinks.known()?.iter().filter(|link| link.active.get() == Some(state));
            Some(links.map(|link| link.link).collect())
        };
        Some(Self { gpu, active: of_state(true)?, inactive: of_state(false)? })
    }

    /// Returns true if the state of each link is known.
    pub(super) fn are_known(&self) -> bool {
        let links = self.gpu.nvlinks.known();
        links.is_some_and(|links| links.len() == self.active.len() + self.inactive.len())
    }

    /// Returns true if NVML reports an NVSwitch fabric.
    pub(super) fn in_fabric(&self) -> bool {
        self.gpu.in_fabric()
    }

    /// Returns true if a link that is up leads to a GPU.
    pub(super) fn leads_to_gpu(&self) -> bool {
        self.up().any(|link| link.remote.get() == Some(NvLinkRemote::Gpu))
    }

    /// Returns true if no link is listed, and MIG mode is not the reason.
    pub(super) fn lists_none(&self) -> bool {
        self.gpu.nvlinks.known().is_some_and(Vec::is_empty) && self.gpu.mig.get() != Some(true)
    }

    /// Returns where its active links lead, as far as NVML reports it.
    pub(super) fn remotes(&self) -> impl Iterator<Item = Option<PciAddress>> {
        self.up().map(|link| link.remote_pci.get())
    }

    pub(super) fn up(&self) -> impl Iterator<Item = &NvLink> {
        let links = self.gpu.nvlinks.known().into_iter().flatten();
        links.filter(|link| link.active.get() == Some(true))
    }
}

/// Returns what GPUs that lost some links have in common, if links lead from GPU to GPU. Each such link has two ends,
/// and both show it. Two GPUs that lost the same number are the ends of the same links. One that lost as many as all
/// others together is their common end.
pub(super) fn common_end(gpus: &[&Links<'_>]) -> Option<Subject> {
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

/// Returns the links that are down, by GPU.
pub(super) fn inactive_by_gpu(gpus: &[&Links<'_>]) -> Facts {
    let of =
        |links: &&Links<'_>| (format!("gpu{}", links.gpu.index), link_numbers(&links.inactive));
    gpus.iter().map(of).collect()
}

/// Returns numbers of links as a fact.
pub(super) fn link_numbers(links: &[u8]) -> Fact {
    Fact::numbers(links.iter().copied())
}

/// Returns numbers of links for people.
pub(super) fn numbers(links: &[u8]) -> String {
    words::ranges(links.iter().copied().map(u32::from))
}

/// Returns words such as `NVLink 2 of GPU 1`, `NVLinks 0-3 of GPU 2`.
pub(super) fn named(links: &[u8], gpu: &str) -> String {
    let plural = if links.len() == 1 { "" } else { "s" };
    format!("NVLink{plural} {} of {gpu}", numbers(links))
}

/// Returns the subject and the name of these links of a GPU.
pub(super) fn place(evidence: &Evidence<'_>, index: u32, links: &[u8]) -> (Subject, String) {
    let gpu = evidence.name(index);
    match *links {
        [link] => (Subject::Link { index, link }, format!("NVLink {link} of {gpu}")),
        _ => (Subject::Gpu { index }, format!("{} NVLinks of {gpu}", links.len())),
    }
}

/// Returns how many NVLinks of a GPU that are up lead to another GPU; `None` if that is not known of all of them.
pub(super) fn left_between(one: &Links<'_>, other: &Links<'_>) -> Option<usize> {
    let to = other.gpu.pci.get()?;
    let remotes: Option<Vec<PciAddress>> = one.remotes().collect();
    Some(remotes?.into_iter().filter(|at| *at == to).count())
}

/// Returns the GPUs of these links.
pub(super) fn indices(gpus: &[&Links<'_>]) -> Vec<u32> {
    gpus.iter().map(|links| links.gpu.index).collect()
}
