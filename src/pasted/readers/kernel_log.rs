//! The kernel's log, as dmesg, journalctl or a file in /var/log has it: messages of the NVIDIA driver (Xid, SXid, NVRM), PCIe
//! errors (AER), and what the IOMMU does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use crate::messages::is_known;
use crate::reader::{Ahead, Reader};
use crate::told::{Function, Key, Note, Notes, is_uuid};
use crate::trouble::{is_wrong, shortened, version};
use model::reading::Reading;
use model::snapshot::{PciKind, Xid};
use model::units::PciAddress;

pub(crate) const READER: Reader =
    Reader { kind: "kernel-log", tool: "dmesg", begins: |line| message(line).is_some(), read };

/// Words with which messages begin that are of the kernel, whatever stands before them.
const MARKS: &[&str] = &["NVRM: ", "nvidia-nvswitch", "Xid (", "pcieport ", "nvidia 0000:"];

/// Finds them: every line is asked for them. `None` if it cannot be built.
static MARKED: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| AhoCorasick::new(MARKS).ok());

/// How a record of an Xid begins.
const RECORD: &str = "NVRM: Xid (";

/// Longest text in front of a message: time, host, priority, name of the program.
const LONGEST_HEAD: usize = 160;

/// Returns the time since boot, if there is one, and the message of a line of the log.
fn message(line: &str) -> Option<(Option<f64>, &str)> {
    let mut rest = line;
    let (mut seconds, mut is_log) = (None, false);
    // `<4>`, `<4>1 `, `4,1234,12345678901,-;`, `kern  :err   : `.
    if let Some((level, behind)) = rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        rest = if level.parse::<u16>().is_ok() { behind } else { rest };
    }
    if let Some((time, behind)) = hardware::kernel_log::messages(rest).next() {
        #[allow(clippy::cast_precision_loss, reason = "whole seconds are used")]
        let time = time as f64 / 1e6;
        (rest, is_log, seconds) = (behind, true, Some(time));
    }
    let facility = rest.split_once(':').filter(|(name, _)| matches!(name.trim(), "kern" | "user"));
    if let Some((_, behind)) = facility.and_then(|(_, behind)| behind.split_once(": ")) {
        rest = behind;
    }
    // `Nov 24 03:00:00 node1 kernel: `, and of what was cut off of it.
    if let Some((head, behind)) = rest.split_once("kernel: ").filter(|(head, _)| head.len() < 100) {
        let is_head = head.is_empty()
            || head.ends_with(' ') && (head.contains(':') || !head.trim().contains(' '));
        (rest, is_log) = if is_head { (behind.trim_start(), true) } else { (rest, is_log) };
    }
    // `[  12.3] `, `[Mon Nov 24 03:00:00 2025] `, `[2026-11-24T03:00:00.5Z]: `, and `[ T1234] ` of some kernels behind it.
    while let Some((stamp, behind)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let stamp = stamp.trim();
        let time = stamp.parse::<f64>().ok().filter(|time| *time >= 0.0 && stamp.contains('.'));
        // NCCL begins with `[2026-11-24 03:00:00] `.
        let is_date = (20..40).contains(&stamp.len()) && stamp.matches(':').count() == 2;
        let is_caller = is_log
            && stamp.strip_prefix(['T', 'C']).is_some_and(|number| number.parse::<u32>().is_ok());
        if time.is_none() && !is_date && !is_caller {
            break;
        }
        (seconds, is_log) = (time.or(seconds), true);
        rest = behind.strip_prefix(':').unwrap_or(behind).trim_start();
    }
    // `2025-11-24T03:00:00,123456+00:00 ` of dmesg.
    if let Some((date, behind)) = rest.split_once(' ')
        && date.as_bytes().get(10) == Some(&b'T')
        && date.as_bytes().get(19) == Some(&b',')
    {
        (rest, is_log) = (behind, true);
    }
    if is_log {
        return Some((seconds, rest.find("NVRM: ").and_then(|at| rest.get(at..)).unwrap_or(rest)));
    }
    // Whatever a tool prints in front of a message.
    let marked = MARKED.as_ref()?.find(line)?.start();
    let (head, message) = line.split_at_checked(marked).filter(|_| marked < LONGEST_HEAD)?;
    let stamp = head.rsplit_once('[').and_then(|(_, text)| text.split_once(']'));
    Some((stamp.and_then(|(stamp, _)| stamp.trim().parse().ok()), message))
}

/// Further parts of words with which the driver reports that something is wrong.
const MORE: &[&str] = &[
    "xid",
    "timed out",
    "timeout",
    "mismatch",
    "not supported",
    "is 0m",
    "unable",
    "cannot",
    "page_fault",
    "external power",
    "no nvidia gpu",
];

/// Parts of the kernel whose errors are named.
const OURS: &[&str] = &["nvidia", "pcieport"];

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
    /// Xids that were read, or that a later one names.
    xids: BTreeSet<(PciAddress, u32)>,
}

impl Counts {
    /// Keeps an odd message.
    fn odd(&mut self, whose: &str, said: &str, line: u32, notes: &mut Notes) {
        if self.problems < MOST_PROBLEMS {
            self.problems += 1;
            notes.add(line, Note::Problem(format!("the {whose}'s log: {}", shortened(said))));
        }
    }
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
        // Several records may have become one line.
        for (at, record) in said.split(RECORD).enumerate() {
            let head = if at == 0 { "" } else { RECORD };
            take(&format!("{head}{record}"), seconds, line.number, notes, &mut counts);
        }
    }
    let first = ahead.lines.first()?.number;
    notes.add(first, Note::KernelLog);
    for (address, ([corrected, non_fatal, fatal], line)) in counts.aer {
        let mut function = Function::of(address, PciKind::Endpoint);
        function.facts.aer_correctable = Reading::Known(corrected);
        function.facts.aer_nonfatal = Reading::Known(non_fatal);
        function.facts.aer_fatal = Reading::Known(fatal);
        function.driver = counts.drivers.get(&address).map(ToString::to_string);
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
    } else if ["NVRM: ", "nvidia-nv", "nvidia 0"].iter().any(|of| said.starts_with(of))
        || said.contains("Xid (")
    {
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
    } else if OURS.iter().any(|part| said.contains(part))
        && !said.contains("AER")
        && !said.contains("error status")
        && is_wrong(said)
        && !is_known(said)
    {
        counts.odd("kernel", said, line, notes);
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
            counts.xids.insert((xid.pci, xid.code));
            // `caused by previous Xid 79`, whose own line may be cut off.
            let named = said.split("previous Xid ").nth(1).and_then(|rest| {
                let code = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
                counts.xids.insert((xid.pci, code)).then(|| Xid { code, ..xid.clone() })
            });
            for xid in [xid].into_iter().chain(named) {
                notes.add(line, Note::Xid(Box::new(xid)));
            }
        }
        return;
    }
    let is_known = is_known(said);
    let said = said.strip_prefix("NVRM: ").unwrap_or(said);
    if let Some((address, uuid)) =
        said.strip_prefix("GPU at PCI:").and_then(|rest| rest.split_once(": "))
    {
        if let Some(pci) = at(address).filter(|_| is_uuid(uuid.trim())) {
            notes.same(line, Key::Pci(pci), Key::Uuid(uuid.trim().to_owned()));
        }
    } else if let Some(version) = version(said) {
        notes.add(line, version);
    } else if !is_known {
        let lower = said.to_ascii_lowercase();
        if is_wrong(said) || MORE.iter().any(|word| lower.contains(word)) {
            counts.odd("driver", said, line, notes);
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
