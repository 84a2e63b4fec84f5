//! # What it means
//!
//! Other programs hold the peer connections, so the check could not open one. The exit code is 3, and the hardware is
//! not at fault.
//!
//! # What to do
//!
//! End the programs named or wait, and check again. If it stays, let programs enable access only for pairs that they
//! use.
//!
//! # How it is detected
//!
//! CUDA says that a pair has peer access, and refuses to enable it (error 711), even after peerscope closed its own
//! connections.
//!
//! # Sources
//!
//! CUDA Programming Guide, "Peer-to-Peer Memory Access": eight peer connections for each device on systems without
//! NVSwitch.

use super::prelude::*;
use model::cuda::CUDA_TOO_MANY_PEERS;

rule! {
    "peer-connections-held", Warning, One(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let said = evidence.measured().driver.peer_access.iter();
    let refused = said.filter(|said| said.failure_code == Some(CUDA_TOO_MANY_PEERS));
    let pairs: Vec<Pair> = refused.map(|said| said.pair).collect();
    if pairs.is_empty() {
        return None;
    }
    let gpus: Vec<u32> = suspects::gpus_of(&pairs).into_iter().collect();
    let processes = evidence.processes(&gpus);
    let who = match processes.len() {
        0 => "programs that NVML does not list (in another container, for example)".to_owned(),
        _ => processes.join(", "),
    };
    let message = format!(
        "Other programs hold all peer connections of {} (CUDA error 711); {who}; direct copies of {} could not be tested: \
         without NVSwitches a GPU has eight connections",
        words::gpus(&gpus),
        words::count(pairs.len(), "pair"),
    );
    let plan = Plan::now([Step::EndProgramOn(all(&gpus)), Step::CheckAgain])
        .if_it_stays([Step::FewerPeers]);
    let found = RULE
        .finding(Subject::of_gpus(&gpus), message, plan)
        .fact("processes", (!processes.is_empty()).then_some(processes));
    Some(found.pairs(&pairs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::snapshot::GpuProcess;

    #[test]
    fn connections_that_others_hold_are_no_fault_and_the_programs_are_named() {
        let mut machine = two_sockets();
        machine.gpus[0].processes = Reading::Known(vec![GpuProcess {
            pid: 4711,
            name: Some("vllm".into()),
            memory_bytes: None,
        }]);
        let mut measurements = measured(&machine, 0.85);
        let refused = measurements.driver.peer_access.iter_mut();
        for access in refused.filter(|access| access.pair.touches(0)) {
            access.failure = Some("cuCtxEnablePeerAccess: too many peers (CUDA error 711)".into());
            access.failure_code = Some(CUDA_TOO_MANY_PEERS);
        }
        measurements.peer.retain(|cell| !touches(cell, 0));
        let found = findings(&machine, Some(&measurements));
        let own = found.iter().find(|found| found.code == RULE.id).unwrap();
        assert!(own.message.contains("process 4711 (vllm)"), "{}", own.message);
        assert!(found.iter().all(|found| found.severity < Severity::Error), "{found:#?}");
        assert_eq!(exit(&found, Some(&measurements)), 3);
        assert_advice(&RULE, &found, &["end-programs"], &["fewer-peers"]);
    }
}
