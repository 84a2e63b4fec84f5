//! Slots, the cards in them, and what their PCIe links train to.

use model::node::NodeId;
use model::reading::Reading;
use model::snapshot::{Gpu, PciFunction, Snapshot};
use model::units::{PciAddress, PcieLink};
use topology::pcie::Connection;

use super::Changed;

impl Changed {
    /// Lets two cards change places. What a link trained to stays with its slot.
    pub(super) fn exchange(&mut self, gpu: u32, slot: &str) -> Result<(), String> {
        let option = format!("--move {gpu}={slot}");
        let own = self.address(gpu, &option)?;
        let snapshot = &self.report.snapshot;
        let is_there = |other: &&Gpu| {
            let address = other.pci.get();
            let label = address.and_then(|address| topology::pcie::slot(snapshot, address));
            label == Some(slot)
                || slot.parse::<PciAddress>().is_ok_and(|slot| Some(slot) == address)
        };
        let mut there = snapshot.gpus.iter().filter(is_there);
        let other = match (there.next(), there.next()) {
            (Some(one), None) => one.index,
            (Some(_), Some(_)) => {
                return Err(format!("{option}: several slots have that label; give a PCI address"));
            }
            (None, _) => {
                return Err(format!(
                    "{option}: no GPU is in a slot with that label or PCI address; a free slot shows in no file, so the \
                     card can only change places with another GPU"
                ));
            }
        };
        if other == gpu {
            return Err(format!("{option}: GPU {gpu} is there already"));
        }
        let there = self.address(other, &option)?;
        self.swap_cards((gpu, own), (other, there));
        self.moved.extend([gpu, other]);
        self.assumed.push(format!(
            "GPU {gpu} and GPU {other} change places and keep their numbers here; what a link trained to below its two \
             ends stays with its slot"
        ));
        Ok(())
    }

    fn swap_cards(&mut self, one: (u32, PciAddress), other: (u32, PciAddress)) {
        let snapshot = &mut self.report.snapshot;
        let topology = &self.report.topology;
        let now = |gpu| topology.pcie_link_of(gpu).and_then(|link| link.now.link());
        let shapes = [one, other].map(|(gpu, at)| SlotShape::of(snapshot, at, now(gpu)));
        let ends = [(one, other.1, &shapes[1], &shapes[0]), (other, one.1, &shapes[0], &shapes[1])];
        let node = |snapshot: &Snapshot, gpu| snapshot.gpu(gpu).map(|gpu| gpu.numa_node.clone());
        let nodes = [node(snapshot, other.0), node(snapshot, one.0)];
        for (((gpu, _), address, there, card), node) in ends.into_iter().zip(nodes) {
            let now = there.with(card.device);
            if let Some(function) = function_mut(snapshot, address) {
                set_max(function, card.device);
                set_now(function, now);
            }
            let port = parent_of(snapshot, address);
            if let Some(port) = port.and_then(|port| function_mut(snapshot, port)) {
                set_now(port, now);
            }
            let Some(known) = snapshot.gpus.iter_mut().find(|known| known.index == gpu) else {
                continue;
            };
            known.pci = Reading::Known(address);
            if let Some(node) = node {
                known.numa_node = node;
            }
            let possible = least(card.device, there.port);
            // The generation of a GPU's link is taken for the one that both ends support.
            let generation = now.map(|now| now.generation);
            let possible = possible
                .zip(generation)
                .map(|(possible, generation)| PcieLink { generation, ..possible });
            set_gpu(known, now, possible);
        }
        // NVLinks stay with their cards.
        let links = snapshot.gpus.iter_mut().filter_map(|gpu| match &mut gpu.nvlinks {
            Reading::Known(links) => Some(links),
            Reading::Unknown(_) => None,
        });
        for link in links.flatten() {
            if link.remote_pci.get() == Some(one.1) {
                link.remote_pci = Reading::Known(other.1);
            } else if link.remote_pci.get() == Some(other.1) {
                link.remote_pci = Reading::Known(one.1);
            }
        }
        for pair in &mut snapshot.pairs {
            let ends = [pair.source, pair.destination];
            if ends.contains(&one.0) || ends.contains(&other.0) {
                pair.common_ancestor = Reading::failed("the card is in another slot");
            }
        }
        self.links.extend([NodeId::Gpu(one.0), NodeId::Gpu(other.0)]);
    }

