//! Tracks rounds that broke off and are tried again, and decides which of them run together once more.

use std::collections::{HashMap, HashSet};

use hardware::HardwareError;
use model::broken_off::{Again, Break, BrokenOff, How};
use probes::Round;

/// Number of times that rounds broke off together after which the rest runs one at a time: chosen. Each costs its
/// deadline and another start of the driver, and shows nothing new.
const MOST_TOGETHER: usize = 3;
/// Reason for not running a round again, if no other is known.
const ENDED: &str = "the run ended before that";

/// All rounds that broke off.
#[derive(Debug, Default)]
pub(super) struct TriedAgain<'r> {
    /// Rounds that ran at once and were tried one by one.
    together: Vec<Together<'r>>,
    /// Rounds that were tried again unchanged, by number.
    alone: HashMap<u32, BrokenOff>,
    /// Number of breaks, of either kind, that involved several flows.
    in_company: usize,
    /// Slots with a round that did not end well by itself.
    unsound: HashSet<u32>,
}

/// Rounds that broke off together.
#[derive(Debug)]
struct Together<'r> {
    rounds: Vec<&'r Round>,
    broken: BrokenOff,
    /// True until their retry is decided.
    open: bool,
}

impl<'r> TriedAgain<'r> {
    /// Notes that rounds broke off while they ran at once, and returns the facts known so far.
    pub(crate) fn broke_off(&mut self, rounds: &[&'r Round], first: Break) -> Option<BrokenOff> {
        let broken = broken_off(rounds, first)?;
        self.in_company += 1;
        self.together.push(Together {
            rounds: rounds.to_vec(),
            broken: broken.clone(),
            open: true,
        });
        Some(broken)
    }

    /// Notes that a round broke off and is tried again unchanged, and returns the facts known so far.
    pub(crate) fn broke_off_alone(&mut self, round: &'r Round, first: Break) -> Option<BrokenOff> {
        let broken = broken_off(&[round], first)?;
        self.in_company += usize::from(broken.in_company());
        self.alone.insert(round.id, broken.clone());
        Some(broken)
    }

    /// Notes how a round ended. Returns the facts known now, if it had broken off and was tried again.
    pub(crate) fn ended(&mut self, round: &Round, again: Again) -> Option<BrokenOff> {
        if again != Again::Worked {
            self.unsound.insert(round.slot);
        }
        let mut broken = self.alone.remove(&round.id)?;
        broken.again = again;
        Some(broken)
    }

    /// Returns true if rounds broke off together often enough to run the rest one at a time.
    pub(crate) fn is_enough(&self) -> bool {
        self.together.len() >= MOST_TOGETHER
    }

    /// Returns the rounds to run together once more, after all others have ended. Also returns those that are not run
    /// again, each with the reason; `obstacle` returns a reason that holds for all.
    pub(crate) fn next(
        &mut self,
        obstacle: impl Fn(&[&Round]) -> Option<String>,
    ) -> (Option<Vec<&'r Round>>, Vec<BrokenOff>) {
        let mut settled = Vec::new();
        for of in self.together.iter_mut().filter(|of| of.open) {
            let why = if self.in_company > 1 {
                Some("more than one round broke off in company".to_owned())
            } else if of.rounds.iter().any(|round| self.unsound.contains(&round.slot)) {
                Some("not all of its flows worked one by one".to_owned())
            } else {
                obstacle(&of.rounds)
            };
            let Some(why) = why else { continue };
            (of.open, of.broken.again) = (false, Again::NotRun { why });
            settled.push(of.broken.clone());
        }
        (self.together.iter().find(|of| of.open).map(|of| of.rounds.clone()), settled)
    }

    /// Notes how the rounds that ran together once more ended, and returns the facts known now.
    pub(crate) fn ended_together(&mut self, again: Again) -> Option<BrokenOff> {
        let of = self.together.iter_mut().find(|of| of.open)?;
        (of.open, of.broken.again) = (false, again);
        Some(of.broken.clone())
    }
}

fn broken_off(rounds: &[&Round], first: Break) -> Option<BrokenOff> {
    let head = rounds.first()?;
    let flows = rounds.iter().flat_map(|round| round.flows.iter().copied()).collect();
    let again = Again::NotRun { why: ENDED.to_owned() };
    Some(BrokenOff { round: head.id, measurement: head.task.to_string(), flows, first, again })
}

/// Returns the break for a driver's error.
pub(super) fn failed(error: &HardwareError) -> Break {
    Break { error_code: error.code, ..Break::of(How::Failed, error.message.clone()) }
}
