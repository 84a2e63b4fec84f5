//! # What it means
//!
//! Memory of the host could not be page-locked. The GPUs are not concerned; the exit code is 3.
//!
//! # What to do
//!
//! Raise the limit that the message names: `ulimit -l` (`LimitMEMLOCK=` in systemd, `--ulimit memlock=-1` in Docker),
//! or the memory of the container (`--memory`, `resources.limits.memory`). Otherwise free memory of the host. Then
//! check again.
//!
//! # How it is detected
//!
//! Page-locking (`measurements.pinning`) failed or had no room for even a small buffer: system, process or container
//! refused.
//!
//! # Sources
//!
//! CUDA driver API, `cuMemHostAlloc` and `cuMemHostRegister`; getrlimit(2), RLIMIT_MEMLOCK; cgroup v2, memory.max.

use super::prelude::*;

rule! {
    "pinning-refused", Warning, One(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let refused: Vec<_> = measurements.pinning.iter().filter(|pinning| pinning.refused).collect();
    let nodes: BTreeSet<u32> = refused.iter().filter_map(|pinning| pinning.numa_node).collect();
    let first = refused.first()?;
    let place = words::after(" of NUMA node ", Some(words::ranges(nodes.iter().copied())));
    let why =
        words::distinct(refused.iter().filter_map(|pinning| pinning.ending.reason.as_deref()));
    let limit = words::distinct(refused.iter().filter_map(|pinning| pinning.limit.as_deref()));
    let by = words::in_brackets(Some(&limit));
    let message =
        format!("{} of host memory{place} could not be page-locked; {why}{by}", first.bytes);
    Some(
        RULE.on_machine(message, [Step::MemoryLimit, Step::CheckAgain])
            .fact("asked_for", Fact::Bytes(first.bytes))
            .fact("left", first.limit_bytes.map(Fact::Bytes)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_host;
    use model::testing::pinning;

    #[test]
    fn a_limit_that_keeps_memory_from_being_locked_is_told_and_makes_the_run_inconclusive() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        measurements.pinning = vec![pinning()];
        assert_eq!(findings(&machine, Some(&measurements)), []);
        let cell = &mut measurements.pinning[0];
        (cell.ending.status, cell.ending.reason) =
            (Status::Skipped, Some("64 KiB are left".into()));
        (cell.allocate_ms_per_gib, cell.register_ms_per_gib) = (None, None);
        let codes_of = |measurements: &_| {
            crate::testing::codes(&findings(&machine, Some(measurements))).join(" ")
        };
        assert!(!codes_of(&measurements).contains("pinning-refused"), "cut off, say");
        let cell = &mut measurements.pinning[0];
        cell.refused = true;
        cell.limit = Some("RLIMIT_MEMLOCK (ulimit -l)".into());
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "pinning-refused", Severity::Warning);
        assert!(own.message.contains("64 KiB are left (RLIMIT_MEMLOCK"), "{}", own.message);
        assert_eq!(exit(&found, Some(&measurements)), 3);
    }
}
