//! # What it means
//!
//! Copies of page-locked memory are slower than those of ordinary memory. Usual advice makes programs slower here.
//!
//! # What to do
//!
//! Check if the pinned buffer is on another NUMA node than the ordinary one (`numactl --membind`, profile full), and if
//! an IOMMU translates the addresses of pinned pages one by one (`iommu=pt`). In a virtual machine, ask if the host
//! backs its memory with huge pages. Until then, copy from ordinary memory if the host may wait.
//!
//! # How it is detected
//!
//! Re-used pinned memory is slower than pageable memory in the same direction on the same GPU by more than
//! `below_pageable_percent` and both spreads (`measurements.host`, copy engine, one GPU at a time). GPUs that use the
//! page tables of the host (Grace) are not judged. A buffer pinned anew for each copy is `pageable-slower`.
//!
//! # Sources
//!
//! CUDA Best Practices Guide, pinned memory. On 8 x H200 pinned memory gives 3.5 to 7 times the rate of pageable memory
//! (measured).

use super::host::{self, Rated};
use super::prelude::*;

rule! {
    "pinned-slower-than-pageable", Warning, One(judge);
    /// how far below pageable memory pinned memory may be; chosen: the 5 to 10 that repeats spread by (cuda-samples
    /// issue 449)
    BELOW: below_pageable_percent = 10.0;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let margin = BELOW.margin(evidence);
    let is_coherent = |gpu: u32| {
        let said = evidence.measured().driver.attributes_of(gpu);
        said.is_some_and(|said| said.host_page_tables.get() == Some(true))
    };
    let mut slower: Vec<(Rated<'_>, Rated<'_>)> = Vec::new();
    for direction in host::ONE_WAY {
        let pageable = host::best(evidence, host::PAGEABLE.with_direction(direction));
        let pinned = host::best(evidence, HostWay::PINNED.with_direction(direction))
            .into_iter()
            .filter(|(gpu, _)| !is_coherent(*gpu));
        let both = pinned.filter_map(|(gpu, pinned)| Some((pinned, *pageable.get(&gpu)?)));
        slower.extend(both.filter(|(pinned, pageable)| {
            pinned.below_percent(pageable.rate) > margin.max(pinned.spread() + pageable.spread())
        }));
    }
    let depth = |(pinned, pageable): &(Rated<'_>, Rated<'_>)| pinned.below_percent(pageable.rate);
    let worst = words::largest(&slower, |both| depth(both))?;
    let gpus: Vec<u32> = words::unique(slower.iter().map(|(pinned, _)| pinned.copy.gpu));
    let (pinned, pageable) = worst;
    let message = format!(
        "Copies {} reach {} GB/s with pinned memory and {} with pageable; page-locking makes them slower",
        host::way_of(evidence, &gpus, pinned.copy.direction),
        pinned.rate,
        pageable.rate,
    );
    let own = suspects::pass_through(evidence, &gpus, Ask::HugePages);
    let plan = Plan::now([Step::CheckFull]).then(own);
    let found = RULE.on_gpus(&gpus, message, plan);
    Some(found.suspecting(host::suspects(evidence, &gpus)))
}

#[cfg(test)]
mod tests {
    use crate::testing::prelude::*;
    use crate::testing::{codes, with_host, with_memory};
    use model::flow::HostMemory;
    use model::host::Allocation;
    use model::measurement::{CudaAttributes, CudaDevice};
    use model::reading::{Reading, Unknown};

    #[test]
    fn pinned_memory_that_is_slower_is_found_and_one_that_is_hardly_so_is_not() {
        let machine = h200_vm(2);
        for (pageable, is_found) in [(58.0, false), (66.0, true)] {
            let mut measurements = with_host(&machine, &[55.3, 55.2]);
            with_memory(&mut measurements, HostMemory::Pageable, Allocation::Reused, pageable);
            let found = findings(&machine, Some(&measurements));
            assert_eq!(
                codes(&found).contains(&"pinned-slower-than-pageable"),
                is_found,
                "{pageable}: {found:#?}"
            );
        }
    }

    #[test]
    fn a_gpu_that_reads_pageable_memory_by_itself_is_not_compared() {
        let machine = h200_vm(2);
        for (coherent, is_found) in [(false, true), (true, false)] {
            let mut measurements = with_host(&machine, &[55.3, 55.2]);
            with_memory(&mut measurements, HostMemory::Pageable, Allocation::Reused, 66.0);
            let attributes = CudaAttributes {
                host_page_tables: Reading::Known(coherent),
                ..CudaAttributes::unread(&Unknown::Unsupported)
            };
            let device = |index| CudaDevice {
                index,
                ordinal: Some(index),
                attributes: Some(attributes.clone()),
                ..CudaDevice::default()
            };
            measurements.driver.devices = (0..2).map(device).collect();
            let found = findings(&machine, Some(&measurements));
            let found = codes(&found).contains(&"pinned-slower-than-pageable");
            assert_eq!(found, is_found, "coherent {coherent}");
        }
    }
}
