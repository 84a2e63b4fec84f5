//! The result of a way to share memory.

use crate::Outcome;
use crate::Round;
use crate::figures::without_figures;
use crate::share::obstacles::{is_lack, obstacles};
use model::measurement::{Sharing, Status, Verified};
use model::sharing::Rung;
use model::status::Ending;

/// Returns the cell of a round.
pub(crate) fn cell(round: &Round, rung: Rung, outcome: &Outcome) -> Option<Sharing> {
    let flow = round.flows.first()?;
    let (owner, user) = (flow.from.gpu()?, flow.to.gpu()?);
    let bytes = round.task.setup.bytes;
    let mut cell = Sharing::blank(owner, user, rung, bytes);
    match outcome {
        Outcome::Handed { handed } => {
            cell.works = Some(true);
            cell.open_us = Some(handed.open_us);
            let mut checks = handed.checks.iter().map(|check| check.verified);
            let wrong = checks.clone().find(|verified| verified.is_wrong());
            let not_ok = || checks.find(|verified| *verified != Verified::Ok);
            cell.verified = wrong.or_else(not_ok).unwrap_or(Verified::Ok);
        }
        Outcome::Refused { refusal } => {
            cell.obstacles = obstacles(rung, bytes.0, refusal);
            let side = if refusal.at_owner {
                "the process that has it"
            } else {
                "the process that opens it"
            };
            let why = format!("{side} was refused: {}", refusal.error.message);
            if is_lack(rung, &cell.obstacles) {
                cell.ending =
                    Ending { not_supported: true, ..Ending::without(Status::Skipped, Some(why)) };
            } else {
                cell.works = Some(false);
                cell.refused = Some(why);
            }
        }
        other => cell.ending = without_figures(other),
    }
    Some(cell)
}
