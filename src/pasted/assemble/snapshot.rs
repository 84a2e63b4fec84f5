//! What was joined → the snapshot of a machine.

use std::collections::BTreeSet;

use super::ledger::Ledger;
use super::names::Names;
use super::{Joined, MOST_FAULTS, MOST_PROBLEMS, links, pair_of};
use crate::told::NOT_THERE;
use model::pasted::{PastedFault, PastedFaultKind, PastedLine};
use model::placement::Pair;
use model::reading::Reading;
use model::restore::NVML_VERSION_MISMATCH;
use model::snapshot::{
    BoundDriver, DeviceFile, DisplayFunction, Gpu, NvLink, OFF_THE_BUS, P2pStatus, PciFunction,
    Snapshot,
};
use model::units::PciAddress;

impl Joined {
    /// Marks GPUs that the driver calls lost and that no output describes otherwise.
    fn lost(&mut self, gpus: &mut [Gpu]) {
        let off = self.xids.iter().filter(|xid| xid.code == OFF_THE_BUS).map(|xid| {
            (xid.pci, "it has fallen off the bus, says the kernel's log (Xid 79)".to_owned())
        });
        let lost = self.faults.iter().filter(|fault| fault.kind == PastedFaultKind::Lost);
        let lost = lost.filter_map(|fault| Some((fault.said.pci?, fault.said.to_string())));
        for (pci, why) in off.chain(lost) {
            let gpu = gpus.iter_mut().find(|gpu| gpu.pci.get() == Some(pci));
            if let Some(gpu) = gpu.filter(|gpu| gpu.power_state.known().is_none()) {
                gpu.power_state = Reading::failed(&*why);
                gpu.memory_total_bytes = Reading::failed(&*why);
            }
        }
    }

    /// Sets access of pairs that a matrix of unknown kind refuses. Over PCIe or for atomics, pairs with NVLinks are refused
    /// and have access all the same, so that "not supported" counts for others only, and where no other matrix has access.
    fn refused(&mut self) {
        for ((source, destination), words) in std::mem::take(&mut self.words) {
            let refusals = words
                .iter()
                .map(|(word, _)| *word)
                .filter(|word| !matches!(word, P2pStatus::Ok | P2pStatus::Unknown));
            let all: Vec<P2pStatus> = refusals.collect();
            let with_reason = all.iter().find(|word| **word != P2pStatus::NotSupported);
            let has_links = self.bonds.contains_key(&(source, destination));
            let is_plain = all.len() == words.len() && !has_links;
            let Some(word) = with_reason.or(all.first().filter(|_| is_plain)) else {
                continue;
            };
            let pair = pair_of(&mut self.pairs, source, destination);
            fill(&mut pair.p2p_read, &Reading::Known(*word));
        }
    }

    /// Names PCIe errors of GPUs whose way is not in the input. Returns the ports that are on no way, for the rule on them.
    fn bus_errors(&mut self, pci: &[PciFunction]) -> Vec<PciFunction> {
        let mut ports = Vec::new();
        for (address, is_port, [corrected, other, fatal]) in self.tree.errors() {
            if pci.iter().any(|function| function.address == address) {
                continue;
            }
            if is_port {
                ports.extend(self.tree.get(address).map(|function| function.facts.clone()));
                continue;
            }
            let (input, line) = self.logged.get(&address).cloned().unwrap_or_default();
            let text = format!(
                "PCIe errors of {address}: {fatal} fatal, {other} not fatal, {corrected} corrected"
            );
            if fatal > 0 && self.faults.len() < MOST_FAULTS {
                let (kind, pci) = (PastedFaultKind::PcieFatal, Some(address));
                let said = PastedLine { text, pci, input, line };
                self.faults.push(PastedFault { kind, said });
            } else if other > 0 {
                self.problems.push(format!("{text} (line {line} of {input})"));
            } else {
                self.remarks.push(format!("{text} (line {line} of {input})"));
            }
        }
        ports
    }

    /// A GPU that another output describes was started after all, and so was a driver that describes any. Other GPUs that
    /// could not be started are not listed.
    fn started(&mut self, gpus: &[Gpu], unlisted: &mut Vec<DisplayFunction>) {
        let running = gpus.iter().filter(|gpu| gpu.power_state.known().is_some());
        let running: Vec<Option<PciAddress>> = running.map(|gpu| gpu.pci.get()).collect();
        for fault in std::mem::take(&mut self.faults) {
            let of_driver = fault.said.pci.is_none() && !fault.kind.is_of_start();
            let runs = running.contains(&fault.said.pci) || (of_driver && !running.is_empty());
            if runs && fault.kind <= PastedFaultKind::NoNvml {
                if fault.kind == PastedFaultKind::Mismatch {
                    self.host().kernel_module_version = Reading::Unknown(NOT_THERE);
                }
                self.problems.push(fault.said.to_string());
                continue;
            }
            let is_known = |address| unlisted.iter().any(|one| one.address == address);
            if let Some(address) =
                fault.said.pci.filter(|at| fault.kind.is_of_start() && !is_known(*at))
            {
                unlisted.push(DisplayFunction {
                    driver: Reading::Known(BoundDriver::Nvidia),
                    device_file: Reading::Known(DeviceFile::Usable),
                    ..DisplayFunction::unread(address, None, &NOT_THERE)
                });
            }
            self.faults.push(fault);
        }
    }

