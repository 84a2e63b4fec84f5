//! # What it means
//!
//! Copies between the memory of the host and one GPU are clearly slower than those of the other GPUs of its model in
//! the same kind of slot.
//!
//! # How it is detected
//!
//! The rule compares copies of page-locked memory that is re-used, by copy engine, one GPU at a time
//! (`measurements.host`), of GPUs of one model with the same theoretical rate. One of three or more lies below the
//! median by more than `below_siblings_percent`. It also lies below by more than the spread of its own samples, in any
//! way of copying, and by more than theirs. If the machine has several NUMA nodes and the node of the buffer is not
//! known, the margin is `below_unplaced_percent`. Copies that `host-bandwidth-low` reports are not reported again.
//!
//! If six or more such figures scatter among themselves, a figure must also lie below what their scatter allows
//! (docs/measurement.md, "Scatter of figures that should be equal").
//!
//! # Why it matters
//!
//! Work that is spread over all GPUs waits for the slowest one.
//!
//! # What to do
//!
//! Stop other work on this GPU and check again. If it stays: look at its PCIe error counters, reseat it, and swap it
//! with another to see if the fault moves.
//!
//! # Sources
//!
//! 8 x H200: 55.3 GB/s each way on every GPU (measured). Copies between sockets: 62 to 81% of theory; copies within a
//! socket reach 84 to 90 (published).

use super::host::{self, Rated};
use super::host_bandwidth_low;
use super::prelude::*;
use model::host::{HostDirection, HostWay};

/// Fewest GPUs that give a credible normal figure.
const LEAST_GPUS: usize = 3;

const SIBLINGS: Parameter = Parameter {
    name: "below_siblings_percent",
    default: 12.0,
    about: "how far below the middle of the GPUs of its model and slot a GPU may be; chosen: above the 5 to 10 that \
            repeats spread by (cuda-samples issue 449)",
};
const UNPLACED: Parameter = Parameter {
    name: "below_unplaced_percent",
    default: 40.0,
    about: "the same where the machine has several NUMA nodes and that of the buffer is not known; chosen: copies across \
            sockets lose up to 38",
};

pub(crate) const RULE: Rule = Rule::new(
    "host-bandwidth-below-siblings",
    Severity::Warning,
    include_str!("host_bandwidth_below_siblings.rs"),
    judge,
)
.with(&[SIBLINGS, UNPLACED]);

/// A figure below the median of its siblings.
struct Below<'a> {
    rated: Rated<'a>,
    middle: GbPerSecond,
    of: usize,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let reported: BTreeSet<u32> = host_bandwidth_low::low(evidence)
        .iter()
        .map(|low| low.rated.copy.gpu)
        .collect();
    let mut worst: BTreeMap<u32, Below<'_>> = BTreeMap::new();
    for direction in host::EVERY_WAY {
        for below in below(evidence, direction) {
            let gpu = below.rated.copy.gpu;
            let depth = |below: &Below<'_>| below.rated.below_percent(below.middle);
            if !reported.contains(&gpu)
                && worst
                    .get(&gpu)
                    .is_none_or(|known| depth(known) < depth(&below))
            {
                worst.insert(gpu, below);
            }
        }
    }
    worst
        .into_values()
        .map(|below| finding(evidence, &below))
        .collect()
}

/// Returns the figures of one direction that are below those of GPUs alike.
fn below<'a>(evidence: &Evidence<'a>, direction: HostDirection) -> Vec<Below<'a>> {
    let mut alike: BTreeMap<(&str, u64), Vec<Rated<'a>>> = BTreeMap::new();
    for rated in host::best(evidence, HostWay::PINNED.with_direction(direction)).into_values() {
        let model = evidence
            .snapshot
            .gpu(rated.copy.gpu)
            .and_then(|gpu| gpu.name.known());
        if let Some((model, theory)) = model.zip(rated.copy.theoretical_gbps) {
            alike
                .entry((model, theory.0.to_bits()))
                .or_default()
                .push(rated);
        }
    }
    alike
        .into_values()
        .filter(|rated| rated.len() >= LEAST_GPUS)
        .flat_map(|rated| of_group(evidence, &rated))
        .collect()
}

