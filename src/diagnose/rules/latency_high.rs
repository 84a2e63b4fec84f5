//! # What it means
//!
//! Copies between two GPUs take far more time beside their bytes than on healthy machines. Collectives of small
//! messages wait for it at every step.
//!
//! # What to do
//!
//! Check again with the GPUs idle. Look for Xids in dmesg, clocks held back (`nvidia-smi -q -d PERFORMANCE`) and link
//! errors (`nvidia-smi nvlink -e`). Virtual machine: ask its host if GPUs or processors are shared. Staged copies: look
//! at power saving and load of the processors, and the NUMA node of the check.
//!
//! # How it is detected
//!
//! The time of a small copy in a row (`latency_us`) is above `direct_us` with peer access, `staged_us` without; or a
//! copy with peer access costs more than `fixed_us` beside its bytes (`fixed_cost_us`). If only staged copies are slow,
//! it is a warning.
//!
//! # Sources
//!
//! Direct: 2.2 to 3.4 us (8 x H200, measured), 4 to 6 us by a kernel over PCIe switches (p2pmark). Staged: 14 to 19 us
//! (H200, measured), 11 to 25 us (published).

use super::prelude::*;
use super::remedy;
use crate::cluster;
use model::measurement::Latency;

rule! {
    "latency-high", Error, All(judge);
    /// chosen, eight times the 6 that are the most known of healthy machines
    DIRECT: direct_us = 50.0;
    /// chosen, ten times the 25 that are the most known
    STAGED: staged_us = 250.0;
    /// chosen, five times the 27 of reads with events in between on H200
    FIXED: fixed_us = 150.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let measurements = evidence.measured();
    let latencies = measurements.latency.iter().filter(|cell| cell.cell().tested());
    let slow = slow(evidence);
    let bad = words::unique(slow.iter().map(|slow| slow.pair));
    let seen: Vec<Pair> = latencies
        .map(|cell| cell.pair)
        .chain(with_fixed_cost(evidence).map(|cell| cell.pair))
        .collect();
    let groups = evidence.groups(&bad, &seen).into_iter();
    groups.filter_map(|group| finding(evidence, &group, &slow)).collect()
}

/// Returns the cells that show the cost of a direct copy beside its bytes.
fn with_fixed_cost<'a>(evidence: &Evidence<'a>) -> impl Iterator<Item = &'a PeerBandwidth> {
    // The cost of a kernel launch does not depend on the path.
    let direct = |cell: &&PeerBandwidth| {
        (cell.setup.path, cell.setup.engine) == (Path::Direct, Engine::Copy)
            && cell.fixed_cost_us.is_some()
    };
    let tested = evidence.peer().iter().filter(|cell| cell.cell().tested());
    tested.filter(direct)
}

/// Returns the figures that are too slow.
fn slow(evidence: &Evidence<'_>) -> Vec<Slow> {
    let latencies = evidence
        .measured()
        .latency
        .iter()
        .filter(|cell| cell.cell().tested())
        .filter_map(|cell| Slow::of_latency(evidence, cell));
    let fixed = with_fixed_cost(evidence).filter_map(|cell| Slow::of_fixed_cost(evidence, cell));
    latencies.chain(fixed).collect()
}

/// A figure that is too slow.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slow {
    pair: Pair,
    path: Path,
    /// True if `us` is the time of a small copy; false if it is the cost of a large one beside its bytes.
    is_latency: bool,
    us: f64,
    limit_us: f64,
}

impl Slow {
    fn of_latency(evidence: &Evidence<'_>, cell: &Latency) -> Option<Self> {
        let limit = match cell.path {
            Path::Direct => &DIRECT,
            Path::Staged => &STAGED,
        };
        let slow = Self {
            pair: cell.pair,
            path: cell.path,
            is_latency: true,
            us: cell.latency_us?,
            limit_us: limit.of(evidence),
        };
        (slow.us > slow.limit_us).then_some(slow)
    }

    fn of_fixed_cost(evidence: &Evidence<'_>, cell: &PeerBandwidth) -> Option<Self> {
        let slow = Self {
            pair: cell.pair,
            path: cell.setup.path,
            is_latency: false,
            us: cell.fixed_cost_us?,
            limit_us: FIXED.of(evidence),
        };
        (slow.us > slow.limit_us).then_some(slow)
    }

    /// Returns words for the figure, and its usual range.
    const fn words(self) -> (&'static str, &'static str) {
        match (self.is_latency, self.path) {
            (true, Path::Direct) => ("Small copies with peer access", "2 to 6"),
            (true, Path::Staged) => ("Small copies through the host's memory", "11 to 25"),
            (false, _) => ("Beside their bytes, copies", "2 to 27"),
        }
    }
}

