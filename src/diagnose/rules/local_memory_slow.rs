//! # What it means
//!
//! Copies within a GPU are slower than on other GPUs of its model. No link is involved.
//!
//! # What to do
//!
//! Check again with the GPU idle. Look for clocks held back, also the memory's (`nvidia-smi -q -d CLOCK,PERFORMANCE`),
//! a power limit, remapped or pending memory rows (`nvidia-smi -q -d ROW_REMAPPER,ECC`), and MIG or a vGPU with a part
//! of the memory's rate.
//!
//! # How it is detected
//!
//! The figure (`measurements.local`, bytes copied per second) lies below the median of its model in this machine by
//! more than `below_siblings_percent` and its scatter, or below the lowest known healthy figure of the model by more
//! than `below_model_percent`.
//!
//! # Sources
//!
//! H200: 2094 GB/s (nvbandwidth). GPUs of one machine differ by 0.1% (8 x H20, nvbandwidth issue 48), 2% (8 x H100,
//! nccl issue 1264), 8% (6 x RTX PRO 6000, published).

use super::prelude::*;
use crate::models;
use model::measurement::LocalCopy;

rule! {
    "local-memory-slow", Warning, All(judge);
    /// how far below the middle of its model a GPU may be; chosen: twice the 8 between healthy ones of one machine
    SIBLINGS: below_siblings_percent = 15.0;
    /// how far below the lowest that is known of its model; chosen: the same
    MODEL: below_model_percent = 15.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let tested = evidence.measured().local.iter().filter(|cell| cell.cell().tested());
    let models = words::grouped(tested.filter_map(|cell| {
        // A vGPU has a share of the memory's rate.
        let gpu = evidence.snapshot.gpu(cell.gpu);
        let gpu = gpu.filter(|gpu| gpu.vgpu.get() != Some(true))?;
        Some((gpu.name.known()?, (cell, cell.achieved_gbps?)))
    }));
    let models = models.iter();
    models.flat_map(|(name, cells)| of_model(evidence, name, cells)).collect()
}

/// Returns a finding for each GPU that is slower than its siblings, and one for those that are slower than their model.
fn of_model(
    evidence: &Evidence<'_>,
    name: &str,
    cells: &[(&LocalCopy, GbPerSecond)],
) -> Vec<Finding> {
    let rates = || cells.iter().map(|(_, rate)| rate.0);
    // The upper of the two middle figures: nothing makes a GPU faster than its memory.
    let middle = GbPerSecond(scatter::middle(rates()).unwrap_or(0.0));
    let known = models::local(name);
    let scatter = scatter::allowance(rates()).max(evidence.scatter_percent());
    let below = |rate: GbPerSecond, of: GbPerSecond| 100.0 - rate.percent_of(of);
    let is_low = |(cell, rate): &&(&LocalCopy, GbPerSecond)| {
        let margin = SIBLINGS.of(evidence).max(scatter);
        below(*rate, middle) > margin.max(cell.spread_percent.unwrap_or(0.0))
    };
    let is_below_model = |(_, rate): &&(&LocalCopy, GbPerSecond)| {
        let margin = MODEL.of(evidence).max(scatter);
        known.is_some_and(|known| below(*rate, known) > margin)
    };
    let low: Vec<_> = cells.iter().filter(is_low).collect();
    let mut findings: Vec<_> = low
        .iter()
        .map(|(cell, rate)| {
            let message = format!(
                "Copies within {} reach {rate} GB/s, {:.0}% less than the median of {} of its model ({middle} GB/s)",
                evidence.name(cell.gpu),
                below(*rate, middle),
                words::count(cells.len(), "GPU"),
            );
            let found = finding(evidence, message, &[cell.gpu], *rate, known);
            found.fact("median", middle)
        })
        .collect();
    let rest: Vec<_> =
        cells.iter().filter(is_below_model).filter(|cell| !low.contains(cell)).collect();
    let (lowest, _) = links::range(rest.iter().map(|(_, rate)| *rate));
    if let Some((lowest, known)) = lowest.zip(known) {
        let gpus: Vec<u32> = rest.iter().map(|(cell, _)| cell.gpu).collect();
        let message = format!(
            "Copies within {} reach {lowest} GB/s, {:.0}% less than healthy ones ({} GB/s); the model is {name}",
            evidence.named(&gpus),
            below(lowest, known),
            known,
        );
        findings.push(finding(evidence, message, &gpus, lowest, Some(known)));
    }
    findings
}

