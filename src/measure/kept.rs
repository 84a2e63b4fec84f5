//! The host buffers that a run keeps.

use std::cell::{Cell, RefCell};

use hardware::Buffer;

#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) buffer: Buffer,
    /// Seed of the pattern in it, if it contains one.
    pub(super) seed: Option<u64>,
}

/// The host buffers of a run.
#[derive(Debug, Default)]
pub(super) struct HostPool {
    pub(super) kept: RefCell<Vec<Kept>>,
    /// Total bytes allocated.
    pub(super) taken: Cell<u64>,
}

/// A buffer in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lent {
    pub(super) buffer: Buffer,
    /// Seed of the pattern in it, if it contains one.
    pub(super) seed: Option<u64>,
}
