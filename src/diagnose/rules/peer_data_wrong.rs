//! # What it means
//!
//! A copy between GPUs ended without an error, but its bytes are wrong or missing. Programs compute with wrong
//! numbers, although the bandwidth may look perfect.
//!
//! # What to do
//!
//! First run safely: `NCCL_P2P_DISABLE=1`, or `NCCL_P2P_LEVEL` if only far pairs suffer, or without the GPU that all
//! bad pairs share: the finding states which.
//!
//! Over PCIe, switch off an IOMMU that translates and access control (ACS) that redirects: the finding has the
//! command. In a virtual machine its host must do that. If both are off, suspect a patched driver, a switch that all
//! bad pairs pass, memory without ECC, the GPU. Slot and riser are no suspects: their errors are counted and sent
//! again (`pcie-errors-rose`).
//!
//! # How it is detected
//!
//! The source holds a pattern of source, destination and offset, the destination poison. After a one-way copy the
//! destination GPU checks its memory: poison means dropped, anything else but the pattern corrupt. Copy engine and
//! kernel are checked separately. All or most PCIe pairs at once are `peer-access-broken`.
//!
//! # Sources
//!
//! CUDA Programming Guide 3.4.2.5 (IOMMU on Linux); NCCL's troubleshooting page (ACS); PyTorch issue 84803; FIDESlib
//! issue 28.

use super::prelude::*;
use super::{remedy, wrong_bytes};

pub(crate) const RULE: Rule = Rule::new("peer-data-wrong", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let measurements = evidence.measured();
    let broken = wrong_bytes::broken_pairs(evidence);
    let is_wrong = |cell: &&PeerBandwidth| {
        cell.verified.is_wrong()
            && !(cell.setup.path == Path::Direct && broken.contains(&cell.pair))
    };
    let is_judged = |cell: &&PeerBandwidth| is_wrong(cell) || cell.verified == Verified::Ok;
    let wrong: Vec<_> = measurements.peer.iter().filter(is_wrong).collect();
    let bad: BTreeSet<_> = wrong.iter().map(|cell| cell.pair).collect();
    let seen: BTreeSet<_> =
        measurements.peer.iter().filter(is_judged).map(|cell| cell.pair).collect();
    let (bad, seen): (Vec<_>, Vec<_>) = (bad.into_iter().collect(), seen.into_iter().collect());
    let groups = cluster::groups(&bad, &seen, evidence.topology);
    groups
        .iter()
        .map(|group| {
            let pairs = group.pair_set();
            let cells: Vec<_> =
                wrong.iter().copied().filter(|cell| pairs.contains(&cell.pair)).collect();
            finding(evidence, group, &cells)
        })
        .collect()
}

fn finding(evidence: &Evidence<'_>, group: &cluster::Group, cells: &[&PeerBandwidth]) -> Finding {
    let how: Vec<_> = words::unique(
        cells.iter().map(|cell| format!("{}, {}", cell.setup.engine, cell.setup.path)),
    );
    let count = |verified| cells.iter().filter(|cell| cell.verified == verified).count();
    let (dropped, corrupt) = (count(Verified::Dropped), count(Verified::Corrupt));
    let stale = count(Verified::Stale);
    let what = match (dropped, stale, corrupt) {
        (0, _, 0) => "was lost in some copies",
        (_, _, 0) => "never arrived",
        (0, 0, _) => "arrived wrong",
        _ => "never arrived or arrived wrong",
    };
    let seen = words::distinct(cells.iter().filter_map(|cell| cell.verification_detail.as_deref()));
    let gpus = suspects::gpus_of(&group.pairs);
    let iommu = suspects::iommu_translates(evidence, &gpus);
    let redirecting = suspects::redirecting_ports(evidence, &gpus);
    let one_engine = one_engine(evidence, cells);
    let suspects = suspected(evidence, group, one_engine);
    let detail = if seen.is_empty() { String::new() } else { format!(": {seen}") };
    let message = format!(
        "Data copied {} {what} ({}{}){detail}",
        group.place(evidence.snapshot),
        how.join("; "),
        match one_engine {
            Some(Engine::Kernel) => " alone: what the copy engine moves arrives",
            Some(Engine::Copy) => " alone: what kernels move arrives",
            None => "",
        },
    );
    let mut found = RULE
        .finding(
            group.subject(),
            message,
            remedy::plan(evidence, group, find(evidence, group, one_engine))
                .and(When::Afterwards, [Step::ComputeAgain(Results::OverPairs)]),
        )
        .fact("copies_dropped", dropped)
        .fact("copies_stale", stale)
        .fact("copies_corrupt", corrupt)
        .fact("copies", how)
        .fact("iommu_translating", iommu)
        .fact("ports_with_acs_redirect", redirecting)
        .pairs(&group.pairs);
    found.suspects = suspects;
    found
}

