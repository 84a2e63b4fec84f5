//! Lines that state a fault or an error, whatever output they stand in, and lines that nothing was read from.

use std::collections::{BTreeMap, HashSet};

use super::lines::{Line, command, is_name};
use super::messages::{self, gpu_number, is_model, names_xid};
use super::readers::block_of;
use super::told::{Key, NOT_THERE, Note, Told, stands_for_more};
use model::pasted::PastedFaultKind as Kind;
use model::reading::Reading;
use model::snapshot::{Gpu, Host};
use model::units::PciAddress;

const OFF_THE_BUS: &str = "fallen off the bus";

/// Words of NVML for a GPU that does not answer. No list has it.
const NO_HANDLE: &str = "Unable to determine the device handle";

/// Words of the driver for libraries of another version. The versions follow, on this line or on those below.
const API_MISMATCH: &str = "API mismatch: the client";

/// Values of states that say nothing.
const UNKNOWN: &[&str] = &["N/A", "[N/A]", "Not Supported", "Unknown", "Not Recorded"];

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
    // The GPU whose block of `nvidia-smi -q` this is.
    let mut block = None;
    // Errors must not displace faults.
    let mut kept = [0; 2];
    for (place, line) in lines.iter().enumerate() {
        while sections.next_if(|(_, last)| *last < line.number).is_some() {}
        let is_read = sections.peek().is_some_and(|(first, _)| *first <= line.number);
        let text = line.text.trim();
        let mut add = |what| told.push(Told { line: line.number, what });
        let is_out = has_output && !is_read;
        if is_out {
            for one in variables(text) {
                if one.starts_with("CUDA_V") {
                    add(Note::Remark(format!("{one} renumbers GPUs")));
                } else if one.starts_with("NCCL_") {
                    set.entry(one.to_owned()).or_insert(line.number);
                }
            }
        }
        let is_beside = is_out && !is_furniture(text);
        block = block_of(text).or(block.filter(|_| is_read));
        let message = messages::of(text).filter(|one| !(is_read && one.beside));
        if !gone.is_empty() && message.is_some_and(|one| one.follows) {
            further += 1;
            continue;
        }
        let fault = |kind| Note::Fault(kind, address(text).or(block), shortened(text));
        let kind = message.map(|one| one.kind);
        let kind = kind.or_else(|| (!is_read && names_xid(text)).then_some(Some(Kind::NamedXid)));
        let problem = || (is_beside && is_wrong(text) && !is_prose(text)).then_some(None);
        let stated = kind.or_else(problem);
        let stated = stated.map(|kind| kind.map_or(Note::Problem(shortened(text)), fault));
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
                        // `for GPU3: 0000:4D:00.0`
                        if let Some(index) = gpu_number(words) {
                            add(Note::Same(Key::Index(index), Key::Pci(at)));
                        }
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
        } else if is_out && stands_for_more(text) {
            let what =
                format!("what \"{}\" stands for was left out, and is not known", shortened(text));
            add(Note::Remark(what));
        } else if let Some(named) = models(text).filter(|_| is_out) {
            add(named);
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

/// Returns number and model of `GPU: 8x NVIDIA A100-SXM4-80GB`, `2 * L40s`, `4x RTX 3090`, `GPU 0,1: NVIDIA H100 NVL`.
fn models(text: &str) -> Option<Note> {
    if let Some((all, name)) = text.strip_prefix("GPU ").and_then(|rest| rest.split_once(": "))
        && all.contains(',')
        && is_model(name)
    {
        return Some(Note::Named(all.split(',').count(), name.to_owned()));
    }
    let text = text.replace(['*', '×'], "x").replace(" x ", "x ");
    let (head, rest) =
        text.split_once("x ").filter(|(head, _)| head.ends_with(char::is_numeric))?;
    let number = head.rsplit(|c: char| !c.is_numeric()).next()?.parse().ok()?;
    let end = rest.find([',', '.', '(', ';', ':', '`', ')']).unwrap_or(rest.len());
    let words = rest[..end].split_whitespace();
    let words: Vec<_> = words.take_while(|word| !word.starts_with(char::is_lowercase)).collect();
    let name = words.join(" ");
    is_model(&name).then_some(Note::Named(number, name))
}

/// Words of sentences that people write.
const PROSE: &[&str] = &["I", "the", "to", "we", "my", "is"];

/// Returns true for a sentence of a person: it begins and ends like one and has two such words, or it has four.
fn is_prose(text: &str) -> bool {
    let words = text.split(' ').filter(|word| PROSE.contains(word));
    let is_whole =
        text.starts_with(|c: char| c.is_ascii_uppercase()) && text.ends_with(['.', '?', ':']);
    !text.contains(['[', '=']) && words.count() > if is_whole { 1 } else { 3 }
}

/// Returns the address of a GPU in a message: `GPU0000:18:00.0: GPU is lost`, `for gpu 0000:BA:00.0: Unknown Error`,
/// `(PCI:0000:ba:00.0)`, `[GPU ID 0x00004100]`.
pub(crate) fn address(text: &str) -> Option<PciAddress> {
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
        let is_of_driver =
            ["NVRM: ", "[GPU ID ", "nvidia: probe of "].iter().any(|of| line.text.contains(of));
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

/// Returns the version of libraries or module that a line has.
pub(crate) fn version(text: &str) -> Option<Note> {
    // Every line is asked.
    if !text.contains("ersion") && !text.contains(" UNIX ") {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let behind = |head: &str| lower.find(head).and_then(|at| text.get(at + head.len()..));
    let of_module = ["nvrm version: nvidia unix ", "loading nvidia unix "].iter();
    if let Some(rest) = of_module.copied().find_map(behind) {
        return host_version(rest, true);
    }
    let heads = ["nvml library version: ", "kmd version", "driver version"];
    let rest = heads.iter().copied().find_map(behind).filter(|_| !lower.contains("cuda driver"));
    rest.and_then(|rest| host_version(rest, false))
}

/// Reads the first version in a text.
fn host_version(text: &str, of_module: bool) -> Option<Note> {
    let mut words = text.split_whitespace().map(|word| word.trim_end_matches([',', '.']));
    let is_version =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.find('.') == Some(3);
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
        || messages::is_beside(text)
    {
        return true;
    }
    // `PIX = Connection traversing at most a single PCIe bridge`, `NIC0: mlx5_0`.
    let explains = text.split_once(" = ").is_some_and(|(word, _)| word.trim().len() <= 4);
    let names = text.split_once(": ").is_some_and(|(name, _)| is_name(name));
    explains || names
}

/// Returns the beginning of a text, up to the end of a word.
pub(crate) fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => text[..end].rsplit_once(' ').map_or(&text[..end], |(head, _)| head),
        None => text,
    }
    .to_owned()
}
