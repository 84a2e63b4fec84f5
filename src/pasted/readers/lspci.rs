//! `lspci -vv` (or `-v`, `-nn`, `-k`): PCI functions, the links of each end, and what the kernel says about them.

use super::smi_facts::set;
use crate::reader::{Ahead, Reader};
use crate::told::{Function, Note, Notes, stands_for_more};
use model::pcie::{BRIDGE, NVIDIA, RENDERER, SWITCH, VGA};
use model::reading::Reading;
use model::snapshot::PciKind;
use model::units::{Lanes, PciAddress};

pub(crate) const READER: Reader = Reader {
    kind: "lspci",
    tool: "lspci -vv",
    begins: |line| head(line).is_some() || is_link(line),
    read,
};

/// Returns true for the line of a link. People filter the output for these.
fn is_link(line: &str) -> bool {
    line.starts_with("LnkCap:") || line.starts_with("LnkSta:")
}

/// Takes address and title from the first line of a function: `3b:00.0 3D controller [0302]: NVIDIA …`.
fn head(line: &str) -> Option<(PciAddress, &str)> {
    let (address, title) = line.split_once(' ')?;
    let shape = address.len() >= 7
        && address.len() <= 16
        && address.as_bytes().get(address.len() - 2) == Some(&b'.');
    let is_title =
        shape && title.contains(": ") && title.starts_with(|c: char| c.is_ascii_alphanumeric());
    Some((address.parse().ok().filter(|_| is_title)?, title))
}

/// Returns the class code and the kind that a title shows.
fn class(title: &str) -> (Option<u32>, PciKind) {
    // `3D controller [0302]` of -nn, `Class 0302` without a list of names, `0302` of -n.
    let code = title.split(": ").next().and_then(|class| {
        let bracketed = class.rsplit_once('[').and_then(|(_, code)| code.strip_suffix(']'));
        let code = bracketed.unwrap_or(class.strip_prefix("Class ").unwrap_or(class));
        (code.len() == 4).then(|| u32::from_str_radix(code, 16).ok())?
    });
    let named = [
        ("VGA compatible controller", VGA, PciKind::Endpoint),
        ("3D controller", RENDERER, PciKind::Endpoint),
        ("Display controller", 0x0380, PciKind::Endpoint),
        ("PCI bridge", BRIDGE, PciKind::Bridge),
        ("Bridge: ", SWITCH, PciKind::Endpoint),
    ];
    let by_name = named.iter().find(|(name, ..)| title.starts_with(name));
    let class = code.or(by_name.map(|(_, code, _)| *code));
    let kind = if class == Some(BRIDGE) { PciKind::Bridge } else { PciKind::Endpoint };
    // A class code in sysfs has 24 bits, with the programming interface.
    (class.map(|class| class << 8), kind)
}

/// Returns vendor and device id from `[10de:2335]` or `10de:2335`, or the vendor by its name.
fn ids(title: &str) -> (Option<u16>, Option<u16>) {
    let of = |part: &str| {
        let (vendor, device) = part.split([']', ' ']).next()?.split_once(':')?;
        let number = |text: &str| (text.len() == 4).then(|| u16::from_str_radix(text, 16).ok())?;
        Some((number(vendor)?, number(device)?))
    };
    let bare = || {
        let (_, device) = title.split_once(": ")?;
        of(device.strip_prefix("Device ").unwrap_or(device))
    };
    let pair = title.rsplit('[').find_map(of).or_else(bare);
    match pair {
        Some((vendor, device)) => (Some(vendor), Some(device)),
        None => {
            // A list of names older than the device has its number alone.
            let rest = title.split_once("NVIDIA Corporation").map(|(_, rest)| rest);
            let device = |rest| u16::from_str_radix(after(rest, "Device ")?, 16).ok();
            (rest.map(|_| NVIDIA), rest.and_then(device))
        }
    }
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let first = ahead.lines.first()?;
    let Some((address, title)) = head(first.text.trim()) else {
        return nameless(ahead, notes);
    };
    let (class, kind) = class(title);
    let (vendor, device) = ids(title);
    let mut function = Function::of(address, kind);
    // `NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)`
    let model = title.split_once("NVIDIA Corporation ").and_then(|(_, model)| {
        model.split_once('[')?.1.split_once(']').filter(|(model, _)| !model.contains(':'))
    });
    function.name = model.map(|(model, _)| format!("NVIDIA {model}"));
    let facts = &mut function.facts;
    set(&mut facts.class, class);
    set(&mut facts.vendor, vendor);
    set(&mut facts.device_id, device);
    if title.contains("(rev ff)") {
        facts.answers = Reading::Known(false);
    }
    notes.add(first.number, Note::Function(Box::new(function.clone())));
    let mut used = 1;
    let (mut possible, mut narrow) = (false, None);
    for (place, line) in ahead.lines.iter().enumerate().skip(1) {
        let text = line.text.trim();
        // What was left out between lines of a function.
        if text.is_empty() || text == "--" || stands_for_more(text) {
            let mut behind = ahead.lines.iter().skip(place).map(|line| line.text.trim());
            if behind.find(|text| text.contains(char::is_alphanumeric)).is_some_and(is_link) {
                continue;
            }
            break;
        }
        let is_of_function = line.text.starts_with(' ') || text.contains(": ");
        if head(text).is_some() || !is_of_function {
            break;
        }
        used = place + 1;
        possible |= text.starts_with("LnkCap:");
        if text.starts_with("LnkSta:") && is_narrow(text) {
            narrow = Some((line.number, text));
        }
        let mut part = Function::of(address, function.facts.kind);
        let before = part.clone();
        take(text, &mut part);
        if part != before {
            function.facts.kind = part.facts.kind;
            notes.add(line.number, Note::Function(Box::new(part)));
        }
    }
    if let Some((line, text)) = narrow.filter(|_| !possible) {
        notes.add(
            line,
            Note::Problem(format!("{address} has fewer lanes than it supports: {text}")),
        );
    }
    Some(used)
}

