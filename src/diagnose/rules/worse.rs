//! Shared by the rules that compare facts and figures with an earlier report or with what is expected: one finding on
//! all that may have one cause.

use super::host;
use super::prelude::*;
use crate::facts::{self, Change, NAME};
use crate::figures::{Compared, Ends};
use crate::kind::{DecidedBy, Kind};
use model::machine_facts::{Component, PEER_ACCESS, in_words};
use model::rounding;

/// The origin of the values that figures are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Against {
    EarlierReport,
    /// The file of `--expect`.
    Expectations,
}

/// Returns a finding on the GPUs, or the pairs, that have the same in common. A GPU that has less than before has its
/// own.
pub(super) fn facts(
    evidence: &Evidence<'_>,
    rule: &Rule,
    against: Against,
    changes: &[Change],
) -> Vec<Finding> {
    let is_expected = against == Against::Expectations;
    let same = |change: &Change| {
        let own = match change.part {
            Component::Gpu(gpu) if !is_expected => Some(gpu),
            _ => None,
        };
        (change.key.clone(), own, in_words(&change.then), in_words(&change.now))
    };
    let finding = |((key, _, then, now), changes): (_, Vec<&Change>)| {
        let parts: Vec<Component> = changes.iter().map(|change| change.part).collect();
        let (gpus, pairs) = facts::gpus_and_pairs(&parts);
        let (subject, place, last) = match pairs.len() {
            0 => (Subject::of_gpus(&gpus), evidence.named(&gpus), None),
            count => {
                let place = words::count(count, "pair");
                (Subject::of_pairs(&pairs), place, Some(words::pairs(&pairs)))
            }
        };
        let how = match is_expected {
            true => format!("{now}, expected {then}"),
            false => format!("{then} → {now} since the earlier report"),
        };
        let (key, last): (String, _) = (key, words::after("; ", last));
        let message = format!("{place}: {} {how}{last}", facts::what(&key));
        let others = Step::OtherFindings(all(&gpus));
        let plan = match &*key {
            PEER_ACCESS if is_expected => Plan::now([Step::FindingOf("peer-access-missing")]),
            NAME if is_expected => Plan::now([Step::CompareOrdered, Step::CompareExpected]),
            _ if is_expected => Plan::now([others]).otherwise([Step::CompareOrdered]),
            _ if !pairs.is_empty() => Plan::now([Step::CompareBaseline]),
            _ => {
                let reseat = Step::Reseat(Part::GpuAndRiser(one_of(&gpus)));
                Plan::now([Step::WhatWasDone, others, reseat])
            }
        };
        let found = rule.finding(subject, message, plan);
        let values = changes.first().map(|change| [&change.then, &change.now]);
        let [then, now] =
            values.map_or([None, None], |values| values.map(|of| Some(Fact::Other(of.clone()))));
        let found = match is_expected {
            true => found.fact("expected", then).fact("found", now),
            false => found.fact("then", then).fact("now", now),
        };
        if pairs.is_empty() { found.gpus(&gpus) } else { found.pairs(&pairs) }
    };
    let groups = words::grouped(changes.iter().map(|change| (same(change), change)));
    groups.into_iter().map(finding).collect()
}

/// Figures that are worse for what may be one cause.
pub(crate) struct Worse<'a> {
    pub worst: &'a Compared<Ends>,
    /// Words for the other figures.
    pub more: String,
    /// The pairs, if it is about copies between GPUs.
    pub group: Option<cluster::Group>,
    gpus: Vec<u32>,
}

/// Returns a finding for each place with figures that are worse.
pub(super) fn findings(
    evidence: &Evidence<'_>,
    rule: &Rule,
    against: Against,
    figures: &[Compared<Ends>],
    is_worse: impl Fn(&Compared<Ends>) -> bool,
) -> Vec<Finding> {
    let all = places(evidence, figures, is_worse).into_iter();
    all.filter_map(|worse| finding(evidence, rule, against, &worse)).collect()
}

/// Returns the figures that are worse, by what may be one cause.
pub(crate) fn places<'a>(
    evidence: &Evidence<'_>,
    figures: &'a [Compared<Ends>],
    is_worse: impl Fn(&Compared<Ends>) -> bool,
) -> Vec<Worse<'a>> {
    let worse: Vec<_> = figures.iter().filter(|figure| is_worse(figure)).collect();
    of_pairs(evidence, figures, &worse).into_iter().chain(of_others(&worse)).collect()
}

