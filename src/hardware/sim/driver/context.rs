//! A device that is open.

use crate::engine::{Lane, Server};
use hardware::{HardwareError, Stream};

/// The limited resources of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Servers {
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

/// A pending error that a later call returns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    /// CUDA's code.
    pub code: u32,
    /// Number of the call that returns it, counted from now.
    pub calls: u32,
    /// True if every later call returns it too.
    pub lasts: bool,
}

/// A device that is open.
#[derive(Debug)]
pub(super) struct Context {
    pub servers: Servers,
    pub broken: Option<HardwareError>,
    /// The pending error, with the number of calls until the device returns it.
    pub due: Option<Due>,
    /// In the order in which they were created: the default stream's lane is the first.
    pub lanes: Vec<Lane>,
    /// The lanes of streams that keep their order with the default stream.
    pub blocking: Vec<Lane>,
    /// The default stream of the only thread, once it was asked for.
    pub per_thread: Option<Stream>,
}
