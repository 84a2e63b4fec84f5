//! A report → decisions: which GPUs to take, in which order, what a change of the machine would bring, and what NCCL
//! should know of it. Nothing here measures, judges or prints. `docs/decisions.md` describes it.

mod forecast;
pub mod nccl;
mod order;
mod outlook;
mod pick;
mod place;
mod ring;
mod veto;
mod whatif;

pub use self::forecast::{Version, forecast};
pub use self::order::{Groups, Order, Sequence, order};
pub use self::outlook::{Outlook, causes};
pub use self::pick::{Binding, Choice, Job, LeftOut, Pick, Wanted, pick};
pub use self::veto::veto;
pub use self::whatif::{Change, Effects, Figure, Moved, WhatIf, fill, what_if};

#[cfg(test)]
mod testing;
