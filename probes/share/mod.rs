//! Memory that one process hands to another.

mod cells;
mod obstacles;
pub(crate) mod plan;
mod run;

use crate::probe::prelude::*;
use hardware::{ErrorKind, HardwareError};
use model::sharing::Rung;

pub use self::run::{Handed, Refusal, Sharer, Taken, Turn};

/// Hands memory from one process to another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Share {
    pub rung: Rung,
}

impl Probe for Share {
    fn words(&self, _: Setup) -> String {
        format!("sharing between processes by {}", self.rung)
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        // Kernels of both processes write and check the bytes.
        Needs { kernels: true, two_processes: Some(plan::RUNG_LIMIT), ..Needs::default() }
    }

    /// The parent runs it in steps (`src/run/worker/share.rs`).
    fn run(&self, _: &Bench<'_>, _: &Round) -> Result<Outcome, HardwareError> {
        Err(HardwareError::new(ErrorKind::Other, "one process alone cannot share memory"))
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.sharing.extend(cells::cell(round, self.rung, outcome));
    }
}
