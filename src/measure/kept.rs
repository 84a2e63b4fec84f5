//! The buffers of the host that a run keeps.

use std::cell::{Cell, RefCell};

use hardware::HostBuffer;

/// A buffer that is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) node: Option<u32>,
    pub(super) buffer: HostBuffer,
    /// The pattern that it holds, where it does.
    pub(super) seed: Option<u64>,
}

/// The host's buffers of a run.
#[derive(Debug, Default)]
pub(super) struct HostPool {
    pub(super) kept: RefCell<Vec<Kept>>,
    /// Bytes taken in all.
    pub(super) taken: Cell<u64>,
}

/// A buffer in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lent {
    pub(super) buffer: HostBuffer,
    /// The pattern that it holds, where it does.
    pub(super) seed: Option<u64>,
}
