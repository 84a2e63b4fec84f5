//! # What it means
//!
//! A copy failed or crashed its process, or never ended while others ran. Programs that do the same fail or hang.
//!
//! # What to do
//!
//! Look for Xid messages (`dmesg | grep -i xid`) and look them up in NVIDIA's list. An error of memory (ECC, a pending
//! row remapping) needs a reset of the GPU, or its replacement. Check the GPUs alone (`--gpus`): does the failure
//! repeat? Then reset them or power-cycle the machine.
//!
//! If only several copies at once fail, look at the fabric manager's log too, check subsets of the GPUs, and compare
//! with `--serial`. Then reseat GPUs, bridges, risers and cables, and check power cables and supplies: bad contacts and
//! weak supplies show under load first.
//!
//! # How it is detected
//!
//! - Between two GPUs or within one a measurement failed. (Hung: `peer-copy-hung`.)
//! - With the host, or of page-locking, one failed or hung. (Refused: `pinning-refused`.)
//! - Several flows at once failed or hung, or rounds of pairs broke off twice and worked one by one. (Once:
//!   `copy-failed-once`.)
//! - A round of hours under load failed or hung, or two crashed by themselves.
//!
//! # Sources
//!
//! CUDA driver API, `CUresult`; NVIDIA's Xid errors page; nccl issues 557 and 606.

use super::prelude::*;
use super::{failed_at_once, failed_in_hours, peer_copy};
use model::host::Pinning;
use model::measurement::{Cell, Scope};

rule! {
    "copy-failed", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let of_pairs = peer_copy::findings(&RULE, evidence, Status::Failed, "fail", &|group| {
        let gpus = group.gpus();
        Plan::now([Step::Xid, Step::CheckAlone(all(&gpus))])
            .if_it_stays([Step::PowerCycle, Step::Swap(Part::Gpu(OneOf(gpus)))])
    });
    let alone = of_pairs.into_iter().chain(with_host(evidence));
    let at_once = failed_at_once::finding(&RULE, evidence);
    alone.chain(at_once).chain(failed_in_hours::findings(&RULE, evidence)).collect()
}

/// Returns the findings on copies with the host, and on page-locking for them.
fn with_host(evidence: &Evidence<'_>) -> Vec<Finding> {
    // `data-wrong` reports wrong bytes, however the timing ended.
    let is_bad = |copy: &&HostCopy| copy.ending.status.broke_off() && !copy.verified.is_wrong();
    let copies = evidence.host().iter().filter(is_bad).map(|copy| {
        let way = copy.way().to_string();
        (copy.gpu, Bad::of(copy.cell(), way))
    });
    let measurements = evidence.measured();
    // Calls and kernels within a GPU have their own rule, and which of several flows at once failed is not known.
    let is_other = |cell: &Cell<'_>| {
        let of_flows = cell.probe.scope() == Scope::Flows;
        cell.probe != Probe::Host && !of_flows && cell.status.broke_off()
    };
    let others = measurements.each().map(Measurement::cell).filter(is_other).filter_map(|cell| {
        let way = cell.probe.to_string();
        Some((cell.flow.with_host()?, Bad::of(cell, way)))
    });
    let by_gpu = words::grouped(copies.chain(others)).into_iter();
    let found = by_gpu.map(|(gpu, bad)| of_gpu(evidence, gpu, &bad));
    found.chain(of_page_locking(&measurements.pinning)).collect()
}

/// A measurement that failed or hung.
struct Bad<'a> {
    status: Status,
    reason: Option<&'a str>,
    way: String,
}

impl<'a> Bad<'a> {
    fn of(cell: Cell<'a>, way: String) -> Self {
        let (status, reason) = (cell.status, cell.reason);
        Self { status, reason, way }
    }
}

/// Returns a finding for page-locking that failed and was not just refused.
fn of_page_locking(pinning: &[Pinning]) -> Option<Finding> {
    let is_bad = |cell: &&Pinning| cell.ending.status.broke_off() && !cell.refused;
    let bad: Vec<_> = pinning.iter().filter(is_bad).collect();
    let reasons = words::distinct(bad.iter().filter_map(|cell| cell.ending.reason.as_deref()));
    let does =
        if bad.iter().any(|cell| cell.ending.status == Status::Hung) { "hangs" } else { "fails" };
    let message = format!("Page-locking memory of the host {does}; {reasons}");
    let plan = Plan::now([Step::DriverLog, Step::CheckAgain]).if_it_stays([Step::Reboot]);
    let found = RULE.on_machine(message, plan).fact("measurements", bad.len());
    (!bad.is_empty()).then_some(found)
}

fn of_gpu(evidence: &Evidence<'_>, gpu: u32, bad: &[Bad<'_>]) -> Finding {
    let hung = bad.iter().any(|bad| bad.status == Status::Hung);
    let reasons = words::distinct(bad.iter().filter_map(|bad| bad.reason));
    let ways = words::distinct(bad.iter().map(|bad| &bad.way));
    let message = format!(
        "Copies between the host and {} {}; {ways}; {}",
        evidence.name(gpu),
        if hung { "hang" } else { "fail" },
        if reasons.is_empty() { "no reason given" } else { &reasons },
    );
    let own = || all(&[gpu]);
    let plan = Plan::now([Step::Xid, Step::CheckAlone(own())]).if_it_stays([
        Step::ResetGpu(own()),
        Step::PowerCycle,
        Step::Swap(Part::of(&[gpu])),
    ]);
    RULE.finding(Subject::Gpu { index: gpu }, message, plan)
        .gpus(&[gpu])
        .fact("measurements", bad.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_host;
    use model::flow::{Flow, HostMemory};
    use model::live::PointerChase;
    use model::status::Ending;
    use model::testing::pinning;

    #[test]
    fn page_locking_that_fails_is_an_error_of_the_machine_and_one_that_is_refused_is_not() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        measurements.pinning = vec![pinning()];
        let cell = &mut measurements.pinning[0];
        (cell.ending.status, cell.ending.reason) =
            (Status::Failed, Some("cuMemHostAlloc: launch failed (719)".into()));
        (cell.allocate_ms_per_gib, cell.register_ms_per_gib) = (None, None);
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "copy-failed", Severity::Error);
        assert!(
            own.subject == Subject::Machine && own.message.contains("(719)"),
            "{}",
            own.message
        );
        measurements.pinning[0].refused = true;
        let found = findings(&machine, Some(&measurements));
        assert!(found.iter().all(|found| found.code != RULE.id), "{found:#?}");
    }

    #[test]
    fn loads_from_the_host_that_fail_are_an_error_of_their_gpu() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        let from_host = Flow::from_host(None, HostMemory::Pinned, 1);
        let mut loads = PointerChase::of(from_host).unwrap();
        loads.ending = Ending::without(Status::Failed, Some("an illegal address (700)".into()));
        measurements.chase.push(loads);
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "copy-failed", Severity::Error);
        assert_eq!(own.subject, Subject::Gpu { index: 1 });
        assert!(own.message.contains("pointer chase"), "{}", own.message);
    }

    #[test]
    fn a_copy_that_fails_is_an_error_of_its_gpu() {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        let cell = &mut measurements.host[0];
        (cell.ending.status, cell.achieved_gbps) = (Status::Failed, None);
        cell.ending.reason = Some("cuMemcpyDtoHAsync: an illegal address (700)".into());
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "copy-failed", Severity::Error);
        assert_eq!(own.subject, Subject::Gpu { index: 0 });
        assert!(
            own.message.contains("fail; pinned, to host; cuMemcpyDtoHAsync"),
            "{}",
            own.message
        );
    }
}
