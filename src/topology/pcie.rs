//! PCIe links, derived from the figures of their two ends.
//!
//! A root port and a downstream port of a switch carry the figures of the link *below* them. An endpoint and an
//! upstream port carry those of the link *above*. The two ends of one link are therefore the downstream port and the
//! function below it.

use std::collections::HashSet;

use super::capacity::{self, Capacity};
use model::pcie::Narrow;
pub use model::pcie::{Connection, Shape};
use model::snapshot::{Gpu, PciFunction, PciKind, Snapshot};
use model::units::PciAddress;

/// Returns the payload rate of a link of this shape, GB/s.
pub fn rate(shape: Shape) -> Option<f64> {
    Some(capacity::pcie(shape.link()?).gbps)
}

/// Returns the payload rate available to data. The source lists the disagreements between the two ends.
pub(super) fn capacity(link: &Connection) -> Option<Capacity> {
    let mut capacity = capacity::pcie(link.now.link()?);
    for note in link.notes.iter().cloned().chain(link.refuted.iter().map(ToString::to_string)) {
        capacity.source.push_str("; ");
        capacity.source.push_str(&note);
    }
    Some(capacity)
}

/// The connection above a PCI function.
#[derive(Debug, Clone, PartialEq)]
pub enum Above {
    /// A PCIe link.
    Link(Box<Connection>),
    /// The inside of a switch: no link, and no rate.
    InsideSwitch,
    RootComplex,
}

/// Returns the functions from this address up, the address itself first. Ends if a parent is missing, and before an
/// address that was already seen, because a broken file may make parents loop.
pub fn chain(snapshot: &Snapshot, address: PciAddress) -> Vec<&PciFunction> {
    let mut seen = HashSet::new();
    let mut functions = Vec::new();
    let mut next = snapshot.function(address);
    while let Some(function) = next.filter(|function| seen.insert(function.address)) {
        functions.push(function);
        next = function.parent.and_then(|parent| snapshot.function(parent));
    }
    functions
}

/// Returns the connection above this function; `gpu` is the GPU that it belongs to.
pub fn above(snapshot: &Snapshot, function: &PciFunction, gpu: Option<&Gpu>) -> Above {
    let parent = function.parent.and_then(|parent| snapshot.function(parent));
    match (function.kind, parent.map(|parent| parent.kind)) {
        (PciKind::RootPort, _) | (PciKind::SwitchDownstream, None) => Above::RootComplex,
        (_, Some(PciKind::SwitchUpstream)) => Above::InsideSwitch,
        _ => Above::Link(Box::new(connection(Some(function), parent, gpu))),
    }
}

/// Returns the link of a GPU whose place in the PCI tree is not known, from NVML alone. Returns `None` if NVML has no
/// figure either.
pub(crate) fn link_by_nvml(gpu: &Gpu) -> Option<Connection> {
    let link = Connection { gpus: vec![gpu.index], ..connection(None, None, Some(gpu)) };
    [link.at_rest, link.possible].iter().any(|shape| *shape != Shape::default()).then_some(link)
}

fn connection(
    function: Option<&PciFunction>,
    parent: Option<&PciFunction>,
    gpu: Option<&Gpu>,
) -> Connection {
    let now =
        |end: &PciFunction| Shape { generation: end.generation.get(), width: end.width.get() };
    let max = |end: &PciFunction| Shape {
        generation: end.generation_max.get(),
        width: end.width_max.get(),
    };
    // It is not known which link the figures of an unclassified bridge describe, so they are ignored.
    let child =
        function.filter(|end| matches!(end.kind, PciKind::Endpoint | PciKind::SwitchUpstream));
    let port =
        parent.filter(|end| matches!(end.kind, PciKind::RootPort | PciKind::SwitchDownstream));
    let [child_now, child_max] = [child.map(now), child.map(max)].map(Option::unwrap_or_default);
    let [port_now, port_max] = [port.map(now), port.map(max)].map(Option::unwrap_or_default);
    let nvml = |f: fn(&Gpu) -> Shape| gpu.map(f).unwrap_or_default();
    let nvml_now =
        nvml(|gpu| Shape { generation: gpu.pcie_generation.get(), width: gpu.pcie_width.get() });
    // NVML's maximum applies to GPU and slot together, so it counts for both ends.
    let nvml_max = nvml(|gpu| Shape {
        generation: gpu.pcie_generation_max.get(),
        width: gpu.pcie_width_max.get(),
    });

    let mut notes = Vec::new();
    let widths: Vec<_> =
        [("the device", child_now), ("the port above", port_now), ("NVML", nvml_now)]
            .into_iter()
            .filter_map(|(name, shape)| Some((name, shape.width?)))
            .collect();
    if widths.windows(2).any(|pair| pair[0].1 != pair[1].1) {
        let said: Vec<_> =
            widths.iter().map(|(name, width)| format!("{name} says x{width}")).collect();
        notes.push(format!("{}: the lowest is taken", said.join(", ")));
    }
    let at_rest = child_now.least(port_now).least(nvml_now);
    let possible = child_max.least(port_max).least(nvml_max);
    let width_of_both = child_max.width.and(port_max.width).or(nvml_max.width).is_some();
    let generation_of_both =
        child_max.generation.and(port_max.generation).or(nvml_max.generation).is_some();
    let link = Connection {
        port: parent.map(|parent| parent.address),
        below: function
            .map(|function| function.address)
            .or_else(|| gpu.and_then(|gpu| gpu.pci.get())),
        slot: function.and_then(|function| slot_of(function, parent)).map(str::to_owned),
        gpu: gpu.map(|gpu| gpu.index),
        gpus: Vec::new(),
        at_rest,
        now: if gpu.is_some() {
            Shape { generation: possible.generation, ..at_rest }
        } else {
            at_rest
        },
        possible,
        device_possible: child_max,
        port_possible: port_max,
        width_of_both,
        generation_of_both,
        narrow: Vec::new(),
        notes,
        refuted: Vec::new(),
        placeholder: false,
    };
    Connection { narrow: narrow(&link, link.now), ..link }
}

/// Returns the ways in which a link of this shape carries less than both its ends support. Only this decides it.
pub fn narrow(link: &Connection, now: Shape) -> Vec<Narrow> {
    let possible = link.possible;
    let fewer = now.width.zip(possible.width).is_some_and(|(now, could)| now < could);
    let slower = now.generation.zip(possible.generation).is_some_and(|(now, could)| now < could);
    let narrow = [
        (fewer && link.width_of_both, Narrow::FewerLanes),
        (slower && link.generation_of_both, Narrow::LowerGeneration),
    ];
    narrow.into_iter().filter_map(|(is, narrow)| is.then_some(narrow)).collect()
}

/// Returns the label of the physical slot of the function at this address; see [`slot_of`].
pub fn slot(snapshot: &Snapshot, address: PciAddress) -> Option<&str> {
    let function = snapshot.function(address)?;
    slot_of(function, function.parent.and_then(|parent| snapshot.function(parent)))
}

/// Returns the label of the physical slot of this function, or of the port above it. Kernels and firmware differ in
/// which of the two carries the label.
fn slot_of<'a>(function: &'a PciFunction, parent: Option<&'a PciFunction>) -> Option<&'a str> {
    let port = parent.filter(|port| port.kind != PciKind::SwitchUpstream);
    function.slot.known().or_else(|| port?.slot.known()).map(String::as_str)
}
