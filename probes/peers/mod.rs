//! Copies between GPUs: their rates, on every path and in every setup.

pub(crate) mod cells;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod together;
