//! Several flows at once.

pub(crate) mod patterns;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod window;

use crate::bench::compared::PLACES;
use crate::probe::prelude::*;
use model::load::Pattern;
use model::placement::Engine;

/// Times rows of several flows at once, and checks their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Arrangement of the flows.
    pub pattern: Pattern,
    /// Number of rows.
    pub rows: u32,
    /// Copies of the slowest flow in each row.
    pub copies: u32,
    /// True if counters are read before and after it.
    pub counted: bool,
    /// Time in which every copy is compared, milliseconds.
    #[serde(default)]
    pub compared_ms: u32,
}

/// Returns the places for copies of a flow at its destination: more than one, if each is compared while the next is written.
const fn places(compared_ms: u32) -> u64 {
    if compared_ms > 0 { PLACES } else { 1 }
}

impl Probe for Load {
    fn words(&self, _: Setup) -> String {
        format!("load pattern {}", self.pattern)
    }

    fn needs(&self, setup: Setup, flows: &[Flow]) -> Needs {
        // One extra row, which measures how fast each flow is. The flows share links.
        let each = copies_of(self.rows.saturating_add(1), self.copies);
        let copies = each.saturating_mul(u32::try_from(flows.len()).unwrap_or(u32::MAX));
        Needs { copies, kernels: setup.engine == Engine::Kernel, ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.load(round, *self)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.load.push(run::cell(round, self.pattern, outcome));
    }
}
