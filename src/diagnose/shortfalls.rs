//! Figures of host and GPU that are worse than they should be, grouped by what may be their cause.

use std::collections::{BTreeMap, BTreeSet};

use super::expectations::Check;
use super::figures::{Compared, Ends, Kind};
use super::host_figures::{DecidedBy, What};
use super::words;
use model::rounding::short;
use model::units::GbPerSecond;

/// A figure that is worse than another one, or than was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shortfall {
    pub ends: Ends,
    pub kind: Kind,
    /// The value it should be close to, or its lower or upper limit.
    pub wanted: f64,
    pub found: f64,
}

impl Shortfall {
    /// Returns an earlier figure as the wanted one.
    pub(crate) fn since(figure: &Compared<Ends>) -> Option<Self> {
        Some(Self {
            ends: figure.identity.clone(),
            kind: figure.kind.clone(),
            wanted: figure.then.value,
            found: figure.now?.value,
        })
    }

    /// Returns the figures that are not as expected.
    pub(crate) fn below<'a>(check: &'a Check<'_>) -> impl Iterator<Item = Self> + 'a {
        let kind = check.kind.iter();
        kind.flat_map(|kind| {
            check.crossed().map(|(ends, found)| Self {
                ends: ends.clone(),
                kind: kind.clone(),
                wanted: check.bound,
                found: *found,
            })
        })
    }

    /// Returns how far a rate lies below, or a time above, per cent of the wanted value.
    pub(crate) fn percent(&self) -> f64 {
        self.kind.percent_worse(self.wanted, self.found)
    }
}

/// Figures of one probe that are worse.
#[derive(Debug)]
pub(crate) struct ProbeShortfall<'a> {
    pub worst: &'a Shortfall,
    /// The GPUs of all these figures, in order.
    pub gpus: Vec<u32>,
    figures: usize,
}

impl ProbeShortfall<'_> {
    /// Returns the worst figure in a sentence, with the words around the wanted one.
    pub(crate) fn message(&self, before: &str, after: &str) -> String {
        let Shortfall { ends, kind, wanted, found } = self.worst;
        let [wanted, found] = [*wanted, *found].map(short);
        let more = words::further("; so are ", self.figures - 1, "other figure");
        let (probe, unit) = (kind.probe(), kind.unit());
        format!("{probe} of {ends} ({kind}): {found} {unit}{before}{wanted}{after}{more}")
    }
}

/// Returns these figures by probe, each led by the worst.
pub(crate) fn by_probe<'a>(worse: impl Iterator<Item = &'a Shortfall>) -> Vec<ProbeShortfall<'a>> {
    let mut of_probe: BTreeMap<String, Vec<&Shortfall>> = BTreeMap::new();
    for short in worse {
        of_probe.entry(short.kind.probe()).or_default().push(short);
    }
    let group = |shorts: Vec<&'a Shortfall>| {
        let gpus: BTreeSet<u32> = shorts.iter().flat_map(|short| short.ends.gpus()).collect();
        let figures = shorts.len();
        let worst =
            shorts.into_iter().max_by(|one, other| one.percent().total_cmp(&other.percent()))?;
        Some(ProbeShortfall { worst, gpus: gpus.into_iter().collect(), figures })
    };
    of_probe.into_values().filter_map(group).collect()
}

/// Figures of host and GPU that fell on some GPUs for what may be one cause.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShortfallGroup {
    /// The GPUs, in order.
    pub gpus: Vec<u32>,
    /// The kind of figure that is closest to the cause.
    pub what: What,
    /// The worst figure of that kind.
    pub worst: Shortfall,
    /// Number of other ways in which something is worse on these GPUs.
    pub others: usize,
}

impl ShortfallGroup {
    /// Returns words such as ` and in 3 other ways`.
    pub(crate) fn more(&self) -> String {
        words::further(" and in ", self.others, "other way")
    }

    /// Returns a time or a rate as words.
    pub(crate) fn said(value: f64, kind: DecidedBy) -> String {
        if kind == DecidedBy::Time { short(value) } else { GbPerSecond(value).to_string() }
    }
}

/// Returns one group for each kind that is the first of some GPU: a slow link slows everything that passes it.
pub(crate) fn groups(worse: &[Shortfall]) -> Vec<ShortfallGroup> {
    let mut of_gpus: BTreeMap<u32, Vec<(What, &Shortfall)>> = BTreeMap::new();
    for short in worse {
        if let (Kind::Host(what), [gpu]) = (&short.kind, &short.ends.gpus()[..]) {
            of_gpus.entry(*gpu).or_default().push((*what, short));
        }
    }
    let mut by_kind: BTreeMap<DecidedBy, Vec<(What, u32, &Shortfall)>> = BTreeMap::new();
    for (gpu, of_gpu) in of_gpus {
        if let Some(first) = of_gpu.iter().map(|(what, _)| what.kind()).min() {
            let shorts = of_gpu.into_iter().map(|(what, short)| (what, gpu, short));
            by_kind.entry(first).or_default().extend(shorts);
        }
    }
    let group = |(kind, shorts): (DecidedBy, Vec<(What, u32, &Shortfall)>)| {
        let leading = shorts.iter().filter(|(what, ..)| what.kind() == kind);
        let percent = |(_, _, short): &(What, u32, &Shortfall)| short.percent();
        let worst = leading.max_by(|one, other| percent(one).total_cmp(&percent(other)))?;
        let gpus: BTreeSet<u32> = shorts.iter().map(|(_, gpu, _)| *gpu).collect();
        let ways: BTreeSet<What> = shorts.iter().map(|(what, ..)| *what).collect();
        Some(ShortfallGroup {
            gpus: gpus.into_iter().collect(),
            what: worst.0,
            worst: worst.2.clone(),
            others: ways.len().saturating_sub(1),
        })
    };
    by_kind.into_iter().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::flow::HostMemory;
    use model::host::HostWay;

    const UP: What = What::Copy { way: HostWay::PINNED, at_once: 1 };
    const PAGEABLE: What =
        What::Copy { way: HostWay::PINNED.with_memory(HostMemory::Pageable), at_once: 1 };

    #[test]
    fn one_cause_is_one_group_and_the_link_comes_first() {
        let short = |gpu, what, found| Shortfall {
            ends: Ends::of_gpu(gpu),
            kind: Kind::Host(what),
            wanted: 50.0,
            found,
        };
        let found = groups(&[short(2, UP, 40.0), short(2, PAGEABLE, 5.0), short(0, PAGEABLE, 4.0)]);
        let [link, processor] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&link.gpus[..], link.worst.found, link.others), (&[2][..], 40.0, 1));
        assert_eq!(
            (&processor.gpus[..], processor.worst.found, processor.others),
            (&[0][..], 4.0, 0)
        );
    }
}
