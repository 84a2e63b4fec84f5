//! # What it means
//!
//! Copies of pageable memory are several times slower than those of pinned memory. They also hold the host and do not
//! overlap, however wide the slot is.
//!
//! # What to do
//!
//! Copy from pinned memory that is allocated once and used again: `DataLoader(..., pin_memory=True)` or
//! `torch.empty(..., pin_memory=True)` with `non_blocking=True` in PyTorch, `cudaMallocHost` or `cudaHostRegister` in
//! CUDA. `measurements.pinning` contains the cost of pinning a buffer.
//!
//! # How it is detected
//!
//! The rate of re-used pinned memory lies above that of pageable memory in the same direction on the same GPU by
//! `above_pageable_percent` or more (`measurements.host`, copy engine, one GPU at a time). All GPUs are one finding:
//! the driver works that way, and it is no fault.
//!
//! # Sources
//!
//! 8 x H200: 55.3 GB/s pinned; pageable 7.5 to 9.7 up and 12 to 15.6 down (measured). CUDA Best Practices Guide,
//! pinned memory: the driver copies pageable memory through its own buffer.

use super::host;
use super::prelude::*;
use model::host::HostWay;

const ABOVE: Parameter = Parameter {
    name: "above_pageable_percent",
    default: 30.0,
    about: "how far above the rate of pageable memory that of pinned memory must lie, per cent of it; chosen: less is hardly \
            worth a change",
};

pub(crate) const RULE: Rule = Rule::of_one("pageable-slower", Severity::Info, judge).with(&[ABOVE]);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let least = 1.0 + RULE.parameter(evidence, &ABOVE) / 100.0;
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
    let spans = (
        host::span(times),
        host::span(pinned.iter().copied()),
        host::span(pageable.iter().copied()),
    );
    let (Some(times), Some(fast), Some(slow)) = spans else {
        return None;
    };
    let message = format!(
        "Pinned memory gives {times} times what pageable memory does between the host and {}: {fast} GB/s instead of \
         {slow} GB/s",
        if let [gpu] = gpus.as_slice() {
            format!("GPU {gpu}")
        } else {
            words::all_or(evidence.snapshot, &gpus)
        },
    );
    let least_of = |rates: Vec<f64>| rates.into_iter().reduce(f64::min).map(GbPerSecond);
    let found = RULE
        .finding(Subject::of_gpus(&gpus), message, [Step::PinMemory])
        .gpus(&gpus)
        .fact("times", times)
        .fact("lowest_pinned", least_of(pinned))
        .fact("lowest_pageable", least_of(pageable));
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::{with_host, with_memory};
    use model::flow::HostMemory;
    use model::host::Allocation;

    #[test]
    fn what_pinning_would_bring_is_told_in_numbers() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        with_memory(&mut measurements, HostMemory::Pageable, Allocation::Reused, 8.0);
        let found =
            only(&findings(&machine, Some(&measurements)), "pageable-slower", Severity::Info);
        assert!(
            found.message.contains("gives 6.9 times") && found.message.contains("all GPUs"),
            "{}",
            found.message
        );
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        with_memory(&mut measurements, HostMemory::Pageable, Allocation::Reused, 45.0);
        assert_eq!(findings(&machine, Some(&measurements)), []);
    }
}
