//! Tables of figures from the outcomes of rounds.

use std::collections::HashMap;

use crate::peers::verify::Verifications;
use crate::probe::Assembly;
use crate::{Outcome, Round};
use model::cell::Measurement;
use model::measurement::{Measurements, Status};
use model::topology::Topology;

/// Builds the tables of all rounds, with theory and verification beside each figure. A round without outcome was not
/// reached.
pub fn assemble(
    rounds: &[Round],
    outcomes: &HashMap<u32, Outcome>,
    topology: &Topology,
) -> Measurements {
    let mut into =
        Assembly { tables: Measurements::default(), verified: Verifications::default(), topology };
    let not_reached = Outcome::Lost { status: Status::Skipped, reason: "not reached".into() };
    for round in rounds {
        let outcome = outcomes.get(&round.id).unwrap_or(&not_reached);
        round.task.action.probe().cells(round, outcome, &mut into);
    }
    into.tables.each_mut().for_each(Measurement::doubt_unchecked);
    into.tables
}
