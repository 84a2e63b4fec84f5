//! # What it means
//!
//! Copies and kernels that should run at the same time take turns. No bandwidth figure shows it.
//!
//! # What to do
//!
//! Look for variables that force order (CUDA_LAUNCH_BLOCKING=1, CUDA_DEVICE_MAX_CONNECTIONS=1), profiler, debugger,
//! and other work on the GPUs.
//!
//! Default streams on the wrong side serialise by CUDA's order. In PyTorch, issue the copy under
//! `torch.cuda.stream(...)` with a stream of its own on **both** devices, synchronise with events (`wait_event`) at
//! the point of use, and call `record_stream` on tensors that cross. `non_blocking=True` changes nothing between
//! GPUs; with the host it needs pinned memory.
//!
//! # How it is detected
//!
//! For a placement that allows overlap (source on a side stream; kernel on the source GPU, or destination on a side
//! stream too), the median share of the kernel's time during which the copy ran is below the parameter on some pair.
//!
//! # Sources
//!
//! Measured on 8 x H200, with PyTorch 2.11 as well; CUDA Programming Guide 3.4.2.1; PyTorch,
//! aten/src/ATen/native/cuda/Copy.cu.

use super::prelude::*;

const LEAST_OVERLAP: Parameter = Parameter {
    name: "floor_overlap_percent",
    default: 50.0,
    about: "overlap below which a placement counts as not overlapping on a pair; halfway between the 100 of those that \
            should and the 0 to 1 of those that should not, measured on H200",
};

pub(crate) const RULE: Rule =
    Rule::of_one("placement-serialises", Severity::Warning, judge).with(&[LEAST_OVERLAP]);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let mut cells: BTreeMap<String, Vec<(Pair, f64)>> = BTreeMap::new();
    for cell in &measurements.overlap {
        let should = cell.ending.status == Status::Measured
            && cell.placement.should_overlap(cell.compute_on);
        if let Some(share) = cell.overlap_percent.filter(|_| should) {
            let name = format!("{}, kernel on the {}", cell.placement, cell.compute_on);
            cells.entry(name).or_default().push((cell.pair, share));
        }
    }
    let floor = RULE.parameter(evidence, &LEAST_OVERLAP);
    let is_low = |(_, share): &&(Pair, f64)| *share < floor;
    let mut list = Vec::new();
    let mut pairs = Vec::new();
    for (name, cells) in &cells {
        let low: Vec<_> = cells.iter().filter(is_low).collect();
        if let Some(lowest) = low.iter().map(|(_, share)| *share).reduce(f64::min) {
            list.push(format!(
                "{name}: {} of {} pairs, down to {lowest:.0}%",
                low.len(),
                cells.len()
            ));
            pairs.extend(low.iter().map(|(pair, _)| *pair));
        }
    }
    if list.is_empty() {
        return None;
    }
    let pairs = words::unique(pairs);
    Some(
        RULE.finding(
            Subject::Machine,
            format!(
                "Copies of {} that should overlap with a kernel wait for it or delay it; {}; {}",
                words::count(pairs.len(), "pair"),
                list.join("; "),
                words::pairs(&pairs)
            ),
            [
                Step::LookForVariables("CUDA_LAUNCH_BLOCKING and CUDA_DEVICE_MAX_CONNECTIONS"),
                Step::Stop(Work::Tools),
                Step::Stop(Work::OnGpus),
                Step::CheckAgain,
            ],
        )
        .fact("pairs", pairs.len())
        .fact("floor", Fact::percent(floor)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::flow::Setup;
    use model::testing::overlap;

    #[test]
    fn a_reference_placement_that_does_not_overlap_is_reported() {
        let machine = h200_vm(2);
        let mut measurements = measured(&machine, 0.88);
        measurements.overlap = vec![overlap(Setup::REFERENCE.placement, 1.0)];
        let found = findings(&machine, Some(&measurements));
        let may = ["check-again-idle", "unset", "side-streams", "default-compute-mode"];
        assert_advice(&RULE, &found, &["end-programs"], &may);
    }
}
