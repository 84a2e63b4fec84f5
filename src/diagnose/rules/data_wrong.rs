//! # What it means
//!
//! A copy ended without an error, but its bytes are wrong or missing. Programs compute with wrong numbers, although the
//! bandwidth may look perfect.
//!
//! # What to do
//!
//! First run safely, as the finding says: without peer access (`NCCL_P2P_DISABLE=1`, or `NCCL_P2P_LEVEL` if only far
//! pairs suffer), or without the GPU or the machine. Look for Xid messages, errors of the links, and memory errors of
//! the host (EDAC, `mcelog`).
//!
//! Over PCIe, switch off an IOMMU that translates and access control (ACS) that redirects; in a virtual machine its
//! host must do that. If both are off, suspect a patched driver, a switch that all bad pairs pass, memory without ECC,
//! the GPU. Not slot and riser: their errors are counted and sent again (`pcie-errors-rose`).
//!
//! # How it is detected
//!
//! A word never written is dropped, one of the copy before stale, another wrong one corrupt. Checked are copies between
//! GPUs, within them and with the host, several flows at once, hours under load, and memory handed between processes.
//! Most PCIe pairs at once are `peer-access-broken`.
//!
//! # Sources
//!
//! CUDA Programming Guide 3.4.2.5 (IOMMU); NCCL's troubleshooting page (ACS); PyTorch issue 84803; FIDESlib issue 28.

use super::prelude::*;
use super::wrong_bytes::{self, Wrong};
use super::{remedy, wrong_at_once, wrong_in_hours};
use model::cell::Subject as _;
use model::links::SingleLink;
use model::measurement::Sharing;

rule! {
    "data-wrong", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let alone = of_pairs(evidence).into_iter().chain(of_links(evidence));
    let alone = alone.chain(of_host(evidence)).chain(of_local(evidence));
    let at_once = wrong_at_once::findings(&RULE, evidence)
        .into_iter()
        .chain(wrong_in_hours::findings(&RULE, evidence));
    alone.chain(at_once).chain(of_processes(evidence)).collect()
}

/// Returns the findings on copies of pairs alone.
fn of_pairs(evidence: &Evidence<'_>) -> Vec<Finding> {
    let measurements = evidence.measured();
    let broken = wrong_bytes::broken_pairs(evidence);
    let is_wrong = |cell: &&PeerBandwidth| {
        cell.verified.is_wrong()
            && !(cell.setup.path == Path::Direct && broken.contains(&cell.pair))
    };
    let is_judged = |cell: &&PeerBandwidth| is_wrong(cell) || cell.verified == Verified::Ok;
    let wrong: Vec<_> = measurements.peer.iter().filter(is_wrong).collect();
    let seen = measurements.peer.iter().filter(is_judged).map(|cell| cell.pair);
    let places = evidence.places(&wrong, &words::unique(seen), |cell| Some(cell.pair));
    places.iter().map(|(group, cells)| of_group(evidence, group, cells)).collect()
}

/// Returns a finding for each two GPUs whose copies arrive and whose stores over single links do not.
fn of_links(evidence: &Evidence<'_>) -> Vec<Finding> {
    let measurements = evidence.measured();
    let copied = |pair: Pair| {
        let of_pair = measurements.peer.iter().filter(|cell| cell.pair == pair);
        of_pair.filter(|cell| cell.setup.path == Path::Direct).any(|cell| cell.verified.is_wrong())
    };
    let wrong = measurements.nvlinks.iter();
    let wrong = wrong.filter(|cell| cell.verified.is_wrong() && !copied(cell.pair));
    let pairs = words::grouped(wrong.map(|cell| (cell.pair.unordered(), cell)));
    let finding = |cells: &Vec<&SingleLink>| {
        let names: Vec<_> = words::unique(cells.iter().map(|cell| cell.title()));
        let own = suspect_if(
            Cause::GpuOrNvLinks,
            [Step::XidOf("74"), Step::LinkErrors],
            Sign::FaultMoves,
        );
        let pairs: Vec<Pair> = words::unique(cells.iter().map(|cell| cell.pair));
        let Pair { source, destination } = pairs[0];
        let message = format!(
            "Bytes stored over single NVLinks between GPU {source} and GPU {destination} arrive wrong; {}",
            match names.as_slice() {
                few @ ([_] | [_, _] | [_, _, _]) => few.join("; "),
                many => words::count(many.len(), "link"),
            },
        );
        let plan = Plan::now([Step::XidOf("74"), Step::LinkErrors, Step::CheckAgain])
            .and(When::Afterwards, [Step::ComputeAgain]);
        let mut found = RULE.finding(Subject::Pair(pairs[0]), message, plan).pairs(&pairs);
        found.suspects = vec![own];
        found
    };
    pairs.values().map(finding).collect()
}

