//! A buffer in the memory of the host, as it is kept under its number.

use std::ffi::c_void;

use super::place::Mapping;
use model::flow::HostMemory;

/// A buffer of the host.
pub struct Held {
    pub(super) memory: HostMemory,
    pub(super) pointer: *mut c_void,
    pub(super) bytes: u64,
    /// Of memory that is not the driver's own.
    pub(super) mapping: Option<Mapping>,
}
