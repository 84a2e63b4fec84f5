//! # What it means
//!
//! Pageable memory, or pinning anew for each copy, is several times slower than pinned memory. Pageable copies also
//! hold the host and do not overlap. It is no fault.
//!
//! # What to do
//!
//! Copy from pinned memory that is allocated once and used again: `DataLoader(..., pin_memory=True)` or
//! `torch.empty(..., pin_memory=True)` with `non_blocking=True` in PyTorch, `cudaMallocHost` or `cudaHostRegister` in
//! CUDA; `persistent_workers=True`, and no `tensor.pin_memory()` in the loop. For a single copy, do not pin
//! (`measurements.pinning` has the cost).
//!
//! # How it is detected
//!
//! Re-used pinned memory is faster than pageable memory in the same direction on the same GPU by
//! `above_pageable_percent` or more (`measurements.host`). Or copies whose buffer is pinned or registered anew reach
//! less than `of_reused_percent` of those from a re-used one.
//!
//! # Sources
//!
//! 8 x H200: 55.3 GB/s pinned; pageable 7.5 to 9.7 up, 12 to 15.6 down; pinning 2 GiB takes 1.15 s, copying them 0.04 s
//! (measured).

use super::host::{self, Rated};
use super::prelude::*;

rule! {
    "pageable-slower", Info, All(judge);
    /// how much faster than pageable memory pinned memory must be; chosen: less is hardly worth a change
    ABOVE: above_pageable_percent = 30.0;
    /// what copies pinned anew must reach of re-used ones; chosen: below it pinning takes more time than it saves
    SHARE: of_reused_percent = 60.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    [slower(evidence), pinned_anew(evidence)].into_iter().flatten().collect()
}

fn slower(evidence: &Evidence<'_>) -> Option<Finding> {
    let least = 1.0 + ABOVE.of(evidence) / 100.0;
    let (mut gpus, mut times, mut pinned, mut pageable) =
        (BTreeSet::new(), Vec::new(), Vec::new(), Vec::new());
    for direction in host::ONE_WAY {
        let of_pageable = host::best(evidence, host::PAGEABLE.with_direction(direction));
        for (gpu, fast) in host::best(evidence, HostWay::PINNED.with_direction(direction)) {
            let Some(slow) =
                of_pageable.get(&gpu).filter(|slow| fast.rate.0 >= least * slow.rate.0)
            else {
                continue;
            };
            gpus.insert(gpu);
            times.push(fast.rate.0 / slow.rate.0);
            pinned.push(fast.rate.0);
            pageable.push(slow.rate.0);
        }
    }
    let gpus: Vec<u32> = gpus.into_iter().collect();
    let spans = (host::span(times), host::span(pinned), host::span(pageable));
    let (Some(times), Some(fast), Some(slow)) = spans else {
        return None;
    };
    let message = format!(
        "Pageable memory gives {slow} GB/s between the host and {}, pinned memory {fast}; {times} times as much",
        evidence.named(&gpus),
    );
    Some(RULE.on_gpus(&gpus, message, [Step::PinMemory]))
}

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

fn pinned_anew(evidence: &Evidence<'_>) -> Option<Finding> {
    let most = SHARE.of(evidence);
    let mut dominated = of(evidence);
    dominated.retain(|one| one.percent() < most);
    let worst = dominated.iter().min_by(|one, other| one.percent().total_cmp(&other.percent()))?;
    let gpus: Vec<u32> = words::unique(dominated.iter().map(|one| one.anew.copy.gpu));
    let than_pageable = match worst.pageable {
        Some(pageable) if pageable > worst.anew.rate => {
            format!("; pageable memory without pinning gives {pageable} GB/s")
        }
        _ => String::new(),
    };
    let how =
        if worst.anew.copy.memory == HostMemory::Registered { "registered" } else { "pinned" };
    let message = format!(
        "A buffer {how} anew for each copy gives {} GB/s, re-used {}; {:.0}% of the time goes into page-locking{than_pageable}; \
         copied {}",
        worst.anew.rate,
        worst.reused.rate,
        100.0 - worst.percent(),
        host::way_of(evidence, &[worst.anew.copy.gpu], worst.anew.copy.direction),
    );
    Some(RULE.on_machine(message, [Step::PinMemory]).gpus(&gpus))
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
    use crate::testing::{with_host, with_memory};

    #[test]
    fn what_pinning_would_bring_is_told_in_numbers() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        with_memory(&mut measurements, HostMemory::Pageable, Allocation::Reused, 8.0);
        let found =
            only(&findings(&machine, Some(&measurements)), "pageable-slower", Severity::Info);
        assert!(
            found.message.contains("6.9 times") && found.message.contains("all GPUs"),
            "{}",
            found.message
        );
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        with_memory(&mut measurements, HostMemory::Pageable, Allocation::Reused, 45.0);
        assert_eq!(findings(&machine, Some(&measurements)), []);
    }

    #[test]
    fn pinning_anew_that_is_slower_than_not_pinning_says_so() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        with_memory(&mut measurements, HostMemory::Pinned, Allocation::Anew, 1.8);
        let own = only(&findings(&machine, Some(&measurements)), "pageable-slower", Severity::Info);
        assert!(
            own.message.contains("gives 1.8 GB/s, re-used") && own.message.contains("97%"),
            "{}",
            own.message
        );
        with_memory(&mut measurements, HostMemory::Pageable, Allocation::Reused, 9.0);
        let found = findings(&machine, Some(&measurements));
        let own = found.iter().rfind(|found| found.code == RULE.id).unwrap();
        assert!(
            own.message.contains("pageable memory without pinning gives 9.0 GB/s"),
            "{}",
            own.message
        );
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        with_memory(&mut measurements, HostMemory::Registered, Allocation::Anew, 40.0);
        assert_eq!(findings(&machine, Some(&measurements)), []);
    }
}
