//! Runs rounds, alone or at once, and reports their outcomes.

use crate::bench::Bench;
use crate::{Outcome, Round};
use hardware::{ErrorKind, HardwareError};
use model::timeline::Timeline;

impl Bench<'_> {
    /// Runs rounds that share nothing at once if they allow it, else one after the other. Reports each outcome as soon
    /// as it exists.
    pub fn run(&self, rounds: &[Round], tell: &mut dyn FnMut(RunEvent<'_>)) {
        match self.at_once(rounds) {
            Some(Ok(outcomes)) => {
                return tell(RunEvent::Together(rounds.iter().zip(outcomes).collect()));
            }
            // Run each by itself to find the one at fault. If none fails alone, the error must not be lost.
            Some(Err(error)) => {
                rounds
                    .first()
                    .into_iter()
                    .for_each(|head| tell(RunEvent::Apart(head, error.clone())));
                // A wait that fails will fail again in the rounds below.
                let _ = rounds.iter().try_for_each(|round| self.drain(round));
            }
            None => {}
        }
        for round in rounds {
            let (outcome, timeline) =
                self.following(round, || self.near(round, || self.run_one(round)));
            if let Some(timeline) = timeline {
                tell(RunEvent::Seen(round, timeline));
            }
            tell(RunEvent::Ended(round, outcome));
        }
    }

    /// Runs a round by itself, and gives back the host buffers that it borrowed, after an error too. Reports the first error.
    pub fn run_one(&self, round: &Round) -> Outcome {
        let ran = round.task.action.probe().run(self, round);
        let given_back = self.give_back();
        ran.and_then(|outcome| given_back.map(|()| outcome))
            .unwrap_or_else(|error| Outcome::Failed { error })
    }

    /// Runs rounds of the same task at the same time, and returns their outcomes. Returns none for a single round, and if
    /// rounds of this action run one after the other.
    fn at_once(&self, rounds: &[Round]) -> Option<Result<Vec<Outcome>, HardwareError>> {
        let [head, _, ..] = rounds else {
            return None;
        };
        let all: Vec<&Round> = rounds.iter().collect();
        let is_same = all.iter().all(|round| round.task == head.task);
        let ran = is_same.then(|| head.task.action.probe().run_at_once(self, &all))??;
        Some(together(rounds.len(), ran))
    }
}

/// Returns the outcomes of rounds that ran at once. After a sticky error nothing more can run here, and the round at fault is
/// unknown.
fn together(
    rounds: usize,
    outcomes: Result<Vec<Outcome>, HardwareError>,
) -> Result<Vec<Outcome>, HardwareError> {
    match outcomes {
        Err(error) if error.kind == ErrorKind::Sticky => {
            Ok(vec![Outcome::Failed { error }; rounds])
        }
        outcomes => outcomes,
    }
}

/// An event while rounds run.
pub enum RunEvent<'r> {
    Ended(&'r Round, Outcome),
    /// These rounds have ended together. None has left work on the devices that would need a wait.
    Together(Vec<(&'r Round, Outcome)>),
    /// The timeline of a followed round, reported before its end.
    Seen(&'r Round, Timeline),
    /// The rounds that begin with this one went wrong at once, and are run one by one.
    Apart(&'r Round, HardwareError),
}
