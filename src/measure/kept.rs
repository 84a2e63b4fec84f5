//! The host buffers that a run keeps.

use std::cell::{Cell, RefCell};

use hardware::HostBuffer;

#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) node: Option<u32>,
    pub(super) buffer: HostBuffer,
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
    pub(super) buffer: HostBuffer,
    /// Seed of the pattern in it, if it contains one.
    pub(super) seed: Option<u64>,
}
