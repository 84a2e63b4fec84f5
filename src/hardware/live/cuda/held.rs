//! A buffer in the memory of the host, as the driver stores it under its number.

use std::ffi::c_void;

use super::place::Mapping;
use model::flow::HostMemory;

/// A buffer of the host.
pub(super) struct Held {
    pub(super) memory: HostMemory,
    pub(super) pointer: *mut c_void,
    pub(super) bytes: u64,
    /// The mapping behind the buffer, if the driver did not allocate the memory itself.
    pub(super) mapping: Option<Mapping>,
}
