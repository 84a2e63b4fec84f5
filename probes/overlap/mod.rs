//! Overlap of a copy with a kernel.

pub(crate) mod plan;
pub(crate) mod run;
