//! Verifies that the bytes arrive.
//!
//! Verification goes one way and checks on the destination. A copy there and back that compares equal proves nothing: a
//! mirrored window can return the sent bytes although none reached the peer. Each timed combination of engine, issuer,
//! path and direction is verified separately: a read takes another way through a chip than a write.

use std::collections::HashMap;

use super::Outcome;
use super::bench::Bench;
use super::contents::Check;
use super::figures::without_figures;
use super::transfer::Transfer;
use hardware::{ErrorKind, HardwareError, PatternCheck, Sent};
use model::flow::{Flow, Setup};
use model::measurement::{Status, Verified};
use model::placement::{Pair, Placement};
use model::status::Ending;

impl Bench<'_> {
    /// Copies a pattern of each pair, all at once, and checks it at its destination.
    pub(super) fn verify(&self, pairs: &[Pair], setup: Setup) -> Result<Vec<Check>, HardwareError> {
        if let Some(failure) = self.cannot_check(pairs) {
            let why = format!("not checked, since the GPU kernels could not be loaded: {failure}");
            return Ok(vec![Check::inconclusive(why); pairs.len()]);
        }
        pairs
            .iter()
            .try_for_each(|pair| self.set_path(*pair, setup.path))?;
        match self.copied(pairs, setup) {
            // Full memory is no evidence about the path.
            Err(error) if error.kind == ErrorKind::OutOfMemory => {
                Ok(vec![Check::inconclusive(error.message); pairs.len()])
            }
            checks => checks,
        }
    }

    /// Returns the reason why copies of these pairs cannot be checked: one of their GPUs has no kernels.
    fn cannot_check(&self, pairs: &[Pair]) -> Option<&str> {
        let mut gpus = pairs
            .iter()
            .flat_map(|pair| [pair.source, pair.destination]);
        gpus.find_map(|gpu| self.facts().kernels_failure_of(gpu))
    }

    fn copied(&self, pairs: &[Pair], setup: Setup) -> Result<Vec<Check>, HardwareError> {
        let mut transfers = self.between(pairs, setup, 1)?;
        self.fill(&transfers)?;
        self.poison(&transfers)?;
        let room = |transfer: &Transfer| transfer.from.bytes.min(transfer.to.bytes);
        let room = transfers.iter().map(room).min().unwrap_or(0);
        let slices = Slices::of(setup.bytes.0, room);
        self.settle(transfers.iter().map(|transfer| transfer.to))?;
        // A check that counts nothing would pass everything: it must see the poison first.
        let poisoned = self.compare(&transfers)?;
        for (transfer, poisoned) in transfers.iter_mut().zip(poisoned) {
            transfer.poisoned = Some(poisoned);
        }
        let joined = slices.joined();
        if joined.number > 1 {
            // The poison of a slice begins with the slice.
            for (at, transfer) in joined.each(&transfers) {
                let to = self.driver.part(transfer.to, at, joined.bytes)?;
                let seed = self.seed_in(transfer.from).unwrap_or_default();
                self.driver.poison(to, joined.bytes, seed)?;
            }
            self.settle(transfers.iter().map(|transfer| transfer.to))?;
        }
        for (at, transfer) in slices.each(&transfers) {
            let part = |buffer| self.driver.part(buffer, at, slices.bytes);
            let (to, from) = (part(transfer.to)?, part(transfer.from)?);
            let (engine, stream) = (transfer.engine, transfer.stream);
            self.driver.copy(engine, stream, to, from, slices.bytes)?;
        }
        for transfer in &transfers {
            self.driver.synchronize(transfer.stream)?;
        }
        let mut counted = vec![NOTHING; transfers.len()];
        for at in joined.offsets() {
            let bytes = joined.bytes;
            let received = |transfer: &Transfer| {
                let seed = self.seed_in(transfer.from).unwrap_or_default();
                let sent = Sent { seed, from: at / 8 };
                Ok((self.driver.part(transfer.to, at, bytes)?, sent))
            };
            let received = transfers
                .iter()
                .map(received)
                .collect::<Result<Vec<_>, HardwareError>>()?;
            for (sum, found) in counted.iter_mut().zip(self.count(received, bytes)?) {
                add(sum, found, at);
            }
        }
        let checks = transfers.iter().zip(&counted);
        checks
            .map(|(transfer, counted)| self.judged(transfer, counted))
            .collect()
    }
}

/// Copies of a verification, each of which is compared. Four ways of copying a pair make 64: what one copy in 50 loses shows.
const SLICES: u64 = 16;
/// Slices begin with a page.
const PAGE: u64 = 4096;

const NOTHING: PatternCheck = PatternCheck {
    words: 0,
    wrong: 0,
    poisoned: 0,
    first_wrong: None,
};

