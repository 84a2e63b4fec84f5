//! Kernels that signal each other while they run, and the time of a load.

mod cells;
pub(crate) mod chase;
pub(crate) mod plan;
pub(crate) mod run;

use crate::probe::prelude::*;

/// Lets kernels of both ends talk to each other while they run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Rounds of each phase.
    pub rounds: u32,
    /// The way in which the talk must fail, if it must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

/// A talk that must fail, which shows on hardware that every wait ends. Never planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trial {
    /// One side is never launched.
    Alone,
    /// One side writes into the wrong mailbox.
    WrongPartner,
    /// No wait may take longer than a microsecond.
    ShortLimit,
}

/// Times loads of the destination from the source, each of which has the address of the next.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Chase {
    /// Number of loads.
    pub loads: u32,
}

impl Probe for Live {
    fn words(&self, _: Setup) -> String {
        "live talk of kernels".into()
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        Needs { kernels: true, ..Needs::default() }
    }

    fn run_at_once(&self, bench: &Bench<'_>, rounds: &[&Round]) -> AtOnce {
        Some(bench.live(rounds, *self))
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.live.extend(cells::cells(round, self.rounds, outcome, into.topology));
    }
}

impl Probe for Chase {
    fn words(&self, _: Setup) -> String {
        "pointer chase".into()
    }

    fn needs(&self, _: Setup, _: &[Flow]) -> Needs {
        Needs { kernels: true, ..Needs::default() }
    }

    fn run_at_once(&self, bench: &Bench<'_>, rounds: &[&Round]) -> AtOnce {
        Some(bench.chase(rounds, self.loads))
    }

    fn cells(&self, round: &Round, outcome: &Outcome, into: &mut Assembly<'_>) {
        into.tables.chase.extend(chase::cells(round, outcome));
    }
}
