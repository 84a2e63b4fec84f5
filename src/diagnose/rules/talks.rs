//! Shared by the rules on kernels that talk to each other while they run.

use std::borrow::Cow;
use std::ops::Deref;

use super::prelude::*;
use super::{remedy, wrong_bytes};
use crate::cluster::Group;
use model::live::LiveTalk;

/// The occasion of a talk. The first on which something goes wrong is the plainest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Occasion {
    /// Two kernels, and nothing else.
    TwoAlone,
    /// Two kernels, each of a process of its own.
    TwoProcesses,
}

impl Occasion {
    /// Returns words that follow a place; none for two kernels alone.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::TwoAlone => "",
            Self::TwoProcesses => " between two processes",
        }
    }
}

/// Stores of one GPU as another one saw them, on an occasion.
#[derive(Debug, Clone)]
pub(super) struct Talk<'a> {
    cell: Cow<'a, LiveTalk>,
    pub(super) occasion: Occasion,
}

impl Deref for Talk<'_> {
    type Target = LiveTalk;

    fn deref(&self) -> &LiveTalk {
        &self.cell
    }
}

/// Returns the talks of a run.
pub(super) fn all<'a>(evidence: &Evidence<'a>) -> Vec<Talk<'a>> {
    let measurements = evidence.measured();
    let of_two = measurements.live.iter().map(|talk| Talk {
        cell: Cow::Borrowed(talk),
        occasion: match talk.processes {
            Some(_) => Occasion::TwoProcesses,
            None => Occasion::TwoAlone,
        },
    });
    of_two.collect()
}

/// Returns true for kernels of one GPU.
pub(super) fn is_within(talk: &LiveTalk) -> bool {
    talk.pair.source == talk.pair.destination
}

/// Returns the talks between GPUs whose direct copies arrive, as far as they were checked. The others have a finding on
/// their copies.
pub(super) fn between<'a>(evidence: &Evidence<'a>) -> Vec<Talk<'a>> {
    let copies_fail = |cell: &&PeerBandwidth| {
        cell.setup.path == Path::Direct
            && (cell.verified.is_wrong()
                || matches!(cell.ending.status, Status::Hung | Status::Failed))
    };
    let bad: BTreeSet<Pair> =
        evidence.peer().iter().filter(copies_fail).map(|cell| cell.pair).collect();
    let talks = all(evidence).into_iter();
    talks.filter(|talk| !is_within(talk) && !bad.contains(&talk.pair)).collect()
}

/// Groups the pairs of talks that went wrong by what they have in common. Each group comes with its talks.
pub(super) fn groups<'t, 'a>(
    evidence: &Evidence<'_>,
    talks: &'t [Talk<'a>],
    is_bad: impl Fn(&LiveTalk) -> bool,
) -> Vec<(Group, Vec<&'t Talk<'a>>)> {
    let bad: Vec<&Talk<'_>> = talks.iter().filter(|talk| is_bad(talk)).collect();
    // Each pair once, whatever the number of its occasions.
    let once = |pairs: Vec<Pair>| {
        let mut seen = BTreeSet::new();
        let first = pairs.into_iter().filter(|pair| seen.insert(*pair));
        first.collect::<Vec<Pair>>()
    };
    let pairs = once(bad.iter().map(|talk| talk.pair).collect());
    let seen = talks.iter().filter(|talk| talk.verified != Verified::Skipped);
    let seen = once(seen.map(|talk| talk.pair).collect());
    let groups = cluster::groups(&pairs, &seen, evidence.topology).into_iter();
    groups
        .map(|group| {
            let of_group = bad.iter().copied();
            let of_group = of_group.filter(|talk| group.pairs.contains(&talk.pair));
            let of_group = of_group.collect();
            (group, of_group)
        })
        .collect()
}

/// Returns the talks on the plainest occasion among these, and that occasion.
pub(super) fn plainest<'t, 'a>(bad: &[&'t Talk<'a>]) -> (Vec<&'t Talk<'a>>, Occasion) {
    let plainest = bad.iter().map(|talk| talk.occasion).min();
    let plainest = plainest.unwrap_or(Occasion::TwoAlone);
    let of_it = bad.iter().copied();
    (of_it.filter(|talk| talk.occasion == plainest).collect(), plainest)
}

/// Returns the steps for stores of kernels that do not arrive as they should.
pub(super) fn plan(evidence: &Evidence<'_>, group: &Group) -> Plan {
    let swap = Step::Swap(Part::Gpu(OneOf(group.gpus())));
    let find = if is_of_processes(evidence, group) {
        vec![Step::OtherDriver]
    } else if over_pcie(evidence, group) {
        vec![Step::UpdateBiosAndDriver, Step::CheckAgain, swap]
    } else {
        vec![Step::XidOf("74"), Step::LinkErrors, swap]
    };
    remedy::plan(evidence, group, find)
}

/// Returns what could keep stores of kernels from arriving as they should while copies do.
pub(super) fn suspects(evidence: &Evidence<'_>, group: &Group) -> Vec<Suspect> {
    if is_of_processes(evidence, group) {
        return vec![suspect(Cause::Driver, [Step::OtherDriver])];
    }
    if over_pcie(evidence, group) {
        return wrong_bytes::suspects(evidence, group);
    }
    let test =
        [Step::XidOf("74"), Step::LinkErrors, Step::SwapTest(Part::Gpu(OneOf(group.gpus())))];
    vec![suspect_if(Cause::GpuOrNvLinks, test, Sign::FaultMoves)]
}

/// Returns true if kernels of one process talk as they should between all these pairs, and only those of two processes do not: the
/// links carry the stores, and the driver maps the memory of the other process.
fn is_of_processes(evidence: &Evidence<'_>, group: &Group) -> bool {
    let all = all(evidence);
    let of_pair = |pair: Pair| all.iter().filter(move |talk| talk.pair == pair);
    group.pairs.iter().all(|pair| {
        let is_sound = |talk: &Talk<'_>| talk.verified == Verified::Ok;
        of_pair(*pair).any(|talk| talk.occasion == Occasion::TwoAlone && is_sound(talk))
            && of_pair(*pair)
                .filter(|talk| talk.verified.is_wrong())
                .all(|talk| talk.occasion == Occasion::TwoProcesses)
    })
}

fn over_pcie(evidence: &Evidence<'_>, group: &Group) -> bool {
    group.pairs.iter().any(|pair| evidence.over_pcie(*pair))
}

/// Returns the largest of these counts.
pub(super) fn most(talks: &[&Talk<'_>], count: impl Fn(&LiveTalk) -> Option<u32>) -> Option<u32> {
    talks.iter().filter_map(|talk| count(talk)).max()
}
