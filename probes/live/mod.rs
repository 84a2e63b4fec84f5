//! Kernels that signal each other while they run, and the time of a load.

pub(crate) mod cells;
pub(crate) mod chase;
pub(crate) mod plan;
pub(crate) mod run;
