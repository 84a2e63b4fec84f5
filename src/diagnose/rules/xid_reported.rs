//! # What it means
//!
//! The NVIDIA driver reported an Xid of a GPU or an SXid of an NVSwitch. A job that meets it ends or computes
//! wrongly.
//!
//! # What to do
//!
//! Look the code up in NVIDIA's list, and read the messages around it (`dmesg | grep -i xid`). Information: look at
//! the program first. Otherwise end its programs, reset the GPU or reboot, check, and replace it if the message comes
//! back.
//!
//! # How it is detected
//!
//! `check`, `topo` and `diagnose` read the kernel's log since the last boot (root on most machines); `soak` takes
//! NVML's events once a second, without root. A pasted sentence that names a code counts like its message, and is information
//! beside a log. The code decides, and the text where it has a severity (144 to 150,
//! SXid) or an action (154):
//!
//! - Error: the GPU has to be reset (48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, fatal ones of 144 to 150
//!   and of NVSwitches, 154 that asks for a reset or a reboot). In a log, a warning if the last one is older than a
//!   day and the GPU answers, or a later Xid 154 says that no action is needed.
//! - Warning: the GPU survives (61, 63, 94, 137, 142, others of 144 to 150, 154 that asks for less).
//! - Information: programs cause it as well (13, 31, 43, 45, 68, 69).
//! - All others: a warning in `soak`, information in a log.
//!
//! # Sources
//!
//! NVIDIA, "Xid Errors" (catalog of codes); NVIDIA GPU Memory Error Management (48, 63, 64, 94, 95); names of codes:
//! NVIDIA's open kernel modules, nverror.h.

use super::prelude::*;
use super::{gpu_unreachable, over_time};
use model::pasted::PastedFaultKind;
use model::snapshot::{NVLINK_XID, OFF_THE_BUS, XidCause, named_xid};
use std::cmp::Reverse;

rule! {
    "xid-reported", Warning, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    in_hours(evidence).into_iter().chain(since_boot(evidence)).chain(named(evidence)).collect()
}

/// Returns a finding on each code that a sentence or a service names. Beside a log, they are information.
fn named(evidence: &Evidence<'_>) -> Vec<Finding> {
    let has_log = evidence.snapshot.host.xids.known().is_some_and(|xids| !xids.is_empty());
    let faults = evidence.stated().filter(|fault| fault.kind == PastedFaultKind::NamedXid);
    let codes = faults.filter_map(|fault| {
        let (code, _, text) = named_xid(&fault.said.text)?;
        let (pci, text) = (fault.said.pci.unwrap_or(NOWHERE), text.to_owned());
        let xid = Xid { pci, code, text, times: 1, seconds_since_boot: None };
        Some((code, (xid, fault.said.to_string())))
    });
    let finding = |(code, named): (u32, Vec<(Xid, String)>)| {
        let (xids, lines): (Vec<Xid>, Vec<String>) = named.into_iter().unzip();
        let mut xids: Vec<&Xid> = xids.iter().collect();
        xids.sort_by_key(|xid| rank(xid));
        let of = format!("Xid {code}, as a sentence of the input says");
        let worst = worst(xids.iter().map(|xid| xid.cause()));
        let found = finding(evidence, Subject::Machine, &of, &lines, &xids, &[code], worst);
        let short = format!("{}: {}", found.short(), words::first(&lines, 1));
        let found = found.in_short(short);
        if has_log { found.at(Severity::Info) } else { found }
    };
    words::grouped(codes).into_iter().map(finding).collect()
}

/// The address of a message that has none.
const NOWHERE: PciAddress = PciAddress { domain: 0, bus: 0, device: 0, function: 0 };

/// Returns the severity of an error that came just now.
fn severity(cause: XidCause) -> Severity {
    match cause {
        XidCause::Reset => Severity::Error,
        XidCause::Program | XidCause::Settled => Severity::Info,
        XidCause::Hardware | XidCause::Other => Severity::Warning,
    }
}

/// An error of a GPU that answers counts as a warning from this age on, seconds. Chosen: a day, in which a job has used it.
const OLD_SECONDS: u64 = 24 * 3600;

/// A GPU or NVSwitch with its messages.
type Place<'a> = (Subject, Vec<&'a Xid>);

/// Returns the place of a message among those of its device: causes, the worst first; what the driver asks for; what a
/// cause brings about.
fn rank(xid: &Xid) -> (u8, Reverse<Severity>) {
    let place = match xid.cause() {
        _ if xid.code == RECOVERY => 1,
        XidCause::Program => 2,
        _ => 0,
    };
    (place, Reverse(severity(xid.cause())))
}

