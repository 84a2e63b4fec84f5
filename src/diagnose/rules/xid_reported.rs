//! # What it means
//!
//! The NVIDIA driver reported an error of a GPU (an Xid) while a job ran, or in hours under load.
//!
//! # How it is detected
//!
//! `peerscope bracket` reads the kernel's log before and after a job, which needs root on most machines. Reported are
//! messages that are new. `peerscope soak` takes NVML's events once a second, which needs no root. The code decides: errors of the GPU, its memory, its links or its firmware (48, 62, 64, 74, 79, 95,
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

use super::over_time;
use super::prelude::*;
use model::snapshot::{Xid, XidCause};
use model::soak::{EventKind, SoakEvent};

pub(crate) const RULE: Rule = Rule::new("xid-reported", Severity::Warning, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let xids = evidence.bracket.and_then(|bracket| bracket.xids.as_deref());
    let mut of_gpu: BTreeMap<PciAddress, Vec<&Xid>> = BTreeMap::new();
    for xid in xids.into_iter().flatten() {
        of_gpu.entry(xid.pci).or_default().push(xid);
    }
    let of_job = of_gpu
        .into_iter()
        .map(|(address, xids)| of_job(evidence, address, &xids));
    of_job.chain(in_hours(evidence)).collect()
}

fn severity(code: u32) -> Severity {
    match XidCause::of(code) {
        XidCause::Hardware => Severity::Error,
        XidCause::Program => Severity::Info,
        XidCause::Other => Severity::Warning,
    }
}

/// Returns the findings on GPUs with errors in hours under load.
fn in_hours(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(soak) = over_time::soak(evidence) else {
        return Vec::new();
    };
    let of = |gpu: u32| {
        let mut times: BTreeMap<u32, usize> = BTreeMap::new();
        let minutes = soak.of_gpu(gpu);
        for code in minutes.flat_map(|(_, own)| own.xids.iter().flatten()) {
            *times.entry(*code).or_default() += 1;
        }
        let said: Vec<String> = times
            .iter()
            .map(|(code, times)| {
                let is_it = |event: &&SoakEvent| {
                    event.kind == EventKind::Xid
                        && event.gpu == Some(gpu)
                        && event.xid == Some(*code)
                };
                let first = soak.events.iter().find(is_it);
                let first = first.map_or_else(String::new, |event| {
                    format!(", first after {}", over_time::after(event.at_s))
                });
                format!("Xid {code}{}{first}", often(*times))
            })
            .collect();
        let codes: Vec<u32> = times.into_keys().collect();
        (!codes.is_empty()).then(|| {
            let name = words::gpu(evidence.snapshot, gpu);
            finding(
                Subject::Gpu { index: gpu },
                &format!("{name} in the hours under load"),
                &said,
                &codes,
            )
        })
    };
    soak.gpus().into_iter().filter_map(of).collect()
}

/// Returns the finding on the messages of one GPU.
fn of_job(evidence: &Evidence<'_>, address: PciAddress, xids: &[&Xid]) -> Finding {
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
            let times = often(xid.times as usize);
            match xid.text.as_str() {
                "" => format!("Xid {}{times}", xid.code),
                text => format!("Xid {} ({text}){times}", xid.code),
            }
        })
        .collect();
    let codes: Vec<u32> = xids.iter().map(|xid| xid.code).collect();
    let when = evidence.meanwhile();
    finding(subject, &format!("{name} {when}"), &said, &codes)
}

/// Returns `, 3 times`; nothing for once.
fn often(times: usize) -> String {
    match times {
        0 | 1 => String::new(),
        times => format!(", {times} times"),
    }
}

/// Returns the finding on the errors of one GPU, and when they came.
fn finding(subject: Subject, of: &str, said: &[String], codes: &[u32]) -> Finding {
    let worst = codes.iter().map(|code| severity(*code)).max();
    let worst = worst.unwrap_or(Severity::Info);
    let plan = match subject {
        Subject::Gpu { index } if worst > Severity::Info => {
            let reset = Step::ResetGpu(all(&[index]), Listed(vec![index]));
            Plan::now([Step::DriverLog, reset, Step::CheckAgain])
                .if_it_stays([Step::Replace(Part::Gpu(gpu(index)))])
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
                "The driver reported errors of {of}: {}{program}",
                said.join("; ")
            ),
            plan,
        )
        .fact(
            "xid_codes",
            Fact::Numbers(codes.iter().map(|code| u64::from(*code)).collect()),
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
    fn errors_in_hours_under_load_have_their_times() {
        let found = |xids: &[u32]| {
            let mut soak = over_time::testing::hour(
                8,
                |_, _| 395.0,
                |gpu, minute, own| {
                    let is_then = gpu == 1 && minute == 41.0;
                    own.xids = Some(if is_then { xids.to_vec() } else { Vec::new() });
                },
            );
            soak.events.push(SoakEvent {
                at_s: 2460.0,
                kind: EventKind::Xid,
                gpu: Some(1),
                path: None,
                function: None,
                xid: Some(79),
                what: "the driver reported Xid 79 of GPU 1".into(),
            });
            over_time::testing::after(soak)
        };
        let both = found(&[79, 79]);
        let finding = only(&both, "xid-reported", Severity::Error);
        assert_eq!(finding.subject, Subject::Gpu { index: 1 });
        let wanted = "in the hours under load: Xid 79, 2 times, first after 41 min";
        assert!(finding.message.contains(wanted), "{}", finding.message);
        assert!(!found(&[]).iter().any(|one| one.code == "xid-reported"));
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
