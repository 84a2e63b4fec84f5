//! Changes of a machine, and the machine as it would be.

use std::collections::BTreeSet;

use explain::Cause;
use model::finding::{Finding, Subject};
use model::measurement::CudaPeerAccess;
use model::node::NodeId;
use model::placement::Pair;
use model::reading::Reading;
use model::report::Report;
use model::snapshot::{Gpu, NvLink, NvLinkRemote, P2pStatus, PciFunction, Snapshot};
use model::topology::LinkKind;
use model::units::{PciAddress, PcieLink};
use topology::pcie::Connection;

/// A change of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A GPU and the one in this slot change places.
    Move { gpu: u32, slot: String },
    /// A PCIe link trains to this.
    Link { hop: String, to: PcieLink },
    /// NVLinks join two GPUs.
    Bridge(u32, u32),
    /// A GPU is taken out.
    Without(u32),
    /// What a finding reports is repaired. Its code, or the code, a colon and a GPU.
    Fix(String),
}

/// A machine with changes.
#[derive(Debug, Clone)]
pub(super) struct Changed {
    /// Snapshot, topology and the driver's answers are those of the changed machine; the figures are not yet.
    pub report: Report,
    /// The causes that are left.
    pub causes: Vec<Cause>,
    /// GPUs whose cards are in another slot.
    pub moved: BTreeSet<u32>,
    /// Pairs and GPUs whose figures are healthy afterwards, whatever they were.
    pub healed_pairs: BTreeSet<Pair>,
    pub healed_gpus: BTreeSet<u32>,
    /// Lower ends of links that changed.
    links: BTreeSet<NodeId>,
    /// What was assumed, in sentences.
    pub assumed: Vec<String>,
}

impl Changed {
    pub(super) fn of(report: &Report, causes: &[Cause]) -> Self {
        Self {
            report: report.clone(),
            causes: causes.to_vec(),
            moved: BTreeSet::new(),
            healed_pairs: BTreeSet::new(),
            healed_gpus: BTreeSet::new(),
            links: BTreeSet::new(),
            assumed: Vec::new(),
        }
    }