/// Returns the findings on the kernel's log since the last boot: one for the same codes, whichever GPUs have them.
fn since_boot(evidence: &Evidence<'_>) -> Vec<Finding> {
    let snapshot = evidence.snapshot;
    let xids = snapshot.host.xids.known().into_iter().flatten();
    let of_address = words::grouped(xids.map(|xid| (xid.pci, xid)));
    let mut alike: BTreeMap<(Severity, Vec<u32>), Vec<Place<'_>>> = BTreeMap::new();
    for (address, mut xids) in of_address {
        let is_it = |gpu: &&Gpu| {
            snapshot.address_of(gpu.index).is_some_and(|own| own.is_same_device(address))
        };
        let subject = match snapshot.gpus.iter().find(is_it) {
            // It has a finding with these messages.
            Some(gpu) if gpu_unreachable::no_answer(gpu).is_some() => continue,
            Some(gpu) => Subject::Gpu { index: gpu.index },
            None if snapshot
                .unlisted_gpus
                .iter()
                .any(|one| one.address.is_same_device(address)) =>
            {
                continue;
            }
            // A function of a machine that is there: a GPU that --gpus left out, or one that has a finding of its own.
            None if evidence.read_from.is_none() && snapshot.function(address).is_some() => {
                continue;
            }
            None => Subject::PciFunction { address },
        };
        let settled = xids.iter().rposition(|xid| xid.cause() == XidCause::Settled);
        let worst = xids
            .iter()
            .enumerate()
            .map(|(place, xid)| {
                let settled = settled.is_some_and(|at| place <= at);
                in_log(evidence, xid, settled)
            })
            .max()
            .unwrap_or(Severity::Info);
        let mut codes: Vec<u32> = xids.iter().map(|xid| xid.code).collect();
        codes.sort_unstable();
        codes.dedup();
        xids.sort_by_key(|xid| rank(xid));
        alike.entry((worst, codes)).or_default().push((subject, xids));
    }
    let found = alike.into_iter().map(|((worst, _), places)| {
        let gpus: Vec<u32> = places
            .iter()
            .filter_map(|(subject, _)| match subject {
                Subject::Gpu { index } => Some(*index),
                _ => None,
            })
            .collect();
        let one = places.first();
        let (subject, name) = match one {
            Some((subject @ Subject::PciFunction { address }, xids)) if places.len() == 1 => {
                let what = if xids.iter().any(|xid| xid.is_of_switch()) {
                    "the NVSwitch"
                } else {
                    "the GPU"
                };
                (subject.clone(), format!("{what} at {address}"))
            }
            _ if gpus.len() == places.len() => (Subject::of_gpus(&gpus), evidence.named(&gpus)),
            _ => (Subject::Machine, format!("{} devices", places.len())),
        };
        let xids = one.map_or(&[][..], |(_, xids)| xids);
        let said = xids.iter().map(|xid| match (places.len(), xid.cause()) {
            (1, XidCause::Program) if worst > Severity::Info => {
                let perhaps = if xid.code == REMOVED { "" } else { "perhaps " };
                format!("{}, {perhaps}its consequence", told(evidence, xid))
            }
            (1, _) => told(evidence, xid),
            _ => meaning(xid),
        });
        let when = if evidence.read_from.is_some() { "in the text" } else { "since the last boot" };
        let mut codes: Vec<u32> = Vec::new();
        for xid in xids {
            // NVLink 5 has one for each link and severity.
            if !codes.contains(&xid.code) {
                codes.push(xid.code);
            }
        }
        let of = format!("{} of {name} {when}", numbers(&codes));
        finding(evidence, subject, &of, &said.collect::<Vec<_>>(), xids, &codes, worst)
    });
    found.collect()
}

/// Returns the severity of a message in the log, and whether a later one says that nothing is left to do.
fn in_log(evidence: &Evidence<'_>, xid: &Xid, settled: bool) -> Severity {
    let old = age_seconds(evidence, xid).is_some_and(|age| age > OLD_SECONDS);
    match xid.cause() {
        XidCause::Reset if old || settled => Severity::Warning,
        XidCause::Other => Severity::Info,
        cause => severity(cause),
    }
}

/// Returns `Xid 74`, `Xids 48, 63`.
fn numbers(codes: &[u32]) -> String {
    let kind =
        if codes.iter().all(|code| model::snapshot::is_sxid(*code)) { "SXid" } else { "Xid" };
    let several = if codes.len() > 1 { "s" } else { "" };
    format!("{kind}{several} {}", words::first(codes, 6))
}

