//! A simulated machine: plain data ([`spec`]) behind the same two traits as the live one, with
//! honest stream and event semantics on a virtual clock.

pub mod builtin;
mod driver;
mod engine;
mod memory;
mod routes;
mod sharing;
pub mod spec;
mod telemetry;

use std::sync::Arc;

use super::{Driver, ErrorKind, HardwareError, Telemetry};
use spec::MachineSpec;

/// Opens the facts of a built-in machine.
///
/// # Errors
///
/// There is no such machine.
pub fn telemetry(name: &str) -> Result<Arc<dyn Telemetry>, HardwareError> {
    Ok(Arc::new(telemetry::SimTelemetry::new(builtin(name)?)))
}

/// Opens the driver of a built-in machine.
///
/// # Errors
///
/// There is no such machine, it has no GPU, or its driver does not start.
pub fn driver(name: &str) -> Result<Box<dyn Driver>, HardwareError> {
    Ok(Box::new(driver::SimDriver::new(builtin(name)?)?))
}

/// The driver of a machine that is made for a test.
///
/// # Errors
///
/// As [`driver`].
#[cfg(test)]
pub fn driver_of(spec: MachineSpec) -> Result<Box<dyn Driver>, HardwareError> {
    Ok(Box::new(driver::SimDriver::new(spec)?))
}

fn builtin(name: &str) -> Result<MachineSpec, HardwareError> {
    let missing = || HardwareError::new(ErrorKind::NoDriver, format!("there is no simulated machine '{name}'"));
    builtin::get(name).ok_or_else(missing)
}
