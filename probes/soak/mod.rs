//! Hours under load.

mod minute_counters;
pub mod minutes;
pub(crate) mod plan;
pub(crate) mod run;
