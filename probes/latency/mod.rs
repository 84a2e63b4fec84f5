//! The time of small copies.

pub(crate) mod plan;
pub(crate) mod run;
