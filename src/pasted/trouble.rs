//! Lines that state a fault or an error, whatever output they stand in, and lines that nothing was read from.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::lines::{Line, command, is_name};
use super::readers::is_bad;
use super::told::{Key, NOT_THERE, Note, Told, stands_for_more};
use model::pasted::PastedFaultKind as Kind;
use model::reading::Reading;
use model::snapshot::{Gpu, Host, NvLink};
use model::units::PciAddress;

/// Words with which tools state a fault. The first that fit count.
const FAULTS: &[(Kind, &[&str])] = &[
    (Kind::Mismatch, &["Driver/library version mismatch", API_MISMATCH]),
    // NV_STATUS 0x0f is NV_ERR_GPU_IS_LOST (nvstatuscodes.h).
    (
        Kind::Lost,
        &[
            NO_HANDLE,
            "GPU is lost",
            "GPU has been lost",
            OFF_THE_BUS,
            "status 0x0000000f",
            "status=0x0000000f",
            "GPU_ATTACHED_SANITY",
            "critical error 79",
        ],
    ),
    (Kind::NoDriver, &["couldn't communicate with the NVIDIA driver"]),
    (Kind::NoDevices, &["No devices were found"]),
    (Kind::NoNvml, &["Failed to initialize NVML"]),
    (Kind::NeedsReset, &["GPU requires reset", "NV_ERR_RESET_REQUIRED"]),
    (Kind::Iommu, &["Event logged [IO_PAGE_FAULT"]),
    (Kind::OtherDriver, &["probe routine was not called for"]),
    (Kind::NoWindow, &["BAR1 is 0M @", "assigned to your NVIDIA device is invalid"]),
    (Kind::Unsupported, &["installed in this system is not supported by"]),
    (
        Kind::NotStarted,
        &[
            "None of the NVIDIA devices were initialized",
            "RmInitAdapter failed",
            "rm_init_adapter failed",
            "Cannot initialize GSP",
            "probe routine failed",
            "probe with driver nvidia failed",
            "nvidia: probe of",
            "FSP command timed out",
            "failed to wait for GFW",
            "kgspBoot",
            "bootstrap riscv/gsp",
            "gpuHandleSanityCheckRegReadError",
        ],
    ),
    (Kind::PeerMapping, &["mapping of buffer object failed", "cudaErrorMapBufferObjectFailed"]),
    (Kind::PeerRefused, &["peer access is not supported", "cudaErrorPeerAccessUnsupported"]),
    (Kind::TooManyPeers, &["peer mapping resources exhausted", "cudaErrorTooManyPeers"]),
    (Kind::NotReady, &["system not yet initialized", "cudaErrorSystemNotReady"]),
    (
        Kind::Fabric,
        &["Failed to bind NVLink SHARP", "fabric manager NVIDIA GPU driver interface version"],
    ),
    (Kind::WrongValues, &["Invalid value when checking the pattern"]),
    (Kind::TestFailed, &["Result = FAIL"]),
    (
        Kind::HardwareError,
        &[
            "able ECC error",
            "ECC_UNCORRECTABLE",
            "able NVLink error",
            "NVLINK_UNCORRECTABLE",
            "GPU requires external power",
            "thermal shutdown",
        ],
    ),
];

const OFF_THE_BUS: &str = "fallen off the bus";

/// Words of NVML for a GPU that does not answer. No list has it.
const NO_HANDLE: &str = "Unable to determine the device handle";

/// Words of the driver for libraries of another version. The versions follow, on this line or on those below.
const API_MISMATCH: &str = "API mismatch: the client";

/// Words of the kernel for a function that errors of PCIe have put out of use.
const NO_RECOVERY: &str = "AER: can't recover";

/// Part of the names of the fabric manager's program and service.
const MANAGER: &str = "fabricmanager";

/// Words of DCGM between the numbers of a GPU and of its link.
const LINK_OF: &str = "'s NvLink link ";

/// Words of DCGM before the number of a GPU whose clocks heat lowers.
const HEAT_OF: &str = "thermal violation in GPU ";

