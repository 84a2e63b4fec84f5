//! A simulated machine: plain data ([`spec`]) behind the same two traits as the live one, with faithful stream and
//! event semantics on a virtual clock.

mod active;
mod base;
pub mod builtin;
mod clock;
mod counts;
mod descriptions;
mod driver;
mod engine;
mod find;
mod functions;
mod hops;
pub mod load;
mod memory;
mod moved;
mod routes;
mod sampler;
pub mod sharing;
pub mod spec;
mod telemetry;
mod text;
mod work;

use std::sync::Arc;
use std::time::Duration;

use hardware::{Driver, HardwareError, Machine, Telemetry};
use spec::MachineSpec;

pub use driver::{SimDriver, Written, fetched};
pub use load::LoadError;

/// A simulated machine with its name in reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// The built-in name, or the path of the description as it was given.
    pub name: String,
    pub spec: MachineSpec,
}

impl Simulated {
    /// Returns the machine of a [`Machine::description`].
    ///
    /// # Errors
    ///
    /// The text is not the description of a machine.
    pub fn described(description: &[u8]) -> serde_json::Result<Self> {
        Ok(Self { name: "described".into(), spec: serde_json::from_slice(description)? })
    }
}

impl Machine for Simulated {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> serde_json::Result<Option<Vec<u8>>> {
        match builtin::description(&self.name) {
            Some(_) => Ok(None),
            None => serde_json::to_vec(&self.spec).map(Some),
        }
    }

    fn telemetry(&self) -> Arc<dyn Telemetry> {
        telemetry(self.spec.clone())
    }

    fn driver(&self, _limit: Duration) -> Result<Box<dyn Driver>, HardwareError> {
        driver(self.spec.clone())
    }
}

/// Opens the facts of a machine.
pub fn telemetry(spec: MachineSpec) -> Arc<dyn Telemetry> {
    Arc::new(telemetry::SimTelemetry::new(spec))
}

/// Opens the driver of a machine.
///
/// # Errors
///
/// The machine has no GPU, or its driver does not start.
pub fn driver(spec: MachineSpec) -> Result<Box<dyn Driver>, HardwareError> {
    Ok(Box::new(driver::SimDriver::new(spec)?))
}
