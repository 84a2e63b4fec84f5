//! Copies between host and GPU, and the cost of page-locking.

pub(crate) mod cells;
pub(crate) mod pinning;
pub(crate) mod plan;
pub(crate) mod run;
