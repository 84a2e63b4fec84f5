//! Copies flows at once for a time. Their number follows from a first row, so that all flows last about as long. The bytes of
//! every copy are compared where that does not slow the copies, otherwise those of the last copy of each burst. Meanwhile a kernel
//! heats each GPU.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::Round;
use crate::bench::Bench;
use crate::bench::check::Check;
use crate::bench::compared::{MOST_SLOWED_PERCENT, PLACES, TRIAL, copies_for};
use crate::bench::rows::Timing;
use crate::bench::transfer::Transfer;
use crate::load::plan::TRIAL_COPIES;
use hardware::{HardwareError, PatternCheck};
use model::placement::Engine;
use model::units::GbPerSecond;

/// Figures of a round of a soak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SoakTimes {
    /// One entry for each flow of the round.
    pub flows: Vec<SoakFlow>,
}

/// Figures of one flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SoakFlow {
    /// Rate of each burst, GB/s.
    pub gbps: Vec<f64>,
    /// Bytes copied.
    pub copied: u64,
    /// Bytes compared.
    pub compared: u64,
    /// Compared copies whose bytes were wrong, and what was wrong first.
    pub wrong: u64,
    pub detail: Option<String>,
    /// Why bytes could not be compared.
    #[serde(default)]
    pub unsure: Option<String>,
    /// What comparing every copy costs, per cent. Above 2, and without a value, only the last copy of each burst is compared.
    #[serde(default)]
    pub slowed_percent: Option<f64>,
}

impl SoakFlow {
    /// Takes the counts of copies of which every byte was compared.
    fn counts(&mut self, counted: &PatternCheck) {
        self.wrong += counted.copies;
        self.detail = self.detail.take().or(Check::of(counted).detail);
        self.compared = self.compared.saturating_add(8 * counted.words);
    }
}

