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

/// A device that is open.
#[derive(Debug)]
pub struct Context {
    pub servers: Servers,
    pub broken: Option<HardwareError>,
    /// The error of this code, and calls that the device still serves before it gives it.
    pub due: Option<(u32, u32)>,
    /// In the order in which they were made: the default stream's comes first.
    pub lanes: Vec<Lane>,
}
