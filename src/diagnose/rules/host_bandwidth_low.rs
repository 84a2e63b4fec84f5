//! # What it means
//!
//! Copies between the memory of the host and a GPU are clearly slower than the slot of that GPU allows.
//!
//! # How it is detected
//!
//! Copies of page-locked memory that is re-used, by copy engine, one GPU at a time (`measurements.host`), lie below
//! what healthy machines reach by more than the margin of the class `host`. That class is a share of the payload rate
//! of the narrowest link between the GPU and the host. Share and margin may be set with `--config` (`[expected.host]`).
//! The best of several NUMA nodes counts; `host-memory-far` reports what the others lose. A slot that is narrow as
//! built does not cause this finding: the copies are compared with the slot's own rate. A figure is not reported either
//! if it lies below what is expected by less than the spread of the one-way rows of the same GPU: that is
//! `unstable-measurement`.
//!
//! If six or more such figures scatter among themselves, a figure must also lie below what their scatter allows
//! (docs/measurement.md, "Scatter of figures that should be equal").
//!
//! # Why it matters
//!
//! Everything that is loaded onto the GPU or saved from it takes this path. So do copies between GPUs without peer
//! access.
//!
//! # What to do
//!
//! Look at the PCIe findings of the same GPU first. If one GPU is slow and the others are not: its slot, riser or
//! cable. If all are: every memory channel of the host fitted, the memory on the NUMA node of the GPU (`numactl`), the
//! IOMMU in pass-through, no other work. In a virtual machine, ask whether its memory and processors are pinned to the
//! NUMA nodes of the GPUs.
//!
//! # Sources
//!
//! H200, PCIe 5 x16: 55.3 of 63 GB/s (measured; nvbandwidth: 55.1 to 55.5). PCIe 4 x16: 25 to 27 of 31.5 GB/s
//! (published).

use super::host::{self, Rated};
use super::prelude::*;
use crate::expected::Expectation;
use crate::expected_host;
use explain::scatter::{self, Siblings};
use model::host::{HostDirection, HostWay};

pub(crate) const RULE: Rule = Rule::new(
    "host-bandwidth-low",
    Severity::Warning,
    include_str!("host_bandwidth_low.rs"),
    judge,
);

/// A figure, and what it should be.
pub(crate) struct Low<'a> {
    pub rated: Rated<'a>,
    expected: Expectation,
}

impl Low<'_> {
    fn percent(&self) -> f64 {
        self.rated.rate.percent_of(self.expected.gbps)
    }
}

/// Returns the figures below their floor, one for each GPU and direction.
pub(crate) fn low<'a>(evidence: &Evidence<'a>) -> Vec<Low<'a>> {
    let of_way = |direction: HostDirection| {
        host::best(evidence, HostWay::PINNED.with_direction(direction)).into_values()
    };
    let figures = host::EVERY_WAY.into_iter().flat_map(of_way);
    let rated: Vec<_> = figures
        .filter_map(|rated| {
            let expected = expected_host::of(rated.copy, &evidence.settings.shares)?;
            Some(Low { rated, expected })
        })
        .collect();
    let shares = rated
        .iter()
        .map(|one| (one.rated.copy.direction, one.percent()));
    let groups: Vec<_> = scatter::grouped(shares).into_values().collect();
    let siblings = Siblings::of(&groups);
    let judged = rated.into_iter().filter(|one| {
        let floor = one.expected.floor_gbps();
        let excused = siblings.is_some_and(|siblings| {
            siblings.excuse(one.percent(), floor.percent_of(one.expected.gbps))
        });
        one.rated.rate < floor && !excused
    });
    judged
        .filter(|low| 100.0 - low.percent() > host::scatter(evidence, low.rated.copy.gpu))
        .collect()
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let low = low(evidence);
    let gpus: BTreeSet<u32> = low.iter().map(|low| low.rated.copy.gpu).collect();
    let gpus: Vec<u32> = gpus.into_iter().collect();
    let Some(worst) = low
        .iter()
        .min_by(|one, other| one.percent().total_cmp(&other.percent()))
    else {
        return Vec::new();
    };
    let all_gpus = evidence
        .host()
        .iter()
        .map(|copy| copy.gpu)
        .collect::<BTreeSet<_>>()
        .len();
    let others = if gpus.len() < all_gpus {
        "; the other GPUs are not"
    } else {
        ""
    };
    let hop = worst
        .rated
        .copy
        .bottleneck
        .as_ref()
        .map(|hop| format!(" over {hop}"))
        .unwrap_or_default();
    let message = format!(
        "Copies {} reach only {} GB/s, {:.0}% of the {} GB/s that healthy machines reach{hop} ({} GB/s and more is \
         normal){others}",
        host::way_of(evidence, &gpus, worst.rated.copy.direction),
        worst.rated.rate,
        worst.percent(),
        worst.expected.gbps,
        worst.expected.floor_gbps(),
    );
    let mut suspects = host::suspects(evidence, &gpus);
    let together = gpus.len() > 1 && gpus.len() < all_gpus && are_alike(&low);
    if together {
        let test = [Step::OtherSlot(one_of(&gpus))];
        suspects.insert(0, suspect(Cause::UplinkOfSlots(all(&gpus)), test));
    } else if gpus.len() < all_gpus {
        suspects.insert(0, suspects::own_way(&gpus));
    }
    let ways: BTreeSet<String> = low
        .iter()
        .map(|low| low.rated.copy.direction.to_string())
        .collect();
    let mut found = RULE
        .finding(
            Subject::of_gpus(&gpus),
            message,
            plan(evidence, &gpus, all_gpus, together),
        )
        .gpus(&gpus)
        .fact("lowest_achieved", worst.rated.rate)
        .fact("expected", worst.expected.gbps)
        .fact("floor", worst.expected.floor_gbps())
        .fact("theoretical", worst.rated.copy.theoretical_gbps)
        .fact("expected_from", worst.expected.class.source)
        .fact("directions", Fact::Texts(ways.into_iter().collect()));
    let (_, highest) = links::range(low.iter().map(|low| low.rated.rate));
    found.scope.rate = highest;
    vec![found.suspecting(suspects)]
}