impl Worse<'_> {
    /// Returns words such as `Copies between the host and GPU 3`.
    pub(crate) fn what(&self, evidence: &Evidence<'_>) -> String {
        let kind = &self.worst.kind;
        let named = || evidence.named(&self.gpus);
        match &self.group {
            Some(group) => format!("Copies {}", evidence.place(group)),
            None if kind.is_of_host() && kind.is_time() => {
                format!("The host's calls for {}", named())
            }
            None if kind.is_of_host() => format!("Copies between the host and {}", named()),
            None => format!("{} of {}", kind.probe, self.worst.identity),
        }
    }
}

/// Returns a figure as it is written for people.
pub(crate) fn shown(kind: &Kind, value: f64) -> String {
    if kind.is_time() { rounding::short(value) } else { GbPerSecond(value).to_string() }
}

fn finding(
    evidence: &Evidence<'_>,
    rule: &Rule,
    against: Against,
    worse: &Worse<'_>,
) -> Option<Finding> {
    let Worse { worst, more, group, gpus } = worse;
    let Compared { kind, then, now, .. } = worst;
    let (is_time, percent) = (kind.is_time(), worst.percent_worse()?);
    let values = [then.value, now.as_ref()?.value];
    let [then, now] = values.map(|value| shown(kind, value));
    let figures = worse.what(evidence);
    let unit = kind.unit;
    let how = match (against, is_time) {
        (Against::EarlierReport, true) => {
            format!("rose since the earlier report, {then} → {now} {unit}")
        }
        (Against::EarlierReport, false) => {
            format!("fell {percent:.1}% since the earlier report, {then} → {now} {unit}")
        }
        (Against::Expectations, true) => format!("took {now} {unit}, expected {then} at most"),
        (Against::Expectations, false) => format!("reached {now} {unit}, expected {then}"),
    };
    let others = Step::OtherFindings(All(gpus.clone()));
    let plan = match against {
        Against::EarlierReport => {
            Plan::check_without(Work::OnMachine).if_it_stays(match kind.is_of_host() && is_time {
                true => [Step::Stop(Work::Tools), Step::PowerSaving],
                false => [Step::WhatWasDone, others],
            })
        }
        Against::Expectations => {
            Plan::now([others]).otherwise([Step::CheckIdle, Step::CompareExpected])
        }
    };
    let message = format!("{figures} {how}; {kind}{more}");
    let found = match group {
        Some(group) => rule.on_group(group, message, plan),
        None => rule.on_gpus(gpus, message, plan),
    };
    let [then, now] = values.map(|value| match is_time {
        true => Fact::figure(value),
        false => Fact::Rate(GbPerSecond(value)),
    });
    let mut found = match (against, unit) {
        (Against::EarlierReport, "us") => found.fact("then_us", then).fact("now_us", now),
        (Against::EarlierReport, _) => found.fact("then", then).fact("now", now),
        (Against::Expectations, "us") => found.fact("expected_us", then).fact("found_us", now),
        (Against::Expectations, _) => found.fact("expected", then).fact("found", now),
    };
    if against == Against::EarlierReport {
        // Other programs may cause what no link decides.
        let is_of_link = matches!(kind.decided_by, DecidedBy::Path | DecidedBy::Link);
        found = found.fact("fall", Fact::percent(percent)).at_if(!is_of_link, Severity::Warning);
    }
    if kind.is_of_host() && !is_time {
        found = found.suspecting(host::suspects(evidence, gpus));
    }
    Some(found)
}

