//! CUDA's view of a machine: its devices, their peer access, and why CUDA could not be used.

use serde::{Deserialize, Serialize};

use super::placement::Pair;
use super::reading::facts;
use super::snapshot::P2pStatus;
use super::units::Bytes;

/// The driver's error code for a fabric that is not ready (`CUDA_ERROR_SYSTEM_NOT_READY`).
pub const CUDA_SYSTEM_NOT_READY: u32 = 802;

/// The driver's error code for more peers than a GPU can have at a time (`CUDA_ERROR_TOO_MANY_PEERS`).
pub const CUDA_TOO_MANY_PEERS: u32 = 711;

/// The driver's error code for memory that could not be mapped (`CUDA_ERROR_MAP_FAILED`).
pub const CUDA_MAP_FAILED: u32 = 205;

/// The driver's error code for GPUs without access to each other (`CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`).
pub(crate) const CUDA_NO_PEER_ACCESS: u32 = 217;

/// Facts that the CUDA driver returned when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct DriverFacts {
    /// Reason why CUDA could not be used at all. Null if it could be used.
    pub failure: Option<String>,
    /// Return code of the driver for that failure, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<u32>,
    /// Cause outside the hardware, if that is why CUDA could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hindrance: Option<Hindrance>,
    /// Time that cuInit and the contexts took in the worker while NVML was read at the same time, seconds. Null if
    /// they could not be created.
    #[serde(default)]
    pub start_seconds: Option<f64>,
    /// Environment variables that were removed for the worker, as `NAME=value`, because they change what the driver
    /// does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment_removed: Vec<String>,
    /// Reason why the GPU kernels could not be loaded onto any GPU. Null if they could be loaded onto one;
    /// `devices[].kernels_failure` then contains the reason for each of the others.
    pub kernels_failure: Option<String>,
    /// Host memory that the run may use: 5% of the available memory, and no more than the control group leaves. Null
    /// if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_budget_bytes: Option<Bytes>,
    /// The requested GPUs, as CUDA reports them.
    pub devices: Vec<CudaDevice>,
    /// CUDA's report on peer access for each ordered pair.
    pub peer_access: Vec<CudaPeerAccess>,
}

impl DriverFacts {
    /// Returns why the GPU kernels could not be loaded onto this GPU.
    pub fn kernels_failure_of(&self, gpu: u32) -> Option<&str> {
        let of_device =
            || self.devices.iter().find(|device| device.index == gpu)?.kernels_failure.as_deref();
        self.kernels_failure.as_deref().or_else(of_device)
    }

    /// Returns true if CUDA says that this GPU shares the memory of the host.
    pub fn is_integrated(&self, gpu: u32) -> bool {
        let said = |of: &CudaAttributes| of.integrated.get() == Some(true);
        self.attributes_of(gpu).is_some_and(said)
    }

    /// Returns what CUDA says that this GPU can do.
    pub fn attributes_of(&self, gpu: u32) -> Option<&CudaAttributes> {
        let device = self.devices.iter().find(|device| device.index == gpu);
        device?.attributes.as_ref()
    }

    /// Returns true if CUDA allows this copy's source to access the memory of its destination.
    pub fn is_direct(&self, pair: Pair) -> bool {
        self.said_of(pair).is_some_and(|said| said.possible == Some(true) && said.failure.is_none())
    }

    /// Returns CUDA's report on peer access for this ordered pair.
    pub fn said_of(&self, pair: Pair) -> Option<&CudaPeerAccess> {
        pair.find(&self.peer_access, |said| said.pair)
    }
}

/// A cause outside the hardware that kept a run from using the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Hindrance {
    /// Another peerscope was checking this machine.
    AnotherCheck,
    /// A limit of the process or of its container.
    ProcessLimit,
}

/// The reason why CUDA hides a GPU that NVML lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Hidden {
    /// CUDA_VISIBLE_DEVICES is set and leaves the GPU out.
    Masked,
    /// No mask is set.
    Unexplained,
}

/// One GPU as CUDA reports it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct CudaDevice {
    /// NVML's index.
    pub index: u32,
    /// CUDA's ordinal. Null if CUDA does not list the GPU.
    pub ordinal: Option<u32>,
    /// Reason why the GPU cannot be tested. Null if it can be tested.
    pub failure: Option<String>,
    /// Return code of the driver for that failure, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<u32>,
    /// True if a limit of the process, not the driver, caused the failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hindered: bool,
    /// Reason why CUDA does not list the GPU, if that is the reason for the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Hidden>,
    /// Reason why the GPU kernels could not be loaded onto it, if they could be loaded onto others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels_failure: Option<String>,
    /// Memory that the probes may use on it, all buffers together.
    pub budget_bytes: Option<Bytes>,
    /// What CUDA says that it can do, before anything was tried. Null if CUDA does not list the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<CudaAttributes>,
    /// Support for access by network adapters to its memory. Null if the GPU cannot be tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaSupport>,
}

facts! {
    /// What CUDA says that a GPU can do.
    pub struct CudaAttributes {
        => readings {
            /// True if the GPU shares the memory of the host.
            integrated: bool,
            /// True if memory of a process can be registered for copies.
            registers_memory: bool,
            /// True if the GPU can access pageable memory by itself: over the page tables of the host (Grace), or with the
            /// help of the kernel (HMM).
            pageable_access: bool,
            /// True if it does so over the page tables of the host. Copies of pageable memory then need no processor, and
            /// may return before they have ended.
            host_page_tables: bool,
            /// True if memory can be created, mapped and shared by `cuMemCreate` and its companions.
            virtual_memory: bool,
            /// True if network adapters can access such memory.
            rdma_of_virtual_memory: bool,
            /// Bytes of the L2 cache.
            l2_cache_bytes: Bytes,
        }
    }
}

facts! {
    /// Support for access by network adapters to the memory of a GPU, as CUDA reports it.
    pub struct RdmaSupport {
        => readings {
            /// True if the GPU and its driver support GPUDirect RDMA.
            gpu_direct: bool,
            /// True if its memory can be shared through dma-buf, without nvidia_peermem.
            dma_buf: bool,
        }
    }
}

/// CUDA's report for one ordered pair: may `source` access the memory of `destination`?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct CudaPeerAccess {
    /// The ordered pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// True if access is possible. Null if CUDA returned an error instead.
    pub possible: Option<bool>,
    /// Reason why access could not be enabled although it was reported as possible, or the error.
    pub failure: Option<String>,
    /// Return code of the driver for that failure, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<u32>,
    /// True if a limit of the process, not the driver, caused the failure. The pair then counts as not asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hindered: bool,
}

/// Peer access of an ordered pair as NVML and CUDA report it, side by side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PeerAccess {
    /// NVML: may the source read the destination's memory?
    #[serde(default)]
    pub nvml_read: Option<P2pStatus>,
    /// NVML: may the source write the destination's memory?
    #[serde(default)]
    pub nvml_write: Option<P2pStatus>,
    /// CUDA: may the source access the destination's memory? Null if CUDA was not opened.
    pub cuda: Option<bool>,
    /// Error that CUDA returned instead of an answer, or when access was enabled.
    #[serde(default)]
    pub cuda_failure: Option<String>,
}
