//! What is known of the place of a GPU that does not answer: its power, the port above it and the errors that it has
//! counted, what the driver logged, and whether it hangs at a cable.

use super::prelude::*;
use crate::model::snapshot::{PciPower, Xid};
use crate::topology::pcie;

/// The port above a function, root port or port of a switch.
pub fn port_above<'a>(evidence: &Evidence<'a>, address: PciAddress) -> Option<&'a PciFunction> {
    let is_port = |function: &&&PciFunction| {
        matches!(function.kind, PciKind::RootPort | PciKind::SwitchDownstream | PciKind::Bridge)
    };
    pcie::chain(evidence.snapshot, address).iter().skip(1).find(is_port).copied()
}

/// A finding with all of that.
pub fn with_place(found: Finding, evidence: &Evidence<'_>, address: Option<PciAddress>) -> Finding {
    let Some(address) = address else { return found };
    let found = with_power(found, evidence, address);
    let found = with_port(found, evidence, address);
    let found = with_xids(found, evidence, address);
    with_cable(found, evidence, address)
}

/// Whether the function itself has power and answers.
fn with_power(mut found: Finding, evidence: &Evidence<'_>, address: PciAddress) -> Finding {
    let Some(function) = evidence.snapshot.function(address) else { return found };
    if function.power_state.get() == Some(PciPower::D3Cold) {
        found.message.push_str("; the kernel has switched it off (power state D3cold)");
        found.next_step = format!(
            "First keep the kernel from switching it off (echo on > /sys/bus/pci/devices/{address}/power/control), reload \
             the driver and check again. If it stays away: {}",
            found.next_step
        );
    } else if function.answers.get() == Some(false) {
        found.message.push_str("; its configuration space reads all ones, so it is off the bus");
    }
    found
        .fact("answers_on_the_bus", function.answers.get())
        .fact("pci_power_state", function.power_state.get().map(|state| state.to_string()))
}

/// The port above, and a sentence on what it has counted.
fn with_port(mut found: Finding, evidence: &Evidence<'_>, address: PciAddress) -> Finding {
    let Some(port) = port_above(evidence, address) else { return found };
    let counted = [
        (port.aer_fatal.get(), "fatal"),
        (port.aer_nonfatal.get(), "not corrected"),
        (port.aer_correctable.get(), "corrected"),
    ];
    let said: Vec<_> = counted
        .iter()
        .filter_map(|(number, kind)| Some((number.filter(|number| *number > 0)?, kind)))
        .map(|(number, kind)| format!("{number} {kind}"))
        .collect();
    let errors = match (said.is_empty(), counted.iter().all(|(number, _)| number.is_none())) {
        (_, true) => "whose error counters (AER) cannot be read here".to_owned(),
        (true, false) => "which has counted no error since boot".to_owned(),
        (false, false) => format!("which has counted errors since boot: {}", said.join(", ")),
    };
    found.message.push_str(&format!("; the port above is {}, {errors}", port.address));
    found
        .fact("port_address", port.address)
        .fact("port_fatal_errors", port.aer_fatal.get())
        .fact("port_nonfatal_errors", port.aer_nonfatal.get())
        .fact("port_corrected_errors", port.aer_correctable.get())
}

/// What the driver logged of the GPU last.
fn with_xids(mut found: Finding, evidence: &Evidence<'_>, address: PciAddress) -> Finding {
    // A message names the device, of which a GPU is function 0.
    let place = |address: PciAddress| (address.domain, address.bus, address.device);
    let Some(all) = evidence.snapshot.host.xids.known() else {
        let why = evidence.snapshot.host.xids.unknown().map(ToString::to_string);
        return found.fact("xids_unknown", why);
    };
    let own: Vec<&Xid> = all.iter().filter(|xid| place(xid.pci) == place(address)).collect();
    let said = match own.last() {
        None => "; the kernel's log has no Xid message of it".to_owned(),
        Some(last) => {
            let text = if last.text.is_empty() { String::new() } else { format!(" ({})", last.text) };
            let before: BTreeSet<u32> = own.iter().map(|xid| xid.code).filter(|code| *code != last.code).collect();
            let before = before.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let before = if before.is_empty() { String::new() } else { format!(", after Xid {before}") };
            let hours = last.seconds_since_boot / 3600;
            format!("; its last Xid is {}{text}, {hours} h after boot{before}", last.code)
        }
    };
    found.message.push_str(&said);
    found
        .fact("last_xid_code", own.last().map(|xid| xid.code))
        .fact("last_xid_seconds", own.last().map(|xid| xid.seconds_since_boot))
}

/// Whether the link goes through a cable or a dock.
fn with_cable(mut found: Finding, evidence: &Evidence<'_>, address: PciAddress) -> Finding {
    let way = pcie::chain(evidence.snapshot, address);
    if !way.iter().any(|function| function.removable.get() == Some(true)) {
        return found;
    }
    found.message.push_str("; it hangs at an external link");
    found.next_step = format!("First check the cable, and the dock and its power. {}", found.next_step);
    found.fact("external_link", true)
}
