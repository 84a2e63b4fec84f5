//! Verifies that the bytes arrive.
//!
//! Verification goes one way and checks on the destination. A copy there and back that compares equal proves nothing: a
//! mirrored window can return the sent bytes although none reached the peer. Each timed combination of engine, issuer,
//! path and direction is verified separately: a read takes another way through a chip than a write.

use std::collections::HashMap;

use crate::Outcome;
use crate::bench::Bench;
use crate::bench::check::Check;
use crate::bench::transfer::Transfer;
use crate::figures::without_figures;
use crate::peers::slices::{Slice, Slices};
use hardware::{ErrorKind, HardwareError, PatternCheck, Sent};
use model::flow::{Flow, Setup};
use model::measurement::{Status, Verified};
use model::placement::{Pair, Placement};
use model::status::Ending;

impl Bench<'_> {
    /// Copies a pattern of each pair, all at once, and checks it at its destination.
    pub(crate) fn verify(&self, pairs: &[Pair], setup: Setup) -> Result<Vec<Check>, HardwareError> {
        if let Some(failure) = self.cannot_check(pairs) {
            let why = format!("not checked, since the GPU kernels could not be loaded: {failure}");
            return Ok(vec![Check::inconclusive(why); pairs.len()]);
        }
        pairs.iter().try_for_each(|pair| self.set_path(*pair, setup.path))?;
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
        let mut gpus = pairs.iter().flat_map(|pair| [pair.source, pair.destination]);
        gpus.find_map(|gpu| self.facts().kernels_failure_of(gpu))
    }

    fn copied(&self, pairs: &[Pair], setup: Setup) -> Result<Vec<Check>, HardwareError> {
        let mut transfers = self.between(pairs, setup, 1)?;
        self.fill(&transfers)?;
        self.poison(&transfers)?;
        self.settle(transfers.iter().map(|transfer| transfer.to))?;
        // A check that counts nothing would pass everything: it must see the poison first.
        let poisoned = self.compare(&transfers)?;
        for (transfer, poisoned) in transfers.iter_mut().zip(poisoned) {
            transfer.poisoned = Some(poisoned);
        }
        let room = |transfer: &Transfer| transfer.from.bytes.min(transfer.to.bytes);
        let room = transfers.iter().map(room).min().unwrap_or(0);
        let slices = Slices::of(setup.bytes.0, room);
        if slices.are_apart() {
            // The poison of a slice begins with the slice.
            for (slice, transfer) in each(slices, &transfers) {
                let to = self.driver.part(transfer.to, slice.at, slice.bytes)?;
                let seed = self.seed_in(transfer.from).unwrap_or_default();
                self.driver.poison(to, slice.bytes, seed)?;
            }
            self.settle(transfers.iter().map(|transfer| transfer.to))?;
        }
        for (slice, transfer) in each(slices, &transfers) {
            let part = |buffer| self.driver.part(buffer, slice.at, slice.bytes);
            let (to, from) = (part(transfer.to)?, part(transfer.from)?);
            let (engine, stream) = (transfer.engine, transfer.stream);
            self.driver.copy(engine, stream, to, from, slice.bytes)?;
        }
        for transfer in &transfers {
            self.driver.synchronize(transfer.stream)?;
        }
        let counted = self.count_slices(&transfers, slices.joined())?;
        let checks = transfers.iter().zip(&counted);
        Ok(checks.map(|(transfer, counted)| transfer.judged(counted)).collect())
    }

    /// Compares these slices of each flow with what was sent.
    fn count_slices(
        &self,
        transfers: &[Transfer],
        slices: Slices,
    ) -> Result<Vec<PatternCheck>, HardwareError> {
        let mut counted = vec![PatternCheck::NONE; transfers.len()];
        for Slice { at, bytes } in slices.each() {
            let received = |transfer: &Transfer| {
                let seed = self.seed_in(transfer.from).unwrap_or_default();
                let sent = Sent { seed, from: at / 8, before: at / 8 };
                Ok((self.driver.part(transfer.to, at, bytes)?, sent))
            };
            let received: Result<Vec<_>, HardwareError> = transfers.iter().map(received).collect();
            for (sum, mut found) in counted.iter_mut().zip(self.count(received?, bytes)?) {
                found.first_wrong = found.first_wrong.map(|first| first + at);
                *sum = sum.and(found);
            }
        }
        Ok(counted)
    }
}

/// Returns each slice of each transfer: the first of all, then the second of all.
fn each(slices: Slices, transfers: &[Transfer]) -> impl Iterator<Item = (Slice, &Transfer)> {
    let of = |slice| transfers.iter().map(move |transfer| (slice, transfer));
    slices.each().flat_map(of)
}

/// The result of a verification, and the reason if its round was lost.
#[derive(Clone)]
pub(crate) struct Verification {
    pub(crate) check: Check,
    pub(crate) lost: Option<(Status, String)>,
}

/// Verifications, by the flow and the setup that they cover.
#[derive(Default)]
pub(crate) struct Verifications(HashMap<(Flow, Setup), Verification>);

impl Verifications {
    /// Stores the outcome of a verification, for the flow at this place of its round.
    pub(crate) fn take(&mut self, flow: Flow, at: usize, setup: Setup, outcome: &Outcome) {
        self.0.insert((flow, setup.of_any_size()), verification(outcome, at));
    }

    /// Returns the verification that covers copies of this setup.
    pub(crate) fn of(&self, flow: Flow, setup: Setup) -> Option<&Verification> {
        self.0.get(&(flow, setup.of_any_size().with_placement(Placement::REFERENCE)))
    }
}

fn verification(outcome: &Outcome, at: usize) -> Verification {
    if let Outcome::Verified { flows } = outcome
        && let Some(check) = flows.get(at)
    {
        return Verification { check: check.clone(), lost: None };
    }
    let Ending { status, reason, .. } = without_figures(outcome);
    let reason = reason.unwrap_or_default();
    let verified =
        if status == Status::Skipped { Verified::Skipped } else { Verified::Inconclusive };
    Verification {
        check: Check { verified, detail: Some(reason.clone()) },
        lost: Some((status, reason)),
    }
}

/// Returns the worse of the verification and the check after the timed rows.
pub(crate) fn both(before: Option<&Check>, after: Option<&Check>) -> Check {
    let after = after.filter(|after| after.verified != Verified::Ok).map(|after| Check {
        detail: after.detail.as_ref().map(|detail| format!("{detail}, after the timed copies")),
        ..after.clone()
    });
    let skipped = Check { verified: Verified::Skipped, detail: None };
    let before = before.cloned().unwrap_or(skipped);
    match after {
        Some(after) if !before.verified.is_wrong() => after,
        _ => before,
    }
}
