//! Overlap of copies with kernels: in which placements, and of how many bytes.

use std::str::FromStr;

use serde::Deserialize;

use super::{Action, Group, Request, Task};
use crate::model::flow::Setup;
use crate::model::placement::{HostMode, Placement};
use crate::model::units::{Bytes, MIB};

/// Overlap of copies with kernels.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlap {
    /// Samples per cell; 0 leaves the probe out.
    pub samples: u32,
    /// Bytes that are copied.
    #[serde(default = "overlap_bytes", deserialize_with = "bytes")]
    pub bytes: Bytes,
}

const fn overlap_bytes() -> Bytes {
    Bytes(64 * MIB)
}

pub(super) fn bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    Bytes::from_str(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

pub(super) fn tasks(request: &Request<'_>) -> Vec<Task> {
    let profile = &request.profile.overlap;
    if !request.groups.contains(&Group::Overlap) || profile.samples == 0 {
        return Vec::new();
    }
    let setup = Setup::REFERENCE.with_bytes(request.overlap_bytes.unwrap_or(profile.bytes));
    // The blocking twin does the same on the devices: one run has both, and a kernel on either GPU.
    let streams = Placement::all().filter(|placement| placement.host == HostMode::NonBlocking);
    let action = Action::Overlap {
        samples: profile.samples,
    };
    streams
        .map(|placement| Task {
            setup: setup.with_placement(placement),
            action,
        })
        .collect()
}
