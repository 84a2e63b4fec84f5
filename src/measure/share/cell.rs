//! The result of a way to share memory.

use super::super::Outcome;
use super::super::figures::without_figures;
use super::obstacles::{is_lack, obstacles};
use model::measurement::{Sharing, Status, Verified};
use model::status::Ending;
use plan::{Action, Round};

/// Returns the worse of two results.
const fn worse(one: Verified, other: Verified) -> Verified {
    match (one, other) {
        (Verified::Corrupt, _) | (_, Verified::Corrupt) => Verified::Corrupt,
        (Verified::Dropped, _) | (_, Verified::Dropped) => Verified::Dropped,
        (Verified::Stale, _) | (_, Verified::Stale) => Verified::Stale,
        (Verified::Inconclusive, _) | (_, Verified::Inconclusive) => Verified::Inconclusive,
        (Verified::Ok, _) | (_, Verified::Ok) => Verified::Ok,
        _ => Verified::Skipped,
    }
}

/// Returns the cell of a round.
pub(crate) fn cell(round: &Round, outcome: &Outcome) -> Option<Sharing> {
    let Action::Share { rung } = round.task.action else {
        return None;
    };
    let flow = round.flows.first()?;
    let (owner, user) = (flow.from.gpu()?, flow.to.gpu()?);
    let bytes = round.task.setup.bytes;
    let mut cell = Sharing::blank(owner, user, rung, bytes);
    match outcome {
        Outcome::Handed { handed } => {
            cell.works = Some(true);
            cell.open_us = Some(handed.open_us);
            let checks = handed.checks.iter().map(|check| check.verified);
            cell.verified = checks.fold(Verified::Skipped, worse);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_bytes_on_one_side_are_the_result() {
        use Verified::{Corrupt, Inconclusive, Ok, Skipped};
        assert_eq!(worse(Ok, Corrupt), Corrupt);
        assert_eq!(worse(Inconclusive, Ok), Inconclusive);
        assert_eq!(worse(Skipped, Ok), Ok);
    }
}
