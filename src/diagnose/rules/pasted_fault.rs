//! # What it means
//!
//! Output of other tools states a fault of the machine. The tool has seen what no figure in the input shows.
//!
//! # What to do
//!
//! Lost or not started: read the driver's messages (`dmesg | grep -iE 'nvrm|xid'`), power the machine off and on, and
//! check. No driver, or no GPU of it: see which driver has the GPUs (`lspci -nnk -d 10de:`). NVML does not start in a
//! container: run `nvidia-smi` on its host. A failed test, fatal errors of PCIe: run `peerscope check` there, which
//! shows the part that is broken. Wrong values: use no results of this machine until a check has passed.
//!
//! # How it is detected
//!
//! A line says that a GPU is lost, needs a reset or could not be started (if another output describes that GPU,
//! `pasted-unclear`), that no driver answers, that programs were refused peer access or the NVSwitch fabric, that a test
//! failed, that the link of a busy GPU is slow, that the IOMMU refused accesses of a GPU, that values were wrong, that
//! bus bandwidth falls from a size on (nccl-tests), or that PCIe had fatal errors of a GPU
//! whose place in the PCI tree is not in the input. Where a live check has a rule for it, that rule names it:
//! `gpu-unreachable`, `gpu-not-listed`, `xid-reported`, `driver-mismatch`, `peer-access-missing`, `peer-connections-held`,
//! `fabric-not-ready`.
//!
//! Each message in src/pasted/messages.toml has its severity. A message that another error explains is information.
//!
//! # Sources
//!
//! The words are those of nvidia-smi, NVIDIA's open kernel modules, DCGM, CUDA, its samples, nvbandwidth and NCCL.

use super::gpu_unreachable::no_answer;
use super::prelude::*;
use crate::models::is_sxm;
use model::pasted::PastedFaultKind::{self, *};
use model::pasted::{Explained, PastedFault, PastedLine};
use model::snapshot::{OFF_THE_BUS, XidCause};

rule! {
    "pasted-fault", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let faults: Vec<&PastedFault> = evidence.stated().collect();
    // A line without an address is of the same event as one with it.
    let place = |fault: &PastedFault| {
        let mut alike = faults.iter().filter(|other| other.kind == fault.kind);
        fault.said.pci.or_else(|| alike.find_map(|other| other.said.pci))
    };
    let mut xids = evidence.snapshot.host.xids.known().into_iter().flatten();
    let messages: Vec<&Explained> =
        evidence.read_from.into_iter().flat_map(|read| &read.explained).collect();
    let has_cause = xids.any(|xid| xid.cause() != XidCause::Other)
        || !faults.is_empty()
        || messages.iter().any(|one| one.severity == Severity::Error && !one.follows);
    let explained = messages.into_iter().map(|one| {
        let found = explained(evidence, one);
        // A program's error beside one of the machine is its consequence.
        if one.follows && has_cause { found.at(Severity::Info) } else { found }
    });
    let left = faults.iter().copied().filter(|fault| !is_judged(evidence, fault));
    let alike = words::grouped(left.map(|fault| ((fault.kind, place(fault)), fault)));
    let found = alike
        .into_iter()
        .map(|((kind, address), faults)| finding(evidence, kind, address, &faults));
    found.chain(explained).collect()
}

/// Most lines of a message that are quoted.
const QUOTED: usize = 3;

