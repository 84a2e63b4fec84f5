//! # What it means
//!
//! The NVIDIA driver reported an error of a GPU (an Xid) while a job ran.
//!
//! # How it is detected
//!
//! `peerscope bracket` reads the kernel's log before and after a job, which needs root on most machines. Reported are
//! messages that are new. The code decides: errors of the GPU, its memory, its links or its firmware (48, 62, 64, 74, 79, 95,
//! 119, 120, 140) are an error; codes that programs cause as well (13, 31, 43, 45, 68, 69) are information; all others are a
//! warning. `check` and `topo` name the messages in other findings on a GPU, and do not judge them: they may be old.
//!
//! # Why it matters
//!
//! A job that meets such an error ends, or computes something wrong. A GPU with errors of the first kind fails the next job
//! too.
//!
//! # What to do
//!
//! Look the code up in NVIDIA's list of Xid errors, and read the messages around it (`dmesg | grep -i xid`). Information:
//! look at the program first. Otherwise end the programs on the GPU, reset it or reboot, check, and replace it if the
//! message comes back.
//!
//! # Sources
//!
//! NVIDIA, "Xid Errors" (catalog of codes, with likely causes: hardware, driver, application); NVIDIA GPU Memory Error
//! Management (48, 63, 64, 94, 95).

use super::prelude::*;
use model::snapshot::Xid;

/// Errors of the GPU, its memory, its links or its firmware.
const OF_HARDWARE: &[u32] = &[48, 62, 64, 74, 79, 95, 119, 120, 140];
/// Codes that programs cause as well.
const OF_PROGRAMS: &[u32] = &[13, 31, 43, 45, 68, 69];

pub(crate) const RULE: Rule = Rule::new("xid-reported", Severity::Warning, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let xids = evidence.bracket.and_then(|bracket| bracket.xids.as_deref());
    let mut of_gpu: BTreeMap<PciAddress, Vec<&Xid>> = BTreeMap::new();
    for xid in xids.into_iter().flatten() {
        of_gpu.entry(xid.pci).or_default().push(xid);
    }
    of_gpu
        .into_iter()
        .map(|(address, xids)| finding(evidence, address, &xids))
        .collect()
}

fn severity(code: u32) -> Severity {
    match code {
        code if OF_HARDWARE.contains(&code) => Severity::Error,
        code if OF_PROGRAMS.contains(&code) => Severity::Info,
        _ => Severity::Warning,
    }
}

/// Returns the finding on the messages of one GPU.
fn finding(evidence: &Evidence<'_>, address: PciAddress, xids: &[&Xid]) -> Finding {
    let at = |snapshot: &Snapshot| {
        let gpus = snapshot.gpus.iter().map(|gpu| gpu.index);
        gpus.into_iter()
            .find(|index| snapshot.address_of(*index) == Some(address))
    };
    let index = at(evidence.snapshot);
    let (subject, name) = match index {
        Some(index) => (Subject::Gpu { index }, words::gpu(evidence.snapshot, index)),
        None => (
            Subject::PciFunction { address },
            format!("the GPU at {address}"),
        ),
    };
    let said: Vec<String> = xids
        .iter()
        .map(|xid| {
            let times = match xid.times {
                0 | 1 => String::new(),
                times => format!(", {times} times"),
            };
            match xid.text.as_str() {
                "" => format!("Xid {}{times}", xid.code),
                text => format!("Xid {} ({text}){times}", xid.code),
            }
        })
        .collect();
    let worst = xids.iter().map(|xid| severity(xid.code)).max();
    let worst = worst.unwrap_or(Severity::Info);
    let own = index.map(|index| all(&[index]));
    let plan = match own {
        Some(own) if worst > Severity::Info => {
            let reset = Step::ResetGpu(own, Listed(index.into_iter().collect()));
            let plan = Plan::now([Step::DriverLog, reset, Step::CheckAgain]);
            match index {
                Some(index) => plan.if_it_stays([Step::Replace(Part::Gpu(gpu(index)))]),
                None => plan,
            }
        }
        _ => Plan::now([Step::DriverLog, Step::CheckAgain]),
    };
    let program = match worst {
        Severity::Info => "; programs cause these codes as well",
        _ => "",
    };
    let mut found = RULE
        .finding(
            subject,
            format!(
                "The driver reported errors of {name} {}: {}{program}",
                evidence.meanwhile(),
                said.join("; ")
            ),
            plan,
        )
        .fact(
            "xid_codes",
            Fact::Numbers(xids.iter().map(|xid| u64::from(xid.code)).collect()),
        );
    found.severity = worst;
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bracket::tests::{found, report};
    use crate::testing::prelude::*;

    fn with(codes: &[u32]) -> Vec<Finding> {
        let machine = h200_vm(2);
        let pci = machine.gpus[1].pci.get().unwrap();
        let mut job = report(&machine, &machine);
        let xid = |code: &u32| Xid {
            pci,
            code: *code,
            text: "said".into(),
            times: 2,
            seconds_since_boot: Some(9),
        };
        job.bracket.as_mut().unwrap().xids = Some(codes.iter().map(xid).collect());
        found(&job)
    }

    #[test]
    fn the_code_decides() {
        for (codes, severity) in [
            (&[13][..], Severity::Info),
            (&[13, 63], Severity::Warning),
            (&[13, 79], Severity::Error),
            (&[999], Severity::Warning),
        ] {
            let found = with(codes);
            let finding = only(&found, "xid-reported", severity);
            assert_eq!(finding.subject, Subject::Gpu { index: 1 });
            let wanted: &[&str] = match severity {
                Severity::Info => &["xid", "check-again"],
                // The machine is a guest, whose host replaces GPUs.
                _ => &["xid", "reset-gpu", "check-again", "ask-host"],
            };
            assert_advice(&RULE, &found, wanted, &[]);
        }
        let message = &with(&[79])[0].message;
        assert!(message.contains("Xid 79 (said), 2 times"), "{message}");
        assert_eq!(with(&[]), []);
    }
}