/// Returns true if a link has fewer lanes than its device. A lower speed is one at rest.
fn is_narrow(text: &str) -> bool {
    text.split_once("Width ").is_some_and(|(_, width)| width.contains("(downgraded)"))
}

/// Reads the lines of links whose device is not in the text, or in the command alone: `lspci -vv -s 3b:00.0`. What follows
/// there may say that it is a GPU.
fn nameless(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let named = ahead.command.and_then(|command| after(command, "-s "));
    let name = named.unwrap_or("a device that is not named");
    let known = named.and_then(|name| name.parse().ok());
    let mut function = Function::of(known.or("0:0.0".parse().ok())?, PciKind::Endpoint);
    if ahead.command.is_some_and(|command| command.contains("GPU")) {
        function.facts.class = Reading::Known(RENDERER << 8);
        function.facts.vendor = Reading::Known(NVIDIA);
    }
    let mut used = 0;
    for line in ahead.lines.iter().take_while(|line| line.text.trim().starts_with("Lnk")) {
        let text = line.text.trim();
        used += 1;
        take(text, &mut function);
        if text.starts_with("LnkSta:") {
            let what = format!("of the PCIe link of {name}: {text}");
            let most = function.facts.width_max.get().map(Lanes::number);
            let is_less = function.facts.width.get().map(Lanes::number) < most;
            let all = most.map_or("all".to_owned(), |most| format!("all {most}"));
            let note = match is_less || is_narrow(text) {
                true => Note::Problem(format!("less than {all} lanes {what}")),
                false => Note::Remark(format!("all lanes {what}")),
            };
            notes.add(line.number, note);
        }
    }
    if known.is_some() {
        notes.add(ahead.lines.first()?.number, Note::Function(Box::new(function)));
    }
    Some(used)
}

/// Returns the word after a label, up to a comma or space.
fn after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(label)?;
    rest.trim_start().split([',', ' ', ';']).next()
}

/// Takes a line of a function.
fn take(text: &str, function: &mut Function) {
    let facts = &mut function.facts;
    let generation = || {
        let rate: f64 = after(text, "Speed ")?.strip_suffix("GT/s")?.parse().ok()?;
        let rates = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
        let place = rates.iter().position(|known| (known - rate).abs() < 0.1)?;
        u8::try_from(place + 1).ok()?.try_into().ok()
    };
    let width = || after(text, "Width x")?.parse::<u8>().ok()?.try_into().ok();
    let number = |label: &str| after(text, label)?.parse().ok();
    if text.starts_with("LnkCap:") {
        set(&mut facts.generation_max, generation());
        set(&mut facts.width_max, width());
    } else if text.starts_with("LnkSta:") {
        set(&mut facts.generation, generation());
        set(&mut facts.width, width());
    } else if text.starts_with("DevCap:") {
        set(&mut facts.max_payload_possible_bytes, number("MaxPayload "));
    } else if text.starts_with("MaxPayload ") {
        set(&mut facts.max_payload_bytes, number("MaxPayload "));
        set(&mut facts.max_read_request_bytes, number("MaxReadReq "));
    } else if let Some(node) = text.strip_prefix("NUMA node: ") {
        set(&mut facts.numa_node, node.trim().parse().ok());
    } else if let Some(group) = text.strip_prefix("IOMMU group: ") {
        set(&mut facts.iommu_group, group.trim().parse().ok());
    } else if let Some(slot) = text.strip_prefix("Physical Slot: ") {
        facts.slot = Reading::Known(slot.trim().to_owned());
    } else if text.starts_with("ACSCtl:") {
        let redirects = text.contains("ReqRedir+") || text.contains("CmpltRedir+");
        facts.acs_redirect = Reading::Known(redirects);
    } else if text.starts_with("!!! Unknown header type") {
        facts.answers = Reading::Known(false);
    } else if text.starts_with("Bus: primary=") {
        let bus = |label: &str| u8::from_str_radix(after(text, label)?, 16).ok();
        function.buses = bus("secondary=").zip(bus("subordinate="));
    } else if let Some(driver) = text.strip_prefix("Kernel driver in use: ") {
        function.driver = Some(driver.trim().to_owned());
    } else if text.contains("Express (v") || text.contains("Express Endpoint") {
        if text.contains("Root Port") {
            facts.kind = PciKind::RootPort;
        } else if text.contains("Upstream Port") {
            facts.kind = PciKind::SwitchUpstream;
        } else if text.contains("Downstream Port") {
            facts.kind = PciKind::SwitchDownstream;
        }
        set(&mut facts.max_payload_possible_bytes, number("MaxPayload "));
    }
}
