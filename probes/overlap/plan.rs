//! Plans of the overlap of copies with kernels: placements and sizes.

use serde::Deserialize;

use crate::plan::slot::size;
use crate::{Group, Request, Task};
use model::flow::Setup;
use model::placement::{HostMode, KernelStream, Pair, Placement};
use model::units::{Bytes, MIB};

/// Overlap of copies with kernels.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Samples per cell. 0 leaves the probe out.
    pub samples: u32,
    /// True for every kind of stream, also with the kernel on other streams than the default one, on a ring of pairs: how
    /// streams are ordered is the driver's affair and not the link's.
    #[serde(default)]
    pub every_stream: bool,
    /// Bytes of the copy.
    #[serde(default = "overlap_bytes", deserialize_with = "size")]
    pub bytes: Bytes,
}

/// Most samples of what the experiment does not have. Chosen: on 2 x H200 all 384 shares were 0 or 100.
const FEW: u32 = 2;

const fn overlap_bytes() -> Bytes {
    Bytes(64 * MIB)
}

pub(crate) fn tasks(request: &Request<'_>, pair: Pair) -> Vec<Task> {
    let profile = &request.profile.overlap;
    if !request.groups.contains(&Group::Overlap) || profile.samples == 0 {
        return Vec::new();
    }
    let setup = Setup::REFERENCE.with_bytes(profile.bytes);
    let every_stream = profile.every_stream && request.has_every_stream(pair);
    let kernels = if every_stream { &KernelStream::ALL[..] } else { &[KernelStream::Default] };
    // The blocking twin does the same on the devices: one run covers both, with a kernel on either GPU.
    let placements: Vec<Placement> = Placement::every()
        .filter(|placement| placement.host == HostMode::NonBlocking)
        .filter(|placement| every_stream || placement.is_of_experiment())
        .collect();
    let each = kernels.iter().flat_map(|kernel| placements.iter().map(move |of| (*kernel, *of)));
    let task = |(kernel, placement): (KernelStream, Placement)| {
        let is_of_experiment = kernel == KernelStream::Default && placement.is_of_experiment();
        let samples = if is_of_experiment { profile.samples } else { profile.samples.min(FEW) };
        Task::new(setup.with_placement(placement), super::Overlap { samples, kernel })
    };
    each.map(task).collect()
}
