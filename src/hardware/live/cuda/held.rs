//! A buffer, as the driver stores it under its number.

use std::ffi::c_void;

use super::physical::Physical;
use super::place::Mapping;
use hardware::Location;

/// A buffer on a device or of the host.
pub(super) struct Held {
    pub(super) location: Location,
    /// The address in the memory of the device or of this process.
    pub(super) pointer: *mut c_void,
    pub(super) bytes: u64,
    pub(super) origin: Origin,
}

/// The origin of a buffer's memory, which decides how it is freed.
pub(super) enum Origin {
    /// The driver allocated it for a device or page-locked for the host; or it is a part of another buffer.
    Allocated,
    /// The system's, of the host.
    System(Mapping),
    /// Created apart from its addresses, and mapped.
    Mapped(Physical),
    /// Another process's, opened by a legacy handle.
    Opened,
}
