//! Shared by the rules on kernels that talk to each other while they run.

use super::prelude::*;
use super::{remedy, wrong_bytes};

/// Returns true for kernels of one GPU.
pub(super) fn is_within(talk: &LiveTalk) -> bool {
    talk.pair.source == talk.pair.destination
}

/// Returns the talks between GPUs whose direct copies arrive, as far as they were checked. The others have a finding on
/// their copies.
pub(super) fn between<'a>(evidence: &Evidence<'a>) -> Vec<&'a LiveTalk> {
    let copies_fail = |cell: &&PeerBandwidth| {
        cell.setup.path == Path::Direct
            && (cell.verified.is_wrong()
                || matches!(cell.ending.status, Status::Hung | Status::Failed))
    };
    let bad: BTreeSet<Pair> =
        evidence.peer().iter().filter(copies_fail).map(|cell| cell.pair).collect();
    let talks = evidence.measured().live.iter();
    talks.filter(|talk| !is_within(talk) && !bad.contains(&talk.pair)).collect()
}

/// Groups the pairs of talks that went wrong by what they have in common. Each group comes with its talks.
pub(super) fn groups<'a>(
    evidence: &Evidence<'_>,
    talks: &[&'a LiveTalk],
    is_bad: impl Fn(&LiveTalk) -> bool,
) -> Vec<(Group, Vec<&'a LiveTalk>)> {
    let bad: Vec<&LiveTalk> = talks.iter().copied().filter(|talk| is_bad(talk)).collect();
    let seen = talks.iter().filter(|talk| talk.verified != Verified::Skipped);
    let seen: Vec<Pair> = seen.map(|talk| talk.pair).collect();
    evidence.places(&bad, &seen, |talk| Some(talk.pair))
}

/// Returns the steps for stores of kernels that do not arrive as they should.
pub(super) fn plan(evidence: &Evidence<'_>, group: &Group) -> Plan {
    let swap = Step::Swap(Part::of(&group.gpus()));
    let find = if over_pcie(evidence, group) {
        vec![Step::UpdateBiosAndDriver, Step::CheckAgain, swap]
    } else {
        vec![Step::XidOf("74"), Step::LinkErrors, swap]
    };
    remedy::plan(evidence, group, find)
}

/// Returns what could keep stores of kernels from arriving as they should while copies do.
pub(super) fn suspects(evidence: &Evidence<'_>, group: &Group) -> Vec<Suspect> {
    if over_pcie(evidence, group) {
        return wrong_bytes::suspects(evidence, group);
    }
    let test = [Step::XidOf("74"), Step::LinkErrors, Step::SwapTest(Part::of(&group.gpus()))];
    vec![suspect_if(Cause::GpuOrNvLinks, test, Sign::FaultMoves)]
}

fn over_pcie(evidence: &Evidence<'_>, group: &Group) -> bool {
    evidence.any_over_pcie(&group.pairs)
}

/// Returns the largest of these counts.
pub(super) fn most(talks: &[&LiveTalk], count: impl Fn(&LiveTalk) -> Option<u32>) -> Option<u32> {
    talks.iter().filter_map(|talk| count(talk)).max()
}