/// Adds the counts of the bytes from an offset on.
fn add(sum: &mut PatternCheck, found: PatternCheck, offset: u64) {
    sum.words += found.words;
    sum.wrong += found.wrong;
    sum.poisoned += found.poisoned;
    let first = found.first_wrong.map(|first| first + offset);
    sum.first_wrong = sum.first_wrong.or(first);
}

/// Parts of a buffer of one size, as far apart as it has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slices {
    number: u64,
    bytes: u64,
    apart: u64,
}

impl Slices {
    /// Returns slices of so many bytes together, spread over `room` bytes.
    fn of(bytes: u64, room: u64) -> Self {
        let each = bytes / SLICES / PAGE * PAGE;
        if each == 0 || !bytes.is_multiple_of(each) {
            return Self {
                number: 1,
                bytes,
                apart: bytes,
            };
        }
        let number = bytes / each;
        Self {
            number,
            bytes: each,
            apart: (room.saturating_sub(each) / (number - 1).max(1) / PAGE * PAGE).max(each),
        }
    }

    /// Returns the same bytes in as few parts as possible.
    const fn joined(self) -> Self {
        if self.apart > self.bytes {
            return self;
        }
        let bytes = self.number * self.bytes;
        Self {
            number: 1,
            bytes,
            apart: bytes,
        }
    }

    /// Returns each slice of each transfer: the first of all, then the second of all.
    fn each(self, transfers: &[Transfer]) -> impl Iterator<Item = (u64, &Transfer)> {
        let of = |at| transfers.iter().map(move |transfer| (at, transfer));
        self.offsets().flat_map(of)
    }

    fn offsets(self) -> impl Iterator<Item = u64> {
        (0..self.number).map(move |number| number * self.apart)
    }
}

/// The result of a verification, and the reason if its round was lost.
#[derive(Clone)]
pub(super) struct Verification {
    pub(super) check: Check,
    pub(super) lost: Option<(Status, String)>,
}

/// Verifications, by the flow and the setup that they cover.
#[derive(Default)]
pub(super) struct Verifications(HashMap<(Flow, Setup), Verification>);

impl Verifications {
    /// Stores the outcome of a verification, for the flow at this place of its round.
    pub(super) fn take(&mut self, flow: Flow, at: usize, setup: Setup, outcome: &Outcome) {
        self.0
            .insert((flow, setup.of_any_size()), verification(outcome, at));
    }

    /// Returns the verification that covers copies of this setup.
    pub(super) fn of(&self, flow: Flow, setup: Setup) -> Option<&Verification> {
        self.0.get(&(
            flow,
            setup.of_any_size().with_placement(Placement::REFERENCE),
        ))
    }
}

fn verification(outcome: &Outcome, at: usize) -> Verification {
    if let Outcome::Verified { flows } = outcome
        && let Some(check) = flows.get(at)
    {
        return Verification {
            check: check.clone(),
            lost: None,
        };
    }
    let Ending { status, reason, .. } = without_figures(outcome);
    let reason = reason.unwrap_or_default();
    let verified = if status == Status::Skipped {
        Verified::Skipped
    } else {
        Verified::Inconclusive
    };
    Verification {
        check: Check {
            verified,
            detail: Some(reason.clone()),
        },
        lost: Some((status, reason)),
    }
}

/// Returns the worse of the verification and the check after the timed rows.
pub(super) fn both(before: Option<&Check>, after: Option<&Check>) -> Check {
    let after = after
        .filter(|after| after.verified != Verified::Ok)
        .map(|after| Check {
            detail: after
                .detail
                .as_ref()
                .map(|detail| format!("{detail}, after the timed copies")),
            ..after.clone()
        });
    let skipped = Check {
        verified: Verified::Skipped,
        detail: None,
    };
    let before = before.cloned().unwrap_or(skipped);
    match after {
        Some(after) if !before.verified.is_wrong() => after,
        _ => before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::MIB;

    #[test]
    fn slices_cover_a_buffer_or_are_spread_over_it() {
        let all = Slices::of(510 * MIB, 510 * MIB);
        assert_eq!(all.joined().offsets().collect::<Vec<_>>(), [0]);
        assert_eq!(all.joined().bytes, 510 * MIB);
        let some = Slices::of(64 * MIB, 510 * MIB);
        assert_eq!((some.number, some.number * some.bytes), (SLICES, 64 * MIB));
        let last = some.offsets().last().unwrap() + some.bytes;
        assert!((500 * MIB..=510 * MIB).contains(&last), "{last}");
        for (bytes, room) in [
            (1, 1),
            (4096, 4096),
            (MIB + 8, 2 * MIB),
            (30 * MIB, 30 * MIB),
        ] {
            let slices = Slices::of(bytes, room);
            assert_eq!(slices.number * slices.bytes, bytes);
            assert!(slices.offsets().all(|at| at + slices.bytes <= room));
        }
    }
}
