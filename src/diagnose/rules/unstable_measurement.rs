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

/// The rule.
pub const RULE: Rule =
    Rule::new("unstable-measurement", Severity::Warning, include_str!("unstable_measurement.rs"), judge)
        .with(&[DIRECT, STAGED]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let low = bandwidth::low_pairs(evidence);
    let mut findings = Vec::new();
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
