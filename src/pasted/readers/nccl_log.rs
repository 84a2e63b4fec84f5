//! Logs of NCCL with `NCCL_DEBUG=INFO`: which GPU is which, which ways NCCL takes, and the variables that decide them.

use std::collections::{BTreeMap, BTreeSet};

use crate::messages::is_known;
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes};
use crate::trouble::shortened;
use model::reading::Reading;
use model::snapshot::P2pStatus;
use model::units::PciAddress;

pub(crate) const READER: Reader =
    Reader { kind: "nccl-log", tool: "NCCL_DEBUG=INFO", begins: |line| said(line).is_some(), read };

/// Most pairs that are named of one way.
const MOST_PAIRS: usize = 64;

/// Words of NCCL before the numbers of two GPUs of which NVML says that they have no peer access.
const REFUSES: &str = "connected GPUs ";

/// Takes `2 and 1. You can repress this message ...`: numbers of NVML.
fn refused(ends: &str, line: u32, notes: &mut Notes) {
    let mut ends = ends.split(|c: char| !c.is_ascii_digit()).filter_map(|end| end.parse().ok());
    if let (Some(one), Some(other)) = (ends.next(), ends.next()) {
        let (one, other) = (Key::Index(one), Key::Index(other));
        for (from, to) in [(&one, &other), (&other, &one)] {
            notes.pair(line, from, to, |pair| {
                pair.p2p_read = Reading::Known(P2pStatus::NotSupported);
            });
        }
    }
}

/// Returns the message of a line.
fn said(line: &str) -> Option<(bool, &str)> {
    // People cut the head off.
    if line.starts_with("Channel ") && line.contains("] via ") {
        return Some((false, line));
    }
    let (_, rest) = line.split_once(" NCCL ").or_else(|| line.split_once("]NCCL "))?;
    match rest.split_once(' ')? {
        ("INFO", message) => Some((false, message)),
        ("WARN", message) => Some((true, message)),
        _ => None,
    }
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let mut ways: BTreeMap<String, (BTreeSet<String>, u32)> = BTreeMap::new();
    let mut variables: BTreeMap<String, u32> = BTreeMap::new();
    let (mut used, mut strange) = (0, 0);
    for (place, line) in ahead.lines.iter().enumerate() {
        let text = line.text.trim();
        if let Some((_, version)) = text.split_once("NCCL version ") {
            let version = version.split(['+', ' ']).next().unwrap_or_default();
            notes.version = Some(version.trim_end_matches("cuda").to_owned());
            used = place + 1;
            continue;
        }
        let Some((warning, message)) = said(text) else {
            // Other programs write between the lines.
            strange += 1;
            if strange > 20 {
                break;
            }
            continue;
        };
        (used, strange) = (place + 1, 0);
        if warning && !is_known(text) {
            let is_error = ["ailure", "rror"].iter().any(|word| message.contains(word));
            let said = format!("NCCL warns: {}", shortened(message));
            let what = if is_error { Note::Problem(said) } else { Note::Remark(said) };
            notes.add(line.number, what);
        }
        device(message, line.number, notes);
        if let Some((_, ends)) = message.split_once(REFUSES) {
            refused(ends, line.number, notes);
        }
        if let Some((way, ends)) = way(message) {
            // Over the network, one end is a GPU of another machine.
            let [one, other] = match way.starts_with("NET") {
                true => ends.map(str::to_owned),
                false => ends.map(|end| end_of(end, line.number, notes)),
            };
            ways.entry(way).or_insert((BTreeSet::new(), line.number)).0.insert(one + "→" + &other);
        }
        if let Some(variable) = variable(message) {
            variables.entry(variable).or_insert(line.number);
        }
    }
    for (way, (pairs, line)) in ways {
        let pairs = pairs.into_iter().take(MOST_PAIRS).collect::<Vec<_>>().join(", ");
        let through = if way.starts_with("SHM") { " (through host memory)" } else { "" };
        notes.add(line, Note::Remark(format!("NCCL connects GPU {pairs} by {way}{through}")));
    }
    if let Some(line) = variables.values().copied().min() {
        let variables = variables.into_keys().collect();
        notes.host(line, |host| host.nccl_variables = Reading::Known(variables));
    }
    Some(used.max(1))
}

/// `comm 0x… rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 9000`. The number of CUDA differs between processes, so it is left
/// out.
fn device(message: &str, line: u32, notes: &mut Notes) {
    // More follows each of them: a number at the end of a line may have been broken there.
    let after = |label: &str| {
        let (_, rest) = message.split_once(label)?;
        Some(rest.split_once(' ')?.0)
    };
    // `+ PCI[12.0] - GPU/3000 (0)`, and `GPU/0-3000` of newer versions.
    let in_graph = after("- GPU/").map(|id| id.rsplit('-').next().unwrap_or(id));
    let address = after(" busId ").or(in_graph).and_then(bus_id);
    let index = after(" nvmlDev ").and_then(|index| index.parse().ok());
    if let Some(address) = address {
        let key = Key::Pci(address);
        notes.gpu(line, &key, |gpu| gpu.pci = Reading::Known(address));
        if let Some(index) = index {
            notes.same(line, Key::Index(index), key);
        }
    }
}

/// Reads NCCL's number of a place on the bus: domain, bus, device and function in hexadecimal digits.
fn bus_id(text: &str) -> Option<PciAddress> {
    let number = u64::from_str_radix(text, 16).ok()?;
    let part = |shift: u32, mask: u64| u8::try_from((number >> shift) & mask).ok();
    Some(PciAddress {
        domain: u32::try_from(number >> 20).ok()?,
        bus: part(12, 0xff)?,
        device: part(4, 0xff).filter(|device| *device < 32)?,
        function: part(0, 0xf).filter(|function| *function < 8)?,
    })
}

/// Returns the way of a channel and its ends: `P2P/IPC`, `0[0]` and `1[1]` of `Channel 00 : 0[0] -> 1[1] via P2P/IPC`.
fn way(message: &str) -> Option<(String, [&str; 2])> {
    let (head, way) = message.split_once(" via ")?;
    let (one, other) = head.split_once(" -> ")?;
    if !head.contains("hannel") {
        return None;
    }
    let way = way.split_whitespace().next()?.to_owned();
    Some((way, [one.split_whitespace().next_back()?, other.split_whitespace().next()?]))
}

/// Names the GPU at an end of a channel, `rank[GPU]`: NVML's index, or the place on the bus in older versions.
fn end_of(end: &str, line: u32, notes: &mut Notes) -> String {
    let gpu = end.split(['[', ']']).nth(1).unwrap_or(end);
    if let Some(address) = bus_id(gpu).filter(|_| gpu.len() > 3) {
        notes.gpu(line, &Key::Pci(address), |gpu| gpu.pci = Reading::Known(address));
        return address.to_string();
    }
    if let Ok(index) = gpu.parse() {
        notes.gpu(line, &Key::Index(index), |_| {});
    }
    gpu.to_owned()
}

/// Returns `NCCL_P2P_DISABLE=1` of `NCCL_P2P_DISABLE set by environment to 1.`
fn variable(message: &str) -> Option<String> {
    let (name, value) = message.split_once(" set by environment to ")?;
    let name = name.split_whitespace().next_back()?;
    let value = value.trim().trim_end_matches('.');
    (name.starts_with("NCCL_") && value.len() < 200).then(|| format!("{name}={value}"))
}