/// Returns the possible causes, the settings of the machine first.
fn suspected(
    evidence: &Evidence<'_>,
    group: &cluster::Group,
    one_engine: Option<Engine>,
) -> Vec<Suspect> {
    let over_pcie = group.pairs.iter().any(|pair| evidence.over_pcie(*pair));
    let settings = || {
        if over_pcie { suspects::of_pcie_settings(evidence, &group.pairs) } else { Vec::new() }
    };
    let own = match one_engine {
        Some(Engine::Kernel) => suspect(Cause::Window, [Step::Reboot, Step::OwnDriver]),
        Some(Engine::Copy) => {
            suspect_if(Cause::CopyEngine, [Step::SwapTest(swapped(group))], Sign::FaultMoves)
        }
        None if over_pcie => return wrong_bytes::suspects(evidence, group),
        None => suspect_if(
            Cause::GpuOrNvLinks,
            [Step::XidOf("74"), Step::LinkErrors, Step::SwapTest(swapped(group))],
            Sign::FaultMoves,
        ),
    };
    settings().into_iter().chain([own]).collect()
}

/// Returns the steps that find the cause once the settings are ruled out.
fn find(evidence: &Evidence<'_>, group: &cluster::Group, one_engine: Option<Engine>) -> Vec<Step> {
    let swap = Step::Swap(swapped(group));
    let over_pcie = group.pairs.iter().any(|pair| evidence.over_pcie(*pair));
    match one_engine {
        Some(Engine::Kernel) => vec![Step::Reboot, Step::CheckAgain, swap],
        None if !over_pcie => {
            vec![Step::XidOf("74"), Step::LinkErrors, swap]
        }
        _ if wrong_bytes::memory_is_watched(evidence, &group.pairs) => vec![swap],
        _ => vec![Step::TestMemory, swap],
    }
}

/// Returns the GPU to swap: the one that all pairs have, or any of theirs.
fn swapped(group: &cluster::Group) -> Part {
    Part::Gpu(OneOf(group.gpus()))
}

/// Returns the engine that alone fails: on all these pairs the other was checked as well, and its bytes arrived.
fn one_engine(evidence: &Evidence<'_>, cells: &[&PeerBandwidth]) -> Option<Engine> {
    let engine = cells.first()?.setup.engine;
    let all = evidence.peer();
    let other_is_fine = |pair: Pair| {
        let mut others = all
            .iter()
            .filter(|cell| {
                cell.pair == pair && cell.setup.path == Path::Direct && cell.setup.engine != engine
            })
            .filter(|cell| cell.verified.is_wrong() || cell.verified == Verified::Ok)
            .peekable();
        others.peek().is_some() && others.all(|cell| cell.verified == Verified::Ok)
    };
    let alone = cells.iter().all(|cell| {
        cell.setup.engine == engine && cell.setup.path == Path::Direct && other_is_fine(cell.pair)
    });
    alone.then_some(engine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cell;
    use crate::testing::prelude::*;
    use model::reading::Unknown;

    /// Two GPUs below a switch between which direct copies arrive wrong; the IOMMU is off.
    fn wrong_below_a_switch() -> (Snapshot, Measurements) {
        let mut machine = two_sockets();
        machine.host.iommu_translating = Reading::Known(false);
        let mut measurements = measured(&machine, 0.84);
        let staged: Vec<_> =
            measurements.peer.iter().map(|direct| cell(direct.pair, Path::Staged, 20.0)).collect();
        for cell in measurements.peer.iter_mut().filter(|cell| cell.pair.unordered() == (0, 1)) {
            (cell.verified, cell.ending.status, cell.achieved_gbps) =
                (Verified::Corrupt, Status::Failed, None);
        }
        measurements.peer.extend(staged);
        (machine, measurements)
    }

    #[test]
    fn settings_that_are_not_known_are_to_be_looked_at() {
        let usual = ["disable-peers", "test-memory", "swap", "update-firmware"];
        let (mut machine, measurements) = wrong_below_a_switch();
        machine.host.iommu_translating = Reading::failed("no such file");
        let found = findings(&machine, Some(&measurements));
        let must = [&usual[..], &["look-at-iommu"]].concat();
        assert_advice(&RULE, &found, &must, &[]);
        let (mut machine, measurements) = wrong_below_a_switch();
        function_mut(&mut machine, "0000:02:01.0").acs_redirect =
            Reading::Unknown(Unknown::Denied("needs root".into()));
        let found = findings(&machine, Some(&measurements));
        let must = [&usual[..], &["run-as-root"]].concat();
        assert_advice(&RULE, &found, &must, &[]);
    }
}
