//! Each NVLink between two GPUs by itself.

mod map;
pub(crate) mod plan;
pub(crate) mod run;

use std::time::Duration;

use crate::probe::prelude::*;

/// Longest time of a round. Chosen: NVML, which counts the bytes, may be slow to start and to answer.
const LONGEST: Duration = Duration::from_secs(30);

/// Measures each link of a pair, all at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Links {
    /// Most samples of a rate.
    pub samples: u32,
}

impl Probe for Links {
    fn words(&self, _: Setup) -> String {
        "each NVLink by itself".into()
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        Needs { kernels: true, longest: Some(LONGEST), ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.single_links(bench.pairs(round)?[0], self.samples)
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.nvlinks.extend(round.pairs().flat_map(|pair| run::cells(pair, outcome)));
    }
}
