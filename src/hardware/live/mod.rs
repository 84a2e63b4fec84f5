//! The live machine: NVML and sysfs for facts, the CUDA driver for copies. The only unsafe code.

#![allow(unsafe_code, reason = "the libraries of the driver are C")]

mod cuda;
mod nvml;
mod sysfs;
mod telemetry;

use std::sync::Arc;

use super::{Driver, HardwareError, Telemetry};

/// Opens NVML and sysfs.
///
/// # Errors
///
/// NVML is missing or does not start.
pub fn telemetry() -> Result<Arc<dyn Telemetry>, HardwareError> {
    Ok(Arc::new(telemetry::LiveTelemetry::open()?))
}

/// Opens the CUDA driver.
///
/// # Errors
///
/// The library is missing, is a stub, or does not initialise.
pub fn driver() -> Result<Box<dyn Driver>, HardwareError> {
    Ok(Box::new(cuda::CudaDriver::open()?))
}