/// Returns a finding on a message that is known.
fn explained(evidence: &Evidence<'_>, message: &Explained) -> Finding {
    let places = words::unique(message.lines.iter().filter_map(|line| line.pci));
    let mut gpus = evidence.snapshot.gpus.iter();
    let gpu = gpus.find(|gpu| gpu.pci.get().is_some_and(|pci| places == [pci]));
    let subject = gpu.map_or(Subject::Machine, |gpu| Subject::Gpu { index: gpu.index });
    let one_line = |line: &PastedLine| {
        let text = line.to_string();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<String> = message.lines.iter().map(one_line).collect();
    let sentence = format!(
        "The input says that {}{}: {}",
        message.meaning,
        words::after(", at ", (places.len() > 1).then(|| words::addresses(&places))),
        words::first(&lines, QUOTED)
    );
    RULE.finding(subject, sentence.clone(), [Step::AsExplained(message.advice.clone())])
        .in_short(sentence)
        .at(message.severity)
        .fact("lines", lines)
}

/// Words of a fabric manager that finds no NVSwitch.
const NO_SWITCH: &str = "NV_WARN_NOTHING_TO_DO";

/// Returns true if the rule for such a fault of a live machine reports it.
fn is_judged(evidence: &Evidence<'_>, fault: &PastedFault) -> bool {
    let snapshot = evidence.snapshot;
    match fault.kind {
        Mismatch | NotReady | NamedXid => true,
        // Cards have no NVSwitches to manage, nor have boards of four modules.
        Fabric if fault.said.pci.is_none() && fault.said.text.contains("abric") => {
            let mut names = snapshot.gpus.iter().map(|gpu| gpu.name.known());
            let is_small = !snapshot.gpus.is_empty() && snapshot.gpus.len() <= 4;
            let is_card = |name: Option<&String>| name.is_some_and(|name| !is_sxm(name));
            let mut said = evidence.read_from.into_iter().flat_map(|read| &read.explained);
            is_small
                || (!snapshot.gpus.is_empty() && names.all(is_card))
                || said.any(|one| one.lines.iter().any(|line| line.text.contains(NO_SWITCH)))
        }
        TooManyPeers => false,
        Lost => {
            let is_it = |gpu: &Gpu| fault.said.pci.is_none() || gpu.pci.get() == fault.said.pci;
            let mut xids = snapshot.host.xids.known().into_iter().flatten();
            snapshot.gpus.iter().any(|gpu| is_it(gpu) && no_answer(gpu).is_some())
                || xids.any(|xid| {
                    xid.code == OFF_THE_BUS && fault.said.pci.is_none_or(|at| at == xid.pci)
                })
        }
        // What names no GPU is the same event as what names one.
        kind if kind.is_of_start() => {
            let is_it = |one: &DisplayFunction| fault.said.pci.is_none_or(|at| at == one.address);
            snapshot.unlisted_gpus.iter().any(is_it)
        }
        kind => {
            let mut said = evidence.measured().driver.peer_access.iter();
            kind.cuda_code().is_some() && said.any(|said| said.failure_code == kind.cuda_code())
        }
    }
}

fn finding(
    evidence: &Evidence<'_>,
    kind: PastedFaultKind,
    address: Option<PciAddress>,
    faults: &[&PastedFault],
) -> Finding {
    let is_it = |gpu: &&Gpu| address.is_some() && gpu.pci.get() == address;
    let gpu = evidence.snapshot.gpus.iter().find(is_it);
    let (subject, who) = match (gpu, address) {
        (Some(gpu), _) => (Subject::Gpu { index: gpu.index }, evidence.name(gpu.index)),
        (None, Some(address)) => (Subject::PciFunction { address }, address.to_string()),
        (None, None) => (Subject::Machine, "a device".to_owned()),
    };
    let says = |word| faults.iter().any(|fault| fault.said.text.contains(word));
    let own = match (gpu, address) {
        (Some(gpu), Some(at)) if !says("Reboot") => {
            Step::ResetGpuAt(all(&[gpu.index]), At(vec![at]))
        }
        _ => Step::Reboot,
    };
    let (what, plan) = match kind {
        Lost => ("{} is lost", Plan::now([Step::Xid, Step::PowerCycle, Step::CheckWithPeerscope])),
        NotStarted | NoWindow | Unsupported | Mismatch | NotReady | NamedXid => (
            "the driver could not start {}",
            Plan::now([Step::DriverLog, Step::PowerCycle, Step::CheckWithPeerscope]),
        ),
        NeedsReset => (
            "the driver asks for a reset or reboot of {}",
            Plan::now([Step::Xid, own]).if_it_stays([Step::PowerCycle]),
        ),
        NoDriver => (
            "no NVIDIA driver answers, which need not be a fault of a GPU",
            Plan::now([Step::Bus, Step::LoadDriver, Step::StartLog]),
        ),
        OtherDriver => (
            "another driver (nouveau or vfio-pci, say) has the GPUs, which are not shown to be bad",
            Plan::now([Step::Bus, Step::NoNouveau, Step::BindDriver]),
        ),
        NoDevices => (
            "the driver is loaded, and has no GPU that works",
            Plan::now([Step::DriverLog, Step::Bus, Step::PowerCycle]),
        ),
        NoNvml => (
            "NVML does not start: in a container, its device files are mostly gone, and no GPU is bad",
            Plan::now([Step::CheckOnHost, Step::Container, Step::DriverLog]),
        ),
        PeerMapping | PeerRefused => (
            "peer access could not be enabled (of which pair is not said)",
            Plan::now([Step::PeerToPeerWords, Step::Bar1, Step::CheckWithPeerscope]),
        ),
        TooManyPeers => (
            "a process asks for more than 8 peers of a GPU: an error of the set-up, no part is defective",
            Plan::now([Step::FewerGpus, Step::FewerPeers]),
        ),
        Fabric => (
            match gpu {
                Some(_) => "{} is not sound in the NVSwitch fabric",
                None if says("abric") => {
                    "the fabric manager does not run: where NVSwitches join the GPUs, CUDA does not start (error 802)"
                }
                None => "a program could not use the NVSwitch fabric",
            },
            Plan::now([Step::FabricManager, Step::CheckWithPeerscope]),
        ),
        HardwareError => (
            "the driver or a program names an error of the hardware of {}",
            Plan::now([Step::Xid, Step::RunDcgm]).if_it_stays([Step::PowerCycle]),
        ),
        TestFailed => ("a test of {} failed", Plan::now([Step::CheckWithPeerscope, Step::RunDcgm])),
        PcieFatal => (
            match says("can't recover") {
                true => "{} was not recovered from PCIe errors",
                false => "{} had fatal PCIe errors",
            },
            Plan::now([Step::AerLog, Step::CheckWithPeerscope])
                .if_it_stays(gpu.map(|gpu| Step::Reseat(Part::of(&[gpu.index])))),
        ),
        RateFalls => (
            "a collective reached {}",
            Plan::now([Step::GiveOutput(
                "the same run with NCCL_DEBUG=INFO and NCCL_ALGO=Ring".into(),
            )]),
        ),
        Iommu => (
            "the IOMMU refused memory accesses of {}",
            Plan::now([Step::LookAtIommu, Step::CheckWithPeerscope]),
        ),
        LinkSlow => (
            "the PCIe link of {} at work is slower than both ends can",
            Plan::now([Step::CheckUnderLoad])
                .if_it_stays(gpu.map(|gpu| Step::Reseat(Part::of(&[gpu.index])))),
        ),
        WrongValues => (
            "a program found wrong values of {}",
            Plan::until_repair([Step::MachineOutOfService]).then([Step::CheckWithPeerscope]),
        ),
    };
    let what = match kind {
        RateFalls => {
            what.replace("{}", &words::distinct(faults.iter().map(|fault| &fault.said.text)))
        }
        NoDevices => what.to_owned() + &on_bus(evidence.snapshot),
        _ => what.replace("{}", &who),
    };
    let lines: Vec<String> = faults.iter().map(|fault| fault.said.to_string()).collect();
    RULE.finding(subject, format!("The input says that {what}: {}", words::spelt(&lines)), plan)
        .fact("lines", lines)
}

/// Returns how many GPUs the PCI bus has that the driver lacks.
fn on_bus(snapshot: &Snapshot) -> String {
    words::further(": the PCI bus has ", snapshot.gpus.len() + snapshot.unlisted_gpus.len(), "GPU")
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
            said: PastedLine {
                text: "words".to_owned(),
                pci: pci.map(|pci| pci.parse().unwrap()),
                input: "in.txt".to_owned(),
                line,
            },
        });
        judged(&Pasted { faults: faults.collect(), ..Pasted::default() })
    }

    fn judged(pasted: &Pasted) -> Vec<Finding> {
        let machine = h200_vm(2);
        let (topology, settings) = (Topology::default(), Settings::default());
        RULE.judge(&Evidence {
            read_from: Some(pasted),
            ..crate::testing::without_request(&machine, &topology, None, &settings)
        })
    }

    #[test]
    fn a_message_is_quoted_whole_and_is_information_beside_its_cause() {
        let message = |follows| Explained {
            severity: Severity::Error,
            meaning: "a kernel failed".to_owned(),
            advice: "Run it alone.".to_owned(),
            follows,
            lines: (1..6)
                .map(|line| PastedLine {
                    text: "failed; code 4".to_owned(),
                    pci: None,
                    input: "in.txt".to_owned(),
                    line,
                })
                .collect(),
        };
        let of = |explained| judged(&Pasted { explained, ..Pasted::default() });
        let found = of(vec![message(true)]);
        let one = only(&found, "pasted-fault", Severity::Error);
        assert_eq!(
            one.short(),
            "The input says that a kernel failed: \"failed; code 4\" (line 1 of in.txt), \
             \"failed; code 4\" (line 2 of in.txt), \"failed; code 4\" (line 3 of in.txt) and 2 more"
        );
        assert_advice(&RULE, &found, &["as-explained"], &[]);
        let both = of(vec![message(true), message(false)]);
        let severities: Vec<Severity> = both.iter().map(|one| one.severity).collect();
        assert_eq!(severities, [Severity::Info, Severity::Error]);
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

    #[test]
    fn what_a_rule_of_the_live_check_reports_is_left_to_it() {
        for kind in [Mismatch, NotReady] {
            assert_eq!(found(&[(kind, None)]), [], "{kind:?}");
        }
        for (kind, steps) in [
            (NoDriver, &["lspci", "bind-driver", "driver-log"][..]),
            (OtherDriver, &["lspci", "bind-driver"]),
            (NoDevices, &["xid", "lspci", "power-cycle"]),
            (NoNvml, &["check-on-host", "container", "xid"]),
            (PeerMapping, &["compare-places", "bar1", "peerscope-check"]),
            (Fabric, &["fabric-manager", "peerscope-check"]),
            (NeedsReset, &["xid", "reboot"]),
            (HardwareError, &["xid", "dcgm"]),
            (Iommu, &["look-at-iommu", "peerscope-check"]),
            (LinkSlow, &["check-under-load"]),
        ] {
            let found = found(&[(kind, None)]);
            only(&found, "pasted-fault", Severity::Error);
            assert_advice(&RULE, &found, steps, &["power-cycle"]);
        }
        only(&found(&[(TooManyPeers, None)]), "pasted-fault", Severity::Error);
    }
}