/// Returns the age of a message, seconds.
fn age_seconds(evidence: &Evidence<'_>, xid: &Xid) -> Option<u64> {
    let up = evidence.snapshot.host.up_seconds.get()?;
    Some(up.saturating_sub(xid.seconds_since_boot?))
}

/// Returns a message with its number and its meaning.
fn meaning(xid: &Xid) -> String {
    let kind = if xid.is_of_switch() { "SXid" } else { "Xid" };
    match xid.meaning() {
        Some(meaning) => format!("{kind} {}, {meaning}", xid.code),
        None => format!("{kind} {}", xid.code),
    }
}

/// Returns a message with its meaning, text, count and age.
fn told(evidence: &Evidence<'_>, xid: &Xid) -> String {
    let text = words::in_brackets(Some(&xid.text).filter(|text| !text.is_empty()));
    let age = age_seconds(evidence, xid).map(|age| match age / 3600 {
        0 => format!(", {} min ago", age / 60),
        hours @ 1..48 => format!(", {hours} h ago"),
        hours => format!(", {} days ago", hours / 24),
    });
    format!("{}{text}{}{}", meaning(xid), often(xid.times as usize), age.unwrap_or_default())
}

/// Returns the findings on GPUs with errors in hours under load.
fn in_hours(evidence: &Evidence<'_>) -> Vec<Finding> {
    let soak = over_time::soak(evidence);
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
                let first = soak.events.iter().find(is_it).map_or_else(String::new, |event| {
                    format!(", first after {}", over_time::after(event.at_s))
                });
                format!("Xid {code}{}{first}", often(*times))
            })
            .collect();
        let codes: Vec<u32> = times.into_keys().collect();
        (!codes.is_empty()).then(|| {
            let name = evidence.name(gpu);
            let logged = evidence.snapshot.host.xids.known().into_iter().flatten();
            let mut logged: Vec<_> = logged.filter(|xid| codes.contains(&xid.code)).collect();
            logged.sort_by_key(|xid| rank(xid));
            finding(
                evidence,
                Subject::Gpu { index: gpu },
                &format!("{} of {name} in the hours under load", numbers(&codes)),
                &said,
                &logged,
                &codes,
                worst(codes.iter().map(|code| XidCause::of(*code))),
            )
        })
    };
    soak.gpus().into_iter().filter_map(of).collect()
}

/// Returns the severity of the worst of these causes.
fn worst(causes: impl Iterator<Item = XidCause>) -> Severity {
    causes.map(severity).max().unwrap_or(Severity::Info)
}

/// Returns `, 3 times`; nothing for once.
fn often(times: usize) -> String {
    match times {
        0 | 1 => String::new(),
        times => format!(", {times} times"),
    }
}

/// The Xid of channels that the driver removes, as after an error.
const REMOVED: u32 = 45;
/// The Xid with which the driver asks for a reset or a reboot.
const RECOVERY: u32 = 154;

/// Returns what to do about errors of a GPU or NVSwitch. A GPU is named by its address, where that is known: a log has
/// no other name of it, and the wrong one must not be reset.
fn plan(evidence: &Evidence<'_>, subject: &Subject, codes: &[u32], needs_reset: bool) -> Plan {
    let links = codes.contains(&NVLINK_XID).then_some(Step::LinkErrors);
    let mut steps: Vec<Step> = [Some(Step::DriverLog), links].into_iter().flatten().collect();
    let part = match *subject {
        Subject::Gpu { index } => {
            let reset = match evidence.snapshot.address_of(index) {
                Some(address) => Step::ResetGpuAt(all(&[index]), At(vec![address])),
                None => Step::ResetGpu(all(&[index])),
            };
            Some((reset, Part::of(&[index])))
        }
        _ => None,
    };
    if needs_reset {
        match &part {
            _ if codes.contains(&OFF_THE_BUS) => steps.push(Step::PowerCycle),
            Some((reset, _)) => steps.push(reset.clone()),
            None => steps.push(Step::Reboot),
        }
    }
    steps.push(Step::CheckAgain);
    let plan = Plan::now(steps);
    match part.filter(|_| needs_reset) {
        Some((_, part)) => plan.if_it_stays([Step::Replace(part)]),
        None => plan,
    }
}