    /// Makes the snapshot of what was joined.
    pub(super) fn snapshot(&mut self, names: &Names, ledger: &mut Ledger) -> Snapshot {
        self.refused();
        let addresses = names.all();
        for (index, address) in &addresses {
            if let (Some(gpu), Some(address)) = (self.gpus.get_mut(index), address) {
                gpu.pci = Reading::Known(*address);
            }
        }
        let own: BTreeSet<PciAddress> = addresses.values().flatten().copied().collect();
        // A list that lacks an address of a GPU cannot show which other one is missing.
        let whole = self.listed.is_some_and(|listed| listed as usize == addresses.len())
            && own.len() == addresses.len();
        let mut unlisted = if whole { self.tree.unlisted(&own) } else { Vec::new() };
        let others = unlisted.iter().map(|function| function.address);
        let pci = self.tree.ways(own.iter().copied().chain(others));
        let ports = self.bus_errors(&pci);
        let mut gpus: Vec<Gpu> = std::mem::take(&mut self.gpus).into_values().collect();
        for gpu in &mut gpus {
            let function = gpu.pci.get().and_then(|address| self.tree.get(address));
            let Some(facts) = function.map(|function| &function.facts) else {
                continue;
            };
            let is_gone = facts.answers.get() == Some(false) && gpu.power_state.known().is_none();
            if is_gone {
                gpu.power_state = Reading::failed("its configuration space reads ff (lspci)");
            }
            let is_in_tree = pci.iter().any(|function| function.address == facts.address);
            fill(&mut gpu.numa_node, &facts.numa_node);
            if let (Some(one), Some(other)) = (gpu.pcie_width.get(), facts.width.get())
                && one != other
            {
                let of = [
                    format!("gpus[{}].pcie_width", gpu.index),
                    format!("pci[{}].width", facts.address),
                ];
                ledger.differ(of, [one.to_string(), other.to_string()]);
            }
            if let Some(name) = function.and_then(|function| function.name.clone()) {
                fill(&mut gpu.name, &Reading::Known(name));
            }
            if !is_in_tree {
                fill(&mut gpu.pcie_width, &facts.width);
                fill(&mut gpu.pcie_width_max, &facts.width_max);
                fill(&mut gpu.pcie_generation, &facts.generation);
                fill(&mut gpu.pcie_generation_device_max, &facts.generation_max);
            }
        }
        self.started(&gpus, &mut unlisted);
        let is_mismatch = |fault: &PastedFault| fault.kind == PastedFaultKind::Mismatch;
        let refused = self.faults.iter().any(is_mismatch).then_some(NVML_VERSION_MISMATCH);
        let mut links = std::mem::take(&mut self.links);
        for (gpu, by_dots) in &self.cut {
            // A GPU of another model has another number of links.
            let model = |of: u32| gpus.iter().find(|gpu| gpu.index == of).map(|gpu| &gpu.name);
            let alike = links.iter().filter(|(other, _)| model(**other) == model(*gpu));
            let most = alike.map(|(_, own)| own.len()).max();
            if !by_dots && links.get(gpu).is_none_or(|own| Some(own.len()) == most) {
                continue;
            }
            let how = if *by_dots {
                "ends with dots"
            } else {
                "ends with the input and is shorter than others"
            };
            self.remarks.push(format!(
                "the list of NVLinks of GPU {gpu} {how}: it was cut, and is not used"
            ));
            let own = links.remove(gpu).unwrap_or_default();
            let is_down = |link: &&NvLink| link.active.get() == Some(false);
            for link in own.values().filter(is_down) {
                let link = link.link;
                self.problems
                    .push(format!("NVLink {link} of GPU {gpu} is down, in a list that was cut"));
            }
        }
        let switches = self.tree.switches();
        let bonds = links::settle(&mut gpus, links, &self.bonds);
        let indices: Vec<u32> = gpus.iter().map(|gpu| gpu.index).collect();
        let pairs = Pair::ordered(&indices).into_iter();
        let pairs =
            pairs.map(|pair| pair_of(&mut self.pairs, pair.source, pair.destination).clone());
        let pairs = pairs.collect();
        self.problems.truncate(MOST_PROBLEMS);
        let mut host = self.host().clone();
        self.lost(&mut gpus);
        if self.has_log {
            self.xids.reverse();
            host.xids = Reading::Known(std::mem::take(&mut self.xids));
        }
        Snapshot {
            host,
            gpus,
            pairs,
            bonds,
            pci: pci.into_iter().chain(ports).collect(),
            numa_nodes: Vec::new(),
            adapters: Vec::new(),
            unlisted_gpus: unlisted,
            nvswitches: switches,
            problems: std::mem::take(&mut self.problems),
            nvml_failure_code: refused,
        }
    }
}

fn fill<T: Clone>(to: &mut Reading<T>, from: &Reading<T>) {
    if to.known().is_none() && from.known().is_some() {
        *to = from.clone();
    }
}
