//! # What it means
//!
//! Copies into mapped memory are slower than the same copies into plain memory.
//!
//! # What to do
//!
//! Stop other work and check again. If it stays, compare with another version of the driver; until then
//! `PYTORCH_CUDA_ALLOC_CONF` without `expandable_segments` and `NCCL_CUMEM_ENABLE=0` avoid such memory.
//!
//! What this test cannot tell: it copies into one large piece. Many small pieces may cost more.
//!
//! # How it is detected
//!
//! The probe of mapped memory (`measurements.mapped`, `--profile full` or `--only share`) times both, one after the other.
//! The rate into mapped memory lies more than `below_plain_percent` below the other, and by more than the spread of its own
//! samples.
//!
//! # Sources
//!
//! 2 x H200: 395.2 GB/s into mapped, 395.5 into plain memory (measured).

use super::prelude::*;
use model::cell::Measurement;
use model::measurement::Mapped;

const BELOW: Parameter = Parameter {
    name: "below_plain_percent",
    default: 5.0,
    about: "how far below copies into plain memory those into mapped memory may be; chosen: far more than the 0.1 that was \
            measured on H200",
};

pub(crate) const RULE: Rule =
    Rule::of_one("mapped-memory-slower", Severity::Warning, judge).with(&[BELOW]);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let below = |cell: &Mapped| Some(100.0 - cell.percent.filter(|_| cell.is_sound())?);
    let is_slower = |cell: &&Mapped| {
        let margin = RULE.parameter(evidence, &BELOW).max(cell.spread_percent.unwrap_or(0.0));
        below(cell).is_some_and(|below| below > margin)
    };
    let slower: Vec<&Mapped> = measurements.mapped.iter().filter(is_slower).collect();
    let all = slower.iter().filter_map(|cell| Some((*cell, below(cell)?)));
    let (worst, most) = words::largest(all, |(_, below)| *below)?;
    let gpus: Vec<u32> = words::unique(slower.iter().flat_map(|cell| cell.pair.gpus()));
    let rate = |rate: Option<GbPerSecond>| rate.unwrap_or(GbPerSecond(0.0));
    let message = format!(
        "Copies into memory that is mapped without peer access reach {} GB/s on {}, {most:.0}% less than into plain memory \
         ({} GB/s)",
        rate(worst.achieved_gbps),
        words::named(evidence.snapshot, &gpus),
        rate(worst.plain_gbps),
    );
    let steps = Plan::until_repair([Step::NoMappedMemory])
        .and(When::Now, [Step::CheckIdle])
        .if_it_stays([Step::OtherDriver]);
    let found = RULE.finding(Subject::Machine, message, steps);
    Some(
        found
            .fact("achieved", rate(worst.achieved_gbps))
            .fact("plain", rate(worst.plain_gbps))
            .gpus(&gpus),
    )
}
