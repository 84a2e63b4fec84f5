//! A device that is open.

use crate::engine::{Lane, Server};
use hardware::HardwareError;

/// What a device has only so many of.
#[derive(Debug, Clone, Copy)]
pub struct Servers {
    /// Copies that leave for other GPUs.
    pub copies_out: Server,
    /// Copies that arrive from other GPUs.
    pub copies_in: Server,
    /// Copies to the host.
    pub to_host: Server,
    /// Copies from the host.
    pub from_host: Server,
    /// Kernels: each one fills the device.
    pub multiprocessors: Server,
}

/// An error that comes to light in a later call.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// CUDA's code.
    pub code: u32,
    /// Which call it is, counted from now.
    pub calls: u32,
    /// Whether every later call gives it too.
    pub lasts: bool,
}

/// A device that is open.
#[derive(Debug)]
pub struct Context {
    pub servers: Servers,
    pub broken: Option<HardwareError>,
    /// The error of this code, and calls that the device still serves before it gives it.
    pub due: Option<Due>,
    /// In the order in which they were made: the default stream's comes first.
    pub lanes: Vec<Lane>,
}