fn finding(evidence: &Evidence<'_>, group: &cluster::Group, slow: &[Slow]) -> Option<Finding> {
    let of_group = slow.iter().filter(|slow| group.pairs.contains(&slow.pair));
    let highest = |wanted: &dyn Fn(&Slow) -> bool| {
        words::largest(of_group.clone().copied().filter(wanted), |slow| slow.us)
    };
    let direct = highest(&|slow| slow.is_latency && slow.path == Path::Direct);
    let staged = highest(&|slow| slow.is_latency && slow.path == Path::Staged);
    let fixed = highest(&|slow| !slow.is_latency);
    let worst = direct.or(fixed).or(staged)?;
    let (what, usual) = worst.words();
    let message = format!(
        "{what} {} take {} us, usual are {usual}; more than {} us is reported",
        evidence.place(group),
        short(worst.us),
        short(worst.limit_us),
    );
    let plan = match worst.path {
        Path::Staged => Plan::now([Step::Processors, Step::CheckAgain]),
        Path::Direct => Plan::check_without(Work::OnGpus)
            .if_it_stays([Step::Xid, Step::Clocks])
            .if_it_stays([remedy::counters(evidence, &group.pairs)]),
    };
    let host = match (evidence.snapshot.host.virtual_machine.get(), worst.path) {
        (Some(false), _) => None,
        (_, Path::Staged) => Some(Ask::Processors),
        (_, Path::Direct) => Some(Ask::Processors),
    };
    let plan = plan.if_it_stays(host.map(Step::AskHost));
    let us = |slow: Option<Slow>| slow.map(|slow| Fact::figure(slow.us));
    let found = RULE
        .on_group(group, message, plan)
        .fact("highest_direct_us", us(direct))
        .fact("highest_staged_us", us(staged))
        .fact("highest_fixed_cost_us", us(fixed));
    Some(found.at_if(worst.path == Path::Staged, Severity::Warning))
}

/// Returns the known cost of a direct copy of this pair beside its bytes, if it is far too high.
pub(crate) fn cost_us(evidence: &Evidence<'_>, pair: Pair) -> Option<f64> {
    let slow = slow(evidence).into_iter();
    let of_pair = slow.filter(|slow| slow.pair == pair && slow.path == Path::Direct);
    of_pair.map(|slow| slow.us).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::latency;
    use crate::testing::prelude::*;

    /// Returns figures in which every pair has these latencies.
    fn with_latencies(
        machine: &model::snapshot::Snapshot,
        direct: f64,
        staged: f64,
    ) -> Measurements {
        let mut measurements = measured(machine, 0.88);
        for pair in measurements.peer.iter().map(|cell| cell.pair).collect::<Vec<_>>() {
            for (path, us) in [(Path::Direct, direct), (Path::Staged, staged)] {
                measurements.latency.push(latency(pair.source, pair.destination, path, us));
            }
        }
        measurements
    }

    #[test]
    fn a_tenth_of_a_second_is_an_error_and_what_healthy_machines_show_is_not() {
        let machine = h200_vm(4);
        for (direct, staged) in [(1.8, 11.0), (2.4, 19.0), (6.1, 24.8)] {
            assert_eq!(findings(&machine, Some(&with_latencies(&machine, direct, staged))), []);
        }
        let mut measurements = with_latencies(&machine, 2.3, 15.0);
        let slow = measurements.latency.iter_mut().find(|cell| cell.path == Path::Direct).unwrap();
        slow.latency_us = Some(100_000.0);
        let found = only(&findings(&machine, Some(&measurements)), "latency-high", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(Pair { source: 0, destination: 1 }));
        assert_eq!(fact(&found, "highest_direct_us"), 100_000.0);
        assert_eq!(exit(&findings(&machine, Some(&measurements)), Some(&measurements)), 1);
    }

    #[test]
    fn one_gpu_that_is_slow_to_begin_with_every_partner_is_one_finding() {
        let machine = h200_vm(4);
        let mut measurements = with_latencies(&machine, 2.3, 15.0);
        for cell in measurements
            .latency
            .iter_mut()
            .filter(|cell| cell.pair.touches(2) && cell.path == Path::Direct)
        {
            cell.latency_us = Some(300.0);
        }
        let found = only(&findings(&machine, Some(&measurements)), "latency-high", Severity::Error);
        assert_eq!(found.subject, Subject::Gpu { index: 2 });
    }

    #[test]
    fn what_is_slow_through_the_host_alone_is_a_warning() {
        let machine = h200_vm(2);
        let measurements = with_latencies(&machine, 2.3, 4000.0);
        let found =
            only(&findings(&machine, Some(&measurements)), "latency-high", Severity::Warning);
        assert!(found.message.contains("take 4000 us"), "{}", found.message);
    }

    #[test]
    fn a_fixed_cost_is_judged_too_and_explains_a_rate_that_it_lowers() {
        let machine = h200_vm(4);
        let mut measurements = measured(&machine, 0.88);
        measurements.peer.iter_mut().for_each(|cell| cell.fixed_cost_us = Some(27.0));
        assert_eq!(findings(&machine, Some(&measurements)), []);
        // 1 GiB takes 2.71 ms at 396 GB/s. With 1 ms more it is copied at 289 GB/s.
        let slow = |cell: &PeerBandwidth| is(cell, 1, 3);
        measurements
            .peer
            .iter_mut()
            .filter(|cell| slow(cell))
            .for_each(|cell| cell.fixed_cost_us = Some(1000.0));
        set(&mut measurements, 289.0, slow);
        let found = only(&findings(&machine, Some(&measurements)), "latency-high", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(Pair { source: 1, destination: 3 }));
        assert_eq!(found.evidence.effects().len(), 1, "{found:#?}");
        // A pair that is slower than that is also slow for another reason.
        set(&mut measurements, 150.0, slow);
        assert_eq!(findings(&machine, Some(&measurements)).len(), 2);
    }
}
