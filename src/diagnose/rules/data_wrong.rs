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
//! Over PCIe, switch off an IOMMU that translates and access control (ACS) that redirects; in a virtual machine its host
//! must do that. If both are off, suspect a patched driver, a switch that all bad pairs pass, memory without ECC, the
//! GPU. Slot and riser are no suspects: their errors are counted and sent again (`pcie-errors-rose`).
//!
//! # How it is detected
//!
//! The source holds a pattern of source, destination and offset, the destination poison. After a copy the destination is
//! checked: poison means dropped, anything else but the pattern corrupt. This is done for
//!
//! - one-way copies of a pair, by copy engine and by kernel (most PCIe pairs at once are `peer-access-broken`);
//! - copies with the host;
//! - several flows at once (`measurements.load`) that arrive alone; `beside` are those that arrived;
//! - each burst of hours under load (`measurements.soak`);
//! - memory that one process handed to another (`measurements.sharing`).
//!
//! # Sources
//!
//! CUDA Programming Guide 3.4.2.5 (IOMMU on Linux); NCCL's troubleshooting page (ACS); PyTorch issue 84803; FIDESlib
//! issue 28; PCI Express Base Specification (end-to-end CRC is optional).

use super::over_time::{self, OfPlace};
use super::prelude::*;
use super::{broken_off, load, load_steps, remedy, wrong_bytes};
use model::flow::Flow;
use model::host::HostCopy;
use model::load::{LoadFlow, LoadPattern};
use model::measurement::Sharing;
use model::soak::{EventKind, Soak, SoakEvent, SoakPath};

pub(crate) const RULE: Rule = Rule::new("data-wrong", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let alone = of_pairs(evidence).into_iter().chain(of_host(evidence));
    let at_once = of_patterns(evidence).into_iter().chain(of_hours(evidence));
    alone.chain(at_once).chain(of_processes(evidence)).collect()
}

/// The ways in which copies are wrong, with their number.
struct Wrong {
    dropped: usize,
    stale: usize,
    corrupt: usize,
}

impl Wrong {
    fn of(all: impl Iterator<Item = Verified> + Clone) -> Self {
        let count = |wanted| all.clone().filter(|one| *one == wanted).count();
        let [dropped, stale, corrupt] =
            [Verified::Dropped, Verified::Stale, Verified::Corrupt].map(count);
        Self { dropped, stale, corrupt }
    }

    /// Returns what the bytes do.
    const fn words(&self) -> &'static str {
        match (self.dropped, self.stale, self.corrupt) {
            (0, _, 0) => "are lost in some copies",
            (_, _, 0) => "never arrive",
            (0, 0, _) => "arrive wrong",
            _ => "arrive wrong or never",
        }
    }

    fn facts(&self, found: Finding) -> Finding {
        found
            .fact("copies_dropped", self.dropped)
            .fact("copies_stale", self.stale)
            .fact("copies_corrupt", self.corrupt)
    }
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
            of_group(evidence, group, &cells)
        })
        .collect()
}

