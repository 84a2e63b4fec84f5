//! The vocabulary of advice: every step and every possible cause with its words, in one place. Rules choose among them.

mod arguments;
mod causes;
mod plan;
mod vocabulary;

pub(crate) use arguments::*;
pub(crate) use causes::{Cause, Sign, suspect, suspect_if};
pub(crate) use plan::Plan;
pub(crate) use vocabulary::Step;
