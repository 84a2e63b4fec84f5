//! The kernel's log, as dmesg, journalctl or a file in /var/log has it: messages of the NVIDIA driver (Xid, SXid, NVRM), PCIe
//! errors (AER), and what the IOMMU does.

use std::collections::BTreeMap;

use crate::reader::{Ahead, Reader};
use crate::told::{Function, Key, NOT_THERE, Note, Notes, is_uuid};
use crate::trouble::{is_fault, shortened, version};
use model::reading::Reading;
use model::snapshot::{PciFunction, PciKind, Xid};
use model::units::PciAddress;

pub(crate) const READER: Reader =
    Reader { kind: "kernel-log", tool: "dmesg", begins: |line| message(line).is_some(), read };

/// Returns the time since boot, if there is one, and the message of a line of the log.
fn message(line: &str) -> Option<(Option<f64>, &str)> {
    let stamped = |text: &'_ str| -> Option<(f64, usize)> {
        let (stamp, rest) = text.strip_prefix('[')?.split_once(']')?;
        let seconds = stamp.trim().parse::<f64>().ok()?;
        (seconds >= 0.0 && stamp.contains('.')).then_some((seconds, text.len() - rest.len()))
    };
    if let Some((seconds, at)) = stamped(line) {
        return Some((Some(seconds), without_caller(line[at..].trim_start())));
    }
    if line.starts_with("NVRM: ") || line.starts_with("nvidia-nvswitch") {
        return Some((None, line));
    }
    // `Nov 24 03:00:00 node1 kernel: [  12.3] NVRM: …`, and dates in brackets as dmesg -T prints them.
    if let Some((head, rest)) = line.split_once("kernel: ").filter(|(head, _)| head.len() < 100) {
        let rest = rest.trim_start();
        if head.contains(':') && !head.contains("NVRM") {
            return Some(match stamped(rest) {
                Some((seconds, at)) => (Some(seconds), without_caller(rest[at..].trim_start())),
                None => (None, rest),
            });
        }
    }
    if let Some((date, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
        let is_date = (20..40).contains(&date.len()) && date.matches(':').count() == 2;
        if is_date {
            return Some((None, rest));
        }
    }
    // Whatever a tool prints in front of a message of the driver.
    let at = line.find("NVRM: ").filter(|at| *at < 120)?;
    Some((None, &line[at..]))
}

