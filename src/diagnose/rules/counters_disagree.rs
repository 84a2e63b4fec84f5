//! # What it means
//!
//! The NVLinks of a GPU counted a different number of bytes than was copied. Counters or assumed route are wrong.
//!
//! # What to do
//!
//! Update the driver, and check again.
//!
//! # How it is detected
//!
//! Counters are read around known traffic (`measurements.counted`) that the graph routes over NVLink. The links
//! counted less by more than `below_percent`, and PCIe did not carry the rest (`traffic-over-pcie`). It is
//! information if the rest is unknown (PCIe bytes not counted, or wrapped after 4 GiB), or if links count more on
//! every GPU alike. More on some only is `gpu-busy`.
//!
//! # Sources
//!
//! NVML, fields 138 and 139, in KiB. 8 x H200: within 1% of bytes sent (measured).

use super::counted::{self, Direction};
use super::prelude::*;
use super::traffic_over_pcie;

rule! {
    "counters-disagree", Warning, All(judge);
    /// how far the count may be from what was copied; chosen: five times what healthy machines show
    BELOW: below_percent = 5.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let most = BELOW.of(evidence);
    let taken = traffic_over_pcie::taken(evidence);
    let is_taken = |gpu: u32| taken.iter().any(|(seen, _)| seen.gpu == gpu);
    let all = counted::sound(evidence)
        .filter(|seen| counted::is_over_nvlink(evidence, seen))
        .filter(|seen| !is_taken(seen.gpu))
        .flat_map(|seen| counted::directions(seen).map(move |direction| (seen, direction)));
    let odd = words::grouped(all.filter_map(|(seen, direction)| {
        let percent = counted::percent(direction.nvlink?, direction.known);
        let odd = match percent {
            less if less >= 100.0 - most && less <= 100.0 + most => return None,
            more if more > 100.0 => Odd::More,
            _ if direction.may_be_over_pcie() => Odd::Unknown,
            _ => Odd::Less,
        };
        Some((odd, (seen, direction, percent)))
    }));
    let of = |(odd, found): (Odd, Vec<(&Counted, Direction, f64)>)| {
        let worst = words::largest(&found, |(.., percent)| (percent - 100.0).abs())?;
        let gpus = words::unique(found.iter().map(|(seen, ..)| seen.gpu));
        Some(finding(evidence, worst, &gpus, odd))
    };
    odd.into_iter().filter_map(of).collect()
}

/// The NVLink count compared with the bytes copied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Odd {
    /// Less, and PCIe did not carry the rest.
    Less,
    /// Less, and PCIe may have carried the rest.
    Unknown,
    /// More.
    More,
}

fn finding(
    evidence: &Evidence<'_>,
    (seen, direction, percent): &(&Counted, Direction, f64),
    gpus: &[u32],
    odd: Odd,
) -> Finding {
    let [copied, counted] = [direction.known, direction.nvlink.unwrap_or_default()].map(Bytes);
    let (what, plan) = match odd {
        Odd::More => (
            "more than was copied; they count something else than data, or another program copied as much everywhere",
            Plan::now([Step::Stop(Work::OnGpus), Step::UpdateDriver, Step::CheckAgain]),
        ),
        Odd::Unknown => (
            "less than was copied; whether PCIe carried the rest cannot be told from its counter",
            Plan::now([Step::UpdateDriver, Step::CheckStandardCounters]),
        ),
        Odd::Less => (
            "less than was copied; PCIe did not carry the rest: which way the bytes went is not proven",
            Plan::now([Step::UpdateDriver, Step::CheckAgain]).if_it_stays([Step::SendReport]),
        ),
    };
    let message = format!(
        "The NVLinks of {} counted {counted} of {copied} that it {} ({percent:.0}%), {what}",
        evidence.name(seen.gpu),
        direction.word,
    );
    RULE.finding(Subject::of_gpus(gpus), message, plan)
        .at_if(odd != Odd::Less, Severity::Info)
        .gpus(gpus)
        .fact("copied", Fact::Bytes(copied))
        .fact("counted", Fact::Bytes(counted))
}

#[cfg(test)]
#[path = "counted_tests.rs"]
mod tests;