fn finding(
    evidence: &Evidence<'_>,
    message: String,
    gpus: &[u32],
    lowest: GbPerSecond,
    known: Option<GbPerSecond>,
) -> Finding {
    let is_slow = |gpu: &u32| !links::slow_with(evidence, *gpu).is_empty();
    let paths = match gpus.iter().any(is_slow) {
        true => "; copies to and from other GPUs are slow as well",
        false => "",
    };
    let plan = Plan::check_without(Work::OnGpus).if_it_stays([
        Step::Clocks,
        Step::PowerSupply,
        Step::MemoryRows,
        Step::Swap(Part::of(gpus)),
    ]);
    RULE.finding(Subject::of_gpus(gpus), message + paths, plan)
        .fact("lowest_achieved", lowest)
        .fact("known_of_model", known)
        .gpus(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::{codes, local};

    fn with_local(machine: &Snapshot, rates: &[f64]) -> Measurements {
        let mut measurements = measured(machine, 0.88);
        measurements.local = (0..).zip(rates).map(|(gpu, rate)| local(gpu, *rate)).collect();
        measurements
    }

    #[test]
    fn the_boundaries_are_below_the_siblings_and_below_the_known_rate_of_the_model() {
        let found = |machine: &Snapshot, rates: &[f64]| {
            let found = findings(machine, Some(&with_local(machine, rates)));
            found.iter().filter(|one| one.code == RULE.id).count()
        };
        let machine = two_sockets();
        assert_eq!(found(&machine, &[310.0, 310.0, 266.0, 310.0]), 0);
        assert_eq!(found(&machine, &[310.0, 310.0, 261.0, 310.0]), 1);
        let machine = h200_vm(4);
        assert_eq!(found(&machine, &[1720.0; 4]), 0);
        assert_eq!(found(&machine, &[1690.0; 4]), 1);
    }

    #[test]
    fn samples_that_scatter_show_nothing_and_other_models_are_no_siblings() {
        let mut machine = two_sockets();
        let mut scattered = with_local(&machine, &[310.0, 305.0, 200.0, 312.0]);
        scattered.local[2].spread_percent = Some(60.0);
        assert_eq!(findings(&machine, Some(&scattered)), []);
        machine.gpus[2].name = Reading::Known("NVIDIA T400 4GB".into());
        let found = findings(&machine, Some(&with_local(&machine, &[310.0, 305.0, 30.0, 312.0])));
        assert!(!codes(&found).contains(&"local-memory-slow"), "{found:?}");
    }

    #[test]
    fn one_gpu_with_slow_memory_explains_that_it_is_slow_with_every_partner() {
        let machine = h200_vm(4);
        let mut measurements = with_local(&machine, &[2094.0, 2090.0, 700.0, 2094.0]);
        set(&mut measurements, 250.0, |cell| touches(cell, 2));
        let own =
            only(&findings(&machine, Some(&measurements)), "local-memory-slow", Severity::Error);
        assert_eq!(own.subject, Subject::Gpu { index: 2 });
        // One slow pair of a GPU with slow memory has another cause.
        let mut measurements = with_local(&machine, &[2094.0, 2090.0, 700.0, 2094.0]);
        set(&mut measurements, 250.0, |cell| is(cell, 2, 3) || is(cell, 3, 2));
        assert_eq!(findings(&machine, Some(&measurements)).len(), 2);
    }
}