impl Bench<'_> {
    /// Runs a round of a soak for this time, in this many bursts.
    pub(crate) fn soak(
        &self,
        round: &Round,
        time: Duration,
        bursts: u32,
    ) -> Result<Outcome, HardwareError> {
        self.reach_all(&round.flows)?;
        let mut transfers = self.load_transfers(round, round.task.setup.engine, PLACES)?;
        let mut flows = vec![SoakFlow::default(); transfers.len()];
        for transfer in &mut transfers {
            self.prepare(transfer)?;
            transfer.copies = TRIAL_COPIES;
        }
        let mut copied = vec![0; transfers.len()];
        let (trial, _) = self.load_row(&transfers, &mut copied)?;
        for (flow, copied) in flows.iter_mut().zip(copied) {
            flow.copied = copied;
        }
        let mut each_ns: Vec<f64> =
            trial.iter().map(|ran| ran.length() / f64::from(TRIAL_COPIES)).collect();
        let known = self.slowed.borrow().get(&round.id).cloned();
        let slowed = match known {
            Some(slowed) => {
                self.compare_all(&mut transfers)?;
                slowed
            }
            None => {
                // Beside heat, as in the bursts.
                let heated = self.heat(&transfers, 3 * TRIAL)?;
                let trial = self.slowed_by_comparing(&mut transfers, &each_ns)?;
                self.cool(&heated)?;
                for (flow, trial) in flows.iter_mut().zip(&trial) {
                    if let Some((_, counted)) = trial {
                        flow.copied += 2 * 8 * counted.words;
                        flow.counts(counted);
                    }
                }
                trial.iter().map(|trial| trial.map(|(percent, _)| percent)).collect()
            }
        };
        for ((transfer, flow), slowed) in transfers.iter_mut().zip(&mut flows).zip(&slowed) {
            flow.slowed_percent = slowed.filter(|_| transfer.comparison.is_some());
            // A rate that is not a number is none.
            if !slowed.is_some_and(|percent| percent <= MOST_SLOWED_PERCENT) {
                transfer.comparison = None;
            }
        }
        self.slowed.borrow_mut().insert(round.id, slowed);
        let burst = time / bursts.max(1);
        for _ in 0..bursts.max(1) {
            for transfer in transfers.iter_mut().filter(|of| of.comparison.is_none()) {
                self.prepare(transfer)?;
            }
            self.burst(&mut transfers, burst, &mut each_ns, &mut flows)?;
        }
        Ok(Outcome::Soak { soak: Box::new(SoakTimes { flows }) })
    }

    /// Copies all flows for about this time, and compares their bytes. `each_ns` is the time of a copy of each.
    fn burst(
        &self,
        transfers: &mut [Transfer],
        time: Duration,
        each_ns: &mut [f64],
        flows: &mut [SoakFlow],
    ) -> Result<(), HardwareError> {
        copies_for(transfers, time, each_ns);
        let heated = self.heat(transfers, time)?;
        let timed = self.row(transfers, Timing::STEADY)?;
        self.cool(&heated)?;
        for (((transfer, timed), each), flow) in
            transfers.iter().zip(&timed).zip(each_ns).zip(flows)
        {
            let bytes = transfer.bytes.saturating_mul(u64::from(transfer.copies));
            if let Some(span) = timed.spans.first() {
                *each = span.length_ns() / f64::from(transfer.copies);
                flow.gbps.push(GbPerSecond::of(bytes, span.length_ns()).0);
            }
            flow.copied = flow.copied.saturating_add(timed.copied);
            if let Some(check) = self.compared_check(transfer, bytes)? {
                flow.counts(&check);
                continue;
            }
            let Some(check) = self.arrived(transfer)? else {
                continue;
            };
            if check.verified.is_wrong() {
                flow.wrong += 1;
                flow.detail = flow.detail.take().or(check.detail);
            } else if check.verified != model::measurement::Verified::Ok {
                flow.unsure = check.detail;
                continue;
            }
            flow.compared = flow.compared.saturating_add(transfer.bytes);
        }
        Ok(())
    }

    /// Waits until these GPUs are no longer heated.
    fn cool(&self, gpus: &[u32]) -> Result<(), HardwareError> {
        gpus.iter().try_for_each(|gpu| self.driver.drain(self.open_gpu(*gpu)?.device))
    }

    /// Heats the GPUs of these copies for this time, but where kernels copy: their rate would follow the clocks. Returns the
    /// GPUs.
    fn heat(&self, transfers: &[Transfer], time: Duration) -> Result<Vec<u32>, HardwareError> {
        let mut gpus: Vec<u32> = transfers
            .iter()
            .filter(|transfer| transfer.engine == Engine::Copy)
            .flat_map(|transfer| transfer.flow.ends())
            .filter_map(|end| end.gpu())
            .filter(|gpu| self.facts().kernels_failure_of(*gpu).is_none())
            .collect();
        gpus.sort_unstable();
        gpus.dedup();
        for gpu in &gpus {
            let device = self.open_gpu(*gpu)?.device;
            // Behind those of the copies.
            let streams = self.streams(device, transfers.len() + 1)?;
            if let Some(last) = streams.last() {
                self.driver.heat(*last, time)?;
            }
        }
        Ok(gpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selection;
    use crate::{Action, Task};
    use model::flow::Setup;
    use model::placement::Pair;
    use model::units::{Bytes, MIB};
    use sim::spec::{CopyFault, PairFault, Pairs};

    /// Returns what a round of half a second between two GPUs copies of 64 MiB shows with a fault.
    fn flow(fault: Option<PairFault>, spoil: fn(&mut sim::spec::MachineSpec)) -> SoakFlow {
        let mut spec = sim::builtin::get("h200x2").unwrap();
        spec.faults.pairs.extend(fault);
        spoil(&mut spec);
        let driver = sim::driver(spec).unwrap();
        let select = |index: u32| Selection::of(driver.as_ref(), index);
        let bench = Bench::open(driver.as_ref(), &[select(0), select(1)], Bytes(1 << 30));
        let (source, destination) = (0, 1);
        let action = Action::Soak(crate::soak::Soak { pattern: None, millis: 500, bursts: 2 });
        let round = Round {
            id: 0,
            slot: 0,
            flows: vec![Pair { source, destination }.into()],
            task: Task { setup: Setup::REFERENCE.with_bytes(Bytes(64 * MIB)), action },
            deadline: Duration::from_secs(5),
            timeline: false,
            name: String::new(),
        };
        let Outcome::Soak { soak } = bench.run_one(&round) else { panic!("no soak") };
        soak.flows[0].clone()
    }

    fn faulty(fault: CopyFault) -> SoakFlow {
        flow(Some(PairFault::new(Pairs::Ordered(0, 1), fault)), |_| ())
    }

    #[test]
    fn every_copy_is_compared_and_what_each_fiftieth_loses_is_counted() {
        let sound = flow(None, |_| ());
        assert_eq!((sound.wrong, sound.detail), (0, None));
        // All but the first rows, which show the rate and what comparing costs.
        assert!(sound.compared > sound.copied / 2, "{} of {}", sound.compared, sound.copied);
        assert!(sound.slowed_percent.unwrap() < MOST_SLOWED_PERCENT);
        let lost = faulty(CopyFault::LostLine { every: 50 });
        let copies = lost.compared / (64 * MIB);
        assert!((copies / 50 - 1..=copies / 50 + 1).contains(&lost.wrong), "{lost:?}");
        assert!(lost.detail.unwrap().contains("never written"));
        let flipped = faulty(CopyFault::BitErrors { one_in: 400_000_000_000 });
        assert!((1..=5).contains(&flipped.wrong), "{flipped:?}");
    }

    #[test]
    fn a_fault_that_shows_above_a_temperature_shows_there_alone() {
        let fault = PairFault::new(Pairs::Ordered(0, 1), CopyFault::Corrupt { words: 1 });
        let hot = |above| flow(Some(PairFault { above_c: Some(above), ..fault }), |_| ());
        assert!(hot(42).wrong > 0);
        assert_eq!(hot(80).wrong, 0);
    }

    #[test]
    fn where_comparing_slows_copies_only_the_last_is_compared() {
        // The memory has hardly more than the link.
        let slow = flow(None, |spec| {
            spec.gpus.iter_mut().for_each(|gpu| gpu.local_gbps = 400.0.try_into().unwrap());
        });
        assert!(slow.slowed_percent.unwrap() > MOST_SLOWED_PERCENT);
        // The copies that showed it, and the last of each burst.
        assert!(slow.compared < slow.copied / 3, "{} of {}", slow.compared, slow.copied);
    }
}
