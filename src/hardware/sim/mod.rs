//! A simulated machine.

mod engine;
mod sharing;

use std::sync::Arc;

use super::{Driver, HardwareError, Telemetry};

pub mod builtin {
    //! The built-in machines.

    /// Their names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["demo"].into_iter()
    }
}

/// Opens the facts of a simulated machine.
///
/// # Errors
///
/// There is no such machine.
pub fn telemetry(_name: &str) -> Result<Arc<dyn Telemetry>, HardwareError> {
    Err(HardwareError::new(super::ErrorKind::NoDriver, "not written yet"))
}

/// Opens the driver of a simulated machine.
///
/// # Errors
///
/// There is no such machine.
pub fn driver(_name: &str) -> Result<Box<dyn Driver>, HardwareError> {
    Err(HardwareError::new(super::ErrorKind::NoDriver, "not written yet"))
}
