//! A simulated machine: plain data ([`spec`]) behind the same two traits as the live one, with
//! honest stream and event semantics on a virtual clock.

mod active;
mod base;
pub mod builtin;
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

pub use driver::{SimDriver, Written};
pub use load::LoadError;

/// A simulated machine with the name under which reports know it.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// The built-in name, or the path of the description as it was given.
    pub name: String,
    /// What it is like.
    pub spec: MachineSpec,
}

impl Simulated {
    /// The machine of a [`Machine::description`].
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn described(description: &[u8]) -> serde_json::Result<Self> {
        Ok(Self {
            name: "described".into(),
            spec: serde_json::from_slice(description)?,
        })
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

/// The facts of a machine.
pub fn telemetry(spec: MachineSpec) -> Arc<dyn Telemetry> {
    Arc::new(telemetry::SimTelemetry::new(spec))
}

/// The driver of a machine.
///
/// # Errors
///
/// It has no GPU, or its driver does not start.
pub fn driver(spec: MachineSpec) -> Result<Box<dyn Driver>, HardwareError> {
    Ok(Box::new(driver::SimDriver::new(spec)?))
}
