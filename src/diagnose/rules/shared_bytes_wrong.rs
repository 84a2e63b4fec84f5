//! # What it means
//!
//! One process found wrong bytes in memory that another handed to it. NCCL, vLLM and PyTorch never check them:
//! results are wrong without an error.
//!
//! # What to do
//!
//! Check again; look for Xid messages. If the same GPUs copy wrong bytes within one process too, follow that finding
//! first. If only sharing is wrong, check with another version of the driver.
//!
//! # How it is detected
//!
//! Two processes share memory (`measurements.sharing`, `--profile full` or `--only share`). The owner fills it with a
//! pattern, a kernel of the other process checks it and writes another, and the owner checks that. The first write is
//! waited for, so order plays no part. It tests a few MiB, once.
//!
//! # Sources
//!
//! None: both processes compare with patterns that they wrote.

use super::prelude::*;
use model::measurement::Sharing;

pub(crate) const RULE: Rule = Rule::of_one("shared-bytes-wrong", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
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
