//! # What it means
//!
//! The NVLinks of a GPU counted a different number of bytes than was copied over them. Either the counters or the
//! assumed route is wrong.
//!
//! # How it is detected
//!
//! Counters are read around known traffic (`measurements.counted`). The graph routes all copies of a GPU over NVLink,
//! and its links counted less than was copied by more than `below_percent`, and PCIe did not carry the rest
//! (`traffic-over-pcie` reports that). Sometimes the route of the rest is unknown: PCIe bytes are not counted, or their
//! counter may have wrapped meanwhile (after 4 GiB on some GPUs). The finding is then information. If the links counted
//! more by as much on every GPU alike, they count something else than data, and the finding is information. If they did
//! so on some GPUs only, another program moved data (`gpu-busy`).
//!
//! # Why it matters
//!
//! Every tool that shows the use of these links shows wrong figures, and the route of the bytes is not proven.
//!
//! # What to do
//!
//! Update the driver, and check again.
//!
//! # Sources
//!
//! NVML, fields 138 and 139, in KiB. 8 x H200: counted bytes are within 1% of bytes sent (measured).

use super::counted::{self, Direction};
use super::prelude::*;
use super::traffic_over_pcie;
use model::load::Counted;
use model::units::Bytes;

const BELOW: Parameter = Parameter {
    name: "below_percent",
    default: 5.0,
    about: "how far what was counted may be from what was copied; chosen: five times what healthy machines show",
};

pub(crate) const RULE: Rule =
    Rule::new("counters-disagree", Severity::Warning, judge).with(&[BELOW]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let most = RULE.parameter(evidence, &BELOW);
    let over_pcie: BTreeSet<u32> = traffic_over_pcie::taken(evidence)
        .iter()
        .map(|(seen, _)| seen.gpu)
        .collect();
    let all = counted::sound(evidence).filter(|seen| counted::is_over_nvlink(evidence, seen));
    let all = all.filter(|seen| !over_pcie.contains(&seen.gpu));
    let all: Vec<(&Counted, Direction, f64)> = all
        .flat_map(|seen| counted::directions(seen).map(move |direction| (seen, direction)))
        .filter_map(|(seen, direction)| {
            Some((
                seen,
                direction,
                counted::percent(direction.nvlink?, direction.known),
            ))
        })
        .collect();
    let lack = all.iter().filter(|(.., percent)| *percent < 100.0 - most);
    let (unknown, less): (Vec<_>, Vec<_>) =
        lack.partition(|(_, direction, _)| direction.may_be_over_pcie());
    let more: Vec<_> = all
        .iter()
        .filter(|(.., percent)| *percent > 100.0 + most)
        .collect();
    let of = |(found, odd): (Vec<&(&Counted, Direction, f64)>, Odd)| {
        let off = |(.., percent): &(&Counted, Direction, f64)| (percent - 100.0).abs();
        let worst = found
            .iter()
            .max_by(|one, other| off(one).total_cmp(&off(other)))?;
        Some(finding(
            worst,
            &found.iter().map(|(seen, ..)| seen.gpu).collect(),
            odd,
        ))
    };
    [
        (less, Odd::Less),
        (unknown, Odd::Unknown),
        (more, Odd::More),
    ]
    .into_iter()
    .filter_map(of)
    .collect()
}

/// The NVLink count compared with the bytes copied.
#[derive(Clone, Copy)]
enum Odd {
    /// Less, and PCIe did not carry the rest.
    Less,
    /// Less, and PCIe may have carried the rest.
    Unknown,
    /// More.
    More,
}

fn finding(
    (seen, direction, percent): &(&Counted, Direction, f64),
    gpus: &BTreeSet<u32>,
    odd: Odd,
) -> Finding {
    let gpus: Vec<u32> = gpus.iter().copied().collect();
    let (copied, counted) = (
        Bytes(direction.known),
        Bytes(direction.nvlink.unwrap_or_default()),
    );
    let severity = if matches!(odd, Odd::Less) {
        RULE.severity
    } else {
        Severity::Info
    };
    let (what, plan) = match odd {
        Odd::More => (
            "more than was copied: they count something else than data, or another program copied as much everywhere",
            Plan::now([Step::NoOtherProgram, Step::UpdateDriver, Step::CheckAgain]),
        ),
        Odd::Unknown => (
            "less than was copied; whether PCIe carried the rest cannot be told from its counter",
            Plan::now([Step::UpdateDriver, Step::CheckStandardCounters]),
        ),
        Odd::Less => (
            "less than was copied, and PCIe did not carry the rest: which way the bytes went is not proven",
            Plan::now([Step::UpdateDriver, Step::CheckAgain]).if_it_stays([Step::SendReport]),
        ),
    };
    let message = format!(
        "The NVLinks of GPU {} counted {counted} of {copied} that it {} ({percent:.0}%), {what}",
        seen.gpu, direction.word,
    );
    RULE.finding(Subject::of_gpus(&gpus), message, plan)
        .at(severity)
        .gpus(&gpus)
        .fact("copied", Fact::Bytes(copied))
        .fact("counted", Fact::Bytes(counted))
        .fact("of_copied", Fact::percent(*percent))
        .fact("pattern", seen.pattern.to_string())
}

#[cfg(test)]
#[path = "counted_tests.rs"]
mod tests;
