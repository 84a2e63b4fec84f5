//! Plans of copies within each GPU, which show the rate of its memory with no link on the way.

use serde::Deserialize;

use crate::plan::one_gpu;
use crate::plan::slot::Slot;
use crate::plan::slot::size;
use crate::{Group, Request};
use model::flow::Flow;
use model::units::{Bytes, MIB};

/// Timed copies in a row within a GPU, after one that is not timed.
pub(crate) const LOCAL_COPIES: u32 = 2;

/// Least size of a copy in sizes of the L2 cache, which then holds at most a quarter of a buffer: chosen.
const CACHES: u64 = 4;

/// Copies within each GPU. They belong to the group `peers`, because they show the highest rate that its copies could
/// reach.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Rows per GPU. 0 leaves the probe out.
    pub samples: u32,
    /// Least bytes of a copy.
    #[serde(deserialize_with = "size")]
    pub bytes: Bytes,
}

/// Plans a round for each usable GPU. A single GPU has no sibling to compare it with. It gets a round only if its
/// copies to and from the host are measured too; these are compared with the rate of its memory.
pub(crate) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    let Parameters { samples, bytes } = request.profile.local;
    if !request.groups.contains(&Group::Peers) || samples == 0 {
        return Vec::new();
    }
    let buffers: Vec<_> = request
        .usable()
        .filter_map(|device| {
            let cache = device.attributes.as_ref().and_then(|said| said.l2_cache_bytes.get());
            let least = cache.map_or(0, |cache| (CACHES * cache.0).next_multiple_of(MIB));
            Some((device.index, bytes.max(Bytes(least)), device.budget_bytes?.0 / 2))
        })
        .collect();
    let compared =
        buffers.len() > 1 || request.profile.host.rows > 0 && request.groups.contains(&Group::Host);
    if !compared {
        return Vec::new();
    }
    let action = super::Local { samples };
    buffers
        .into_iter()
        .map(|(gpu, bytes, most)| one_gpu::slot(vec![Flow::inside(gpu)], bytes, most, action))
        .collect()
}
