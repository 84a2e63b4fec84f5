//! Changes of a machine, and the machine as it would be.

mod repair;
mod slot;

use std::collections::BTreeSet;

use explain::Cause;
use model::measurement::CudaPeerAccess;
use model::node::NodeId;
use model::placement::Pair;
use model::reading::Reading;
use model::report::Report;
use model::snapshot::{Gpu, NvLink, NvLinkRemote, P2pStatus};
use model::topology::LinkKind;
use model::units::{PciAddress, PcieLink};

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

    fn gpu(&self, index: u32, option: &str) -> Result<&Gpu, String> {
        self.report.snapshot.gpu(index).ok_or_else(|| {
            let gpus = self.report.snapshot.gpus.iter();
            let gpus: Vec<String> = gpus.map(|gpu| gpu.index.to_string()).collect();
            format!("{option}: there is no GPU {index}; the report has {}", gpus.join(", "))
        })
    }

    fn address(&self, gpu: u32, option: &str) -> Result<PciAddress, String> {
        let known = self.gpu(gpu, option)?.pci.get();
        known.ok_or_else(|| format!("{option}: the PCI address of GPU {gpu} is not known"))
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
        let pair = Pair { source: one, destination: other };
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
            for link in links.iter_mut().filter(|link| link.active.get() == Some(false)) {
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
        let pairs: Vec<Pair> =
            joined_to.map(|other| Pair { source: gpu, destination: other.index }).collect();
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
        snapshot.pairs.retain(|pair| ![pair.source, pair.destination].contains(&gpu));
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
            measurements.links.retain(|load| !links.contains(&NodeId::Gpu(load.index)));
        }
    }
}