/// Returns the finding on the errors of one GPU, and when they came.
fn finding(
    evidence: &Evidence<'_>,
    subject: Subject,
    of: &str,
    said: &[String],
    xids: &[&Xid],
    codes: &[u32],
    worst: Severity,
) -> Finding {
    let harmless = !xids.is_empty() && xids.iter().all(|xid| xid.says_nonfatal());
    let program = match worst {
        Severity::Info => "; programs cause such codes as well, and so does a lost or failing GPU",
        _ => "",
    };
    // The meaning of the worst one comes first: the rest is left out where there is no room.
    let meaning = xids.first().and_then(|xid| xid.meaning());
    let asked = xids.iter().rfind(|xid| xid.code == RECOVERY && xid.cause() != XidCause::Settled);
    let asked = asked.and_then(|xid| {
        Some(xid.text.rsplit_once('(')?.1.split(')').next()?.trim_end_matches(" Required"))
    });
    let plan = match asked {
        Some(what) if what.contains("Reboot") => Plan::now([Step::Reboot, Step::CheckAgain]),
        _ => plan(evidence, &subject, codes, worst > Severity::Info && !harmless),
    };
    let links = words::unique(xids.iter().filter_map(|xid| xid.nvlink()));
    let of_links = match links[..] {
        [] => None,
        [link] => Some(format!("link {link}")),
        _ => Some(format!("links {}", words::first(&links, 4))),
    };
    let means = words::after(": ", meaning)
        + &words::in_brackets(of_links)
        + &words::after(", driver asks for ", asked)
        + if harmless { ", non-fatal" } else { "" };
    // The short sentence has a limit.
    let who = if asked.is_some() { "" } else { "The driver reported " };
    let message = format!("{who}{of}{means}; {}{program}", said.join("; "));
    let sorted = words::unique(codes.iter().map(|code| u64::from(*code)));
    let found = RULE.finding(subject, message, plan).fact("xid_codes", Fact::Numbers(sorted));
    let numbers = (!links.is_empty()).then(|| Fact::numbers(links));
    let mut found = found.fact("links", numbers);
    found.severity = worst;
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::prelude::*;
    use model::pasted::{Pasted, PastedFault, PastedLine};
    use model::reading::Reading;
    use model::topology::Topology;

    fn with(codes: &[u32]) -> Vec<Finding> {
        of_log(60, &codes.iter().map(|code| (*code, "said", 9)).collect::<Vec<_>>())
    }

    fn of_log(up_seconds: u64, xids: &[(u32, &str, u64)]) -> Vec<Finding> {
        let mut machine = h200_vm(2);
        let pci = machine.gpus[1].pci.get().unwrap();
        let xid = |(code, text, at): &(u32, &str, u64)| Xid {
            pci,
            code: *code,
            text: (*text).into(),
            times: 3,
            seconds_since_boot: Some(*at),
        };
        machine.host.xids = Reading::Known(xids.iter().map(xid).collect());
        machine.host.up_seconds = Reading::Known(up_seconds);
        findings(&machine, None)
    }

    #[test]
    fn the_log_since_boot_is_judged_by_code_text_and_age() {
        let link = (74, "NVLink: fatal error detected on link 7", 100);
        let found = of_log(7300, &[link]);
        let fresh = only(&found, "xid-reported", Severity::Error);
        assert_eq!(fresh.subject, Subject::Gpu { index: 1 });
        for words in [
            "Xid 74, NVLink error (NVLink: fatal error detected on link 7), 3 times, 2 h ago",
            "since the last boot",
        ] {
            assert!(fresh.message.contains(words), "{}", fresh.message);
        }
        let old = of_log(200_000, &[link]);
        assert!(only(&old, "xid-reported", Severity::Warning).message.contains("2 days ago"));
        let reset = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)";
        only(&of_log(7300, &[link, (154, reset, 200)]), "xid-reported", Severity::Warning);
        only(&of_log(7300, &[(154, reset, 200), link]), "xid-reported", Severity::Error);
        only(&of_log(7300, &[(94, "Contained: SM", 9)]), "xid-reported", Severity::Warning);
        only(&of_log(7300, &[(31, "MMU Fault", 9)]), "xid-reported", Severity::Info);
        only(&of_log(7300, &[(999, "", 9)]), "xid-reported", Severity::Info);
        assert!(!of_log(7300, &[]).iter().any(|found| found.code == "xid-reported"));
    }

    #[test]
    fn causes_come_first_then_what_the_driver_asks_for_then_consequences() {
        let asks = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)";
        let found = of_log(60, &[(45, "Ch 3", 7), (120, "GSP", 8), (154, asks, 9)]);
        let one = only(&found, "xid-reported", Severity::Error);
        assert!(one.message.contains("Xids 120, 154, 45 of GPU 1"), "{}", one.message);
        assert!(one.message.contains(", driver asks for Node Reboot; "), "{}", one.message);
        assert!(one.message.ends_with(", its consequence"), "{}", one.message);
        assert!(one.next_step.starts_with("Reboot"), "{}", one.next_step);
        let harmless = of_log(60, &[(145, "RLW_REMAP Nonfatal XC1 i0 Link 11", 9)]);
        let one = only(&harmless, "xid-reported", Severity::Warning);
        assert!(one.message.contains(", non-fatal; "), "{}", one.message);
        assert_advice(&RULE, &harmless, &["xid", "check-again"], &[]);
    }

    /// Lines from pull requests 1160 and 1174 of leptonai/gpud.
    #[test]
    fn errors_of_nvlink_5_name_their_links_and_follow_their_severity() {
        let mild = (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", 9);
        let down = (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)", 8);
        let found = of_log(60, &[down, mild]);
        let one = only(&found, "xid-reported", Severity::Error);
        let short = "Xids 149, 145 of GPU 1 (0000:00:07.0) since the last boot: NVLink error (NETIR) (links 8, 13)";
        assert!(one.short().ends_with(short), "{}", one.short());
        assert!(format!("{:?}", one.evidence).contains("\"links\": Numbers([8, 13])"));
        assert_advice(&RULE, &found, &["xid", "reset-gpu", "check-again", "ask-host"], &[]);
        let twice = of_log(60, &[(145, "RLW_REMAP Fatal XC0 i0 Link 04", 7), mild]);
        let one = only(&twice, "xid-reported", Severity::Error);
        assert!(one.message.contains("Xid 145 of GPU 1"), "{}", one.message);
        let of_mild = of_log(60, &[mild]);
        let one = only(&of_mild, "xid-reported", Severity::Warning);
        assert!(
            one.short().ends_with("NVLink error (RLW) (link 13), non-fatal"),
            "{}",
            one.short()
        );
        let none = of_log(60, &[(149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)", 8)]);
        let one = only(&none, "xid-reported", Severity::Error);
        assert!(!format!("{:?}", one.evidence).contains("links"));
    }

    #[test]
    fn the_code_decides() {
        for (codes, severity) in [
            (&[13][..], Severity::Info),
            (&[13, 63], Severity::Warning),
            (&[13, 48], Severity::Error),
            (&[13, 79], Severity::Error),
            (&[999], Severity::Info),
        ] {
            let found = with(codes);
            let finding = only(&found, "xid-reported", severity);
            assert_eq!(finding.subject, Subject::Gpu { index: 1 });
            let wanted: &[&str] = match severity {
                Severity::Info => &["xid", "check-again"],
                // A GPU that is off the bus cannot be reset. The machine is a guest, whose host replaces GPUs.
                _ if codes.contains(&79) => &["xid", "restart-guest", "check-again", "ask-host"],
                _ => &["xid", "reset-gpu", "check-again", "ask-host"],
            };
            assert_advice(&RULE, &found, wanted, &[]);
        }
        let message = &with(&[79])[0].message;
        assert!(
            message.contains("Xid 79, the GPU has fallen off the bus (said), 3 times"),
            "{message}"
        );
        assert_eq!(with(&[]), []);
    }

    #[test]
    fn a_code_that_a_sentence_names_counts_unless_there_is_a_log() {
        let named = |text: &str, with_log: bool| {
            let said = PastedLine {
                text: text.to_owned(),
                pci: None,
                input: "in.txt".to_owned(),
                line: 4,
            };
            let fault = PastedFault { kind: PastedFaultKind::NamedXid, said };
            let pasted = Pasted { faults: vec![fault], ..Pasted::default() };
            let mut machine = h200_vm(2);
            if with_log {
                machine.host.xids = Reading::Known(vec![Xid {
                    pci: machine.gpus[1].pci.get().unwrap(),
                    code: 13,
                    text: "said".into(),
                    times: 1,
                    seconds_since_boot: None,
                }]);
            }
            let (topology, settings) = (Topology::default(), Settings::default());
            let mut found = RULE.judge(&Evidence {
                read_from: Some(&pasted),
                ..crate::testing::without_request(&machine, &topology, None, &settings)
            });
            found.retain(|found| found.subject == Subject::Machine);
            found
        };
        let lost = named("gpu 3; it reported Xid 79 today", false);
        let one = only(&lost, "xid-reported", Severity::Error);
        assert!(
            one.short().ends_with("\"gpu 3; it reported Xid 79 today\" (line 4 of in.txt)"),
            "{}",
            one.short()
        );
        assert_advice(&RULE, &lost, &["xid", "power-cycle", "check-again"], &[]);
        only(&named("we saw Xid 13", false), "xid-reported", Severity::Info);
        only(&named("gpu 3 reported Xid 79", true), "xid-reported", Severity::Info);
    }
}