fn of_group(evidence: &Evidence<'_>, group: &cluster::Group, cells: &[&PeerBandwidth]) -> Finding {
    let how: Vec<_> = words::unique(
        cells.iter().map(|cell| format!("{}, {}", cell.setup.engine, cell.setup.path)),
    );
    let wrong = Wrong::of(cells.iter().map(|cell| cell.verified));
    let seen = words::distinct(cells.iter().filter_map(|cell| cell.verification_detail.as_deref()));
    let gpus = suspects::gpus_of(&group.pairs);
    let iommu = suspects::iommu_translates(evidence, &gpus);
    let redirecting = suspects::redirecting_ports(evidence, &gpus);
    let one_engine = one_engine(evidence, cells);
    let suspects = suspected(evidence, group, one_engine);
    let detail = if seen.is_empty() { String::new() } else { format!(": {seen}") };
    let message = format!(
        "Bytes copied {} {} ({}{}){detail}",
        group.place(evidence.snapshot),
        wrong.words(),
        how.join("; "),
        match one_engine {
            Some(Engine::Kernel) => " alone: what the copy engine moves arrives",
            Some(Engine::Copy) => " alone: what kernels move arrives",
            None => "",
        },
    );
    let plan = remedy::plan(evidence, group, find(evidence, group, one_engine))
        .and(When::Afterwards, [Step::ComputeAgain(Results::OverPairs)]);
    let mut found = wrong
        .facts(RULE.finding(group.subject(), message, plan))
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

/// Returns the finding on copies with the host.
fn of_host(evidence: &Evidence<'_>) -> Option<Finding> {
    let wrong = evidence.host().iter().filter(|copy| copy.verified.is_wrong());
    let wrong: Vec<&HostCopy> = wrong.collect();
    let gpus: Vec<u32> = words::unique(wrong.iter().map(|copy| copy.gpu));
    if gpus.is_empty() {
        return None;
    }
    let how = Wrong::of(wrong.iter().map(|copy| copy.verified));
    let ways = words::distinct(wrong.iter().map(|copy| copy.way().to_string()));
    let detail = wrong.iter().find_map(|copy| copy.verification_detail.as_deref());
    let detail = words::after(": ", detail);
    let message = format!(
        "Bytes of copies between the host and {} {} ({ways}){detail}",
        words::named(evidence.snapshot, &gpus),
        how.words()
    );
    let setting = suspects::pass_through(evidence, &gpus, Ask::Iommu);
    let plan = Plan::until_repair([Step::OutOfService(all(&gpus))])
        .and(When::Now, [Step::Xid, Step::EdacLog])
        .and(When::Now, setting)
        .and(When::Now, [Step::Swap(Part::Gpu(one_of(&gpus)))]);
    Some(how.facts(RULE.finding(Subject::of_gpus(&gpus), message, plan).gpus(&gpus)))
}

/// Returns the findings on several copies at the same time, each of which arrives intact alone.
fn of_patterns(evidence: &Evidence<'_>) -> Vec<Finding> {
    let measurements = evidence.measured();
    let is_new = |pattern: &&LoadPattern| {
        pattern.verified.is_wrong() && !broken_off::pattern_fails_alone(measurements, pattern)
    };
    let wrong: Vec<&LoadPattern> = measurements.load.iter().filter(is_new).collect();
    let flows = || wrong.iter().flat_map(|pattern| &pattern.flows);
    if !flows().any(LoadFlow::is_wrong) {
        return of_unknown_flows(evidence, &wrong).into_iter().collect();
    }
    let pairs = |is_meant: fn(&&LoadFlow) -> bool| -> Vec<Pair> {
        let pairs = flows().filter(is_meant).filter_map(|flow| flow.flow().pair());
        words::unique(pairs)
    };
    let bad = pairs(|flow| flow.is_wrong());
    let seen = pairs(|flow| flow.verified == Some(Verified::Ok));
    let groups = evidence.groups(&bad, &seen);
    let of_groups = groups.iter().filter_map(|group| {
        let is_meant = |flow: Flow| flow.pair().is_some_and(|pair| group.pairs.contains(&pair));
        Some(of_flows(evidence, group.subject(), &wrong, &is_meant)?.pairs(&group.pairs))
    });
    let with_host = |flow: Flow| flow.pair().is_none();
    let gpus = gpus_of(flows().filter(|flow| flow.is_wrong() && with_host(flow.flow())));
    let host = of_flows(evidence, Subject::of_gpus(&gpus), &wrong, &with_host);
    of_groups.chain(host.map(|found| found.gpus(&gpus))).collect()
}

fn gpus_of<'a>(flows: impl Iterator<Item = &'a LoadFlow>) -> Vec<u32> {
    words::unique(flows.flat_map(|flow| flow.flow().gpus()))
}

/// Returns the finding on those flows of these patterns that `is_meant` selects and whose bytes are wrong; `None` if
/// there are none.
fn of_flows(
    evidence: &Evidence<'_>,
    subject: Subject,
    wrong: &[&LoadPattern],
    is_meant: &dyn Fn(Flow) -> bool,
) -> Option<Finding> {
    let is_wrong = |flow: &&LoadFlow| flow.is_wrong() && is_meant(flow.flow());
    let shows = |pattern: &&&LoadPattern| pattern.flows.iter().any(|flow| is_wrong(&flow));
    let patterns: Vec<&LoadPattern> = wrong.iter().filter(shows).copied().collect();
    // The smallest pattern locates the fault best.
    let first = patterns.iter().min_by_key(|pattern| pattern.flows.len())?;
    let all: Vec<&LoadFlow> =
        patterns.iter().flat_map(|pattern| &pattern.flows).filter(is_wrong).collect();
    let detail = first.flows.iter().find(is_wrong);
    let detail = detail.and_then(|flow| flow.verification_detail.as_deref());
    let flows: Vec<Flow> = words::unique(all.iter().map(|flow| flow.flow()));
    let sound = first.flows.iter().filter(|flow| !flow.is_wrong());
    let beside = sound.map(LoadFlow::flow).filter(|flow| !flows.contains(flow));
    let beside: Vec<Flow> = beside.collect();
    let message = format!(
        "{}: bytes {} while other copies run ({}, {} beside){}",
        load::flow_names(&flows),
        Wrong::of(all.iter().filter_map(|flow| flow.verified)).words(),
        first.name(),
        beside.len(),
        words::after(": ", detail),
    );
    let found = RULE
        .finding(subject, message, steps_of(evidence, &flows))
        .fact("beside", broken_off::named_or_pairs(&beside))
        .fact("pattern", first.name());
    Some(found.fact("patterns", patterns.len()))
}

/// Returns the finding for reports that record wrong bytes by pattern only, as those of earlier versions do.
fn of_unknown_flows(evidence: &Evidence<'_>, wrong: &[&LoadPattern]) -> Option<Finding> {
    let first = wrong.iter().min_by_key(|pattern| pattern.flows.len())?;
    let flows: Vec<Flow> = first.flows.iter().map(LoadFlow::flow).collect();
    let detail = words::after(": ", first.verification_detail.as_deref());
    let message = format!(
        "Bytes {} while several copies run at once ({}: {}){detail}",
        Wrong::of(wrong.iter().map(|pattern| pattern.verified)).words(),
        first.name(),
        load::flow_names(&flows)
    );
    let found = RULE
        .finding(Subject::Machine, message, steps_of(evidence, &flows))
        .gpus(&gpus_of(first.flows.iter()))
        .pairs(&words::unique(flows.iter().filter_map(|flow| flow.pair())))
        .fact("pattern", first.name());
    Some(found.fact("patterns", wrong.len()))
}