fn of_group(evidence: &Evidence<'_>, group: &cluster::Group, cells: &[&PeerBandwidth]) -> Finding {
    let how: Vec<_> = words::unique(
        cells.iter().map(|cell| format!("{}, {}", cell.setup.engine, cell.setup.path)),
    );
    let wrong = Wrong::of(cells.iter().map(|cell| cell.verified));
    let seen = words::distinct(cells.iter().filter_map(|cell| cell.verification_detail.as_deref()));
    let one_engine = one_engine(evidence, cells);
    let suspects = suspected(evidence, group, one_engine);
    let message = format!(
        "Bytes copied {} {}{}; {}{}",
        evidence.place(group),
        wrong.words(),
        match one_engine {
            Some(Engine::Kernel) => " by kernels; what the copy engine moves arrives",
            Some(Engine::Copy) => " by the copy engine; what kernels move arrives",
            None => "",
        },
        how.join(" and "),
        words::after("; ", Some(seen)),
    );
    let plan = remedy::plan(evidence, group, find(evidence, group, one_engine))
        .and(When::Afterwards, [Step::ComputeAgain]);
    let mut found = wrong
        .facts(RULE.finding(group.subject(), message, plan))
        .fact("copies", how)
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
    let over_pcie = evidence.any_over_pcie(&group.pairs);
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
    let over_pcie = evidence.any_over_pcie(&group.pairs);
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
    Part::of(&group.gpus())
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

/// Returns the finding on copies with the host.
fn of_host(evidence: &Evidence<'_>) -> Option<Finding> {
    let wrong = evidence.host().iter().filter(|copy| copy.verified.is_wrong());
    let ways = words::distinct(wrong.clone().map(|copy| copy.way().to_string()));
    let cells = wrong.map(|copy| (copy.gpu, copy.verified, copy.verification_detail.as_deref()));
    of_gpus(evidence, "between the host and", cells, Some(&ways), |gpus| {
        [Some(Step::EdacLog), suspects::pass_through(evidence, gpus, Ask::IommuAndAcs)]
    })
}

/// Returns the finding on copies within GPUs.
fn of_local(evidence: &Evidence<'_>) -> Option<Finding> {
    let wrong = evidence.measured().local.iter().filter(|copy| copy.verified.is_wrong());
    let cells = wrong.map(|copy| (copy.gpu, copy.verified, copy.verification_detail.as_deref()));
    of_gpus(evidence, "within", cells, None, |_| [Some(Step::MemoryRows), None])
}

/// Returns the finding on copies of GPUs that are wrong, each with its description, and what to look for beside Xids.
fn of_gpus<'c>(
    evidence: &Evidence<'_>,
    place: &str,
    wrong: impl Iterator<Item = (u32, Verified, Option<&'c str>)> + Clone,
    ways: Option<&str>,
    look: impl FnOnce(&[u32]) -> [Option<Step>; 2],
) -> Option<Finding> {
    let gpus: Vec<u32> = words::unique(wrong.clone().map(|(gpu, ..)| gpu));
    if gpus.is_empty() {
        return None;
    }
    let how = Wrong::of(wrong.clone().map(|(_, verified, _)| verified));
    let message = format!(
        "Bytes of copies {place} {} {}{}{}",
        evidence.named(&gpus),
        how.words(),
        words::after("; ", ways),
        words::after("; ", wrong.clone().find_map(|(.., detail)| detail)),
    );
    let plan = Plan::until_repair([Step::OutOfService(all(&gpus))])
        .then([Step::Xid])
        .then(look(&gpus).into_iter().flatten())
        .then([Step::Swap(Part::of(&gpus))]);
    Some(how.facts(RULE.on_gpus(&gpus, message, plan)))
}

/// Returns the finding on memory that two processes share.
fn of_processes(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let wrong: Vec<&Sharing> =
        measurements.sharing.iter().filter(|cell| cell.verified.is_wrong()).collect();
    if wrong.is_empty() {
        return None;
    }
    let ways: BTreeSet<_> = wrong.iter().map(|cell| cell.rung).collect();
    let ways: Vec<String> = ways.iter().map(ToString::to_string).collect();
    let gpus: Vec<u32> = words::unique(wrong.iter().flat_map(|cell| [cell.owner, cell.user]));
    let message = format!(
        "Memory of {} that is shared between processes has wrong bytes; {}",
        evidence.named(&gpus),
        ways.join(", "),
    );
    let steps = Plan::now([Step::CheckAgain, Step::Xid]).if_it_stays([Step::OtherDriver]);
    let found = RULE.on_machine(message, steps);
    Some(found.fact("ways_wrong", Fact::Count(wrong.len() as u64)).gpus(&gpus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cell;
    use crate::testing::prelude::*;
    use crate::testing::with_host;
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
    fn wrong_bytes_within_a_gpu_are_its_own() {
        let machine = h200_vm(2);
        let mut measurements = measured(&machine, 0.88);
        measurements.local = [0, 1].map(|gpu| crate::testing::local(gpu, 2000.0)).into();
        assert_eq!(findings(&machine, Some(&measurements)), []);
        measurements.local[1].verified = Verified::Corrupt;
        measurements.local[1].verification_detail = Some("24 B of 256 MiB are wrong".into());
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "data-wrong", Severity::Error);
        assert_eq!(found.subject, Subject::Gpu { index: 1 });
        assert!(found.message.ends_with("arrive wrong; 24 B of 256 MiB are wrong"), "{found:?}");
        assert_advice(&RULE, &all, &["out-of-service", "xid", "memory-rows", "ask-host"], &[]);
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

    #[test]
    fn bytes_that_do_not_arrive_are_an_error_whatever_the_rate() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        measurements.host[3].verified = Verified::Dropped;
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "data-wrong", Severity::Error);
        assert_eq!(own.subject, Subject::Gpu { index: 1 });
        assert!(own.message.contains("never arrive; pinned, to device"), "{}", own.message);
        assert_eq!(exit(&found, Some(&measurements)), 1);
    }
}
