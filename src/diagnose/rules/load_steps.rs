//! Next steps for a link that several flows share, by the kind of link: NVLinks have no slot, nor has the link between
//! two processors.

use super::load::Low;
use super::prelude::*;
use model::flow::Flow;
use model::topology::{Link, LinkKind};

/// Returns the command that reads the error counters of such a link.
pub(super) fn counters(link: &Link) -> &'static str {
    match link.kind {
        LinkKind::NvLink => "nvidia-smi nvlink -e",
        _ => "lspci -vvv",
    }
}

/// Returns the same for all links that these flows pass.
pub(super) fn counters_of(evidence: &Evidence<'_>, flows: &[Flow]) -> &'static str {
    let pairs: Vec<Pair> = flows.iter().filter_map(|flow| flow.pair()).collect();
    match pairs.iter().all(|pair| evidence.over_nvlink(*pair)) {
        true if !pairs.is_empty() => "nvidia-smi nvlink -e",
        _ => "lspci -vvv",
    }
}

/// Returns the next steps for flows that reach too little through what they share. Do `before_parts` before any part is
/// moved.
pub(super) fn of_low(low: &Low<'_>, before_parts: &str) -> String {
    let is = |kind| low.links.iter().any(|link| link.kind == kind);
    let own = if is(LinkKind::Interconnect) || is(LinkKind::RootComplex) && !is(LinkKind::Pcie) {
        format!(
            "look in BIOS at speed and power saving of the links between the processors, and at what else crosses them; \
             {before_parts}"
        )
    } else if low.links.iter().all(|link| link.kind == LinkKind::NvLink) && !low.links.is_empty() {
        format!(
            "look at the error counters of these NVLinks (nvidia-smi nvlink -e) and for Xid messages (dmesg | grep -i xid), \
             {before_parts}, and swap the GPU with another to see whether it moves"
        )
    } else {
        format!(
            "look at the error counters of this link (lspci -vvv), {before_parts}, reseat the riser, cable or switch board \
             that it runs over, and swap it with another to see whether it moves"
        )
    };
    format!("Stop other work and check again. If it stays: {own}")
}