/// Words of NCCL before the numbers of two GPUs.
const NCCL_REFUSES: &str = "P2P is disabled between NVLINK connected GPUs ";

/// Words with which tools state an error, which may be one of the machine or of the way in which the tool was started.
const ERRORS: &[&str] = &[
    "NVIDIA-SMI has failed",
    "Unknown Error",
    "ERR!",
    "CUDA_ERROR_",
    "CUDA error",
    "Cuda failure",
    "CUDA failure",
    "NCCL failure",
    "Could not enable P2P between",
    // The kernel's log.
    NO_RECOVERY,
    "Uncorrected (Fatal) error",
    "evice recovery failed",
    "from D3cold",
    "): Link Down",
    "): Card not present",
    "DPC: containment event",
    "GPU crash dump",
    // `nvidia-smi nvlink`.
    "links are inActive",
];

/// Values of states that say nothing.
const UNKNOWN: &[&str] = &["N/A", "[N/A]", "Not Supported", "Unknown", "Not Recorded"];

/// All words that [`stated`] looks for: most lines have none, and are looked at once. `None` if it cannot be built.
static CAN_STATE: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let faults = FAULTS.iter().flat_map(|(_, words)| *words);
    let others = [NCCL_REFUSES, NO_RECOVERY, LINK_OF, HEAT_OF, MANAGER];
    AhoCorasick::new(faults.chain(ERRORS).chain(&others)).ok()
});

/// Longest words of a line that are kept.
const LONGEST: usize = 400;

/// Most lines between the messages of one start.
const NEAR: usize = 8;

/// Most lines of an input that are kept for their words: errors, and faults.
const MOST: usize = 100;

/// Words of lines that are named if no reader took them.
const WRONG: &[&str] = &["error", "fatal", "fail", "lost", "inactive", "downgraded", "err!"];

/// Returns true for a line that tells of something wrong. A count of 0 does not.
pub(crate) fn is_wrong(text: &str) -> bool {
    let value = text.rsplit_once([':', '=']).map_or(text, |(_, value)| value).trim();
    let is_none = ["0", "No", "None", "OK", "Disabled", "Enabled"].contains(&value)
        || UNKNOWN.contains(&value);
    let lower = text.to_ascii_lowercase();
    !is_none && WRONG.iter().any(|word| lower.contains(word))
}

