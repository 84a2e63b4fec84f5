//! Fills the buffers: with patterns at the source of bytes, with poison at their destination. Checks the bytes there.
//!
//! Every fill has a seed of its own. So no earlier copy, of this pair or of this tool's last run, has left the expected
//! bytes. The destination is poisoned before, so that a write that never happened is distinguished from a wrong one.
//! The poison differs from the pattern in every bit, so that a single byte that was never written shows.
//!
//! Copies that follow each other send two parts of the pattern in turn: bytes that the last one did not write are those
//! of the copy before. Only the last copy is compared. What an earlier one lost, the next has written.

use std::collections::BTreeSet;

use crate::bench::Bench;
use crate::bench::check::Check;
use crate::bench::seeds::Filled;
use crate::bench::transfer::Transfer;
use hardware::{Buffer, HardwareError, PatternCheck, Sent, Stream};

impl Bench<'_> {
    /// Returns the seed of the pattern that a buffer holds, if it holds one.
    pub(crate) fn seed_in(&self, buffer: Buffer) -> Option<u64> {
        Some(self.filled.borrow().get(&buffer.id)?.seed)
    }

    /// Returns true if so many bytes of a buffer hold a pattern.
    pub(crate) fn is_filled(&self, buffer: Buffer, bytes: u64) -> bool {
        let filled = self.filled.borrow();
        filled.get(&buffer.id).is_some_and(|filled| bytes <= filled.bytes)
    }

    /// Records that a buffer holds the pattern of a seed, or none.
    pub(crate) fn holds(&self, buffer: Buffer, pattern: Option<Filled>) {
        let mut filled = self.filled.borrow_mut();
        match pattern {
            Some(pattern) => drop(filled.insert(buffer.id, pattern)),
            None => drop(filled.remove(&buffer.id)),
        }
    }

    /// Fills the sources of these flows with patterns that no buffer has held before, all at once. Fills the whole of a
    /// GPU's buffer: a later, larger copy then sends the same pattern.
    pub(crate) fn fill(&self, transfers: &[Transfer]) -> Result<(), HardwareError> {
        for transfer in transfers {
            let from = &transfer.from;
            let seed = self.seeds.next();
            let bytes = if from.device().is_some() { from.bytes } else { transfer.sent_bytes() };
            self.driver.fill(*from, bytes, seed)?;
            self.holds(*from, Some(Filled { seed, bytes }));
        }
        self.settle(transfers.iter().map(|transfer| transfer.from))
    }

    /// Poisons the destinations of these flows, all at once, and does not wait. The poison has the seed of the source.
    pub(crate) fn poison(&self, transfers: &[Transfer]) -> Result<(), HardwareError> {
        for transfer in transfers {
            let Transfer { from, to, .. } = transfer;
            let seed = self.seed_in(*from).unwrap_or_default();
            // Between GPUs, all that both buffers hold.
            let bytes = match (from.device(), to.device()) {
                (Some(_), Some(_)) => from.bytes.min(to.bytes),
                _ => transfer.bytes,
            };
            self.driver.poison(*to, bytes, seed)?;
            self.holds(*to, None);
            self.arrived.borrow_mut().remove(&to.id);
        }
        Ok(())
    }

    /// Compares the bytes that arrived with those that were sent, at their destinations, all at once.
    pub(crate) fn compare(
        &self,
        transfers: &[Transfer],
    ) -> Result<Vec<PatternCheck>, HardwareError> {
        let sent = |transfer: &Transfer| Ok((transfer.to, self.sent(transfer)?));
        let bytes = transfers.first().map_or(0, |transfer| transfer.bytes);
        let received: Vec<_> = transfers.iter().map(sent).collect::<Result<_, _>>()?;
        self.count(received, bytes)
    }

    /// Compares this many bytes of each buffer with what was sent, all at once.
    pub(crate) fn count(
        &self,
        received: Vec<(Buffer, Sent)>,
        bytes: u64,
    ) -> Result<Vec<PatternCheck>, HardwareError> {
        let mut devices = BTreeSet::new();
        let once =
            |(to, _): &(Buffer, Sent)| to.device().is_none_or(|device| devices.insert(device));
        if received.iter().all(once) {
            return self.driver.check(&received, bytes);
        }
        // A device has one place for counts, which two checks at once would mix.
        let one = |received| self.driver.check(&[received], bytes);
        let checks: Vec<_> = received.into_iter().map(one).collect::<Result<_, _>>()?;
        Ok(checks.into_iter().flatten().collect())
    }

    /// Fills the source of a flow, unless it holds a pattern of so many bytes, and poisons its destination. A check that counts nothing
    /// would pass everything: on a GPU, it must see the poison first.
    pub(crate) fn prepare(&self, transfer: &mut Transfer) -> Result<(), HardwareError> {
        let Transfer { from, to, kernels, .. } = *transfer;
        let flow = [*transfer];
        if !self.is_filled(from, transfer.sent_bytes()) && (kernels || from.device().is_none()) {
            self.fill(&flow)?;
        }
        if kernels || to.device().is_none() {
            self.poison(&flow)?;
        }
        if kernels && to.device().is_some() {
            transfer.poisoned = self.compare(&flow)?.pop();
        }
        Ok(())
    }

    /// Checks the bytes of a flow at their destination. Returns `None` if a GPU has no kernels to check them with.
    pub(crate) fn arrived(&self, transfer: &Transfer) -> Result<Option<Check>, HardwareError> {
        if !transfer.kernels {
            return Ok(None);
        }
        let counted = self.compare(&[*transfer])?;
        Ok(counted.first().map(|counted| transfer.judged(counted)))
    }

    /// Waits for the kernels that fill or poison these buffers.
    pub(crate) fn settle(
        &self,
        buffers: impl Iterator<Item = Buffer>,
    ) -> Result<(), HardwareError> {
        let mut devices = buffers.filter_map(Buffer::device);
        devices.try_for_each(|device| self.driver.synchronize(Stream::default_of(device)))
    }
}

