//! # What it means
//!
//! Some of what was asked for was not tested. It may be the broken part, so the exit code is 3; it never counts as a
//! fault.
//!
//! # What to do
//!
//! Remove the reason that the message gives and check again, or ask for less (`--gpus`, `--only`, `--skip`). If rows
//! were removed from a saved report, get it as it was written.
//!
//! # How it is detected
//!
//! - Measurements were skipped, or it is not known if their bytes arrived.
//! - A requested GPU could not be used: compute mode, MIG mode, out of memory.
//! - A run was cut off and its report recovered, or a saved report has fewer rows than its verdict counts.
//! - Hours under load ended early without a fault, compared no bytes, left copies out, or had one crash.
//! - `topo`: a GPU is in prohibited compute mode, or still registers with the NVSwitch fabric.
//!
//! GPUs that CUDA does not show are `devices-hidden`. A pair without peer access is tested by its staged copies.
//!
//! # Sources
//!
//! CUDA Programming Guide, CUDA_VISIBLE_DEVICES; DCGM issue 198 (a check that passed and had tested nothing).

use super::broken_off::pattern_fails_alone;
use super::fabric_not_ready;
use super::hours_gap;
use super::prelude::*;
use crate::coverage::{self, Coverage, coverage};
use model::snapshot::ComputeMode;

/// Most reasons that the message spells out; the evidence has them all.
const SPELT_OUT: usize = 4;