/// Removes the thread or processor that some kernels print behind the time: `[ T1234] `.
fn without_caller(text: &str) -> &str {
    let caller = text.strip_prefix('[').and_then(|text| text.split_once("] "));
    let is_caller = |name: &str| {
        let number = name.trim().strip_prefix(['T', 'C']);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    caller.filter(|(name, _)| is_caller(name)).map_or(text, |(_, rest)| rest.trim_start())
}

/// Parts of words with which the driver reports that something is wrong.
const WRONG: &[&str] = &[
    "xid",
    "fail",
    "error",
    "timed out",
    "timeout",
    "lost",
    "mismatch",
    "not supported",
    "is 0m",
    "unable",
    "cannot",
];

/// Most odd messages of a log that are kept.
const MOST_PROBLEMS: usize = 100;

/// What the log counts.
#[derive(Default)]
struct Counts {
    /// PCIe errors of each function: corrected, not fatal, fatal, and the line of the last one.
    aer: BTreeMap<PciAddress, ([u64; 3], u32)>,
    /// Their drivers, if they are those of GPUs or ports.
    drivers: BTreeMap<PciAddress, &'static str>,
    /// The line that shows that the IOMMU translates by default, and whether a device is in a group of it.
    translates: Option<u32>,
    has_group: bool,
    /// Number of odd messages that were kept.
    problems: usize,
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let mut counts = Counts::default();
    let mut used = 0;
    for (place, line) in ahead.lines.iter().enumerate() {
        let text = line.text.trim_start();
        if text.is_empty() {
            continue;
        }
        let Some((seconds, said)) = message(text) else {
            break;
        };
        used = place + 1;
        take(said, seconds, line.number, notes, &mut counts);
    }
    let first = ahead.lines.first()?.number;
    notes.add(first, Note::KernelLog);
    for (address, ([corrected, non_fatal, fatal], line)) in counts.aer {
        let mut facts =
            PciFunction::unread(address, None, String::new(), PciKind::Endpoint, &NOT_THERE);
        facts.aer_correctable = Reading::Known(corrected);
        facts.aer_nonfatal = Reading::Known(non_fatal);
        facts.aer_fatal = Reading::Known(fatal);
        let function = Function {
            facts,
            buses: None,
            driver: counts.drivers.get(&address).map(ToString::to_string),
        };
        notes.add(line, Note::Function(Box::new(function)));
    }
    if let Some(line) = counts.translates.filter(|_| counts.has_group) {
        notes.host(line, |host| host.iommu_translating = Reading::Known(true));
    }
    Some(used)
}

fn take(said: &str, seconds: Option<f64>, line: u32, notes: &mut Notes, counts: &mut Counts) {
    if said.contains("PCIe Bus Error: severity=") {
        bus_error(said, line, counts);
    } else if ["NVRM: ", "nvidia-nv", "nvidia 0"].iter().any(|of| said.starts_with(of)) {
        nvrm(said, seconds, line, notes, counts);
    } else if let Some(rest) = said.strip_prefix("Linux version ") {
        let version = rest.split(' ').next().unwrap_or_default().to_owned();
        notes.host(line, |host| host.kernel_version = Reading::Known(version));
    } else if let Some(rest) = said.strip_prefix("Command line: ") {
        let of_iommu = |word: &&str| word.contains("iommu");
        let parameters = rest.split(' ').filter(of_iommu).map(str::to_owned).collect();
        notes.host(line, |host| host.iommu_parameters = Reading::Known(parameters));
    } else if let Some(rest) = said.strip_prefix("iommu: Default domain type: ") {
        if rest.starts_with("Passthrough") {
            notes.host(line, |host| host.iommu_translating = Reading::Known(false));
        } else if rest.starts_with("Translated") {
            counts.translates = Some(line);
        }
    } else if said.contains("dding to iommu group") {
        counts.has_group = true;
    } else if said.starts_with("Hypervisor detected:") {
        notes.host(line, |host| host.virtual_machine = Reading::Known(true));
    }
}

/// Takes a message of the NVIDIA driver.
fn nvrm(said: &str, seconds: Option<f64>, line: u32, notes: &mut Notes, counts: &mut Counts) {
    let at = |text: &str| -> Option<PciAddress> {
        let text = text.trim().trim_start_matches("PCI:");
        text.parse().ok().or_else(|| format!("{text}.0").parse().ok())
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; `as` saturates"
    )]
    let seconds_since_boot = seconds.map(|seconds| seconds as u64);
    if let Some(xid) = hardware::kernel_log::xid(said) {
        let xid = Xid { seconds_since_boot, ..xid };
        // Further lines of an event of an NVSwitch.
        if !["Severity ", "Data "].iter().any(|start| xid.text.starts_with(start)) {
            notes.add(line, Note::Xid(Box::new(xid)));
        }
        return;
    }
    let said = said.strip_prefix("NVRM: ").unwrap_or(said);
    if let Some((address, uuid)) =
        said.strip_prefix("GPU at PCI:").and_then(|rest| rest.split_once(": "))
    {
        if let Some(pci) = at(address).filter(|_| is_uuid(uuid.trim())) {
            notes.same(line, Key::Pci(pci), Key::Uuid(uuid.trim().to_owned()));
        }
    } else if let Some(version) = version(said) {
        notes.add(line, version);
    } else if !is_fault(said) {
        let lower = said.to_ascii_lowercase();
        let is_wrong = WRONG.iter().any(|word| lower.contains(word));
        if is_wrong && counts.problems < MOST_PROBLEMS {
            counts.problems += 1;
            let text = shortened(said);
            notes.add(line, Note::Problem(format!("the driver's log: {text}")));
        }
    }
}

/// `pcieport 0000:3a:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)`
fn bus_error(said: &str, line: u32, counts: &mut Counts) {
    let (head, rest) = said.split_once(": PCIe Bus Error: severity=").unwrap_or_default();
    let head = head.trim_end_matches(": AER").trim_end_matches(": DPC");
    let address = head.rsplit(' ').next().and_then(|address| address.parse().ok());
    let Some(address) = address else { return };
    let mut drivers = ["nvidia", "pcieport"].into_iter();
    if let Some(driver) = drivers.find(|driver| head.split(' ').any(|word| word == *driver)) {
        counts.drivers.insert(address, driver);
    }
    let severity = match () {
        // `Corrected`, and `Correctable` of newer kernels.
        () if rest.starts_with("Correct") => 0,
        // `Uncorrected (Fatal)`, `Uncorrectable (Fatal)`, and not `(Non-Fatal)`.
        () if rest.contains("(Fatal)") => 2,
        () => 1,
    };
    let (added, last) = counts.aer.entry(address).or_default();
    added[severity] = added[severity].saturating_add(1);
    *last = line;
}
