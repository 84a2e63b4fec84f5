//! Pipelines of copies and kernels, and the copies of a GPU that run at the same time.

pub(crate) mod engines;
pub(crate) mod plan;
pub(crate) mod run;