rule! {
    "not-tested", Warning, All(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    [of_check(evidence), hours_gap::finding(&RULE, evidence)].into_iter().flatten().collect()
}

fn of_check(evidence: &Evidence<'_>) -> Option<Finding> {
    let Some(measurements) = evidence.measurements else {
        return closed_by_facts(evidence);
    };
    let coverage = coverage(measurements);
    // `nothing-measured` reports a run without any figure.
    if coverage.tested_ways + coverage.set_aside == 0 {
        return None;
    }
    let parts = [
        cut_off(measurements),
        absent(measurements, &coverage),
        skipped(evidence, &coverage),
        unverified(measurements, &coverage),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    Some(
        RULE.on_machine(parts.join("; "), plan(evidence, measurements))
            .fact("untested", coverage.untested)
            // The message has all reasons if they are few.
            .fact(
                "reasons",
                (coverage.reasons.len() > SPELT_OUT)
                    .then(|| coverage.reasons.clone().into_iter().collect::<Facts>()),
            )
            .about_pairs(untested_pairs(measurements)),
    )
}

/// Returns the GPUs that no program can use by facts alone, because their compute mode is prohibited.
pub(super) fn closed(evidence: &Evidence<'_>) -> Vec<u32> {
    // `pasted-unclear` names what the output of other tools lacks.
    if evidence.measurements.is_some() || evidence.read_from.is_some() {
        return Vec::new();
    }
    let prohibited = Some(ComputeMode::Prohibited);
    let snapshot = evidence.snapshot;
    snapshot.gpus_with(|gpu| gpu.compute_mode.get() == prohibited)
}

/// Returns a finding on the GPUs that no program can use by facts alone. A check of them would be inconclusive.
fn closed_by_facts(evidence: &Evidence<'_>) -> Option<Finding> {
    let closed = closed(evidence);
    let coming = match evidence.read_from {
        Some(_) => Vec::new(),
        None => fabric_not_ready::coming_up(evidence),
    };
    let of = |gpus: &[u32], what: &str| {
        let names = evidence.named(gpus);
        (!gpus.is_empty()).then(|| format!("{names}: {what}"))
    };
    let parts = [
        of(&closed, "no CUDA program can start, compute mode prohibited"),
        of(
            &coming,
            "no CUDA program can start yet, NVLink fabric not ready; the machine was just started",
        ),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let mut steps = Vec::new();
    if !closed.is_empty() {
        steps.push(Step::DefaultComputeMode(all(&closed)));
    }
    steps.push(Step::CheckAgain);
    let mut plan = Plan::now(steps);
    if !closed.is_empty() {
        plan = plan.otherwise([Step::Nothing(Fine::IfMeant)]);
    }
    let gpus = words::unique(closed.into_iter().chain(coming));
    (!parts.is_empty()).then(|| RULE.on_gpus(&gpus, parts.join("; "), plan))
}

/// Returns the pairs that were not tested, if the gap consists of pairs only: no GPU is missing, no figure is
/// unverified, and the run was not cut off.
pub(crate) fn untested_pairs(measurements: &Measurements) -> Vec<Pair> {
    let whole = coverage(measurements).unverified > 0
        || measurements.cut_off
        || measurements.absent > 0
        || measurements.driver.failure.is_some()
        || coverage::unusable(measurements).next().is_some();
    let single = coverage::cells(measurements).filter(|cell| cell.probe != Probe::Load);
    // If one of several flows at once fails alone, it is the reason why the others were not tested either.
    let load = measurements
        .load
        .iter()
        .filter(|load| load.rate().is_none() && !pattern_fails_alone(measurements, load));
    let all = single.chain(load.flat_map(LoadPattern::cells));
    let untested = all.filter(|cell| !cell.tested() && !cell.disturbed && !whole);
    words::unique(untested.filter_map(|cell| cell.flow.pair()))
}

fn plan(evidence: &Evidence<'_>, measurements: &Measurements) -> Plan {
    if measurements.absent > 0 {
        return Plan::now([Step::WholeReport]);
    }
    let in_mode = |modes: &[ComputeMode]| -> Vec<u32> {
        let gpus =
            coverage::unusable(measurements).filter_map(|(index, _)| evidence.snapshot.gpu(index));
        let gpus =
            gpus.filter(|gpu| gpu.compute_mode.get().is_some_and(|mode| modes.contains(&mode)));
        gpus.map(|gpu| gpu.index).collect()
    };
    let taken = in_mode(&[ComputeMode::ExclusiveProcess, ComputeMode::ExclusiveThread]);
    let prohibited = in_mode(&[ComputeMode::Prohibited]);
    let mut steps = Vec::new();
    if !taken.is_empty() {
        steps.push(Step::EndProgramOn(all(&taken)));
        if evidence.snapshot.host.mps_daemon.get() == Some(true) {
            steps.push(Step::QuitMps);
        }
    }
    let closed: Vec<u32> = taken.into_iter().chain(prohibited).collect();
    if closed.is_empty() {
        steps.push(Step::RemoveReason);
    } else {
        steps.push(Step::DefaultComputeMode(all(&closed)));
    }
    steps.push(Step::CheckAgain);
    Plan::now(steps).otherwise([Step::CheckLess])
}

fn cut_off(measurements: &Measurements) -> Option<String> {
    measurements.cut_off.then(|| "The run was cut off before its end".to_owned())
}

/// Returns a sentence if a saved report has fewer rows than were asked for.
fn absent(measurements: &Measurements, coverage: &Coverage) -> Option<String> {
    let all = coverage.tested.saturating_add(coverage.untested);
    let absent = measurements.absent;
    (absent > 0).then(|| {
        format!(
            "The report lacks the rows of {absent} of {all} measurements; they were taken out of it"
        )
    })
}

fn skipped(evidence: &Evidence<'_>, coverage: &Coverage) -> Option<String> {
    if coverage.reasons.is_empty() {
        return None;
    }
    let mut reasons: Vec<_> = coverage.reasons.iter().collect();
    reasons.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
    let shown: Vec<_> = reasons
        .iter()
        .take(SPELT_OUT)
        .map(|(reason, count)| format!("{reason} ({count})"))
        .collect();
    let skipped: u32 = coverage.reasons.values().sum();
    let unusable: Vec<u32> = coverage::unusable(evidence.measured()).map(|(gpu, _)| gpu).collect();
    let closed = match unusable.as_slice() {
        [] => String::new(),
        gpus => format!("{} not tested, ", evidence.named(gpus)),
    };
    let more = words::further("; and ", reasons.len().saturating_sub(SPELT_OUT), "other reason");
    Some(format!(
        "{closed}{skipped} of {} measurements not made; {}{more}",
        coverage.tested + coverage.untested,
        shown.join("; ")
    ))
}

fn unverified(measurements: &Measurements, coverage: &Coverage) -> Option<String> {
    let peer = measurements.peer.iter().map(|cell| (cell.verified, &cell.verification_detail));
    let host = measurements.host.iter().map(|copy| (copy.verified, &copy.verification_detail));
    let load = measurements.load.iter().map(|load| (load.verified, &load.verification_detail));
    let addresses = measurements.addresses.iter();
    let addresses = addresses.map(|cell| (cell.verified, &cell.verification_detail));
    let local = measurements.local.iter().map(|copy| (copy.verified, &copy.verification_detail));
    let mut doubtful = peer
        .chain(host)
        .chain(load)
        .chain(addresses)
        .chain(local)
        .filter(|(verified, _)| *verified == Verified::Inconclusive);
    // Some cells have no detail: their bytes are not checked where there are no GPU kernels, and for no other reason.
    let driver = &measurements.driver;
    let failure = || {
        let mut devices = driver.devices.iter();
        let of_devices = || devices.find_map(|device| device.kernels_failure.as_deref());
        driver.kernels_failure.as_deref().or_else(of_devices)
    };
    let why = doubtful
        .find_map(|(_, detail)| detail.clone())
        .or_else(|| Some(format!("the GPU kernels could not be loaded: {}", failure()?)))
        .unwrap_or_else(|| "no reason given".to_owned());
    (coverage.unverified > 0).then(|| {
        format!(
            "{} of {} figures are not verified; it is not known whether their bytes arrived: {why}",
            coverage.unverified, coverage.tested
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::flow::Setup;
    use model::measurement::{DriverFacts, PeerBandwidth};
    use model::units::GbPerSecond;

    #[test]
    fn a_figure_without_detail_was_not_checked_for_want_of_kernels() {
        let mut cell = PeerBandwidth::blank(Pair::ordered(&[0, 1])[0], Setup::REFERENCE);
        cell.achieved_gbps = Some(GbPerSecond(395.0));
        cell.verified = Verified::Inconclusive;
        let measurements = Measurements {
            peer: vec![cell],
            driver: DriverFacts {
                kernels_failure: Some("cuModuleLoadData: refused".into()),
                ..DriverFacts::default()
            },
            ..Measurements::default()
        };
        let said = unverified(&measurements, &coverage(&measurements)).unwrap();
        assert!(
            said.ends_with("the GPU kernels could not be loaded: cuModuleLoadData: refused"),
            "{said}"
        );
    }

    #[test]
    fn a_gpu_that_no_program_can_use_is_a_gap_by_facts_alone() {
        let mut machine = h200_vm(3);
        machine.gpus[2].compute_mode = Reading::Known(ComputeMode::Prohibited);
        let found = findings(&machine, None);
        only(&found, "not-tested", Severity::Warning);
        let may = ["check-again", "nothing"];
        assert_advice(&RULE, &found, &["default-compute-mode"], &may);
        assert_eq!(found[0].subject, Subject::Gpu { index: 2 });
    }
}
