//! # What it means
//!
//! Repeated measurements of the same copy differ so much that the figure says little.
//!
//! # How it is detected
//!
//! The samples of a reference figure (copy engine, issued by the source, one way, side streams), of
//! which there are three or more, spread by more than the parameter: largest less smallest, per cent
//! of the median. Direct and staged copies have a parameter each, since what else the host's memory
//! does is in the staged ones. Pairs whose direct figure is below its floor are left to
//! `peer-bandwidth-low`, which shows the spread.
//!
//! Where several figures of a pair, in whatever way of copying one way, scatter by far more than that, single copies
//! take several times as long as others, as over a link that retrains: that is an error, unless other programs hold
//! memory on these GPUs or all pairs of the machine show it. What is slow between these GPUs belongs to it.
//!
//! # Why it matters
//!
//! A single pass of such a machine fails good hardware and passes bad.
//!
//! # What to do
//!
//! Stop other work on the GPUs and on the host and check again. If it stays: look for clocks that go
//! up and down (`nvidia-smi -q -d PERFORMANCE`), for power saving of the processor, and in a virtual
//! machine for neighbours on the same host.
//!
//! # Sources
//!
//! Measured on 8 x H200: up to 1.3% direct, 4.6% staged. 5 repeats spread by 5 to 10% elsewhere
//! (cuda-samples issue 449); Azure's node check repeats because a single pass drained good nodes.

use super::bandwidth;
use super::prelude::*;

/// Samples from which a spread is believed.
const LEAST_SAMPLES: u32 = 3;

const DIRECT: Parameter = Parameter {
    name: "spread_percent",
    default: 10.0,
    about: "most that the rows of a direct figure may spread by: the upper end of what is usual between repeats \
                (cuda-samples issue 449: 5 to 10)",
};
const STAGED: Parameter = Parameter {
    name: "spread_staged_percent",
    default: 20.0,
    about: "the same for staged copies: chosen twice as wide, since 4.6 was measured where direct copies had 1.3",
};

const STALLS: Parameter = Parameter {
    name: "stalls_percent",
    default: 40.0,
    about: "spread of the rows from which single copies are taken to stall, where two figures of a pair or more have it: \
                chosen, four times what is usual between repeats",
};
/// Figures of a pair that must scatter so.
const LEAST_FIGURES: usize = 2;

/// The rule.
pub const RULE: Rule =
    Rule::new("unstable-measurement", Severity::Warning, include_str!("unstable_measurement.rs"), judge)
        .with(&[DIRECT, STAGED, STALLS]);

/// Pairs some of whose copies take far longer than others, although their rates may look sound: what is settled of a
/// few rows may be those that no such copy is in. One figure that scatters is noise; several of one pair are the pair's.
pub fn stalling(evidence: &Evidence<'_>) -> BTreeSet<Pair> {
    let most = RULE.parameter(evidence, &STALLS);
    let scatters = |cell: &&PeerBandwidth| {
        cell.setup.path == Path::Direct
            && cell.setup.direction == Direction::OneWay
            && cell.samples >= LEAST_SAMPLES
            && cell.spread_percent.is_some_and(|spread| spread > most)
            && bandwidth::is_sound(evidence, cell)
    };
    let mut figures: BTreeMap<(u32, u32), Vec<Pair>> = BTreeMap::new();
    for cell in evidence.peer().iter().filter(scatters) {
        figures.entry(cell.pair.unordered()).or_default().push(cell.pair);
    }
    figures.into_values().filter(|pairs| pairs.len() >= LEAST_FIGURES).flatten().collect()
}

