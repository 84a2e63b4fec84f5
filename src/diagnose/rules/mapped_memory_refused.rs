//! # What it means
//!
//! Memory of a GPU cannot be mapped as newer programs do it.
//!
//! # What to do
//!
//! The message has the driver's answer. Look for messages of the driver and check with another version of it. Until then
//! `PYTORCH_CUDA_ALLOC_CONF` without `expandable_segments` and `NCCL_CUMEM_ENABLE=0` avoid such memory.
//!
//! What this test cannot tell: it maps some memory once. Memory that is fragmented into thousands of pieces may still run
//! into limits of the driver.
//!
//! # How it is detected
//!
//! The probe of mapped memory (`measurements.mapped`, `--profile full` or `--only share`) creates memory, maps it and gives
//! both GPUs of a pair access to it (`cuMemCreate`, `cuMemMap`, `cuMemSetAccess`), without peer access between their
//! contexts. One of these calls failed, or the bytes of the copies into it were wrong. A GPU or driver that says it has no
//! such memory is listed as not offered and is no finding.
//!
//! # Sources
//!
//! CUDA driver API, virtual memory management; PyTorch, CUDA semantics (`expandable_segments`); NCCL, environment variables
//! (`NCCL_CUMEM_ENABLE`).

use super::prelude::*;
use model::measurement::Mapped;

pub(crate) const RULE: Rule = Rule::of_one("mapped-memory-refused", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let failed = |cell: &&Mapped| cell.verified.is_wrong() || cell.ending.status.broke_off();
    let failed: Vec<&Mapped> = measurements.mapped.iter().filter(failed).collect();
    let first = failed.first()?;
    let gpus: Vec<u32> = words::unique(failed.iter().flat_map(|cell| cell.pair.gpus()));
    let why = match (&first.ending.reason, first.verified) {
        (Some(reason), _) => reason.clone(),
        (None, Verified::Dropped) => "bytes of copies into it never arrived".to_owned(),
        _ => "bytes of copies into it are wrong".to_owned(),
    };
    let message = format!(
        "Memory that is mapped without peer access does not work on {}: {why}",
        words::named(evidence.snapshot, &gpus),
    );
    let steps = Plan::until_repair([Step::NoMappedMemory])
        .and(When::Now, [Step::DriverLog, Step::OtherDriver]);
    let found = RULE.finding(Subject::Machine, message, steps);
    Some(found.fact("copies_failed", Fact::Count(failed.len() as u64)).gpus(&gpus))
}
