//! What CUDA says of a machine: its devices, their peer access, and why it could not be asked.

use serde::{Deserialize, Serialize};

use super::placement::Pair;
use super::reading::facts;
use super::snapshot::P2pStatus;
use super::units::Bytes;

/// What the CUDA driver said when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DriverFacts {
    /// Why CUDA could not be used at all; null when it could.
    pub failure: Option<String>,
    /// The driver's return code, where it gave one for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<u32>,
    /// What outside the hardware was in the way, where that is why CUDA could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hindrance: Option<Hindrance>,
    /// How long cuInit and the contexts took in the worker, seconds, while NVML was read beside them. Null where they
    /// did not come to be.
    #[serde(default)]
    pub start_seconds: Option<f64>,
    /// Variables that the worker was started without, as `NAME=value`: they change what the driver does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment_removed: Vec<String>,
    /// Why the GPU kernels could not be loaded onto any GPU; null when they could onto one. Then
    /// `devices[].kernels_failure` says why not onto others.
    pub kernels_failure: Option<String>,
    /// Memory of the host that the run may take: 5% of what is available, and no more than the control group leaves.
    /// Null where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_budget_bytes: Option<Bytes>,
    /// The GPUs asked for, as CUDA sees them.
    pub devices: Vec<CudaDevice>,
    /// CUDA's word on peer access for each ordered pair.
    pub peer_access: Vec<CudaPeerAccess>,
}

impl DriverFacts {
    /// Why the GPU kernels could not be loaded onto this GPU.
    pub fn kernels_failure_of(&self, gpu: u32) -> Option<&str> {
        let of_device = || {
            self.devices
                .iter()
                .find(|device| device.index == gpu)?
                .kernels_failure
                .as_deref()
        };
        self.kernels_failure.as_deref().or_else(of_device)
    }

    /// CUDA's word on peer access for this ordered pair.
    pub fn said_of(&self, pair: Pair) -> Option<&CudaPeerAccess> {
        pair.find(&self.peer_access, |said| said.pair)
    }
}

/// What outside the hardware kept a run from using the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Hindrance {
    /// Another peerscope was checking this machine.
    AnotherCheck,
    /// A limit of the process, or of its container.
    ProcessLimit,
}

/// How CUDA comes not to show a GPU that NVML shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Hidden {
    /// CUDA_VISIBLE_DEVICES is set and leaves it out.
    Masked,
    /// No mask is set.
    Unexplained,
}

/// One GPU as CUDA sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CudaDevice {
    /// NVML's index.
    pub index: u32,
    /// CUDA's ordinal, null when CUDA does not show the GPU.
    pub ordinal: Option<u32>,
    /// Why the GPU cannot be tested; null when it can.
    pub failure: Option<String>,
    /// The driver's return code, where it gave one for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<u32>,
    /// That CUDA does not show the GPU, where that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Hidden>,
    /// Why the GPU kernels could not be loaded onto it, where they could be loaded onto others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels_failure: Option<String>,
    /// Memory that the probes may take on it, all buffers together.
    pub budget_bytes: Option<Bytes>,
    /// How network adapters may reach its memory; null where the GPU cannot be tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaSupport>,
}

facts! {
    /// How network adapters may reach the memory of a GPU, as CUDA says.
    pub struct RdmaSupport {
        => readings {
            /// Whether the GPU and its driver support GPUDirect RDMA.
            gpu_direct: bool,
            /// Whether its memory can be shared through dma-buf, without nvidia_peermem.
            dma_buf: bool,
        }
    }
}

/// CUDA's word on one ordered pair: may `source` reach the memory of `destination`?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CudaPeerAccess {
    /// The pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Whether access can be had; null when CUDA gave an error instead.
    pub possible: Option<bool>,
    /// Why access could not be enabled although it was said to be possible, or the error.
    pub failure: Option<String>,
    /// The driver's return code, where it gave one for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<u32>,
    /// Whether a limit of the process, and not the driver, is behind the failure: the pair counts as not asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hindered: bool,
}

/// NVML's and CUDA's word on an ordered pair, side by side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerAccess {
    /// NVML: may the source read the destination's memory?
    #[serde(default)]
    pub nvml_read: Option<P2pStatus>,
    /// NVML: may the source write the destination's memory?
    #[serde(default)]
    pub nvml_write: Option<P2pStatus>,
    /// CUDA: may the source reach the destination's memory? Null when CUDA was not opened.
    pub cuda: Option<bool>,
    /// The error that CUDA gave instead of an answer, or on enabling.
    #[serde(default)]
    pub cuda_failure: Option<String>,
}
