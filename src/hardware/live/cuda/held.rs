//! A buffer, as the driver stores it under its number.

use std::ffi::c_void;

use super::place::Mapping;
use hardware::Location;

/// A buffer on a device or of the host.
pub(super) struct Held {
    pub(super) location: Location,
    /// The address in the memory of the device or of this process.
    pub(super) pointer: *mut c_void,
    pub(super) bytes: u64,
    /// The mapping behind a buffer of the host, if the driver did not allocate the memory itself.
    pub(super) mapping: Option<Mapping>,
}
