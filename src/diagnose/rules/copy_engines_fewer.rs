//! # What it means
//!
//! A GPU runs fewer copy engines at once than its driver reports. Stages of a pipeline run one after the other.
//!
//! # What to do
//!
//! Look for variables that force order (CUDA_LAUNCH_BLOCKING=1, CUDA_DEVICE_MAX_CONNECTIONS=1), a profiler or
//! debugger, and a vGPU or MIG instance, which may have fewer engines. If one GPU differs, compare firmware and slot
//! with its siblings'.
//!
//! # How it is detected
//!
//! Copies from and to pinned memory and a kernel are started two at a time, each in its own stream, and compared with
//! each alone (`measurements.engines`). Reported: the driver has two engines or more, and opposite copies do not
//! overlap by more than half of the shorter; or one, and a copy and a kernel do not. vGPUs and WSL 2 are not judged.
//!
//! # Sources
//!
//! CUDA Driver API, `CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT`. H200 reports 3 (measured).

use super::prelude::*;
use model::pipeline::Engines;

/// Most engines that copies between host and GPU can show: one for each direction.
const SHOWN: u32 = 2;

rule! {
    "copy-engines-fewer", Warning, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    // A vGPU has its share of the engines in turns with others, and WSL 2 collects copies before it submits them.
    let wsl = evidence.snapshot.host.is_wsl();
    let whole = |gpu: u32| {
        let gpu = evidence.snapshot.gpu(gpu);
        !wsl && gpu.is_none_or(|gpu| gpu.vgpu.get() != Some(true))
    };
    let cells =
        evidence.measured().engines.iter().filter(|cell| cell.cell().tested() && whole(cell.gpu));
    let numbers = cells.filter_map(|cell| Some((cell.reported.zip(cell.observed)?, cell)));
    let fewer = numbers.filter(|((reported, observed), _)| observed < reported.min(&SHOWN));
    let groups = words::grouped(fewer).into_iter();
    groups.map(|(numbers, cells)| finding(evidence, numbers, &cells)).collect()
}

fn finding(
    evidence: &Evidence<'_>,
    (reported, observed): (u32, u32),
    cells: &[&Engines],
) -> Finding {
    let gpus: Vec<u32> = cells.iter().map(|cell| cell.gpu).collect();
    let what = match observed {
        0 => "A copy and a kernel take turns",
        _ => "Copies from and to the host take turns",
    };
    let message = format!(
        "{what} on {}: {observed} of {} at work at once",
        evidence.named(&gpus),
        words::count(reported, "copy engine"),
    );
    let plan = Plan::now([
        Step::LookForVariables,
        Step::Stop(Work::Tools),
        Step::MigMode,
        Step::CheckAgain,
    ])
    .if_it_stays([Step::Swap(Part::of(&gpus))]);
    RULE.on_gpus(&gpus, message, plan).fact("reported", reported).fact("observed", observed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::reading::Reading;
    use model::testing::engines;

    fn with(cells: Vec<Engines>) -> Measurements {
        Measurements { engines: cells, ..measured(&h200_vm(4), 0.88) }
    }

    #[test]
    fn copies_that_take_turns_are_found_where_two_engines_are_reported() {
        let machine = h200_vm(4);
        assert_eq!(
            findings(&machine, Some(&with((0..4).map(|gpu| engines(gpu, 3, 2)).collect()))),
            []
        );
        // A driver that reports one engine, with one engine found at work.
        assert_eq!(
            findings(&machine, Some(&with((0..4).map(|gpu| engines(gpu, 1, 1)).collect()))),
            []
        );
        let mut cells: Vec<_> = (0..4).map(|gpu| engines(gpu, 3, 2)).collect();
        cells[2] = engines(2, 3, 1);
        let own =
            only(&findings(&machine, Some(&with(cells))), "copy-engines-fewer", Severity::Warning);
        assert_eq!(
            (own.subject.clone(), fact(&own, "observed")),
            (Subject::Gpu { index: 2 }, 1.into())
        );
        let all = with((0..4).map(|gpu| engines(gpu, 2, 0)).collect());
        let own = only(&findings(&machine, Some(&all)), "copy-engines-fewer", Severity::Warning);
        assert!(
            own.subject == Subject::Machine && own.message.starts_with("A copy and a kernel"),
            "{own:?}"
        );
    }

    #[test]
    fn a_virtual_gpu_and_windows_prove_nothing() {
        let cells = || with(vec![engines(2, 3, 1)]);
        let mut machine = h200_vm(4);
        only(&findings(&machine, Some(&cells())), "copy-engines-fewer", Severity::Warning);
        machine.gpus[2].vgpu = Reading::Known(true);
        assert_eq!(findings(&machine, Some(&cells())), []);
        machine.gpus[2].vgpu = Reading::Known(false);
        machine.host.kernel_version = Reading::Known("5.15.167.4-microsoft-standard-WSL2".into());
        assert_eq!(findings(&machine, Some(&cells())), []);
    }

    #[test]
    fn what_was_disturbed_or_not_reported_shows_nothing() {
        let machine = h200_vm(4);
        let unknown = Engines { reported: None, ..engines(0, 3, 1) };
        let mut disturbed = engines(1, 3, 1);
        disturbed.ending.disturbed = true;
        assert_eq!(findings(&machine, Some(&with(vec![unknown]))), []);
        let found = findings(&machine, Some(&with(vec![disturbed])));
        assert!(found.iter().all(|finding| *finding.code != *"copy-engines-fewer"), "{found:?}");
    }
}