/// One finding for each group of such pairs: an error where neither other work nor the whole machine explains it.
fn of_stalling(evidence: &Evidence<'_>, pairs: &BTreeSet<Pair>) -> Vec<Finding> {
    let direct =
        evidence.peer().iter().filter(|cell| cell.setup.path == Path::Direct && cell.status == Status::Measured);
    let seen: BTreeSet<Pair> = direct.clone().map(|cell| cell.pair).collect();
    let (bad, seen): (Vec<Pair>, Vec<Pair>) = (pairs.iter().copied().collect(), seen.into_iter().collect());
    let groups = cluster::groups(&bad, &seen, evidence.topology);
    let finding = |group: &cluster::Group| {
        let of_group = direct.clone().filter(|cell| group.pairs.contains(&cell.pair) && cell.samples >= LEAST_SAMPLES);
        let worst = of_group.filter_map(|cell| cell.spread_percent).fold(0.0, f64::max);
        let alone = group.common != cluster::Common::Everything && suspects::busy(evidence, &group.pairs).is_empty();
        let mut found = RULE
            .finding(
                group.subject(),
                format!(
                    "Some copies {} take far longer than others: rows of the same copy differ by up to {worst:.0}% of their \
                     median, in several ways of copying. The rates of these pairs are those of rows without such a copy",
                    group.place(evidence.snapshot)
                ),
                "Check these GPUs again with the machine idle (--gpus). If it stays, look for a link that retrains or repeats \
                 what it sends: counters before and after the check (lspci -vvv, nvidia-smi nvlink -e) and the kernel's log \
                 (dmesg | grep -iE 'aer|pcie|xid'); then swap one of these GPUs to see whether it moves",
            )
            .at(if alone { Severity::Error } else { Severity::Warning })
            .fact("spread", Fact::percent(worst))
            .fact("usual", Fact::percent(RULE.parameter(evidence, &DIRECT)))
            .pairs(&group.pairs);
        found.suspects = suspects::of_slow_copies(evidence, &group.pairs);
        found.suspects.insert(0, suspects::of_retraining(evidence, &group.pairs));
        found
    };
    groups.iter().map(finding).collect()
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut low = bandwidth::low_pairs(evidence);
    let stalling = stalling(evidence);
    let mut findings = of_stalling(evidence, &stalling);
    low.extend(stalling);
    for (path, most) in
        [(Path::Direct, RULE.parameter(evidence, &DIRECT)), (Path::Staged, RULE.parameter(evidence, &STAGED))]
    {
        let cells = bandwidth::sound(evidence, path);
        let enough = |pair| path == Path::Staged || !low.contains(pair);
        let seen: Vec<_> = cells
            .iter()
            .filter(|(pair, cell)| cell.samples >= LEAST_SAMPLES && cell.spread_percent.is_some() && enough(pair))
            .collect();
        let unstable: Vec<_> =
            seen.iter().filter(|(_, cell)| cell.spread_percent.is_some_and(|spread| spread > most)).collect();
        let spreads = unstable.iter().filter_map(|(_, cell)| cell.spread_percent);
        let Some(worst) = spreads.max_by(f64::total_cmp) else { continue };
        let bad: Vec<_> = unstable.iter().map(|(pair, _)| **pair).collect();
        let seen: Vec<_> = seen.iter().map(|(pair, _)| **pair).collect();
        let groups = cluster::groups(&bad, &seen, evidence.topology);
        // Noise has no place: one finding, which names a GPU or pair only where there is one.
        let (subject, place) = match groups.as_slice() {
            [group] => (group.subject(), group.place(evidence.snapshot)),
            _ => (Subject::Machine, format!("of {} of {} pairs ({})", bad.len(), seen.len(), words::pairs(&bad))),
        };
        let mut found = RULE
            .finding(
                subject,
                format!("Samples of {path} copies {place} spread by up to {worst:.0}% of their median"),
                "Stop other work on the GPUs and the host and check again (--profile full takes more samples); do not \
                 judge these pairs by this run",
            )
            .fact("spread", Fact::percent(worst))
            .fact("usual", Fact::percent(most))
            .pairs(&bad);
        found.suspects = suspects::of_slow_copies(evidence, &bad);
        found.suspects.truncate(found.suspects.len().saturating_sub(1));
        found.suspects.push(suspects::suspect(
            "other work on the host, its power saving, or neighbours of a virtual machine",
            "check again with the host idle and its processors' governor on performance",
        ));
        findings.push(found);
    }
    findings
}
