//! # What it means
//!
//! Copies and kernels take turns, or run together, against CUDA's order of streams. No bandwidth figure shows it.
//!
//! # What to do
//!
//! Look for variables that force order (CUDA_LAUNCH_BLOCKING=1, CUDA_DEVICE_MAX_CONNECTIONS=1), profiler, debugger, and
//! other work on the GPUs. A copy that runs beside a kernel it should wait for is the driver's fault: update it.
//!
//! Default streams on the wrong side serialise by CUDA's order. In PyTorch, issue the copy under
//! `torch.cuda.stream(...)` with a stream of its own on **both** devices, synchronise with events (`wait_event`) at the
//! point of use, and call `record_stream` on tensors that cross. `non_blocking=True` changes nothing between GPUs; with
//! the host it needs pinned memory.
//!
//! # How it is detected
//!
//! For each placement, CUDA's order of streams and the events of frameworks say whether the copy may run beside the
//! kernel (`expected_overlap_percent`; docs/measurement.md has the table). The median share of the kernel's time during
//! which the copy ran is below 50% on some pair although it may, or not although it may not; 0 to 1 and 100 were
//! measured on H100 and H200.
//!
//! # Sources
//!
//! Measured on 8 x H200, with PyTorch 2.11 as well; CUDA Programming Guide 3.4.2.1.

use super::prelude::*;
use model::measurement::Overlap;
use model::placement::KernelStream;

rule! {
    "placement-serialises", Warning, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let mut cells: BTreeMap<(bool, String), Vec<(&Overlap, f64)>> = BTreeMap::new();
    let measured =
        measurements.overlap.iter().filter(|cell| cell.ending.status == Status::Measured);
    for (cell, share) in measured.filter_map(|cell| Some((cell, cell.overlap_percent?))) {
        let Overlap { placement, compute_on, kernel_stream, .. } = cell;
        let stream = match kernel_stream {
            KernelStream::Default => String::new(),
            other => format!(", on the {other} stream"),
        };
        let name = format!("{placement}, kernel on the {compute_on}{stream}");
        cells.entry((cell.should_overlap(), name)).or_default().push((cell, share));
    }
    let mut lists = [Vec::new(), Vec::new()];
    let mut pairs = Vec::new();
    for ((should, name), cells) in &cells {
        let is_against = |(cell, _): &&(&Overlap, f64)| cell.is_against() == Some(true);
        let against: Vec<_> = cells.iter().filter(is_against).collect();
        let shares = against.iter().map(|(_, share)| *share);
        let worst = if *should { shares.reduce(f64::min) } else { shares.reduce(f64::max) };
        if let Some(worst) = worst {
            let (of, all, way) = (against.len(), cells.len(), if *should { "down" } else { "up" });
            lists[usize::from(*should)]
                .push(format!("{name}: {of} of {all} pairs, {way} to {worst:.0}%"));
            pairs.extend(against.iter().map(|(cell, _)| cell.pair));
        }
    }
    let [beside, waiting] = lists;
    let pairs = words::unique(pairs);
    let of_pairs = words::count(pairs.len(), "pair");
    let what = match (beside.is_empty(), waiting.is_empty()) {
        (true, true) => return None,
        (true, false) => "that should overlap with a kernel wait for it or delay it",
        (false, true) => {
            "run beside a kernel that CUDA's order of streams puts before or after them"
        }
        (false, false) => "and kernels do not keep CUDA's order of streams",
    };
    let steps = match waiting.is_empty() {
        true => vec![Step::UpdateDriver, Step::CheckAgain],
        false => vec![
            Step::LookForVariables,
            Step::Stop(Work::Tools),
            Step::Stop(Work::OnGpus),
            Step::CheckAgain,
        ],
    };
    let only_waits = beside.is_empty();
    let list: Vec<String> = waiting.into_iter().chain(beside).collect();
    let shown = words::spelt(&list);
    let message = format!("Copies of {of_pairs} {what}; {shown}; {}", words::pairs(&pairs));
    let found = RULE.on_machine(message, steps).fact("pairs", pairs.clone());
    // Copies that stall may wait for a kernel, and never run beside one that they must wait for.
    Some(if only_waits { found.about_pairs(pairs) } else { found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::flow::Setup;
    use model::placement::{Placement, StreamKind};
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

    #[test]
    fn a_copy_beside_a_kernel_that_it_should_wait_for_is_the_drivers() {
        let machine = h200_vm(2);
        let mut measurements = measured(&machine, 0.88);
        let source = StreamKind::SideBlocking;
        let placement = Placement { source, ..Placement::REFERENCE };
        for (share, reported) in [(0.0, false), (3.0, false), (100.0, true)] {
            measurements.overlap = vec![overlap(placement, share)];
            let found = findings(&machine, Some(&measurements));
            let own = found.iter().find(|finding| finding.code == RULE.id);
            assert_eq!(own.is_some(), reported, "{share}");
            let is_beside = |finding: &Finding| finding.message.contains("run beside a kernel");
            assert!(own.is_none_or(is_beside), "{own:?}");
        }
        let found = findings(&machine, Some(&measurements));
        assert_advice(&RULE, &found, &["update-driver"], &["check-again"]);
    }
}