impl Transfer {
    /// Returns the verdict on the bytes of a flow that were compared.
    pub(crate) fn judged(&self, counted: &PatternCheck) -> Check {
        self.blind().unwrap_or_else(|| Check::of(counted))
    }

    /// Returns a check without a result if the check did not see the poison.
    fn blind(&self) -> Option<Check> {
        let poisoned = self.poisoned.filter(|poisoned| poisoned.poisoned != poisoned.words)?;
        Some(Check::inconclusive(format!(
            "the check itself does not work on {}: of {} words that were poisoned it saw {}",
            self.flow.to, poisoned.words, poisoned.poisoned
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Round, Task};
    use crate::{Outcome, Selection};
    use hardware::{DeviceInfo, Driver};
    use model::flow::Setup;
    use model::load::Pattern;
    use model::measurement::Verified;
    use model::placement::Pair;
    use model::units::Bytes;
    use model::units::MIB;

    /// Returns a machine whose GPU 2 can hold buffers of 66 MiB.
    fn with_a_small_one() -> Box<dyn Driver> {
        let mut spec = sim::builtin::get("h200x8").unwrap();
        spec.gpus[2].memory_free = Bytes(200 * MIB);
        sim::driver(spec).unwrap()
    }

    fn bench(driver: &dyn Driver) -> Bench<'_> {
        let select = |info: &DeviceInfo| Selection {
            index: info.device.0,
            uuid: info.uuid.clone(),
            pci: info.pci,
            ..Selection::default()
        };
        let all: Vec<_> = driver.devices().iter().map(select).collect();
        Bench::open(driver, &all, Bytes(1024 * MIB))
    }

    fn round(action: Action, pairs: &[(u32, u32)], mib: u64) -> Round {
        let flows = pairs
            .iter()
            .map(|&(source, destination)| Pair { source, destination }.into())
            .collect();
        let task = Task { setup: Setup::REFERENCE.with_bytes(Bytes(mib * MIB)), action };
        let deadline = std::time::Duration::from_secs(5);
        Round { id: 0, slot: 0, flows, task, deadline, timeline: false, name: String::new() }
    }

    #[test]
    fn what_was_sent_to_a_small_buffer_does_not_spoil_what_a_larger_one_receives() {
        let driver = with_a_small_one();
        let bench = bench(driver.as_ref());
        let verify = |to: u32, mib| {
            bench.run_one(&round(Action::Verify(crate::peers::Verify {}), &[(0, to)], mib))
        };
        let right = |outcome: Outcome| match outcome {
            Outcome::Verified { flows } => assert_eq!(flows, [Check::OK]),
            Outcome::Rows { rows } => assert_eq!(rows[0].check, Some(Check::OK)),
            Outcome::Load { load } => assert_eq!(load.checks, [Some(Check::OK), Some(Check::OK)]),
            outcome => panic!("{outcome:?}"),
        };
        right(verify(1, 256));
        right(verify(2, 64));
        // This row is tried again after the verification of another pair.
        right(bench.run_one(&round(
            Action::Bandwidth(crate::peers::Bandwidth { rows: 1, copies: 1 }),
            &[(0, 1)],
            256,
        )));
        right(verify(1, 256));
        right(verify(2, 64));
        let load = Action::Load(crate::load::Load {
            pattern: Pattern::AllToOne,
            rows: 1,
            copies: 4,
            counted: false,
            compared_ms: 0,
        });
        right(bench.run_one(&round(load, &[(0, 1), (3, 1)], 108)));
    }

    fn check(wrong: u64, poisoned: u64) -> Check {
        Check::of(&PatternCheck {
            words: 1 << 20,
            wrong,
            poisoned,
            first_wrong: (wrong > 0).then_some(64),
            ..PatternCheck::NONE
        })
    }

    #[test]
    fn dropped_and_corrupt_are_distinguished() {
        assert_eq!(check(0, 0), Check::OK);
        assert_eq!(check(5, 5).verified, Verified::Dropped);
        assert_eq!(check(5, 4).verified, Verified::Corrupt);
        assert_eq!(check(5, 0).verified, Verified::Corrupt);
    }
}
