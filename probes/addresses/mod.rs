//! Addresses all over the memory of each GPU, as others reach them.

pub(crate) mod plan;
pub(crate) mod run;

use std::time::Duration;

use crate::probe::prelude::*;

/// Longest time of a round. Chosen: some 36,000 copies, and some seconds where addresses are wrong.
const LONGEST: Duration = Duration::from_secs(30);

/// Writes and reads 64 KiB at every 32 MiB of a GPU's free memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Addresses {}

impl Probe for Addresses {
    fn words(&self, _: Setup) -> String {
        "addresses all over the memory".into()
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        Needs { kernels: true, longest: Some(LONGEST), ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.addresses(bench.pairs(round)?[0])
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables
            .addresses
            .extend(round.pairs().take(1).flat_map(|pair| run::cells(pair, outcome)));
    }
}
