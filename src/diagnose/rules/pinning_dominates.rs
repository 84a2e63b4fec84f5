//! # What it means
//!
//! Page-locking a buffer anew for each copy takes longer than the copy. It looks as if the slot were the limit, and
//! is no fault.
//!
//! # What to do
//!
//! Pin once and use the buffer again: a pool of pinned buffers,
//! `DataLoader(..., pin_memory=True, persistent_workers=True)`, no `tensor.pin_memory()` in the loop. For a single
//! copy, do not pin.
//!
//! # How it is detected
//!
//! Copies whose buffer is pinned or registered anew reach less than `of_reused_percent` of those from a re-used one
//! (`measurements.host`, `allocation` `anew` against `reused`).
//!
//! # Sources
//!
//! H200: pinning 2 GiB takes 1.15 s, and copying them 0.04 s (measured). A forum user: 8.6 GB/s from a re-used pinned
//! buffer, 6.1 GB/s from pageable memory, less from a buffer pinned for each copy.

use super::host::{self, Rated};
use super::prelude::*;
use model::flow::HostMemory;
use model::host::{Allocation, HostWay};

const SHARE: Parameter = Parameter {
    name: "of_reused_percent",
    default: 60.0,
    about: "what copies with a buffer that is pinned anew must reach of those with one that is re-used; chosen: below it \
            more time goes into pinning than is saved",
};

pub(crate) const RULE: Rule =
    Rule::of_one("pinning-dominates", Severity::Info, judge).with(&[SHARE]);

/// Copies of one GPU and direction with a buffer that is made anew, and with one that is re-used.
struct Dominated<'a> {
    anew: Rated<'a>,
    reused: Rated<'a>,
    pageable: Option<GbPerSecond>,
}

impl Dominated<'_> {
    fn percent(&self) -> f64 {
        self.anew.rate.percent_of(self.reused.rate)
    }
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let most = RULE.parameter(evidence, &SHARE);
    let mut dominated = of(evidence);
    dominated.retain(|one| one.percent() < most);
    let worst = dominated.iter().min_by(|one, other| one.percent().total_cmp(&other.percent()))?;
    let gpus: Vec<u32> = words::unique(dominated.iter().map(|one| one.anew.copy.gpu));
    let than_pageable = match worst.pageable {
        Some(pageable) if pageable > worst.anew.rate => {
            format!(", less than the {pageable} GB/s of pageable memory without pinning")
        }
        _ => String::new(),
    };
    let how =
        if worst.anew.copy.memory == HostMemory::Registered { "registered" } else { "pinned" };
    let message = format!(
        "A buffer that is {how} anew for each copy leaves {} GB/s{than_pageable}; re-used it gives {} GB/s: {:.0}% of \
         the time goes into page-locking ({})",
        worst.anew.rate,
        worst.reused.rate,
        100.0 - worst.percent(),
        host::way_of(evidence, &[worst.anew.copy.gpu], worst.anew.copy.direction),
    );
    let found = RULE
        .finding(Subject::Machine, message, [Step::ReuseBuffer])
        .gpus(&gpus)
        .fact("pinned_anew", worst.anew.rate)
        .fact("reused", worst.reused.rate)
        .fact("pageable", worst.pageable)
        .fact("page_locking", Fact::percent(100.0 - worst.percent()));
    Some(found)
}

fn of<'a>(evidence: &Evidence<'a>) -> Vec<Dominated<'a>> {
    let mut all = Vec::new();
    for direction in host::ONE_WAY {
        let reused = host::best(evidence, HostWay::PINNED.with_direction(direction));
        let pageable = host::best(evidence, host::PAGEABLE.with_direction(direction));
        for memory in [HostMemory::Pinned, HostMemory::Registered] {
            let way = HostWay {
                allocation: Allocation::Anew,
                memory,
                ..HostWay::PINNED.with_direction(direction)
            };
            let anew = host::best(evidence, way).into_iter();
            all.extend(anew.filter_map(|(gpu, anew)| {
                let pageable = pageable.get(&gpu).map(|rated| rated.rate);
                Some(Dominated { anew, reused: *reused.get(&gpu)?, pageable })
            }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::{codes, with_host, with_memory};

    #[test]
    fn pinning_anew_that_is_slower_than_not_pinning_says_so() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        with_memory(&mut measurements, HostMemory::Pinned, Allocation::Anew, 1.8);
        let own =
            only(&findings(&machine, Some(&measurements)), "pinning-dominates", Severity::Info);
        assert!(
            own.message.contains("leaves 1.8 GB/s; re-used") && own.message.contains("97%"),
            "{}",
            own.message
        );
        with_memory(&mut measurements, HostMemory::Pageable, Allocation::Reused, 9.0);
        let found = findings(&machine, Some(&measurements));
        let own = found.iter().find(|found| found.code == RULE.id).unwrap();
        assert!(
            own.message.contains("less than the 9.0 GB/s of pageable memory"),
            "{}",
            own.message
        );
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        with_memory(&mut measurements, HostMemory::Registered, Allocation::Anew, 40.0);
        assert!(!codes(&findings(&machine, Some(&measurements))).contains(&"pinning-dominates"));
    }
}
