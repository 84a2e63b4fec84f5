//! Time that calls block the host, loops of launches, and data that is read too early.

pub(crate) mod calls;
pub(crate) mod plan;
pub(crate) mod run;