    pub(super) fn train(&mut self, hop: &str, to: PcieLink) -> Result<(), String> {
        let option = format!("--link {hop}={to}");
        let named = hop.trim().to_ascii_lowercase();
        let named = named.strip_prefix("gpu").unwrap_or(&named).trim();
        let link = |is: &dyn Fn(&Connection) -> bool| {
            let links = self.report.topology.links.iter();
            let mut links = links.filter_map(|link| link.pcie.as_ref());
            links.find(|link| is(link)).cloned()
        };
        let found = match (named.parse::<u32>(), named.parse::<PciAddress>()) {
            (Ok(gpu), _) => {
                self.gpu(gpu, &option)?;
                link(&|link| link.gpu == Some(gpu))
            }
            (_, Ok(address)) => {
                link(&|link| link.below == Some(address) || link.port == Some(address))
            }
            _ => {
                return Err(format!(
                    "{option}: name the link by its GPU, such as GPU5, or by the PCI address of one of its ends"
                ));
            }
        };
        let lower = found.as_ref().and_then(Connection::lower);
        let lower = lower.ok_or_else(|| format!("{option}: the report has no PCIe link there"))?;
        let possible = found.and_then(|link| link.possible.link());
        if let Some(possible) = possible.filter(|possible| most(*possible, to) != *possible) {
            self.assumed.push(format!(
                "both ends of that link can do {to}; those that are there can do {possible}"
            ));
        }
        self.set_link(lower, to);
        Ok(())
    }

    /// Lets a link train to this shape, and its ends support it.
    pub(super) fn set_link(&mut self, lower: NodeId, to: PcieLink) {
        let snapshot = &mut self.report.snapshot;
        let address = match lower {
            NodeId::Gpu(gpu) => snapshot.address_of(gpu),
            NodeId::Pci(address) => Some(address),
            _ => None,
        };
        if let Some(address) = address {
            let port = parent_of(snapshot, address);
            if let Some(device) = function_mut(snapshot, address) {
                let most = max_of(device).map_or(to, |known| most(known, to));
                set_max(device, Some(most));
                set_now(device, Some(to));
            }
            // The slot supports no more, so the link is not narrow.
            if let Some(port) = port.and_then(|port| function_mut(snapshot, port)) {
                set_max(port, Some(to));
                set_now(port, Some(to));
            }
        }
        if let NodeId::Gpu(gpu) = lower
            && let Some(gpu) = snapshot.gpus.iter_mut().find(|known| known.index == gpu)
        {
            set_gpu(gpu, Some(to), Some(to));
        }
        self.links.insert(lower);
    }
}

/// What a slot and the card in it support, and what their link trained to.
struct SlotShape {
    device: Option<PcieLink>,
    port: Option<PcieLink>,
    now: Option<PcieLink>,
}

impl SlotShape {
    fn of(snapshot: &Snapshot, address: PciAddress, now: Option<PcieLink>) -> Self {
        let function = snapshot.function(address);
        let port = function.and_then(|function| snapshot.function(function.parent?));
        Self { device: function.and_then(max_of), port: port.and_then(max_of), now }
    }

    /// Returns what the link trains to with another card: what slot and card support, or less if it is narrow now.
    fn with(&self, card: Option<PcieLink>) -> Option<PcieLink> {
        let possible = least(self.device, self.port);
        let is_narrow = possible.zip(self.now).is_some_and(|(could, now)| {
            now.width < could.width || now.generation < could.generation
        });
        least(least(card, self.port), self.now.filter(|_| is_narrow))
    }
}

fn least(one: Option<PcieLink>, other: Option<PcieLink>) -> Option<PcieLink> {
    match (one, other) {
        (Some(one), Some(other)) => Some(PcieLink {
            generation: one.generation.min(other.generation),
            width: one.width.min(other.width),
        }),
        (one, other) => one.or(other),
    }
}

fn most(one: PcieLink, other: PcieLink) -> PcieLink {
    PcieLink { generation: one.generation.max(other.generation), width: one.width.max(other.width) }
}

fn function_mut(snapshot: &mut Snapshot, address: PciAddress) -> Option<&mut PciFunction> {
    snapshot.pci.iter_mut().find(|function| function.address == address)
}

fn parent_of(snapshot: &Snapshot, address: PciAddress) -> Option<PciAddress> {
    snapshot.function(address)?.parent
}

fn max_of(function: &PciFunction) -> Option<PcieLink> {
    Some(PcieLink { generation: function.generation_max.get()?, width: function.width_max.get()? })
}

fn set_max(function: &mut PciFunction, to: Option<PcieLink>) {
    if let Some(to) = to {
        function.generation_max = Reading::Known(to.generation);
        function.width_max = Reading::Known(to.width);
    }
}

fn set_now(function: &mut PciFunction, to: Option<PcieLink>) {
    if let Some(to) = to {
        function.generation = Reading::Known(to.generation);
        function.width = Reading::Known(to.width);
    }
}

fn set_gpu(gpu: &mut Gpu, now: Option<PcieLink>, possible: Option<PcieLink>) {
    if let Some(now) = now {
        gpu.pcie_generation = Reading::Known(now.generation);
        gpu.pcie_width = Reading::Known(now.width);
    }
    if let Some(possible) = possible {
        gpu.pcie_generation_max = Reading::Known(possible.generation);
        gpu.pcie_width_max = Reading::Known(possible.width);
    }
}
