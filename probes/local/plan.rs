//! Plans of copies within each GPU, which show the rate of its memory with no link on the way.

use serde::Deserialize;

use crate::overlap::plan as overlap;
use crate::plan::wanted::Slot;
use crate::plan::{Action, Group, Request, one_gpu};
use model::flow::Flow;
use model::units::Bytes;

/// Copies within each GPU. They belong to the group `peers`, because they show the highest rate that its copies could
/// reach.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// Rows per GPU. 0 leaves the probe out.
    pub samples: u32,
    /// Bytes of a copy, more than the caches hold.
    #[serde(deserialize_with = "overlap::bytes")]
    pub bytes: Bytes,
}

/// Plans a round for each usable GPU. A single GPU has no sibling to compare it with. It gets a round only if its
/// copies to and from the host are measured too; these are compared with the rate of its memory.
pub(crate) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    let Local { samples, bytes } = request.profile.local;
    if !request.groups.contains(&Group::Peers) || samples == 0 {
        return Vec::new();
    }
    let buffers: Vec<_> = request
        .usable()
        .filter_map(|device| Some((device.index, device.budget_bytes?.0 / 2)))
        .collect();
    let compared =
        buffers.len() > 1 || request.profile.host.rows > 0 && request.groups.contains(&Group::Host);
    if !compared {
        return Vec::new();
    }
    let action = Action::Local { samples };
    buffers
        .into_iter()
        .map(|(gpu, most)| one_gpu::slot(vec![Flow::inside(gpu)], bytes, most, action))
        .collect()
}