/// Returns pairs whose figures are worse. The same pairs in several ways of copying are one, with the worst of them.
fn of_pairs<'a>(
    evidence: &Evidence<'_>,
    figures: &[Compared<Ends>],
    worse: &[&'a Compared<Ends>],
) -> Vec<Worse<'a>> {
    let of_pairs = worse.iter().filter(|figure| figure.kind.is_of_pairs());
    let ways = words::grouped(of_pairs.map(|figure| (&figure.kind, *figure)));
    let groups = ways.into_iter().flat_map(|(way, bad)| {
        let seen = figures.iter().filter(|figure| figure.kind == *way && figure.now.is_some());
        let seen = words::unique(seen.filter_map(|figure| figure.identity.pair()));
        let places = evidence.places(&bad, &seen, |figure| figure.identity.pair()).into_iter();
        places.filter_map(|(group, bad)| {
            Some((group.pairs.clone(), (worst(bad.into_iter())?, group)))
        })
    });
    let groups = words::grouped(groups);
    let one = |ways: Vec<(&'a Compared<Ends>, cluster::Group)>| {
        let more = words::further(" and in ", ways.len() - 1, "other way");
        let (worst, group) = words::largest(ways, |(figure, _)| percent(figure))?;
        Some(Worse { worst, more, gpus: group.gpus(), group: Some(group) })
    };
    groups.into_values().filter_map(one).collect()
}

/// The kind of cause that figures without a pair of their own have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Host(DecidedBy),
    Probe(Probe),
}

/// Returns the figures of the host by the kind that is the first of some GPU, since a slow link slows everything that
/// passes it, and those of other probes by probe.
fn of_others<'a>(worse: &[&'a Compared<Ends>]) -> Vec<Worse<'a>> {
    let own = |figure: &Compared<Ends>| match &figure.kind {
        kind if kind.is_of_host() => Cause::Host(kind.decided_by),
        kind => Cause::Probe(kind.probe),
    };
    let worse = worse.iter().filter(|figure| !figure.kind.is_of_pairs());
    let of_gpus = |figure: &Compared<Ends>| figure.identity.gpus();
    let hosts = worse.clone().filter(|figure| figure.kind.is_of_host());
    let hosts = words::grouped(hosts.map(|figure| (of_gpus(figure), own(figure))));
    let first = |figure: &Compared<Ends>| hosts.get(&of_gpus(figure))?.iter().copied().min();
    let cause = |figure: &Compared<Ends>| {
        first(figure).filter(|_| figure.kind.is_of_host()).unwrap_or_else(|| own(figure))
    };
    let by_cause = worse.map(|figure| (cause(figure), *figure));
    let one = |(cause, figures): (Cause, Vec<&'a Compared<Ends>>)| {
        let worst = worst(figures.iter().copied().filter(|figure| own(figure) == cause))?;
        let ways: BTreeSet<_> = figures.iter().map(|figure| &figure.kind).collect();
        let more = match cause {
            Cause::Host(_) => words::further(" and in ", ways.len() - 1, "other way"),
            Cause::Probe(_) => words::further("; so are ", figures.len() - 1, "other figure"),
        };
        let gpus = words::unique(figures.iter().flat_map(|figure| of_gpus(figure)));
        Some(Worse { worst, more, group: None, gpus })
    };
    words::grouped(by_cause).into_iter().filter_map(one).collect()
}

fn worst<'a>(figures: impl Iterator<Item = &'a Compared<Ends>>) -> Option<&'a Compared<Ends>> {
    words::largest(figures, |figure| percent(figure))
}

fn percent(figure: &Compared<Ends>) -> f64 {
    figure.percent_worse().unwrap_or(f64::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figure;
    use model::flow::HostMemory;
    use model::host::HostWay;

    const UP: HostWay = HostWay::PINNED;
    const PAGEABLE: HostWay = HostWay::PINNED.with_memory(HostMemory::Pageable);

    #[test]
    fn one_cause_is_one_group_and_the_link_comes_first() {
        let figure = |value| Figure { value, spread_percent: 0.0, bytes: 0 };
        let short = |gpu, way, found| Compared {
            identity: Ends::of_gpu(gpu),
            kind: Kind::of_host(way, 1),
            then: figure(50.0),
            now: Some(figure(found)),
        };
        let all = [short(2, UP, 40.0), short(2, PAGEABLE, 5.0), short(0, PAGEABLE, 4.0)];
        let found = of_others(&all.iter().collect::<Vec<_>>());
        let [link, processor] = &found[..] else { panic!("{} groups", found.len()) };
        let of = |worse: &Worse<'_>| (worse.gpus.clone(), worse.worst.now.unwrap().value);
        assert_eq!((of(link), &*link.more), ((vec![2], 40.0), " and in 1 other way"));
        assert_eq!((of(processor), &*processor.more), ((vec![0], 4.0), ""));
    }
}
