//! Fills the buffers: with patterns at the source of bytes, with poison at their destination.
//!
//! The pattern depends on source, destination, engine, offset and the number of fills. So no earlier copy, of this pair
//! or of this tool's last run, has left the expected bytes. The destination is poisoned before, so that a write that
//! never happened is distinguished from a wrong one. The poison differs from the pattern in every bit, so that a single
//! byte that was never written shows.

use super::bench::{Bench, OpenGpu};
use hardware::{HardwareError, PatternCheck, Stream};
use model::flow::Setup;
use model::measurement::Verified;
use model::placement::Pair;
use model::units::Bytes;
use serde::{Deserialize, Serialize};

/// The result of checking the bytes that one flow has copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The verdict on the bytes.
    pub verified: Verified,
    /// Description of the wrong bytes.
    pub detail: Option<String>,
}

impl Check {
    /// All bytes are right.
    pub const OK: Self = Self {
        verified: Verified::Ok,
        detail: None,
    };

    /// Returns a check without a result, for this reason.
    pub fn inconclusive(why: impl Into<String>) -> Self {
        Self {
            verified: Verified::Inconclusive,
            detail: Some(why.into()),
        }
    }

    /// Converts the counts of the check kernel to a verdict and a description.
    pub fn of(counted: &PatternCheck) -> Self {
        let Some(first) = counted.first_wrong else {
            return Self::OK;
        };
        let (wrong, never, whole) = (
            counted.wrong - counted.poisoned,
            counted.poisoned,
            Bytes(counted.words * 8),
        );
        let (wrong, never) = (Bytes(wrong * 8), Bytes(never * 8));
        if counted.poisoned == counted.wrong {
            let detail =
                format!("{never} of {whole} were never written, the first at byte {first}");
            return Self {
                verified: Verified::Dropped,
                detail: Some(detail),
            };
        }
        let detail = format!(
            "{wrong} of {whole} are wrong and {never} were never written, the first at byte {first}"
        );
        Self {
            verified: Verified::Corrupt,
            detail: Some(detail),
        }
    }
}

impl Bench<'_> {
    /// Fills the send buffers of these pairs with patterns that no buffer has held before, all at once. Fills whole
    /// buffers, even if the other end of a pair holds less: a later, larger copy then sends the same pattern.
    pub(super) fn fill(&self, pairs: &[Pair], setup: Setup) -> Result<(), HardwareError> {
        for &pair in pairs {
            let seed = self
                .seeds
                .next(pair, setup.engine, setup.issuer, setup.path);
            let send = self.open_gpu(pair.source)?.send;
            self.driver.fill(send, send.bytes, seed)?;
            self.contents.borrow_mut().insert(pair.source, seed);
        }
        self.settle(pairs, |pair| pair.source)
    }

    /// Poisons the receive buffers of these pairs, all at once.
    pub(super) fn poison(&self, pairs: &[Pair]) -> Result<(), HardwareError> {
        for &pair in pairs {
            let (destination, bytes) = (self.open_gpu(pair.destination)?, self.both_hold(pair)?);
            // The poison of a seed is the complement of its pattern.
            self.driver
                .poison(destination.receive, bytes, self.sent(pair))?;
        }
        self.settle(pairs, |pair| pair.destination)
    }

    /// Returns the reason why copies of these pairs cannot be checked: one of their GPUs has no kernels.
    pub(super) fn cannot_check(&self, pairs: &[Pair]) -> Option<&str> {
        let mut gpus = pairs
            .iter()
            .flat_map(|pair| [pair.source, pair.destination]);
        gpus.find_map(|gpu| self.facts().kernels_failure_of(gpu))
    }

    /// Returns true if this worker has filled the send buffers of these pairs.
    pub(super) fn is_filled(&self, pairs: &[Pair]) -> bool {
        let contents = self.contents.borrow();
        pairs.iter().all(|pair| contents.contains_key(&pair.source))
    }

    /// Compares the bytes that these pairs received with those they sent, on the receiving GPUs, all at once.
    pub(super) fn compare(
        &self,
        pairs: &[Pair],
        bytes: u64,
    ) -> Result<Vec<PatternCheck>, HardwareError> {
        let received = |pair: &Pair| {
            let receive = self.open_gpu(pair.destination)?.receive;
            Ok((receive, self.sent(*pair)))
        };
        let received: Vec<_> = pairs.iter().map(received).collect::<Result<_, _>>()?;
        self.driver.check(&received, bytes)
    }

    /// Returns the number of bytes that both buffers of a pair hold.
    pub(super) fn both_hold(&self, pair: Pair) -> Result<u64, HardwareError> {
        Ok(self
            .open_gpu(pair.source)?
            .send
            .bytes
            .min(self.open_gpu(pair.destination)?.receive.bytes))
    }

    fn sent(&self, pair: Pair) -> u64 {
        self.contents
            .borrow()
            .get(&pair.source)
            .copied()
            .unwrap_or_default()
    }

    fn settle(&self, pairs: &[Pair], side: impl Fn(&Pair) -> u32) -> Result<(), HardwareError> {
        let device = |pair| {
            self.open_gpu(side(pair))
                .map(|open_gpu: &OpenGpu| open_gpu.device)
        };
        pairs
            .iter()
            .try_for_each(|pair| self.driver.synchronize(Stream::default_of(device(pair)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Selection};
    use hardware::{DeviceInfo, Driver};
    use model::load::Pattern;
    use model::units::MIB;
    use plan::{Action, Round, Task};

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
            .map(|&(source, destination)| {
                Pair {
                    source,
                    destination,
                }
                .into()
            })
            .collect();
        let task = Task {
            setup: Setup::REFERENCE.with_bytes(Bytes(mib * MIB)),
            action,
        };
        let deadline = std::time::Duration::from_secs(5);
        Round {
            id: 0,
            slot: 0,
            flows,
            task,
            deadline,
            timeline: false,
            name: String::new(),
        }
    }

    #[test]
    fn what_was_sent_to_a_small_buffer_does_not_spoil_what_a_larger_one_receives() {
        let driver = with_a_small_one();
        let bench = bench(driver.as_ref());
        let verify = |to: u32, mib| bench.run_one(&round(Action::Verify, &[(0, to)], mib));
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
            Action::Bandwidth { rows: 1, copies: 1 },
            &[(0, 1)],
            256,
        )));
        right(verify(1, 256));
        right(verify(2, 64));
        let load = Action::Load {
            pattern: Pattern::TwoIntoOne,
            rows: 1,
            copies: 4,
            counted: false,
        };
        right(bench.run_one(&round(load, &[(0, 1), (3, 1)], 108)));
    }

    fn check(wrong: u64, poisoned: u64) -> Check {
        Check::of(&PatternCheck {
            words: 1 << 20,
            wrong,
            poisoned,
            first_wrong: (wrong > 0).then_some(64),
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