/// Returns what lines say besides the sections: faults, errors, and how many lines were not understood. `sections` are the
/// first and last lines of each; from the lines in `known`, their readers took an event, a fault or a problem.
pub(crate) fn of(
    name: &str,
    lines: &[Line<'_>],
    sections: &[(u32, u32)],
    known: &HashSet<u32>,
) -> Vec<Told> {
    let mut told = Vec::new();
    let mut sections = sections.iter().peekable();
    let (mut unread, mut first) = (0_u32, None);
    let mut set: BTreeMap<String, u32> = BTreeMap::new();
    let has_output = sections.peek().is_some();
    // The driver's numbers of lost GPUs, "" of one without, and the number of further lines on them.
    let (mut gone, mut further) = (Vec::<&str>::new(), 0_u32);
    // Errors must not displace faults.
    let mut kept = [0; 2];
    for (place, line) in lines.iter().enumerate() {
        while sections.next_if(|(_, last)| *last < line.number).is_some() {}
        let is_read = sections.peek().is_some_and(|(first, _)| *first <= line.number);
        let text = line.text.trim();
        let mut add = |what| told.push(Told { line: line.number, what });
        if has_output && !is_read {
            for one in variables(text) {
                if one.starts_with("CUDA_V") {
                    add(Note::Remark(format!("{one} renumbers GPUs")));
                } else if one.starts_with("NCCL_") {
                    set.entry(one.to_owned()).or_insert(line.number);
                }
            }
        }
        let is_beside = has_output && !is_read && !is_furniture(text);
        let stated = stated(text).or_else(|| {
            (is_beside && (is_wrong(text) || is_bad(text))).then(|| Note::Problem(shortened(text)))
        });
        if let Some(mut what) = stated {
            if let Note::Fault(Kind::Lost, at, _) = &what {
                let who = text.split(' ').find(|word| at.is_none() && is_name(word));
                let who = who.unwrap_or_default();
                if at.is_none()
                    && gone.iter().any(|one| one.is_empty() || who.is_empty() || *one == who)
                {
                    further += 1;
                    continue;
                }
                if gone.is_empty() && !lines.iter().any(|line| line.text.contains("Xid (")) {
                    add(Note::Remark("the loss began before this text".to_owned()));
                }
                gone.push(who);
            }
            // Its reader may know more.
            let of_kind = usize::from(!matches!(what, Note::Problem(_)));
            if kept[of_kind] < MOST && !known.contains(&line.number) {
                kept[of_kind] += 1;
                if let Note::Fault(kind, at, words) = &mut what {
                    if *kind <= Kind::Unsupported || words.contains(OFF_THE_BUS) {
                        *at = at.or_else(|| near(lines, place));
                    } else if words.contains(API_MISMATCH) {
                        *words = joined(&lines[place..]);
                        // First that of the libraries, then that of the module.
                        let named = words.split("the version ").skip(1).zip([false, true]);
                        named.filter_map(|(rest, of)| host_version(rest, of)).for_each(&mut add);
                    } else if let Some(at) = at.filter(|_| words.contains(NO_HANDLE)) {
                        let mut gpu = Gpu::unread(0, &NOT_THERE);
                        gpu.pci = Reading::Known(at);
                        add(Note::Gpu(Key::Pci(at), Box::new(gpu)));
                    }
                }
                add(what);
            }
        } else if let Some(what) = version(text).filter(|_| !text.contains("loading ")) {
            // Of several starts in a log, the last one counts: its reader takes it.
            add(what);
        } else if has_output && !is_read && stands_for_more(text) {
            let what =
                format!("what \"{}\" stands for was left out, and is not known", shortened(text));
            add(Note::Remark(what));
        } else if !gone.is_empty() && follows(text) {
            further += 1;
        } else if is_beside {
            unread += 1;
            first = first.or(Some((line.number, shortened(text))));
        }
    }
    if further > 0 {
        let what = format!("{further} lines follow from the loss of a GPU");
        told.push(Told { line: 1, what: Note::Remark(what) });
    }
    if let Some(line) = set.values().copied().min() {
        let mut host = Host::unread(&NOT_THERE);
        host.nccl_variables = Reading::Known(set.into_keys().collect());
        told.push(Told { line, what: Note::Host(Box::new(host)) });
    }
    if let Some((line, text)) = first {
        let what = match unread {
            1 => format!("1 line of {name} was not understood: \"{text}\""),
            _ => format!("{unread} lines of {name} were not understood, such as \"{text}\""),
        };
        told.push(Told { line, what: Note::Remark(what) });
    }
    told
}

/// Returns the fault or error that a line states.
fn stated(text: &str) -> Option<Note> {
    if !CAN_STATE.as_ref().is_none_or(|words| words.is_match(text)) {
        return None;
    }
    let refused = text.split_once(NCCL_REFUSES).filter(|_| !text.contains("Fixed "));
    if let Some((_, gpus)) = refused {
        let gpus = gpus.split(|c: char| !c.is_ascii_digit());
        let mut gpus = gpus.filter_map(|index| index.parse().ok()).map(Key::Index);
        return Some(Note::Refused(gpus.next()?, gpus.next()?, shortened(text)));
    }
    let says = |all: &&[&str]| all.iter().any(|words| text.contains(words));
    let is_gone = text.contains("nvidia ") && text.contains(NO_RECOVERY);
    let fault = FAULTS.iter().find_map(|(kind, all)| {
        let at = all.iter().find_map(|words| text.find(words))?;
        Some((*kind, &text[..at]))
    });
    let ends = ["/FAILURE", "Failed with result", "Failed to start"];
    let is_down = text.contains(MANAGER) && says(&&ends[..]);
    // Other devices have such faults too.
    let fault = fault.filter(|(kind, _)| *kind != Kind::Iommu || text.contains("nvidia "));
    let fault = fault.or(is_gone.then_some((Kind::PcieFatal, "")));
    let fault = fault.or(is_down.then_some((Kind::Fabric, "")));
    if let Some((kind, _)) = fault.filter(|(_, head)| !is_mention(text, head)) {
        return Some(Note::Fault(kind, address(text), shortened(text)));
    }
    // `GPU 0's NvLink link 3 is currently down.` of DCGM.
    if let Some((gpu, link)) = text.split_once(LINK_OF) {
        let index = gpu.rsplit(' ').next()?.parse().ok()?;
        let mut link = NvLink::unread(link.split(' ').next()?.parse().ok()?, &NOT_THERE);
        link.active = Reading::Known(false);
        return Some(Note::Link(Key::Index(index), Box::new(link)));
    }
    if let Some((_, gpu)) = text.split_once(HEAT_OF) {
        let index = gpu.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        let mut gpu = Gpu::unread(0, &NOT_THERE);
        gpu.throttle_reasons = Reading::Known(vec!["hw-thermal".to_owned()]);
        return Some(Note::Gpu(Key::Index(index), Box::new(gpu)));
    }
    says(&ERRORS).then(|| Note::Problem(shortened(text)))
}

/// Parts of what stands before a fault that a line does not state: commands and sentences.
const MENTIONS: &[&str] =
    &["grep ", "if ", "If ", " means ", " no GPU", "print(", "Fixed ", "PASS]"];

/// Returns true if a line only names a fault, which stands behind this part of it.
fn is_mention(text: &str, head: &str) -> bool {
    let is_quoted = head.contains(" \"") && !head.contains("NVRM: ") && !text.starts_with('{');
    let is_none = text.ends_with(": no") || text.ends_with(": 0") || text.contains("\"pass\"");
    is_quoted || is_none || MENTIONS.iter().any(|part| head.contains(part))
}

/// Returns true for a line of the driver that follows the loss of a GPU.
pub(crate) fn follows(text: &str) -> bool {
    let parts = ["rpc", "Rpc", "RPC", "hannel"];
    text.contains("NVRM: ") && parts.iter().any(|part| text.contains(part))
}

/// Returns true if a line states a fault, so that its reader need not.
pub(crate) fn is_fault(text: &str) -> bool {
    stated(text).is_some_and(|what| !matches!(what, Note::Problem(_)))
}

/// Returns the address of a GPU in a message: `GPU0000:18:00.0: GPU is lost`, `for gpu 0000:BA:00.0: Unknown Error`,
/// `(PCI:0000:ba:00.0)`, `[GPU ID 0x00004100]`.
fn address(text: &str) -> Option<PciAddress> {
    let found = text.split_whitespace().find_map(|word| {
        let word = word.trim_matches(['(', ')', ':', ',', '.', '!']);
        let word = word.trim_start_matches("GPU").trim_start_matches("PCI:");
        (word.len() >= 12).then(|| word.parse().ok()).flatten()
    });
    found.or_else(|| by_id(text))
}

/// Reads the driver's number of a GPU: domain, bus and device, in hexadecimal digits.
fn by_id(text: &str) -> Option<PciAddress> {
    let (_, rest) = text.split_once("GPU ID 0x")?;
    let number = u32::from_str_radix(rest.split(']').next()?, 16).ok()?;
    let [domain @ .., bus, device] = number.to_be_bytes();
    let domain = u32::from(u16::from_be_bytes(domain));
    (device < 32).then_some(PciAddress { domain, bus, device, function: 0 })
}

/// Returns the GPU whose start the messages around a line are about.
fn near(lines: &[Line<'_>], place: usize) -> Option<PciAddress> {
    let of = |line: &Line<'_>| {
        let is_of_driver = line.text.contains("NVRM: ") || line.text.contains("[GPU ID ");
        address(&line.text).filter(|_| is_of_driver)
    };
    let (before, after) = lines.split_at(place);
    let mut before = before.iter().rev().take(NEAR);
    after.iter().take(NEAR).find_map(of).or_else(|| before.find_map(of))
}

/// Joins a message of the driver that stands on several lines, or on one with rsyslog's sign for their ends.
fn joined(lines: &[Line<'_>]) -> String {
    let parts = lines.iter().take(4).flat_map(|line| line.text.split("#012"));
    let said = parts.map(|part| part.rsplit("NVRM: ").next().unwrap_or_default().trim());
    shortened(said.collect::<Vec<_>>().join(" ").split(" Please").next().unwrap_or_default())
}

/// Returns the version of libraries or module that a line of its own has.
pub(crate) fn version(text: &str) -> Option<Note> {
    // Every line is asked.
    if !text.contains(" UNIX ") && !text.starts_with(LIBRARY) {
        return None;
    }
    let heads = ["NVRM version: NVIDIA UNIX ", "loading NVIDIA UNIX ", LIBRARY];
    let found = heads.iter().zip([true, true, false]);
    let mut found =
        found.filter_map(|(head, of_module)| Some((text.split_once(head)?.1, of_module)));
    found.next().and_then(|(rest, of_module)| host_version(rest, of_module))
}

const LIBRARY: &str = "NVML library version: ";

/// Reads the first version in a text.
fn host_version(text: &str, of_module: bool) -> Option<Note> {
    let mut words = text.split_whitespace().map(|word| word.trim_end_matches([',', '.']));
    let is_version =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let version = Reading::Known(words.find(is_version)?.to_owned());
    let mut host = Host::unread(&NOT_THERE);
    *(if of_module { &mut host.kernel_module_version } else { &mut host.driver_version }) = version;
    Some(Note::Host(Box::new(host)))
}

/// Returns the variables that a command sets: `export A=1`, `A=1 ./program`, `mpirun -x A=1 ./program`. Prose names no program
/// first.
fn variables(text: &str) -> Vec<&str> {
    if !text.contains('=') {
        return Vec::new();
    }
    let text = text.trim_matches(['*', '`', ' ']);
    let words = command(text).unwrap_or(text).split_whitespace();
    let is_set = |word: &&str| {
        let name = word.split_once('=').map(|(name, _)| name).unwrap_or_default();
        !name.is_empty() && name.bytes().all(|c| matches!(c, b'A'..=b'Z' | b'0'..=b'9' | b'_'))
    };
    let starts = ["export", "sudo", "mpirun", "python"];
    let is_program = |word: &str| word.contains(['/', '_']) || starts.contains(&word);
    let others = words.clone().find(|word| !is_set(word));
    words.filter(is_set).filter(|_| others.is_none_or(is_program)).collect()
}

/// Returns true for what stands around output and says nothing: commands, prompts, rules, legends.
fn is_furniture(text: &str) -> bool {
    let has_words = text.chars().any(char::is_alphanumeric);
    if !has_words
        || command(text).is_some()
        || !variables(text).is_empty()
        || BESIDE.iter().any(|start| text.starts_with(start))
    {
        return true;
    }
    // `PIX = Connection traversing at most a single PCIe bridge`, `NIC0: mlx5_0`.
    let explains = text.split_once(" = ").is_some_and(|(word, _)| word.trim().len() <= 4);
    let names = text.split_once(": ").is_some_and(|(name, _)| is_name(name));
    explains || names
}

/// Beginnings of lines that tools print beside what they found.
const BESIDE: &[&str] = &[
    "Legend:",
    "NIC Legend:",
    "SUM ",
    "Built from Git version",
    "CUDA Runtime Version:",
    "NOTE:",
    "Averages (",
    "***NOTE:",
    "So you can see lesser Bandwidth",
    "Performance can vary with software drivers",
    "lspci: Unable to load libkmod",
];

/// Returns the beginning of a text, up to the end of a word.
pub(crate) fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => text[..end].rsplit_once(' ').map_or(&text[..end], |(head, _)| head),
        None => text,
    }
    .to_owned()
}
