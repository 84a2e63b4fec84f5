//! Lines that state a fault or an error, whatever output they stand in, and lines that nothing was read from.

use std::collections::HashSet;

use super::lines::{Line, command, is_name};
use super::told::{Note, Told, stands_for_more};
use model::pasted::PastedFaultKind;
use model::units::PciAddress;

/// Words with which tools state a fault.
const FAULTS: &[(&str, PastedFaultKind)] = &[
    ("GPU is lost", PastedFaultKind::Lost),
    ("Result = FAIL", PastedFaultKind::TestFailed),
    ("None of the NVIDIA devices were initialized", PastedFaultKind::NotStarted),
    ("assigned to your NVIDIA device is invalid", PastedFaultKind::NotStarted),
    ("probe with driver nvidia failed", PastedFaultKind::NotStarted),
    ("nvidia: probe of", PastedFaultKind::NotStarted),
    ("Uncorrected (Fatal) error", PastedFaultKind::PcieFatal),
];

/// Words with which tools state an error, which may be one of the machine or of the way in which the tool was started.
const ERRORS: &[&str] = &[
    "Unable to determine the device handle",
    "Failed to initialize NVML",
    "NVIDIA-SMI has failed",
    "No devices were found",
    "Unknown Error",
    "ERR!",
    "GPU requires reset",
    "CUDA_ERROR_",
    "CUDA error",
    "Cuda failure",
    "Test CUDA failure",
    "Test NCCL failure",
    // The kernel's log.
    "AER: can't recover",
    "AER: Device recovery failed",
    "device recovery failed",
    "from D3cold",
    "): Link Down",
    "): Card not present",
    "DPC: containment event",
    "GPU crash dump",
];

/// States of `nvidia-smi -q` that are faults, each with the value of a sound GPU.
const STATES: &[(&str, &str)] = &[
    ("GPU Recovery Action", "None"),
    ("SRAM Threshold Exceeded", "No"),
    ("Channel Repair Pending", "No"),
    ("TPC Repair Pending", "No"),
    ("Unrepairable Memory", "No"),
    ("Route Unhealthy", "False"),
    ("Access Timeout Recovery", "False"),
    ("Incorrect Configuration", "None"),
];

/// Values of states that say nothing.
const UNKNOWN: &[&str] = &["N/A", "[N/A]", "Not Supported", "Unknown", "Not Recorded"];

/// Returns true for a line of `nvidia-smi -q` with a state that no sound GPU has.
fn is_bad_state(text: &str) -> bool {
    let Some((name, value)) = text.split_once(':') else {
        return false;
    };
    let (name, value) = (name.trim(), value.trim());
    let sound = STATES.iter().find(|(state, _)| *state == name);
    let is_sound = |sound: &str| value.eq_ignore_ascii_case(sound) || UNKNOWN.contains(&value);
    sound.is_some_and(|(_, sound)| !is_sound(sound))
        || (name == "Summary" && value == "Unhealthy")
        || (name == "Status" && value == "Failure")
}

/// Returns true for a message in which a part of NVIDIA's driver beside the resource manager failed.
fn is_driver_failure(text: &str) -> bool {
    let of_driver = ["nvidia-nvlink", "nvidia-nvswitch", "nvidia 0"];
    let failed = ["fail", "fatal", "Fatal"];
    of_driver.iter().any(|part| text.contains(part))
        && failed.iter().any(|word| text.contains(word))
        && !text.contains("Non-fatal")
}

/// Longest words of a line that are kept.
const LONGEST: usize = 160;

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
    let has_output = sections.peek().is_some();
    // Errors must not displace faults.
    let mut kept = [0; 2];
    for line in lines {
        while sections.next_if(|(_, last)| *last < line.number).is_some() {}
        let is_read = sections.peek().is_some_and(|(first, _)| *first <= line.number);
        let text = line.text.trim();
        let is_beside = has_output && !is_read && !is_furniture(text);
        let stated = stated(text)
            .or_else(|| (is_beside && is_wrong(text)).then(|| Note::Problem(shortened(text))));
        if let Some(what) = stated {
            // Its reader may know more.
            let of_kind = usize::from(matches!(what, Note::Fault(..)));
            if kept[of_kind] < MOST && !known.contains(&line.number) {
                kept[of_kind] += 1;
                told.push(Told { line: line.number, what });
            }
        } else if has_output && !is_read && stands_for_more(text) {
            let what =
                format!("what \"{}\" stands for was left out, and is not known", shortened(text));
            told.push(Told { line: line.number, what: Note::Remark(what) });
        } else if is_beside {
            unread += 1;
            first = first.or(Some((line.number, shortened(text))));
        }
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
    let fault = FAULTS.iter().find(|(words, _)| text.contains(words));
    if let Some((_, kind)) = fault {
        return Some(Note::Fault(*kind, address(text), shortened(text)));
    }
    let is_error = ERRORS.iter().any(|words| text.contains(words));
    let is_error = is_error || is_bad_state(text) || is_driver_failure(text);
    is_error.then(|| Note::Problem(shortened(text)))
}

/// Returns the address of a GPU in a message: `GPU0000:18:00.0: GPU is lost`, `for gpu 0000:BA:00.0: Unknown Error`.
fn address(text: &str) -> Option<PciAddress> {
    text.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches("GPU").trim_end_matches([':', ',']);
        (word.len() >= 12).then(|| word.parse().ok()).flatten()
    })
}

/// Returns true for what stands around output and says nothing: commands, prompts, rules, legends.
fn is_furniture(text: &str) -> bool {
    let has_words = text.chars().any(char::is_alphanumeric);
    if !has_words || command(text).is_some() || BESIDE.iter().any(|start| text.starts_with(start)) {
        return true;
    }
    // `PIX = Connection traversing at most a single PCIe bridge`, `NIC0: mlx5_0`.
    let explains = text.split_once(" = ").is_some_and(|(word, _)| word.trim().len() <= 4);
    let names = text.split_once(": ").is_some_and(|(name, _)| is_name(name));
    // A matrix of one GPU has no cell.
    let is_empty = text.split_whitespace().all(|word| word == "X" || is_name(word));
    // `Tue Nov 24 03:57:36 2026`.
    let words: Vec<&str> = text.split_whitespace().take(6).collect();
    let is_date = matches!(words.as_slice(), [day, _, _, time, _] | [day, _, _, time, _, _]
        if DAYS.contains(day) && time.matches(':').count() == 2);
    // `real 0m1.234s` of a shell.
    let is_time = matches!(words.as_slice(), ["real" | "user" | "sys", _]);
    explains || names || is_empty || is_date || is_time
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

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

pub(crate) fn shortened(text: &str) -> String {
    text.trim().chars().take(LONGEST).collect()
}
