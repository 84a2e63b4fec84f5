//! Whether the bytes arrive.
//!
//! One way, checked on the destination: a copy there and back that compares equal proves nothing,
//! since a mirrored window can return what was sent while no byte reached the peer. The pattern
//! depends on source, destination, engine, offset and on which verification it is, so that no
//! earlier copy, of this pair or of this tool's last run, has left what is looked for. The
//! destination is poisoned before, so that a write that never happened is distinguished from a wrong one; the
//! poison differs from the pattern in every bit, so that a single byte that was never written shows.

use std::collections::HashMap;

use super::Outcome;
use super::bench::Bench;
use super::figures::without_figures;
use crate::hardware::{ErrorKind, HardwareError, PatternCheck};
use crate::model::flow::{Flow, Setup};
use crate::model::measurement::{Status, Verified};
use crate::model::placement::{Direction, Engine, Pair, Placement, Side};
use crate::model::units::Bytes;

impl Bench<'_> {
    pub(super) fn verify(&self, pair: Pair, setup: Setup) -> Result<Outcome, HardwareError> {
        let Setup { engine, issuer, path, bytes: Bytes(bytes), .. } = setup;
        let failures = [pair.source, pair.destination].map(|gpu| self.facts().kernels_failure_of(gpu));
        if let Some(failure) = failures.into_iter().flatten().next() {
            let detail = Some(format!("not checked, since the GPU kernels could not be loaded: {failure}"));
            return Ok(Outcome::Verified { verified: Verified::Inconclusive, detail });
        }
        self.set_path(pair, path)?;
        let (source, destination) = (self.seat(pair.source)?, self.seat(pair.destination)?);
        let seed = self.verification.next(pair, engine, issuer, path);
        // The poison of a number is the complement of its pattern.
        let poison = seed;
        let checked = (|| {
            self.driver.fill(source.send, bytes, seed)?;
            self.driver.poison(destination.receive, bytes, poison)?;
            // A check that counts nothing would pass everything: it must see the poison first.
            let before = self.driver.check(destination.receive, bytes, seed, poison)?;
            if before.poisoned != before.words {
                return Ok(Err(before));
            }
            let stream = self.current_stream(pair, setup.placement, issuer)?;
            match engine {
                Engine::Copy => self.driver.copy(stream, destination.receive, source.send, bytes)?,
                Engine::Kernel => self.driver.kernel_copy(stream, destination.receive, source.send, bytes)?,
            }
            self.driver.synchronize(stream)?;
            self.driver.check(destination.receive, bytes, seed, poison).map(Ok)
        })();
        match checked {
            Ok(Err(before)) => {
                let detail = format!(
                    "the check itself does not work on GPU {}: of {} words that were poisoned it saw {}",
                    pair.destination, before.words, before.poisoned
                );
                Ok(Outcome::Verified { verified: Verified::Inconclusive, detail: Some(detail) })
            }
            Ok(Ok(check)) => {
                let (verified, detail) = judge(&check);
                Ok(Outcome::Verified { verified, detail })
            }
            // Full memory says nothing about the path.
            Err(error) if error.kind == ErrorKind::OutOfMemory => {
                Ok(Outcome::Verified { verified: Verified::Inconclusive, detail: Some(error.message) })
            }
            Err(error) => Err(error),
        }
    }
}

/// What a verification found, and what became of its round.
#[derive(Clone)]
pub(super) struct Verification {
    pub(super) verified: Verified,
    pub(super) detail: Option<String>,
    pub(super) lost: Option<(Status, String)>,
}

/// Verifications by what they vouch for.
#[derive(Default)]
pub(super) struct Verifications(HashMap<(Flow, Setup), Verification>);

impl Verifications {
    /// Takes the outcome of one.
    pub(super) fn take(&mut self, flow: Flow, setup: Setup, outcome: &Outcome) {
        self.0.insert((flow, setup.of_any_size()), verification(outcome));
    }

    /// The one that vouches for copies of this setup.
    pub(super) fn of(&self, flow: Flow, setup: Setup) -> Option<&Verification> {
        let as_verified =
            Setup { placement: Placement::REFERENCE, direction: Direction::OneWay, ..setup.of_any_size() };
        // A copy engine moves the bytes alike whoever enqueues; a kernel pushes or pulls.
        self.0.get(&(flow, as_verified)).or_else(|| self.0.get(&(flow, as_verified.with_issuer(Side::Source))))
    }

    /// What became of the verification in front of copies that were skipped: when it hung or crashed, the
    /// path itself did, not one cell alone. A kernel that pulls may be verified and never timed, so that of
    /// the other issuer counts where the own one ended.
    pub(super) fn lost(&self, flow: Flow, setup: Setup) -> Option<&(Status, String)> {
        let other = [Side::Source, Side::Destination].into_iter().find(|side| *side != setup.issuer);
        let of_other = other.and_then(|issuer| self.of(flow, setup.with_issuer(issuer))?.lost.as_ref());
        let own = self.of(flow, setup).and_then(|own| own.lost.as_ref());
        own.or(of_other.filter(|(status, _)| *status != Status::Skipped))
    }
}

fn verification(outcome: &Outcome) -> Verification {
    match outcome {
        Outcome::Verified { verified, detail } => {
            Verification { verified: *verified, detail: detail.clone(), lost: None }
        }
        outcome => {
            let (status, reason) = without_figures(outcome);
            let reason = reason.unwrap_or_default();
            let verified = if status == Status::Skipped { Verified::Skipped } else { Verified::Inconclusive };
            Verification { verified, detail: Some(reason.clone()), lost: Some((status, reason)) }
        }
    }
}

fn judge(check: &PatternCheck) -> (Verified, Option<String>) {
    let Some(first) = check.first_wrong else { return (Verified::Ok, None) };
    let whole = Bytes(check.words * 8);
    if check.poisoned == check.wrong {
        let never = Bytes(check.wrong * 8);
        (Verified::Dropped, Some(format!("{never} of {whole} were never written, the first at byte {first}")))
    } else {
        let (wrong, never) = (Bytes((check.wrong - check.poisoned) * 8), Bytes(check.poisoned * 8));
        (
            Verified::Corrupt,
            Some(format!("{wrong} of {whole} are wrong and {never} were never written, the first at byte {first}")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wrong: u64, poisoned: u64) -> PatternCheck {
        PatternCheck { words: 1 << 20, wrong, poisoned, first_wrong: (wrong > 0).then_some(64) }
    }

    #[test]
    fn dropped_and_corrupt_are_distinguished() {
        assert_eq!(judge(&check(0, 0)), (Verified::Ok, None));
        assert_eq!(judge(&check(5, 5)).0, Verified::Dropped);
        assert_eq!(judge(&check(5, 4)).0, Verified::Corrupt);
        assert_eq!(judge(&check(5, 0)).0, Verified::Corrupt);
    }
}