/// Returns true if the low figures are equally low, as behind one link.
fn are_alike(low: &[Low<'_>]) -> bool {
    const SPREAD: f64 = 1.15;
    let (lowest, highest) = links::range(low.iter().map(|low| low.rated.rate));
    lowest
        .zip(highest)
        .is_some_and(|(lowest, highest)| highest.0 <= lowest.0 * SPREAD)
}

fn plan(evidence: &Evidence<'_>, gpus: &[u32], all_gpus: usize, together: bool) -> Plan {
    let own = if together {
        vec![Step::SharedSlots(all(gpus)), Step::OtherSlot(one_of(gpus))]
    } else if gpus.len() < all_gpus {
        vec![
            Step::OtherFindings(all(gpus)),
            Step::Reseat(Part::GpuAndRiser(one_of(gpus))),
            Step::Swap(Part::Gpu(one_of(gpus))),
        ]
    } else {
        vec![Step::MemoryModules, Step::Stop(Work::OnMachine)]
    };
    let node = match evidence.virtual_machine() {
        true => Some(Step::AskHost(Ask::NumaNodes)),
        false => host::has_several_nodes(evidence).then_some(Step::NumaBind),
    };
    Plan::now(own)
        .and(When::Now, node)
        .and(When::Now, [Step::CheckAgain])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_host;
    use model::host::HostCopy;
    use model::testing::host_copy;

    #[test]
    fn copies_below_what_the_slot_allows_are_found_and_healthy_ones_are_not() {
        let machine = h200_vm(3);
        let measurements = with_host(&machine, &[55.3, 55.2, 54.0]);
        assert_eq!(findings(&machine, Some(&measurements)), []);
        let measurements = with_host(&machine, &[25.0, 55.2, 55.3]);
        let found = only(
            &findings(&machine, Some(&measurements)),
            "host-bandwidth-low",
            Severity::Warning,
        );
        assert_eq!(found.subject, Subject::Gpu { index: 0 });
        for text in [
            "from the host to GPU 0",
            "25.0 GB/s",
            "Gen5 x16",
            "the other GPUs are not",
        ] {
            assert!(found.message.contains(text), "{text}: {}", found.message);
        }
        assert_eq!(
            exit(
                &findings(&machine, Some(&measurements)),
                Some(&measurements)
            ),
            0
        );
        let all = with_host(&machine, &[25.0, 25.0, 25.3]);
        assert_eq!(
            only(
                &findings(&machine, Some(&all)),
                "host-bandwidth-low",
                Severity::Warning
            )
            .subject,
            Subject::Machine
        );
    }

    #[test]
    fn a_slot_of_four_lanes_is_compared_with_itself_and_the_best_node_counts() {
        let mut machine = h200_vm(2);
        function_mut(&mut machine, "0000:00:07.0").width = lanes(4);
        function_mut(&mut machine, "0000:00:07.0").width_max = lanes(4);
        (machine.gpus[1].pcie_width, machine.gpus[1].pcie_width_max) = (lanes(4), lanes(4));
        let mut measurements = with_host(&machine, &[55.3, 13.5]);
        let found = findings(&machine, Some(&measurements));
        assert!(
            found.iter().all(|found| found.code != RULE.id),
            "{found:#?}"
        );
        measurements.host.push(HostCopy {
            numa_node: Some(1),
            ..host_copy(0, 20.0)
        });
        let found = findings(&machine, Some(&measurements));
        assert!(
            found.iter().all(|found| found.code != RULE.id),
            "{found:#?}"
        );
    }
}
