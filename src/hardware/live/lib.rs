//! The live machine: NVML and sysfs for facts, the CUDA driver for copies. It contains the only unsafe code.

#![allow(unsafe_code, reason = "the libraries of the driver are C")]

mod cuda;
mod lock;
mod nvml;
mod peer;
mod process;
mod sysfs;
mod telemetry;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use self::process::ignore_file_size_signal;
use hardware::{Driver, HardwareError, Holder, Lock, Machine, NotLocked, Telemetry, root};

/// The name of this machine, in reports and for `--machine`.
pub const NAME: &str = "live";

/// This machine.
#[derive(Debug, Clone, Copy)]
pub struct Live;

impl Machine for Live {
    fn name(&self) -> &'static str {
        NAME
    }

    fn mps_pipe(&self) -> Option<&'static Path> {
        const PIPE: &str = "/tmp/nvidia-mps";
        // The daemon creates this file in its folder; the folder may be left from an earlier daemon.
        let control = root().join(PIPE.trim_start_matches('/')).join("control");
        control.exists().then(|| Path::new(PIPE))
    }

    /// Opens NVML and sysfs. If NVML is missing or does not start, only sysfs is used; counting the GPUs then reports
    /// the reason.
    fn telemetry(&self) -> Arc<dyn Telemetry> {
        Arc::new(telemetry::LiveTelemetry::open())
    }

    fn driver(&self, limit: Duration) -> Result<Box<dyn Driver>, HardwareError> {
        Ok(Box::new(cuda::CudaDriver::open(limit)?))
    }

    fn lock(&self) -> Result<Lock, NotLocked> {
        lock::take()
    }

    fn holder(&self) -> Holder {
        lock::holder()
    }
}
