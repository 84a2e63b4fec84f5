//! Facts of the whole machine, and of what this process runs in.

use serde::{Deserialize, Serialize};

use crate::reading::facts;
use crate::units::PciAddress;

facts! {
    /// Facts of the whole machine.
    pub struct Host {
        => readings {
            /// Version of the NVIDIA kernel driver.
            driver_version: String,
            /// Version of the NVIDIA kernel module that is loaded.
            kernel_module_version: String,
            /// Version of the NVML library.
            nvml_version: String,
            /// Newest CUDA version that the driver serves, such as `13.0`.
            cuda_version: String,
            /// Kernel release.
            kernel_version: String,
            /// Host name.
            hostname: String,
            /// Processor model.
            cpu: String,
            /// Whether this is a virtual machine.
            virtual_machine: bool,
            /// Whether this process runs in a container, which may keep GPUs of its host from it.
            container: bool,
            /// The program that made the container, as far as it leaves its name: `docker`, `podman`, `kubernetes`.
            container_made_by: String,
            /// The control group of this process; in a container that has its own view, `/`.
            control_group: String,
            /// Whether an IOMMU translates device addresses (any group of type DMA or DMA-FQ).
            iommu_translating: bool,
            /// Parameters of the kernel's command line that concern the IOMMU, such as `iommu=pt`; empty without any.
            iommu_parameters: Vec<String>,
            /// Confidential computing, as NVML reports it.
            confidential_computing: ConfidentialComputing,
            /// Whether the module is loaded through which network adapters reach the memory of GPUs (nvidia_peermem).
            peer_memory_module: bool,
            /// Folder of the pipes of an MPS daemon: that of the environment, or the default.
            mps_pipe_directory: String,
            /// Whether an MPS daemon serves it.
            mps_daemon: bool,
            /// Variables that decide which ways NCCL takes, as `NAME=value`, from the environment of this process.
            nccl_variables: Vec<String>,
            /// Xid messages of the NVIDIA driver in the kernel's log: of each GPU and code the last one, by time.
            xids: Vec<Xid>,
        }
    }
}

/// Confidential computing: memory of GPUs is encrypted, and copies between GPUs are restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ConfidentialComputing {
    /// It is off.
    Off,
    /// It is on.
    On,
    /// It is on in the mode for developers, which protects nothing.
    DevTools,
}

/// An Xid message of the NVIDIA driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Xid {
    /// The GPU's PCI address.
    pub pci: PciAddress,
    /// NVIDIA's number of the error.
    pub code: u32,
    /// What the driver says of it, without the process.
    pub text: String,
    /// How often it stands in the log.
    pub times: u32,
    /// When it was logged last, seconds since boot.
    pub seconds_since_boot: u64,
}