fn steps_of(evidence: &Evidence<'_>, flows: &[Flow]) -> Plan {
    let pairs = words::unique(flows.iter().filter_map(|flow| flow.pair()));
    let part = match flows {
        [flow] => Part::Gpu(OneOf(flow.gpus().collect())),
        _ => Part::Shared,
    };
    let errors = load_steps::errors_of(evidence, flows);
    Plan::until_repair([Step::MachineOutOfService])
        .and(When::Now, [Step::Xid, errors])
        .and(When::Now, remedy::settings(evidence, &pairs))
        .and(When::Now, [Step::Swap(part)])
}

/// A path whose bytes were wrong.
struct WrongPath<'a> {
    path: &'a SoakPath,
    bursts: u64,
    first: Option<&'a SoakEvent>,
}

/// Returns the findings on hours under load.
fn of_hours(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(soak) = over_time::soak(evidence) else {
        return Vec::new();
    };
    let known = |path: &SoakPath| {
        let mut cells = evidence.peer().iter();
        cells.any(|cell| Some(cell.pair) == path.flow().pair() && cell.verified.is_wrong())
    };
    let of = |(number, path): (u32, _)| {
        let minutes = soak.of_path(number);
        let own =
            |event: &&SoakEvent| event.kind == EventKind::WrongBytes && event.path == Some(number);
        WrongPath {
            path,
            bursts: minutes.map(|(_, minute)| u64::from(minute.wrong)).sum(),
            first: soak.events.iter().find(own),
        }
    };
    let mut wrong: Vec<WrongPath<'_>> = soak.numbered().map(of).collect();
    wrong.retain(|wrong| wrong.bursts > 0 && !known(wrong.path));
    let places = over_time::by_place(evidence, soak, &wrong, |wrong| wrong.path);
    places.iter().filter_map(|place| of_place(soak, place)).collect()
}

fn of_place(soak: &Soak, place: &OfPlace<'_, WrongPath<'_>>) -> Option<Finding> {
    let wrong = &place.of;
    let first = words::smallest(wrong.iter().filter_map(|wrong| wrong.first), |one| one.at_s);
    let bursts: u64 = wrong.iter().map(|wrong| wrong.bursts).sum();
    let name = wrong.first()?.path.name();
    let more = words::further(" and ", wrong.len() - 1, "more flow");
    let when = first.map_or(String::new(), |event| {
        let [at, of] = [event.at_s, soak.seconds].map(over_time::after);
        format!(", first after {at} of {of}")
    });
    let detail = words::in_brackets(first.map(|event| &event.what));
    let message =
        format!("{name}{more}: wrong bytes after {}{when}{detail}", words::count(bursts, "burst"));
    let plan = Plan::until_repair([Step::MachineOutOfService])
        .and(When::Now, [Step::Xid, Step::LinkErrors, Step::TestMemory])
        .and(When::Now, [Step::Swap(Part::Gpu(one_of(&place.gpus)))]);
    let found = RULE
        .finding(place.subject.clone(), message, plan)
        .fact("wrong_bursts", bursts)
        .fact("first_after", first.map(|event| Fact::Seconds(event.at_s)));
    Some(place.mark(found))
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
        "Memory that one process handed to another ({}) has wrong bytes there, on {}",
        ways.join(", "),
        words::named(evidence.snapshot, &gpus),
    );
    let steps = Plan::now([Step::CheckAgain, Step::Xid]).if_it_stays([Step::OtherDriver]);
    let found = RULE.finding(Subject::Machine, message, steps);
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
        assert!(own.message.contains("never arrive (pinned, to device)"), "{}", own.message);
        assert_eq!(exit(&found, Some(&measurements)), 1);
    }

    #[test]
    fn bytes_that_go_wrong_after_hours_are_an_error_with_their_time() {
        let mut soak = over_time::testing::hour(8, |_, _| 395.0, |_, _, _| ());
        // The flow from GPU 3.
        for minute in &mut soak.minutes[44..] {
            minute.paths[3].wrong = 2;
        }
        soak.events.push(SoakEvent {
            at_s: 45.0 * 60.0,
            kind: EventKind::WrongBytes,
            gpu: None,
            path: Some(3),
            function: None,
            xid: None,
            what: "GPU 3 → GPU 4 in ring: 8 B of 512 MiB are wrong".into(),
        });
        let all = over_time::testing::after(soak);
        let found = only(&all, "data-wrong", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(Pair { source: 3, destination: 4 }));
        assert!(found.message.contains("32 bursts, first after 45 min"), "{}", found.message);
        let (must, may) = (["out-of-service", "swap"], ["xid", "link-errors", "test-memory"]);
        assert_advice(&RULE, &all, &must, &may);
    }
}