    /// Makes a change.
    ///
    /// # Errors
    ///
    /// A sentence that names what the machine lacks.
    pub(super) fn make(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Move { gpu, slot } => self.exchange(*gpu, slot),
            Change::Link { hop, to } => self.train(hop, *to),
            Change::Bridge(one, other) => self.bridge(*one, *other),
            Change::Without(gpu) => self.without(*gpu),
            Change::Fix(code) => self.fix(code),
        }
    }

    /// Repairs what a finding reports. Returns false if nothing of it takes a rate.
    pub(super) fn repair(&mut self, finding: &Finding) -> bool {
        let gpus: Vec<u32> = match finding.subject {
            Subject::Gpu { index } | Subject::Link { index, .. } => vec![index],
            _ => finding.scope.gpus.clone(),
        };
        let mut links: Vec<Connection> = Vec::new();
        let known = self.report.topology.pcie_links();
        links.extend(known.filter(|link| is_of(link, finding, &gpus)).cloned());
        let mut repaired = false;
        // The repair of a slot that limits its card is another slot.
        let by_design = *finding.code == *"pcie-narrow-by-design";
        for link in links {
            let possible = match by_design {
                true => link.device_possible,
                false => link.possible,
            };
            if let (Some(lower), Some(to)) = (link.lower(), possible.link()) {
                repaired |= link.now != possible;
                self.set_link(lower, to);
            }
        }
        if finding.code.starts_with("nvlink") {
            repaired |= self.bridge_again(&gpus);
            for gpu in &gpus {
                repaired |= self.activate(*gpu);
            }
        }
        let of_subject = match finding.subject {
            Subject::Pair(pair) => vec![pair],
            _ => Vec::new(),
        };
        let pairs = finding.scope.pairs.iter().copied().chain(of_subject);
        let pairs: BTreeSet<Pair> = pairs.flat_map(|pair| [pair, pair.reversed()]).collect();
        let refused = pairs.iter().filter(|pair| {
            let route = self.report.topology.route(**pair);
            route.is_some_and(|route| route.peer_access.cuda == Some(false))
        });
        let refused: Vec<Pair> = refused.copied().collect();
        for pair in &refused {
            self.grant(*pair);
            repaired = true;
        }
        if !finding.scope.causes.is_empty() {
            let causes = std::mem::take(&mut self.causes).into_iter().enumerate();
            let (gone, left): (Vec<_>, Vec<_>) =
                causes.partition(|(at, _)| finding.scope.causes.contains(at));
            self.causes = left.into_iter().map(|(_, cause)| cause).collect();
            repaired |= !gone.is_empty();
        }
        let is_of_figures = !finding.scope.causes.is_empty() || finding.scope.rate.is_some();
        if is_of_figures && !repaired_by_link(finding) {
            self.healed_pairs.extend(&pairs);
            self.healed_gpus.extend(&gpus);
            repaired |= !pairs.is_empty() || !gpus.is_empty();
        }
        repaired
    }

    fn fix(&mut self, wanted: &str) -> Result<(), String> {
        let (code, gpu) = match wanted.split_once(':') {
            Some((code, gpu)) => {
                let number = gpu.trim().parse::<u32>();
                let gpu = number.map_err(|_| {
                    format!(
                        "--fix {wanted}: behind the colon stands the index of a GPU, as in {code}:5"
                    )
                })?;
                (code, Some(gpu))
            }
            None => (wanted, None),
        };
        let findings: Vec<Finding> = self.report.findings.clone();
        let of_code = findings.iter().filter(|finding| *finding.code == *code);
        let is_meant = |finding: &&Finding| gpu.is_none_or(|gpu| concerns(finding, gpu));
        let meant: Vec<&Finding> = of_code.filter(is_meant).collect();
        if meant.is_empty() {
            let mut codes: Vec<&str> = findings.iter().map(|finding| &*finding.code).collect();
            codes.dedup();
            return Err(format!(
                "--fix {wanted}: the report has no such finding; it has {}",
                match codes.is_empty() {
                    true => "none".to_owned(),
                    false => codes.join(", "),
                }
            ));
        }
        let mut repaired = false;
        for finding in meant {
            repaired |= self.repair(finding);
        }
        if repaired {
            Ok(())
        } else {
            Err(format!(
                "--fix {wanted}: this finding takes no rate that could be computed; 'peerscope explain {code}' says what \
                 it means"
            ))
        }
    }

    fn gpu(&self, index: u32, option: &str) -> Result<&Gpu, String> {
        self.report.snapshot.gpu(index).ok_or_else(|| {
            let gpus = self.report.snapshot.gpus.iter();
            let gpus: Vec<String> = gpus.map(|gpu| gpu.index.to_string()).collect();
            format!(
                "{option}: there is no GPU {index}; the report has {}",
                gpus.join(", ")
            )
        })
    }

    fn address(&self, gpu: u32, option: &str) -> Result<PciAddress, String> {
        let known = self.gpu(gpu, option)?.pci.get();
        known.ok_or_else(|| format!("{option}: the PCI address of GPU {gpu} is not known"))
    }

    /// Lets two cards change places. What a link trained to stays with its slot.
    fn exchange(&mut self, gpu: u32, slot: &str) -> Result<(), String> {
        let option = format!("--move {gpu}={slot}");
        let own = self.address(gpu, &option)?;
        let snapshot = &self.report.snapshot;
        let is_there = |other: &&Gpu| {
            let address = other.pci.get();
            let label = address.and_then(|address| topology::pcie::slot(snapshot, address));
            label == Some(slot)
                || slot
                    .parse::<PciAddress>()
                    .is_ok_and(|slot| Some(slot) == address)
        };
        let mut there = snapshot.gpus.iter().filter(is_there);
        let other = match (there.next(), there.next()) {
            (Some(one), None) => one.index,
            (Some(_), Some(_)) => {
                return Err(format!(
                    "{option}: several slots have that label; give a PCI address"
                ));
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
        let ends = [
            (one, other.1, &shapes[1], &shapes[0]),
            (other, one.1, &shapes[0], &shapes[1]),
        ];
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
                .map(|(possible, generation)| PcieLink {
                    generation,
                    ..possible
                });
            set_gpu(known, now, possible);
        }
        // NVLinks stay with their cards.
        let links = snapshot
            .gpus
            .iter_mut()
            .filter_map(|gpu| match &mut gpu.nvlinks {
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
        self.links
            .extend([NodeId::Gpu(one.0), NodeId::Gpu(other.0)]);
    }

    fn train(&mut self, hop: &str, to: PcieLink) -> Result<(), String> {
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
    fn set_link(&mut self, lower: NodeId, to: PcieLink) {
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

    fn bridge(&mut self, one: u32, other: u32) -> Result<(), String> {
        let option = format!("--bridge {one},{other}");
        if one == other {
            return Err(format!("{option}: a bridge joins two GPUs"));
        }
        let [first, second] = [self.gpu(one, &option)?, self.gpu(other, &option)?];
        let name = |gpu: &Gpu| gpu.name.known().cloned();
        if name(first) != name(second) {
            return Err(format!("{option}: the two are of different models"));
        }
        let active = |gpu: &Gpu| gpu.active_nvlinks().unwrap_or(0) > 0;
        if active(first) || active(second) {
            return Err(format!("{option}: one of the two has NVLinks that are up"));
        }
        let like = self.bridged_like(first);
        let like = like.map_or_else(|| first.nvlinks.known(), |gpu| gpu.nvlinks.known());
        let like: Vec<NvLink> = like.cloned().unwrap_or_default();
        if like.is_empty() {
            return Err(format!(
                "{option}: GPU {one} lists no NVLinks, and no other GPU of its model has a bridge, so what a bridge \
                 carries is not known"
            ));
        }
        let addresses = [self.address(one, &option)?, self.address(other, &option)?];
        for (gpu, partner) in [(one, addresses[1]), (other, addresses[0])] {
            let links = like.iter().map(|link| NvLink {
                active: Reading::Known(true),
                remote: Reading::Known(NvLinkRemote::Gpu),
                remote_pci: Reading::Known(partner),
                ..link.clone()
            });
            let links: Vec<NvLink> = links.collect();
            let gpus = &mut self.report.snapshot.gpus;
            if let Some(gpu) = gpus.iter_mut().find(|known| known.index == gpu) {
                gpu.nvlinks = Reading::Known(links);
            }
        }
        let pair = Pair {
            source: one,
            destination: other,
        };
        for pair in [pair, pair.reversed()] {
            self.grant(pair);
            self.join(pair);
        }
        Ok(())
    }

    /// Returns a GPU of the same model that a bridge joins with another.
    fn bridged_like(&self, gpu: &Gpu) -> Option<&Gpu> {
        let is_bridged = |other: &&Gpu| {
            let links = other.nvlinks.known().into_iter().flatten();
            let mut up = links.filter(|link| link.active.get() == Some(true));
            let joins_gpus = up.any(|link| link.remote.get() == Some(NvLinkRemote::Gpu));
            joins_gpus && other.name.known() == gpu.name.known()
        };
        self.report.snapshot.gpus.iter().find(is_bridged)
    }

    /// Bridges two GPUs whose links are all down, as others of their model are. Such links do not name their other end.
    /// Returns false if these are no such two.
    fn bridge_again(&mut self, gpus: &[u32]) -> bool {
        let [one, other] = *gpus else {
            return false;
        };
        let bridged = self.report.snapshot.gpu(one);
        let bridged = bridged.and_then(|gpu| self.bridged_like(gpu));
        bridged.is_some() && self.bridge(one, other).is_ok()
    }

    /// Lets NVML report that two GPUs reach each other over NVLink.
    fn join(&mut self, pair: Pair) {
        let pairs = self.report.snapshot.pairs.iter_mut();
        let mut same = pairs
            .filter(|known| (known.source, known.destination) == (pair.source, pair.destination));
        if let Some(known) = same.next() {
            known.p2p_nvlink = Reading::Known(P2pStatus::Ok);
        }
    }

    /// Brings up the NVLinks of a GPU that are down. Returns false if none is.
    fn activate(&mut self, gpu: u32) -> bool {
        let address = self.report.snapshot.address_of(gpu);
        let mut joined = BTreeSet::new();
        for known in &mut self.report.snapshot.gpus {
            let is_own = known.index == gpu;
            let Reading::Known(links) = &mut known.nvlinks else {
                continue;
            };
            for link in links
                .iter_mut()
                .filter(|link| link.active.get() == Some(false))
            {
                let remote = link.remote_pci.get();
                if is_own || (remote.is_some() && remote == address) {
                    link.active = Reading::Known(true);
                    joined.insert(remote.or(address));
                }
            }
        }
        let snapshot = &self.report.snapshot;
        let others = snapshot.gpus.iter().filter(|other| other.index != gpu);
        let joined_to = others.filter(|other| joined.contains(&other.pci.get()));
        let pairs: Vec<Pair> = joined_to
            .map(|other| Pair {
                source: gpu,
                destination: other.index,
            })
            .collect();
        for pair in pairs {
            self.join(pair);
            self.join(pair.reversed());
        }
        !joined.is_empty()
    }

    /// Grants access in one direction.
    fn grant(&mut self, pair: Pair) {
        for known in &mut self.report.snapshot.pairs {
            if (known.source, known.destination) == (pair.source, pair.destination) {
                known.p2p_read = Reading::Known(P2pStatus::Ok);
                known.p2p_write = Reading::Known(P2pStatus::Ok);
            }
        }
        let Some(measurements) = &mut self.report.measurements else {
            return;
        };
        let access = &mut measurements.driver.peer_access;
        if let Some(known) = access.iter_mut().find(|known| known.pair == pair) {
            *known = CudaPeerAccess {
                possible: Some(true),
                failure: None,
                failure_code: None,
                ..known.clone()
            };
        }
    }

    fn without(&mut self, gpu: u32) -> Result<(), String> {
        let option = format!("--without {gpu}");
        self.gpu(gpu, &option)?;
        if self.report.snapshot.gpus.len() == 1 {
            return Err(format!("{option}: no GPU would be left"));
        }
        let snapshot = &mut self.report.snapshot;
        snapshot.gpus.retain(|known| known.index != gpu);
        snapshot
            .pairs
            .retain(|pair| ![pair.source, pair.destination].contains(&gpu));
        Ok(())
    }

    /// Draws the machine again.
    pub(super) fn redraw(&mut self) {
        let Self { report, links, .. } = self;
        let known = &report.topology;
        let is_changed = |link: &model::topology::Link| {
            link.kind != LinkKind::NvLink && links.contains(&link.lower)
        };
        let drawn = topology::redraw(&report.snapshot, known, is_changed);
        report.topology = match &report.measurements {
            Some(measurements) => topology::with_cuda(drawn, &measurements.driver),
            None => drawn,
        };
        // What a changed link showed under load it showed before.
        if let Some(measurements) = &mut report.measurements {
            measurements
                .links
                .retain(|load| !links.contains(&NodeId::Gpu(load.index)));
        }
    }
}

/// Returns true if a finding is about this link.
fn is_of(link: &Connection, finding: &Finding, gpus: &[u32]) -> bool {
    let own = link.gpu.is_some_and(|gpu| gpus.contains(&gpu));
    match finding.subject {
        Subject::PcieLink { address } => link.below == Some(address),
        _ => own && (finding.scope.own_links || finding.code.starts_with("pcie")),
    }
}

/// Returns true if the shape of a link is what a finding reports: the figures follow from that.
fn repaired_by_link(finding: &Finding) -> bool {
    finding.scope.own_links || finding.code.starts_with("pcie")
}

/// Returns true if a finding is about this GPU.
fn concerns(finding: &Finding, gpu: u32) -> bool {
    let of_subject = match finding.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => index == gpu,
        Subject::Pair(pair) => pair.touches(gpu),
        _ => false,
    };
    let scope = &finding.scope;
    of_subject || scope.gpus.contains(&gpu) || scope.pairs.iter().any(|pair| pair.touches(gpu))
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
        Self {
            device: function.and_then(max_of),
            port: port.and_then(max_of),
            now,
        }
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
    PcieLink {
        generation: one.generation.max(other.generation),
        width: one.width.max(other.width),
    }
}

fn function_mut(snapshot: &mut Snapshot, address: PciAddress) -> Option<&mut PciFunction> {
    snapshot
        .pci
        .iter_mut()
        .find(|function| function.address == address)
}

fn parent_of(snapshot: &Snapshot, address: PciAddress) -> Option<PciAddress> {
    snapshot.function(address)?.parent
}

fn max_of(function: &PciFunction) -> Option<PcieLink> {
    Some(PcieLink {
        generation: function.generation_max.get()?,
        width: function.width_max.get()?,
    })
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
