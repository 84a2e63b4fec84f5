//! The live machine: NVML and sysfs for facts, the CUDA driver for copies. The only unsafe code.

#![allow(unsafe_code, reason = "the libraries of the driver are C")]

mod cuda;
mod nvml;
mod peer;
mod process;
mod sysfs;
mod telemetry;

use std::sync::Arc;
use std::time::Duration;

pub use self::peer::peer;
pub use self::process::{Allocator, give_memory_back, ignore_file_size_signal};
use super::{Driver, HardwareError, Telemetry};

/// Opens NVML and sysfs; only sysfs if NVML is missing or does not start, which is reported when
/// GPUs are counted.
pub fn telemetry() -> Arc<dyn Telemetry> {
    Arc::new(telemetry::LiveTelemetry::open())
}

/// Opens the CUDA driver, which must start within a limit.
///
/// # Errors
///
/// The library is missing, is a stub, or does not initialise.
pub fn driver(limit: Duration) -> Result<Box<dyn Driver>, HardwareError> {
    Ok(Box::new(cuda::CudaDriver::open(limit)?))
}
