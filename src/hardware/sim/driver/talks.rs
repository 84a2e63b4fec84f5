//! What kernels that talk, and loads that follow pointers, have left behind.

use hardware::{Device, Heard, Hops, Met};
use model::maps::Map;

use crate::engine::Op;

/// What talks and chases have left.
#[derive(Debug, Default)]
pub(super) struct Talks {
    pub heard: Map<(Device, bool), Heard>,
    /// Words that arrived too late, by the mailbox's number and place.
    pub late: Map<(u32, u32), u32>,
    pub hops: Map<Device, Hops>,
    /// Results of the members, by their place on the device.
    pub met: Map<(Device, u32), Met>,
    /// The last copy to or from each device.
    pub copies: Map<Device, Op>,
}
