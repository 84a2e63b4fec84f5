//! PCIe links from the figures of their two ends.
//!
//! A root port and a downstream port of a switch carry the figures of the link *below* them, an
//! endpoint and an upstream port those of the link *above*: so the two ends of one link are the
//! downstream port and the function below it.

use std::collections::HashSet;

use super::capacity::{self, Capacity};
use crate::model::snapshot::{Gpu, PciFunction, PciKind, Snapshot};
use crate::model::units::{PciAddress, PcieLink};

/// Generation and lanes, each of which may be unknown by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shape {
    /// PCIe generation.
    pub generation: Option<u8>,
    /// Lanes.
    pub width: Option<u8>,
}

impl Shape {
    /// Figures that cannot be (width 0 or 63, generation 0) are unknown figures.
    fn of(generation: Option<u8>, width: Option<u8>) -> Self {
        Self {
            generation: generation.and_then(capacity::sound_generation),
            width: width.and_then(capacity::sound_width),
        }
    }

    /// The link, where both figures are known.
    pub fn link(self) -> Option<PcieLink> {
        Some(PcieLink { generation: self.generation?, width: self.width? })
    }

    /// The lower generation and the lower width: what a link trains to between two such ends. Both
    /// are taken by themselves, since speed and width are settled by themselves.
    fn lower(self, other: Self) -> Self {
        Self { generation: lower_of(self.generation, other.generation), width: lower_of(self.width, other.width) }
    }
}

fn lower_of(one: Option<u8>, other: Option<u8>) -> Option<u8> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// One PCIe link.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    /// The port above, where it is visible.
    pub port: Option<PciAddress>,
    /// The function below.
    pub below: Option<PciAddress>,
    /// The GPU, where the function below is one.
    pub gpu: Option<u32>,
    /// As it is now, the lower of what both ends say.
    pub now: Shape,
    /// What both ends can do together.
    pub possible: Shape,
    /// Whether the possible width is that of both ends and not of one alone.
    pub width_of_both: bool,
    /// Whether the possible generation is that of both ends and not of one alone.
    pub generation_of_both: bool,
    /// What the two ends disagree on, a sentence each.
    pub notes: Vec<String>,
}

impl Connection {
    /// The link that data gets: lanes as trained, with the generation that counts.
    ///
    /// An idle GPU drops its link to Gen1 and raises it again under load, so for the link of a GPU
    /// the generation that both ends can reach counts and never the one of the moment. Other links
    /// keep the generation that they trained to, and what they trained to is what they carry.
    pub fn usable(&self) -> Option<PcieLink> {
        let generation = if self.gpu.is_some() { self.possible.generation } else { self.now.generation };
        Shape { generation, width: self.now.width }.link()
    }

    /// Payload rate of [`Self::usable`].
    pub fn capacity(&self) -> Option<Capacity> {
        let mut capacity = capacity::pcie(self.usable()?)?;
        for note in &self.notes {
            capacity.source.push_str("; ");
            capacity.source.push_str(note);
        }
        Some(capacity)
    }

    /// Payload rate of what both ends can do.
    pub fn possible_capacity(&self) -> Option<Capacity> {
        capacity::pcie(self.possible.link()?)
    }

    /// Whether the link has fewer lanes than both its ends can do.
    pub fn fewer_lanes(&self) -> bool {
        self.width_of_both && matches!((self.now.width, self.possible.width), (Some(now), Some(could)) if now < could)
    }

    /// Whether the link trained to a lower generation than both its ends can do. Never said of a
    /// GPU's link, whose generation of the moment means nothing.
    pub fn lower_generation(&self) -> bool {
        self.gpu.is_none()
            && self.generation_of_both
            && matches!((self.now.generation, self.possible.generation), (Some(now), Some(could)) if now < could)
    }
}

/// What is above a PCI function.
#[derive(Debug, Clone, PartialEq)]
pub enum Above {
    /// A PCIe link.
    Link(Box<Connection>),
    /// The inside of a switch: no link, and no figure.
    InsideSwitch,
    /// The root complex.
    RootComplex,
}

/// The functions from this address up, the address itself first. Ends where a parent is missing
/// and before an address that was already seen: a broken file may make parents loop.
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

/// What is above this function; `gpu` is the GPU it belongs to.
pub fn above(snapshot: &Snapshot, function: &PciFunction, gpu: Option<&Gpu>) -> Above {
    let parent = function.parent.and_then(|parent| snapshot.function(parent));
    match (function.kind, parent.map(|parent| parent.kind)) {
        (PciKind::RootPort, _) | (PciKind::SwitchDownstream, None) => Above::RootComplex,
        (_, Some(PciKind::SwitchUpstream)) => Above::InsideSwitch,
        _ => Above::Link(Box::new(connection(Some(function), parent, gpu))),
    }
}

/// The link of a GPU whose place in the PCI tree is not known, from NVML alone. `None` where NVML
/// has no figure either.
pub fn link_by_nvml(gpu: &Gpu) -> Option<Connection> {
    let connection = connection(None, None, Some(gpu));
    let Connection { now, possible, .. } = &connection;
    [now, possible].iter().any(|shape| **shape != Shape::default()).then_some(connection)
}

