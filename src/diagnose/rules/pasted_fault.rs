//! # What it means
//!
//! Output of other tools states a fault of the machine. The tool has seen what no figure in the input shows.
//!
//! # What to do
//!
//! Lost or not started: read the driver's messages (`dmesg | grep -iE 'nvrm|xid'`), power the machine off and on, and
//! check. A failed test, fatal errors of PCIe: run `peerscope check` there, which shows the part that is broken.
//! Wrong values: use no results of this machine until a check has passed.
//!
//! # How it is detected
//!
//! A line says that a GPU is lost, that the driver could not start one (`RmInitAdapter failed`,
//! `probe routine failed`; if another output describes that GPU, `pasted-unclear`), that a test failed (`dcgmi diag`,
//! `Result = FAIL`), that values were wrong (nccl-tests), that bus bandwidth falls from a size on, or that PCIe had fatal errors of a GPU whose place in the
//! PCI tree is not in the input. The message has the words and their line.
//!
//! # Sources
//!
//! The words are those of nvidia-smi, NVIDIA's open kernel modules, DCGM, the CUDA samples and nccl-tests.

use super::prelude::*;
use model::pasted::{PastedFault, PastedFaultKind};

rule! {
    "pasted-fault", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let faults = evidence.read_from.map_or(&[][..], |read| &read.faults);
    let alike = words::grouped(faults.iter().map(|fault| ((fault.kind, fault.pci), fault)));
    let found = alike
        .into_iter()
        .map(|((kind, address), faults)| finding(evidence, kind, address, &faults));
    found.collect()
}

fn finding(
    evidence: &Evidence<'_>,
    kind: PastedFaultKind,
    address: Option<PciAddress>,
    faults: &[&PastedFault],
) -> Finding {
    let is_it = |gpu: &&Gpu| address.is_some() && gpu.pci.get() == address;
    let gpu = evidence.snapshot.gpus.iter().find(is_it);
    let subject = match (gpu, address) {
        (Some(gpu), _) => Subject::Gpu { index: gpu.index },
        (None, Some(address)) => Subject::PciFunction { address },
        (None, None) => Subject::Machine,
    };
    let who = match (gpu, address) {
        (Some(gpu), _) => evidence.name(gpu.index),
        (None, Some(address)) => address.to_string(),
        (None, None) => "a device".to_owned(),
    };
    let (what, plan) = match kind {
        PastedFaultKind::Lost => (
            format!("{who} is lost"),
            Plan::now([Step::Xid, Step::PowerCycle, Step::CheckWithPeerscope]),
        ),
        PastedFaultKind::NotStarted => (
            format!("the driver could not start {who}"),
            Plan::now([Step::DriverLog, Step::PowerCycle, Step::CheckWithPeerscope]),
        ),
        PastedFaultKind::TestFailed => (
            format!("a test of {who} failed"),
            Plan::now([Step::CheckWithPeerscope, Step::RunDcgm]),
        ),
        PastedFaultKind::PcieFatal => (
            format!("{who} had fatal PCIe errors"),
            Plan::now([Step::AerLog, Step::CheckWithPeerscope])
                .if_it_stays(gpu.map(|gpu| Step::Reseat(Part::of(&[gpu.index])))),
        ),
        PastedFaultKind::RateFalls => (
            format!(
                "a collective reached {}",
                words::distinct(faults.iter().map(|fault| &fault.text))
            ),
            Plan::now([Step::GiveOutput(
                "the same run with NCCL_DEBUG=INFO and NCCL_ALGO=Ring".into(),
            )]),
        ),
        PastedFaultKind::WrongValues => (
            format!("a program found wrong values of {who}"),
            Plan::until_repair([Step::MachineOutOfService]).then([Step::CheckWithPeerscope]),
        ),
    };
    let line = |fault: &&PastedFault| {
        format!("\"{}\" (line {} of {})", fault.text, fault.line, fault.input)
    };
    let lines: Vec<String> = faults.iter().map(line).collect();
    RULE.finding(subject, format!("The input says that {what}; {}", words::spelt(&lines)), plan)
        .fact("lines", lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::prelude::*;
    use model::pasted::Pasted;
    use model::topology::Topology;

    fn found(faults: &[(PastedFaultKind, Option<&str>)]) -> Vec<Finding> {
        let faults = faults.iter().zip(1..).map(|((kind, pci), line)| PastedFault {
            kind: *kind,
            text: "words".to_owned(),
            pci: pci.map(|pci| pci.parse().unwrap()),
            input: "in.txt".to_owned(),
            line,
        });
        let pasted = Pasted { faults: faults.collect(), ..Pasted::default() };
        let machine = h200_vm(2);
        let (topology, settings) = (Topology::default(), Settings::default());
        RULE.judge(&Evidence {
            read_from: Some(&pasted),
            ..crate::testing::without_request(&machine, &topology, None, &settings)
        })
    }

    #[test]
    fn what_a_tool_states_is_an_error_with_its_words_and_line() {
        assert_eq!(found(&[]), []);
        let lost = found(&[
            (PastedFaultKind::Lost, Some("0000:99:00.0")),
            (PastedFaultKind::Lost, Some("0000:99:00.0")),
        ]);
        let one = only(&lost, "pasted-fault", Severity::Error);
        assert!(matches!(one.subject, Subject::PciFunction { .. }));
        assert!(
            one.message.contains("\"words\" (line 1 of in.txt); \"words\" (line 2 of in.txt)"),
            "{}",
            one.message
        );
        assert_advice(&RULE, &lost, &["xid", "power-cycle", "peerscope-check"], &[]);
        assert!(!crate::is_gap(&RULE.id));
        let not_started = found(&[(PastedFaultKind::NotStarted, None)]);
        assert_advice(&RULE, &not_started, &["xid", "power-cycle", "peerscope-check"], &[]);
        let fatal = found(&[(PastedFaultKind::PcieFatal, Some("0000:99:00.0"))]);
        assert_advice(&RULE, &fatal, &["aer", "peerscope-check"], &[]);
        let failed = found(&[(PastedFaultKind::TestFailed, None)]);
        assert_advice(&RULE, &failed, &["peerscope-check", "dcgm"], &[]);
        let wrong = found(&[(PastedFaultKind::WrongValues, None)]);
        assert_eq!(wrong[0].subject, Subject::Machine);
        assert_advice(&RULE, &wrong, &["out-of-service", "peerscope-check"], &[]);
    }
}
