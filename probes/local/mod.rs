//! Copies within each GPU.

pub(crate) mod plan;
pub(crate) mod run;