fn connection(function: Option<&PciFunction>, parent: Option<&PciFunction>, gpu: Option<&Gpu>) -> Connection {
    let now = |end: &PciFunction| Shape::of(end.generation.get(), end.width.get());
    let max = |end: &PciFunction| Shape::of(end.generation_max.get(), end.width_max.get());
    // Whose link the figures of an unclassified bridge are cannot be told, so they count for none.
    let child = function.filter(|end| matches!(end.kind, PciKind::Endpoint | PciKind::SwitchUpstream));
    let port = parent.filter(|end| matches!(end.kind, PciKind::RootPort | PciKind::SwitchDownstream));
    let [child_now, child_max] = [child.map(now), child.map(max)].map(Option::unwrap_or_default);
    let [port_now, port_max] = [port.map(now), port.map(max)].map(Option::unwrap_or_default);
    let nvml = |f: fn(&Gpu) -> Shape| gpu.map(f).unwrap_or_default();
    let nvml_now = nvml(|gpu| Shape::of(gpu.pcie_generation.get(), gpu.pcie_width.get()));
    // NVML's maximum is that of GPU and slot together, so it stands for both ends.
    let nvml_max = nvml(|gpu| Shape::of(gpu.pcie_generation_max.get(), gpu.pcie_width_max.get()));

    let mut notes = Vec::new();
    let widths: Vec<_> = [("the device", child_now), ("the port above", port_now), ("NVML", nvml_now)]
        .into_iter()
        .filter_map(|(name, shape)| Some((name, shape.width?)))
        .collect();
    if widths.windows(2).any(|pair| pair[0].1 != pair[1].1) {
        let said: Vec<_> = widths.iter().map(|(name, width)| format!("{name} says x{width}")).collect();
        notes.push(format!("{}: the lowest is taken", said.join(", ")));
    }
    let both =
        |child: Option<u8>, port: Option<u8>, nvml: Option<u8>| (child.is_some() && port.is_some()) || nvml.is_some();
    Connection {
        port: parent.map(|parent| parent.address),
        below: function.map(|function| function.address).or_else(|| gpu.and_then(|gpu| gpu.pci.get())),
        gpu: gpu.map(|gpu| gpu.index),
        now: child_now.lower(port_now).lower(nvml_now),
        possible: child_max.lower(port_max).lower(nvml_max),
        width_of_both: both(child_max.width, port_max.width, nvml_max.width),
        generation_of_both: both(child_max.generation, port_max.generation, nvml_max.generation),
        notes,
    }
}

/// One function on a GPU's way up, with the link above it.
#[derive(Debug, Clone, PartialEq)]
pub struct PathHop {
    /// Address of the function.
    pub address: PciAddress,
    /// What it is.
    pub kind: PciKind,
    /// The link above it as it is now; an idle GPU may show Gen1. Null at a root port and at a
    /// downstream port, above which there is no link.
    pub now: Option<PcieLink>,
    /// What both ends of that link can do.
    pub possible: Option<PcieLink>,
    /// Whether that link is narrower, or above a bridge slower, than both its ends can do.
    pub narrow: bool,
    /// Whether that link carries less than every other one of this path.
    pub bottleneck: bool,
    /// Label of the physical slot, where the firmware names one.
    pub slot: Option<String>,
}

/// The way of a GPU to its root, root first. Empty where its address is not in the tree.
pub fn pcie_path(snapshot: &Snapshot, gpu: u32) -> Vec<PathHop> {
    let Some(gpu) = snapshot.gpu(gpu) else { return Vec::new() };
    let Some(address) = gpu.pci.get() else { return Vec::new() };
    let mut rates = Vec::new();
    let mut hops: Vec<_> = chain(snapshot, address)
        .into_iter()
        .map(|function| {
            let link = match above(snapshot, function, (function.address == address).then_some(gpu)) {
                Above::Link(link) => Some(link),
                Above::InsideSwitch | Above::RootComplex => None,
            };
            rates.push(link.as_ref().and_then(|link| link.capacity()).map(|capacity| capacity.gbps));
            PathHop {
                address: function.address,
                kind: function.kind,
                now: link.as_ref().and_then(|link| link.now.link()),
                possible: link.as_ref().and_then(|link| link.possible.link()),
                narrow: link.is_some_and(|link| link.fewer_lanes() || link.lower_generation()),
                bottleneck: false,
                slot: function.slot.known().cloned(),
            }
        })
        .collect();
    for (at, hop) in hops.iter_mut().enumerate() {
        let mut others =
            rates.iter().enumerate().filter(|(other, _)| *other != at).filter_map(|(_, rate)| *rate).peekable();
        hop.bottleneck = rates[at].is_some_and(|rate| others.peek().is_some() && others.all(|other| rate < other));
    }
    hops.reverse();
    hops
}

/// Every PCIe link on the way of any GPU to its root, each once, with the GPUs that share it.
pub fn links(snapshot: &Snapshot) -> Vec<(Connection, Vec<u32>)> {
    let mut found: Vec<(Connection, Vec<u32>)> = Vec::new();
    for gpu in &snapshot.gpus {
        let way: Vec<_> = gpu.pci.get().map(|address| chain(snapshot, address)).unwrap_or_default();
        if way.is_empty() {
            found.extend(link_by_nvml(gpu).map(|link| (link, vec![gpu.index])));
        }
        for (at, function) in way.into_iter().enumerate() {
            let Above::Link(link) = above(snapshot, function, (at == 0).then_some(gpu)) else { continue };
            match found.iter_mut().find(|(other, _)| other.below == link.below) {
                Some((_, gpus)) if !gpus.contains(&gpu.index) => gpus.push(gpu.index),
                Some(_) => {}
                None => found.push((*link, vec![gpu.index])),
            }
        }
    }
    found
}

/// The label of the physical slot of this function, or of the port above it: kernels and firmware
/// differ in which of the two they give it to.
pub fn slot(snapshot: &Snapshot, address: PciAddress) -> Option<&str> {
    let function = snapshot.function(address)?;
    let own = function.slot.known();
    let port = function
        .parent
        .and_then(|parent| snapshot.function(parent))
        .filter(|port| port.kind != PciKind::SwitchUpstream);
    own.or_else(|| port.and_then(|port| port.slot.known())).map(String::as_str)
}