fn of_group<'a>(evidence: &Evidence<'_>, group: &[Rated<'a>]) -> Vec<Below<'a>> {
    let mut rates: Vec<f64> = group.iter().map(|rated| rated.rate.0).collect();
    rates.sort_by(f64::total_cmp);
    let middle = GbPerSecond(rates.get(rates.len() / 2).copied().unwrap_or_default());
    let scatter = group.iter().map(Rated::spread).fold(0.0, f64::max);
    let unplaced = host::has_several_nodes(evidence)
        && group.iter().any(|rated| rated.copy.numa_node.is_none());
    let margin = RULE.parameter(evidence, if unplaced { &UNPLACED } else { &SIBLINGS });
    let margin = margin.max(host::scatter_of_siblings(evidence));
    let own = |rated: &Rated<'_>| host::scatter(evidence, rated.copy.gpu);
    let is_below =
        |rated: &&Rated<'_>| rated.below_percent(middle) > margin.max(scatter).max(own(rated));
    group
        .iter()
        .filter(is_below)
        .map(|rated| Below {
            rated: *rated,
            middle,
            of: group.len(),
        })
        .collect()
}

fn finding(evidence: &Evidence<'_>, below: &Below<'_>) -> Finding {
    let (gpu, rate) = (below.rated.copy.gpu, below.rated.rate);
    let message = format!(
        "Copies {} reach {rate} GB/s, {:.0}% less than the middle of the {} of its model with the same slot ({} GB/s)",
        host::way_of(evidence, &[gpu], below.rated.copy.direction),
        below.rated.below_percent(below.middle),
        words::count(below.of, "GPU"),
        below.middle,
    );
    let own = || steps::gpu(gpu);
    let plan = Plan::now([Step::Stop(Work::OnGpus), Step::CheckAgain]).if_it_stays([
        Step::PcieErrorsOf(own()),
        Step::Reseat(Part::GpuAndRiser(own())),
        Step::Swap(Part::Gpu(own())),
    ]);
    let mut suspects = vec![suspects::own_way(&[gpu])];
    suspects.extend(host::suspects(evidence, &[gpu]));
    RULE.finding(Subject::Gpu { index: gpu }, message, plan)
        .gpus(&[gpu])
        .fact("achieved", rate)
        .fact("median", below.middle)
        .fact(
            "below_median",
            Fact::percent(below.rated.below_percent(below.middle)),
        )
        .suspecting(suspects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_host;

    #[test]
    fn one_gpu_below_the_others_is_found_and_what_differs_a_little_is_not() {
        let machine = h200_vm(4);
        assert_eq!(
            findings(
                &machine,
                Some(&with_host(&machine, &[55.3, 55.2, 51.0, 55.3]))
            ),
            []
        );
        let found = findings(
            &machine,
            Some(&with_host(&machine, &[55.3, 55.2, 47.5, 55.3])),
        );
        let found = only(&found, "host-bandwidth-below-siblings", Severity::Warning);
        assert_eq!(
            (found.subject.clone(), fact(&found, "below_median_percent")),
            (Subject::Gpu { index: 2 }, 14.1.into())
        );
    }

    #[test]
    fn two_gpus_are_too_few_and_samples_that_scatter_show_nothing() {
        let machine = h200_vm(2);
        assert_eq!(
            findings(&machine, Some(&with_host(&machine, &[55.3, 47.5]))),
            []
        );
        let machine = h200_vm(4);
        let mut scattered = with_host(&machine, &[55.3, 55.2, 47.5, 55.3]);
        scattered
            .host
            .iter_mut()
            .for_each(|copy| copy.spread_percent = Some(30.0));
        let found = findings(&machine, Some(&scattered));
        assert_eq!(
            only(&found, "unstable-measurement", Severity::Warning).subject,
            Subject::Machine
        );
    }
}
