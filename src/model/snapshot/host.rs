//! Facts of the whole machine, and of the environment of this process.

use serde::{Deserialize, Serialize};

use crate::reading::facts;
use crate::units::Bytes;

facts! {
    /// Facts of the whole machine.
    pub struct Host {
        => readings {
            /// Version of the NVIDIA kernel driver.
            driver_version: String,
            /// Version of the loaded NVIDIA kernel module.
            kernel_module_version: String,
            /// Version of the NVML library.
            nvml_version: String,
            /// Newest CUDA version that the driver supports, such as `13.0`.
            cuda_version: String,
            /// Kernel release.
            kernel_version: String,
            /// Host name.
            hostname: String,
            /// Processor model.
            cpu: String,
            /// True if this is a virtual machine.
            virtual_machine: bool,
            /// True if this process runs in a container, which may hide GPUs of its host.
            container: bool,
            /// Program that created the container, if it leaves its name: `docker`, `podman`, `kubernetes`.
            container_made_by: String,
            /// Control group of this process. It is `/` in a container that has its own view.
            control_group: String,
            /// True if an IOMMU translates device addresses (any group of type DMA or DMA-FQ).
            iommu_translating: bool,
            /// Parameters on the kernel's command line that concern the IOMMU, such as `iommu=pt`. Empty if there are
            /// none.
            iommu_parameters: Vec<String>,
            /// Confidential computing, as NVML reports it.
            confidential_computing: ConfidentialComputing,
            /// True if nvidia_peermem is loaded, the module through which network adapters access the memory of GPUs.
            peer_memory_module: bool,
            /// True if NVIDIA's kernel modules are the open ones, which share memory of GPUs through dma-buf.
            open_kernel_module: bool,
            /// True if the fabric manager runs. Unknown if systemd has no such service.
            fabric_manager_running: bool,
            /// Folder of the pipes of an MPS daemon: the one that the environment names, or the default.
            mps_pipe_directory: String,
            /// True if an MPS daemon serves this folder.
            mps_daemon: bool,
            /// Variables that decide which paths NCCL uses, as `NAME=value`, from the environment of this process.
            nccl_variables: Vec<String>,
            /// Size of /dev/shm, through which processes share memory of the host.
            shm_total_bytes: Bytes,
            /// Free space of /dev/shm.
            shm_free_bytes: Bytes,
            /// Mean number of tasks that ran or waited for a processor or a disk in the minute before the check.
            busy_tasks: u32,
            /// Bytes of the last-level caches of all processors together, as the kernel lists them.
            last_level_cache_bytes: Bytes,
            /// Time since the system started, seconds.
            up_seconds: u64,
            /// The kernel's identifier of this start of the system.
            boot_id: String,
            /// Xid messages of the NVIDIA driver in the kernel's log: the last one of each GPU and code, by time.
            xids: Vec<super::Xid>,
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
    /// It is on in developer mode, which protects nothing.
    DevTools,
}

impl Host {
    /// Returns true if this is the Linux within Windows (WSL 2), whose kernel says so.
    pub fn is_wsl(&self) -> bool {
        let kernel = self.kernel_version.known();
        kernel.is_some_and(|version| version.to_ascii_lowercase().contains("microsoft"))
    }

    /// Returns true if network adapters may reach memory of GPUs through dma-buf, without nvidia_peermem: with the open
    /// kernel modules, from Linux 5.12 on (CUDA Toolkit, GPUDirect RDMA). `None` if neither is known to be missing, and one
    /// is not known.
    pub fn dma_buf(&self) -> Option<bool> {
        let kernel = self.kernel_version.known().and_then(|version| {
            let mut numbers = version.split(['.', '-', '+']).map(str::parse::<u32>);
            let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
            Some((major, minor) >= (5, 12))
        });
        match (self.open_kernel_module.get(), kernel) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (module, kernel) => module.zip(kernel).map(|_| true),
        }
    }

    /// Returns true if confidential computing encrypts what GPUs exchange with the host, which costs most of the rate.
    /// Developer mode encrypts too.
    pub fn encrypts_copies(&self) -> bool {
        let known = self.confidential_computing.get();
        known.is_some_and(|state| state != ConfidentialComputing::Off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Reading, Unknown};

    #[test]
    fn dma_buf_needs_the_open_modules_and_a_new_kernel() {
        let host = |open: Option<bool>, kernel: &str| {
            let mut host = Host::unread(&Unknown::Unsupported);
            host.open_kernel_module = open.ok_or(Unknown::Unsupported).into();
            host.kernel_version = Reading::Known(kernel.into());
            host.dma_buf()
        };
        assert_eq!(host(Some(true), "5.12.0"), Some(true));
        assert_eq!(host(Some(true), "6.8.0-45-generic"), Some(true));
        assert_eq!(host(Some(true), "5.4.0-150-generic"), Some(false));
        assert_eq!(host(Some(false), "6.8.0"), Some(false));
        assert_eq!(host(None, "4.18.0-553.el8"), Some(false));
        assert_eq!(host(None, "6.8.0"), None);
        assert_eq!(host(Some(true), "linux"), None);
    }
}
