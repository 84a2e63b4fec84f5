//! Several flows at once.

pub(crate) mod patterns;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod window;
