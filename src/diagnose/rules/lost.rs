//! What is known of the place of a GPU that does not answer: the port above it, and the errors that it has counted.

use super::prelude::*;
use crate::topology::pcie;

/// The port above a function, root port or port of a switch.
pub fn port_above<'a>(evidence: &Evidence<'a>, address: PciAddress) -> Option<&'a PciFunction> {
    let is_port = |function: &&&PciFunction| {
        matches!(function.kind, PciKind::RootPort | PciKind::SwitchDownstream | PciKind::Bridge)
    };
    pcie::chain(evidence.snapshot, address).iter().skip(1).find(is_port).copied()
}

/// A finding with that port, and a sentence on what it has counted.
pub fn with_port(mut found: Finding, evidence: &Evidence<'_>, address: Option<PciAddress>) -> Finding {
    let Some(port) = address.and_then(|address| port_above(evidence, address)) else { return found };
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
