//! `lspci -t`, `-tv`: the tree of buses. It shows which bridge is above each function.

use crate::reader::{Ahead, Reader};
use crate::told::{Function, Note, Notes};
use model::snapshot::PciKind;
use model::units::PciAddress;

pub(crate) const READER: Reader =
    Reader { kind: "lspci-tree", tool: "lspci -tv", begins: |line| root(line).is_some(), read };

/// Returns domain and bus of a root in `-[0000:00]-+-00.0` or `+-[0000:80]-`.
fn root(line: &str) -> Option<(u32, u8)> {
    let rest = line.trim_start_matches(['-', '+', '\\', '|', ' ']);
    let (domain, bus) = rest.strip_prefix('[')?.split(']').next()?.split_once(':')?;
    let bus = bus.split('-').next()?;
    let fits =
        (4..=8).contains(&domain.len()) && bus.len() == 2 && line.starts_with(['-', '+', '\\']);
    let domain = u32::from_str_radix(domain, 16).ok().filter(|_| fits)?;
    Some((domain, u8::from_str_radix(bus, 16).ok()?))
}

/// Most buses behind each other: a domain has no more.
const DEEPEST: usize = 256;

/// The bus that functions are on from a column of the text on.
#[derive(Debug, Clone, Copy)]
struct On {
    column: usize,
    domain: u32,
    bus: u8,
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let mut buses: Vec<On> = Vec::new();
    let (mut used, mut found) = (0, 0_u32);
    for (place, line) in ahead.lines.iter().enumerate() {
        let text = line.text.trim_end();
        let start = text.len() - text.trim_start_matches([' ', '|', '-', '+', '\\']).len();
        if text.trim().is_empty() || start == 0 {
            break;
        }
        found = found.saturating_add(row(text, line.number, &mut buses, notes));
        used = place + 1;
    }
    (found > 1).then_some(used)
}

/// Reads a line: functions and the buses behind them, from left to right.
fn row(text: &str, line: u32, buses: &mut Vec<On>, notes: &mut Notes) -> u32 {
    let bytes = text.as_bytes();
    let (mut at, mut found) = (0, 0);
    let mut above: Option<PciAddress> = None;
    while at < bytes.len() {
        let rest = &text[at..];
        if let Some(inside) = rest.strip_prefix('[') {
            let Some((inside, _)) = inside.split_once(']') else {
                break;
            };
            let (domain, bus) = match inside.split_once(':') {
                Some((domain, bus)) => (u32::from_str_radix(domain, 16).ok(), bus),
                None => (buses.last().map(|on| on.domain), inside),
            };
            let first = bus.split('-').next().and_then(|bus| u8::from_str_radix(bus, 16).ok());
            let last = bus.split('-').next_back().and_then(|bus| u8::from_str_radix(bus, 16).ok());
            let (Some(domain), Some(first), Some(last)) = (domain, first, last) else {
                break;
            };
            if let Some(bridge) = above.take() {
                let mut function = Function::of(bridge, PciKind::Bridge);
                function.buses = Some((first, last));
                notes.add(line, Note::Function(Box::new(function)));
            }
            buses.retain(|on| on.column < at);
            if buses.len() == DEEPEST {
                break;
            }
            buses.push(On { column: at, domain, bus: first });
            at += inside.len() + 2;
        } else if let Some((device, function)) = slot(rest) {
            buses.retain(|on| on.column < at);
            let Some(on) = buses.last() else { break };
            let address = PciAddress { domain: on.domain, bus: on.bus, device, function };
            found += 1;
            notes.add(line, Note::Function(Box::new(Function::of(address, PciKind::Endpoint))));
            above = Some(address);
            at += 4;
            // A title follows in -tv.
            if text[at..].starts_with(' ') {
                break;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

/// Returns device and function of `1f.3` at the start of a text.
fn slot(text: &str) -> Option<(u8, u8)> {
    let slot = text.get(..4)?;
    let (device, function) = slot.split_once('.')?;
    if device.len() != 2 || function.len() != 1 {
        return None;
    }
    let device = u8::from_str_radix(device, 16).ok().filter(|device| *device < 32)?;
    let function = function.parse::<u8>().ok().filter(|function| *function < 8)?;
    Some((device, function))
}
