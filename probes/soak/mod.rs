//! Hours under load.

mod minute_counters;
pub mod minutes;
pub(crate) mod plan;
pub(crate) mod run;

use std::time::Duration;

use crate::probe::prelude::*;
use model::load::Pattern;

/// Copies flows at once for a time, and checks their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Soak {
    /// Arrangement of the flows; none for copies by kernels within each GPU.
    pub pattern: Option<Pattern>,
    /// Time of the round, milliseconds.
    pub millis: u32,
    /// Parts of that time; the bytes are checked after each.
    pub bursts: u32,
}

impl Probe for Soak {
    fn words(&self, _: Setup) -> String {
        match self.pattern {
            Some(pattern) => format!("soak, {pattern}"),
            None => "soak, kernels".into(),
        }
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        // Its deadline follows from its time.
        Needs { kernels: self.pattern.is_none(), ..Needs::default() }
    }

    fn run(&self, bench: &Bench<'_>, round: &Round) -> Result<Outcome, HardwareError> {
        bench.soak(round, Duration::from_millis(self.millis.into()), self.bursts)
    }

    /// The minutes of a soak come from outcomes as they arrive.
    fn cells(&self, _: &Round, _: &Outcome, _: &mut Assembly<'_>) {}
}
