//! Rounds that broke off and are tried again: what is known of each, and which is run together once more.

use std::collections::{HashMap, HashSet};

use hardware::HardwareError;
use model::broken_off::{Again, Break, BrokenOff, How};
use plan::Round;

/// After so many rounds that broke off in company, the rest is run one at a time: chosen. Each costs its deadline and
/// another start of the driver, and shows nothing new.
const MOST_TOGETHER: usize = 3;
/// Why a round was not run again where nothing else is known.
const ENDED: &str = "the run ended before that";

/// All of them.
#[derive(Debug, Default)]
pub(super) struct TriedAgain<'r> {
    /// Rounds that ran at once and were tried one by one.
    together: Vec<Together<'r>>,
    /// Rounds that were tried again as they are, by number.
    alone: HashMap<u32, BrokenOff>,
    /// How many of either had several flows.
    in_company: usize,
    /// Slots of which a round did not end well by itself.
    unsound: HashSet<u32>,
}

/// Rounds that broke off together.
#[derive(Debug)]
struct Together<'r> {
    rounds: Vec<&'r Round>,
    broken: BrokenOff,
    /// Whether it is still to be decided what becomes of them.
    open: bool,
}

impl<'r> TriedAgain<'r> {
    /// Rounds broke off while they ran at once. What is known of it.
    pub fn broke_off(&mut self, rounds: &[&'r Round], first: Break) -> Option<BrokenOff> {
        let broken = broken_off(rounds, first)?;
        self.in_company += 1;
        self.together.push(Together {
            rounds: rounds.to_vec(),
            broken: broken.clone(),
            open: true,
        });
        Some(broken)
    }

    /// A round broke off and is tried again as it is.
    pub fn broke_off_alone(&mut self, round: &'r Round, first: Break) -> Option<BrokenOff> {
        let broken = broken_off(&[round], first)?;
        self.in_company += usize::from(broken.in_company());
        self.alone.insert(round.id, broken.clone());
        Some(broken)
    }

    /// A round ended so. What is known of it now, where it had broken off and was tried again.
    pub fn ended(&mut self, round: &Round, again: Again) -> Option<BrokenOff> {
        if again != Again::Worked {
            self.unsound.insert(round.slot);
        }
        let mut broken = self.alone.remove(&round.id)?;
        broken.again = again;
        Some(broken)
    }

    /// Whether so much broke off in company that the rest is to be run one at a time.
    pub fn is_enough(&self) -> bool {
        self.together.len() >= MOST_TOGETHER
    }

    /// The rounds to run together once more, when all others have ended. Those that are not run again are given with
    /// the reason: `obstacle` has one where there is one for all.
    pub fn next(
        &mut self,
        obstacle: impl Fn(&[&Round]) -> Option<String>,
    ) -> (Option<Vec<&'r Round>>, Vec<BrokenOff>) {
        let mut settled = Vec::new();
        for of in self.together.iter_mut().filter(|of| of.open) {
            let why = if self.in_company > 1 {
                Some("more than one round broke off in company".to_owned())
            } else if of
                .rounds
                .iter()
                .any(|round| self.unsound.contains(&round.slot))
            {
                Some("not all of its flows worked one by one".to_owned())
            } else {
                obstacle(&of.rounds)
            };
            let Some(why) = why else { continue };
            (of.open, of.broken.again) = (false, Again::NotRun { why });
            settled.push(of.broken.clone());
        }
        (
            self.together
                .iter()
                .find(|of| of.open)
                .map(|of| of.rounds.clone()),
            settled,
        )
    }

    /// The rounds that were run together once more ended so. What is known of them now.
    pub fn ended_together(&mut self, again: Again) -> Option<BrokenOff> {
        let of = self.together.iter_mut().find(|of| of.open)?;
        (of.open, of.broken.again) = (false, again);
        Some(of.broken.clone())
    }
}

fn broken_off(rounds: &[&Round], first: Break) -> Option<BrokenOff> {
    let head = rounds.first()?;
    let flows = rounds
        .iter()
        .flat_map(|round| round.flows.iter().copied())
        .collect();
    let again = Again::NotRun {
        why: ENDED.to_owned(),
    };
    Some(BrokenOff {
        round: head.id,
        measurement: head.task.to_string(),
        flows,
        first,
        again,
    })
}

/// That the driver gave an error.
pub(super) fn failed(error: &HardwareError) -> Break {
    Break {
        error_code: error.code,
        ..Break::of(How::Failed, error.message.clone())
    }
}
