//! # What it means
//!
//! Settings above the hardware keep programs from paths that it has. With `NCCL_P2P_DISABLE=1` bytes go through host
//! memory, with `NCCL_SHM_DISABLE=1` through the network.
//!
//! # What to do
//!
//! Unset variables that nobody needs any more. `NCCL_DEBUG=INFO` shows what a program has set and which paths NCCL
//! takes.
//!
//! # How it is detected
//!
//! In peerscope's own environment, `NCCL_P2P_DISABLE`, `NCCL_P2P_LEVEL`, `NCCL_SHM_DISABLE`, `NCCL_NVLS_ENABLE`,
//! `NCCL_IB_DISABLE` if there is an RDMA adapter, `NCCL_NET_GDR_LEVEL`, `NCCL_ALGO` or `NCCL_PROTO` has a value that
//! excludes paths; or NVML reports confidential computing.
//!
//! # Sources
//!
//! NCCL user guide, environment variables; NVIDIA, confidential computing deployment guide.

use super::prelude::*;

rule! {
    "software-restricts", Info, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let host = &evidence.snapshot.host;
    if evidence.snapshot.gpus.len() < 2 {
        return None;
    }
    let has_rdma =
        evidence.snapshot.adapters.iter().any(|adapter| adapter.kind == AdapterKind::Rdma);
    let variables = host.nccl_variables.known().map(Vec::as_slice).unwrap_or_default();
    let said = |variable: &String| Some((variable.clone(), left_out(variable, has_rdma)?));
    let restricting: Vec<_> = variables.iter().filter_map(said).collect();
    let mut parts: Vec<_> =
        restricting.iter().map(|(variable, effect)| format!("{variable} ({effect})")).collect();
    let confidential = host.encrypts_copies();
    if confidential {
        parts.push("confidential computing is on (copies are encrypted)".to_owned());
    }
    if parts.is_empty() {
        return None;
    }
    let step = match restricting.is_empty() {
        true => Step::Nothing(Fine::IfMeant),
        false => Step::UnsetNeedless,
    };
    // What a log of NCCL shows of it.
    let remarks = evidence.read_from.map_or(&[][..], |read| &read.remarks);
    let ways = remarks.iter().filter(|remark| remark.contains("(through host memory)"));
    parts.extend(ways.filter(|_| !restricting.is_empty()).cloned());
    let message = format!("Software, not hardware, restricts the paths: {}", parts.join("; "));
    let set: Vec<_> = restricting.into_iter().map(|(variable, _)| variable).collect();
    Some(
        RULE.on_machine(message, [step])
            .fact("nccl_variables", set)
            .fact("confidential_computing", confidential),
    )
}

/// Returns what a variable of NCCL keeps programs from; `None` if it excludes nothing.
fn left_out(variable: &str, has_rdma: bool) -> Option<&'static str> {
    let (name, value) = variable.split_once('=')?;
    let on = !["", "0"].contains(&value);
    match (name, value) {
        ("NCCL_P2P_DISABLE", _) if on => Some("no peer access"),
        ("NCCL_P2P_LEVEL", "LOC" | "0") => Some("no peer access"),
        ("NCCL_P2P_LEVEL", "NVL") => Some("peer access over NVLink alone"),
        ("NCCL_P2P_LEVEL", "PIX" | "PXB" | "PHB" | "1" | "2" | "3" | "4") => {
            Some("peer access between near GPUs alone")
        }
        ("NCCL_SHM_DISABLE", _) if on => Some("no shared memory of the host"),
        ("NCCL_NVLS_ENABLE", "0") => Some("no NVLink SHARP"),
        ("NCCL_IB_DISABLE", _) if on && has_rdma => Some("no RDMA"),
        ("NCCL_NET_GDR_LEVEL", "LOC" | "0") if has_rdma => Some("no GPUDirect RDMA"),
        ("NCCL_ALGO" | "NCCL_PROTO", _) if !value.is_empty() => Some("fixed, whatever suits"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::snapshot::ConfidentialComputing;

    #[test]
    fn what_leaves_ways_out_is_named_and_changes_no_verdict() {
        let mut machine = h200_vm(4);
        let set = |variables: &[&str]| {
            Reading::Known(variables.iter().map(ToString::to_string).collect())
        };
        machine.host.nccl_variables =
            set(&["NCCL_P2P_DISABLE=0", "NCCL_P2P_LEVEL=SYS", "NCCL_IB_DISABLE=1"]);
        machine.host.confidential_computing = Reading::Known(ConfidentialComputing::Off);
        let measurements = measured(&machine, 0.88);
        assert_eq!(findings(&machine, Some(&measurements)), [], "no way that there is is left out");
        machine.host.nccl_variables =
            set(&["NCCL_P2P_DISABLE=1", "NCCL_NVLS_ENABLE=1", "NCCL_SHM_DISABLE=1"]);
        let found = findings(&machine, Some(&measurements));
        let message = &only(&found, "software-restricts", Severity::Info).message;
        assert!(
            message.contains("NCCL_P2P_DISABLE=1 (no peer access); NCCL_SHM_DISABLE=1"),
            "{message}"
        );
        assert!(!message.contains("NVLS"), "{message}");
        assert_eq!(exit(&found, Some(&measurements)), 0);
        machine.host.nccl_variables = set(&[]);
        machine.host.confidential_computing = Reading::Known(ConfidentialComputing::On);
        let found = findings(&machine, Some(&measurements));
        assert!(
            only(&found, "software-restricts", Severity::Info)
                .message
                .contains("confidential computing")
        );
    }
}
