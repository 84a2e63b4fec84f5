//! # What it means
//!
//! All GPUs together exchange less with the host than the sum of each alone. Loading and checkpoints take as long as
//! this sum allows. It is no fault.
//!
//! # What to do
//!
//! If links are the limit, spread the GPUs over more root ports. Otherwise fit every memory channel, place programs
//! on the NUMA node of their GPU (`numactl`), and count on this sum.
//!
//! # How it is detected
//!
//! Rates of all GPUs at once (`measurements.host`, `at_once`) add up to less than `of_alone_percent` of those one at a
//! time. Shared links that carry no more are named; else memory or the connection between processors is the limit.
//!
//! # Sources
//!
//! 8 x H200: 55.3 GB/s each way one at a time, 149 GB/s up and 87 down in all at once (measured).

use super::prelude::*;
use super::{host, load_limited_by_design};
use topology::host::at_once;

rule! {
    "host-memory-saturates", Info, One(judge);
    /// what all GPUs at once must reach of their sum alone; chosen below the 90 to 95 that repeats agree on
    /// (cuda-samples issue 449)
    SHARE: of_alone_percent = 85.0;
}

/// Closeness to their theoretical rate from which links count as the limit, per cent of it. Chosen: the floor of copies
/// of one GPU.
const FULL_PERCENT: f64 = 73.0;

/// Rates of the GPUs at once, and of the same GPUs one at a time.
struct Sum<'a> {
    direction: HostDirection,
    copies: Vec<&'a HostCopy>,
    /// Copies of GPUs that share the link that limits them.
    shared: Vec<&'a HostCopy>,
    at_once: f64,
    alone: f64,
}

impl Sum<'_> {
    fn percent(&self) -> f64 {
        100.0 * self.at_once / self.alone
    }

    /// Returns the links that are the limit, if they are.
    fn links(&self) -> Option<String> {
        let theory = self.copies.iter().map(|copy| Some(copy.theoretical_gbps?.0));
        let sum: f64 = theory.sum::<Option<f64>>()?;
        let shared = self.shared.iter().filter_map(|copy| copy.bottleneck.as_deref());
        let shared = words::distinct(shared);
        (self.at_once >= sum * FULL_PERCENT / 100.0 && !shared.is_empty()).then_some(shared)
    }
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let most = SHARE.of(evidence);
    let mut sums = sums(evidence);
    sums.retain(|sum| sum.percent() < most);
    let worst = words::smallest(&sums, |sum| sum.percent())?;
    let text = |sum: &Sum<'_>| {
        let (at_once, alone) = (GbPerSecond(sum.at_once), GbPerSecond(sum.alone));
        format!("{at_once} GB/s {} ({:.0}% of {alone})", sum.direction, sum.percent())
    };
    let all: Vec<_> = sums.iter().map(text).collect();
    // One cause, one finding: several flows at once have already shown these links.
    if worst.links().is_some() && are_named(evidence, worst) {
        return None;
    }
    let (limit, plan) = match worst.links() {
        Some(links) => (
            format!("the limit is what they share: {links}"),
            vec![Step::Nothing(Fine::Always), Step::SpreadGpus],
        ),
        None => (
            "their links carry more, so the limit is the memory of the host or what connects its processors".to_owned(),
            vec![Step::CountOnSum, Step::MemoryModules, Step::NumaBind],
        ),
    };
    let gpus = words::count(worst.copies.len(), "GPU");
    let message = format!("{gpus} at once with the host: {}; {limit}", all.join(", "));
    let indices = words::unique(worst.copies.iter().map(|copy| copy.gpu));
    Some(RULE.on_machine(message, plan).gpus(&indices))
}

/// Returns true if `load-limited-by-design` names a link above every GPU that shares one with another.
fn are_named(evidence: &Evidence<'_>, sum: &Sum<'_>) -> bool {
    let is_named = load_limited_by_design::names_above(evidence);
    sum.shared.iter().map(|copy| copy.gpu).all(is_named)
}

/// Returns the sums of each direction for the largest number of GPUs that copied at once, if all of them have both
/// figures.
fn sums<'a>(evidence: &Evidence<'a>) -> Vec<Sum<'a>> {
    let mut sums = Vec::new();
    for direction in host::ONE_WAY {
        let way = HostWay::PINNED.with_direction(direction);
        let sets = at_once(evidence.host());
        let of_way = sets.keys().filter(|(of, _)| *of == way);
        let Some(number) = of_way.map(|(_, number)| *number).max() else {
            continue;
        };
        let copies: Vec<_> = evidence
            .host()
            .iter()
            .filter(|copy| copy.way() == way && copy.at_once == number)
            .collect();
        let alone = host::best(evidence, way);
        let rates = copies
            .iter()
            .map(|copy| Some((copy.rate()?.0, alone.get(&copy.gpu)?.rate.0)))
            .collect::<Option<Vec<_>>>();
        if let Some(rates) = rates.filter(|rates| rates.len() == number as usize) {
            let (at_once, alone): (Vec<f64>, Vec<f64>) = rates.into_iter().unzip();
            let gpus = copies.iter().map(|copy| copy.gpu).collect();
            let shares = |copy: &&HostCopy| {
                topology::host::shares_limit(evidence.snapshot, evidence.topology, copy.gpu, &gpus)
            };
            sums.push(Sum {
                direction,
                shared: copies.iter().copied().filter(shares).collect(),
                copies,
                at_once: at_once.iter().sum(),
                alone: alone.iter().sum(),
            });
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_host;

    fn all_at_once(machine: &Snapshot, alone: f64, each: f64) -> Measurements {
        let gpus = u32::try_from(machine.gpus.len()).unwrap();
        let mut measurements = with_host(machine, &vec![alone; machine.gpus.len()]);
        let at_once = |copy: &HostCopy| HostCopy {
            at_once: gpus,
            achieved_gbps: Some(GbPerSecond(each)),
            ..copy.clone()
        };
        let together: Vec<_> = measurements.host.iter().map(at_once).collect();
        measurements.host.extend(together);
        measurements
    }

    #[test]
    fn memory_of_the_host_is_named_where_the_links_carry_more() {
        let machine = h200_vm(8);
        assert_eq!(findings(&machine, Some(&all_at_once(&machine, 55.3, 53.0))), []);
        let found = findings(&machine, Some(&all_at_once(&machine, 55.3, 18.6)));
        let found = only(&found, "host-memory-saturates", Severity::Info);
        for text in ["8 GPUs at once", "149 GB/s to device (34% of 442)", "the memory of the host"]
        {
            assert!(found.message.contains(text), "{text}: {}", found.message);
        }
    }

    #[test]
    fn a_shared_uplink_is_named_where_it_is_full() {
        let machine = two_sockets();
        let found = findings(&machine, Some(&all_at_once(&machine, 26.0, 13.2)));
        let found = found
            .iter()
            .find(|found| found.code == RULE.id)
            .unwrap_or_else(|| panic!("{found:#?}"));
        assert!(
            found.message.contains("above GPU 0, GPU 1")
                && found.message.contains("what they share"),
            "{found:#?}"
        );
    }

    #[test]
    fn a_gpu_without_a_figure_leaves_the_sum_unknown() {
        let machine = h200_vm(4);
        let mut measurements = all_at_once(&machine, 55.3, 18.6);
        for copy in measurements.host.iter_mut().filter(|copy| copy.gpu == 3 && copy.at_once > 1) {
            copy.ending.disturbed = true;
        }
        let found = findings(&machine, Some(&measurements));
        assert!(found.iter().all(|found| found.code != RULE.id), "{found:#?}");
    }
}
