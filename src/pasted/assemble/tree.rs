//! PCI functions of lspci → the functions on the way of each GPU to its root, and GPUs that NVML does not list.

use std::collections::{BTreeMap, BTreeSet};

use crate::told::{Function, NOT_THERE};
use model::pcie::DEEPEST;
use model::reading::Reading;
use model::snapshot::{BoundDriver, DisplayFunction, NvSwitch, PciFunction, PciKind};
use model::units::PciAddress;

/// All functions of the input, by address.
#[derive(Debug, Default)]
pub(super) struct Tree {
    functions: BTreeMap<PciAddress, Function>,
}

const fn rank(kind: PciKind) -> u8 {
    match kind {
        PciKind::Endpoint => 0,
        PciKind::Bridge => 1,
        PciKind::RootPort | PciKind::SwitchUpstream | PciKind::SwitchDownstream => 2,
    }
}

impl Tree {
    /// Adds what a line says of a function. `taken` as in [`PciFunction::take`].
    pub(super) fn add(
        &mut self,
        part: Function,
        taken: impl FnMut(&'static str, model::reading::Taken),
    ) {
        let function = self.functions.entry(part.facts.address);
        let function =
            function.or_insert_with(|| Function::of(part.facts.address, PciKind::Endpoint));
        if rank(part.facts.kind) > rank(function.facts.kind) {
            function.facts.kind = part.facts.kind;
        }
        function.buses = function.buses.or(part.buses);
        function.driver = function.driver.take().or(part.driver);
        function.name = function.name.take().or(part.name);
        function.facts.take(part.facts, taken);
    }

    /// Returns the addresses of NVIDIA's display functions.
    pub(super) fn displays(&self) -> Vec<PciAddress> {
        let displays = self.functions.values().filter(|function| function.facts.is_display());
        displays.map(|function| function.facts.address).collect()
    }

    pub(super) fn get(&self, address: PciAddress) -> Option<&Function> {
        self.functions.get(&address)
    }

    /// Returns the bridge above a function.
    fn above(&self, address: PciAddress) -> Option<PciAddress> {
        let is_above = |bridge: &&Function| {
            bridge.facts.address.domain == address.domain
                && bridge.facts.address != address
                && bridge.buses.is_some_and(|(first, _)| first == address.bus)
        };
        let bridge = self.functions.values().find(is_above)?;
        Some(bridge.facts.address)
    }

    /// Returns the way from a function up to its root; `None` if the input has no part of it.
    fn way(&self, address: PciAddress) -> Option<Vec<PciAddress>> {
        self.functions.get(&address)?;
        let mut way = vec![address];
        while let Some(above) = self.above(*way.last()?) {
            if way.contains(&above) || way.len() == DEEPEST {
                return None;
            }
            way.push(above);
        }
        let top = self.functions.get(way.last()?)?;
        // Without its bridges, a device only seems to be on a root bus.
        (top.facts.kind == PciKind::RootPort || top.facts.address.bus == 0 || way.len() > 1)
            .then_some(way)
    }

    /// Returns the functions on the ways of these devices, with their parents.
    pub(super) fn ways(&self, devices: impl IntoIterator<Item = PciAddress>) -> Vec<PciFunction> {
        let mut found: BTreeMap<PciAddress, PciFunction> = BTreeMap::new();
        for device in devices {
            let Some(way) = self.way(device) else {
                continue;
            };
            let Some(top) = way.last() else { continue };
            let host_bridge = format!("pci{:04x}:{:02x}", top.domain, top.bus);
            for (place, address) in way.iter().enumerate() {
                let Some(function) = self.functions.get(address) else {
                    continue;
                };
                let mut facts = function.facts.clone();
                facts.parent = way.get(place + 1).copied();
                facts.host_bridge.clone_from(&host_bridge);
                // A bridge on a root bus is a port of the root.
                if facts.parent.is_none() && facts.kind == PciKind::Bridge {
                    facts.kind = PciKind::RootPort;
                }
                if facts.answers.known().is_none() && facts.width.known().is_some() {
                    facts.answers = Reading::Known(true);
                }
                found.insert(*address, facts);
            }
        }
        found.into_values().collect()
    }

    /// Returns NVIDIA's display functions that are none of these GPUs.
    pub(super) fn unlisted(&self, gpus: &BTreeSet<PciAddress>) -> Vec<DisplayFunction> {
        let others = self.displays().into_iter().filter(|address| !gpus.contains(address));
        let display = |address: PciAddress| {
            let mut function = DisplayFunction::unread(address, None, &NOT_THERE);
            if let Some(driver) = self.get(address).and_then(|known| known.driver.as_deref()) {
                let Ok(driver) = driver.parse::<BoundDriver>();
                function.driver = Reading::Known(driver);
            }
            function
        };
        others.map(display).collect()
    }

    /// Returns the functions of GPUs and ports of which the kernel's log has errors: address, whether it is a port, numbers of
    /// corrected, other and fatal errors.
    pub(super) fn errors(&self) -> impl Iterator<Item = (PciAddress, bool, [u64; 3])> {
        self.functions.values().filter_map(|function| {
            let is_port = match function.driver.as_deref()? {
                "nvidia" => false,
                "pcieport" => true,
                _ => return None,
            };
            let facts = &function.facts;
            let counts =
                [facts.aer_correctable.get()?, facts.aer_nonfatal.get()?, facts.aer_fatal.get()?];
            Some((facts.address, is_port, counts))
        })
    }

    /// Returns the NVSwitches.
    pub(super) fn switches(&self) -> Vec<NvSwitch> {
        let switches = self.functions.values().filter(|function| function.facts.is_nvswitch());
        switches
            .map(|function| {
                let mut switch = NvSwitch::unread(function.facts.address, &NOT_THERE);
                switch.device_id = function.facts.device_id.clone();
                switch
            })
            .collect()
    }
}
