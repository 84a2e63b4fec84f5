//! # What it means
//!
//! A copy between two GPUs did not end. Programs that use both hang.
//!
//! # What to do
//!
//! First run safely: `NCCL_P2P_DISABLE=1`, or `NCCL_P2P_LEVEL` if only far pairs suffer. Look for Xids
//! (`dmesg | grep -i xid`). Over PCIe, switch off ACS or a translating IOMMU that the finding names. Power-cycle the
//! machine, then check the pair alone (`--gpus`). If it hangs again, swap one of the two with another GPU.
//!
//! # How it is detected
//!
//! The process that runs the copies did not report back within the deadline; a new one went on with the other pairs.
//!
//! # Sources
//!
//! NCCL issues 606 and 557.

use super::prelude::*;
use super::{peer_access, peer_copy, remedy};

rule! {
    "peer-copy-hung", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let plan = |group: &Group| {
        let gpus = group.gpus();
        let mut find = vec![Step::Xid];
        if !evidence.any_over_pcie(&group.pairs) {
            find.push(Step::LinkErrors);
        }
        find.extend([Step::PowerCycle, Step::CheckAlone(all(&gpus))]);
        remedy::plan(evidence, group, find).if_it_stays([Step::Swap(Part::Gpu(OneOf(gpus)))])
    };
    let mut findings = peer_copy::findings(&RULE, evidence, Status::Hung, "hang", &plan);
    for found in &mut findings {
        found.suspects.extend(peer_access::suspect_patched(evidence, &found.scope.pairs));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::asynchrony::{Call, HostCall};
    use model::placement::HostMode;
    use model::status::Ending;

    #[test]
    fn a_round_of_calls_that_hangs_is_one_finding() {
        let machine = h200_vm(2);
        let mut measurements = measured(&machine, 0.88);
        let why = "calls did not end within 5.7 s";
        let hung = |call, busy| HostCall {
            ending: Ending::without(Status::Hung, Some(why.into())),
            ..HostCall::blank(1, call, None, None, None, None, HostMode::Blocking, busy)
        };
        measurements.calls = vec![hung(Call::Launch, true), hung(Call::SynchronizeDevice, true)];
        measurements.calls.push(hung(Call::SynchronizeDevice, false));
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "peer-copy-hung", Severity::Error);
        assert_eq!(own.subject, Subject::Gpu { index: 1 });
        let told = "Copies and kernels within GPU 1 (0000:";
        assert!(
            own.message.starts_with(told)
                && own.message.ends_with("hang; calls did not end within 5.7 s")
        );
    }
}
