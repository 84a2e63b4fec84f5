//! Latency of small copies.

use serde::Deserialize;

use crate::{Group, Request, Task};
use model::flow::Setup;
use model::placement::Path;
use model::units::Bytes;

/// Bytes of a copy whose latency is measured, as in p2pBandwidthLatencyTest.
pub(crate) const LATENCY_BYTES: u64 = 16;
/// Copies in one row of a latency sample.
pub(crate) const LATENCY_COPIES: u32 = 100;

/// Latency of small copies.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Samples per cell. 0 leaves the probe out.
    pub samples: u32,
}

pub(crate) fn tasks(request: &Request<'_>, path: Path) -> Vec<Task> {
    let samples = request.profile.latency.samples;
    if !request.groups.contains(&Group::Latency) || samples == 0 {
        return Vec::new();
    }
    let setup = Setup::REFERENCE.with_path(path).with_bytes(Bytes(LATENCY_BYTES));
    vec![Task::new(setup, super::Latency { samples })]
}
