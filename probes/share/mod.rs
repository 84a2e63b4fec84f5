//! Memory that one process hands to another.

pub(crate) mod cells;
pub(crate) mod obstacles;
pub(crate) mod plan;
pub(crate) mod run;

pub use self::run::{Handed, Refusal, Sharer, Step, Taken};
