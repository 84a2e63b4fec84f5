//! The faults, each with its expected finding. The expectation follows from the kinds of fault and machine, not from
//! the rules.

use model::placement::{Engine, Path};
use model::snapshot::{P2pStatus, PcieErrors};
use model::units::{Generation, PcieLink};
use sim::spec::{
    CopyFault, CudaPeerRule, LinkFault, NvLinkErrors, NvLinkFault, NvLinkSpec, NvLinkTarget,
    PairFault, Pairs, PeerException, PeerRule,
};

use super::machine::{Machine, fewer, gpu, ordered, pair};

/// The code and the subject that must be found; `None` if this machine has no place for the fault. Of two codes with a
/// bar between them, either is accepted.
pub(super) type Found = Option<(&'static str, String)>;

/// A fault that can be injected at one GPU, or between two GPUs.
pub(super) struct Fault {
    pub name: &'static str,
    pub inject: fn(&mut Machine, u32, u32) -> Found,
    /// The profile that shows it.
    pub profile: &'static str,
}

const fn quick(name: &'static str, inject: fn(&mut Machine, u32, u32) -> Found) -> Fault {
    Fault { name, inject, profile: "quick" }
}

const fn standard(name: &'static str, inject: fn(&mut Machine, u32, u32) -> Found) -> Fault {
    Fault { name, inject, profile: "standard" }
}

/// Creates a fault for the profile `full`: if no copy must be staged, `standard` measures the staged path of some pairs
/// only.
const fn full(name: &'static str, inject: fn(&mut Machine, u32, u32) -> Found) -> Fault {
    Fault { name, inject, profile: "full" }
}

pub(super) const FAULTS: [Fault; 33] = [
    quick("FewLanes", Machine::few_lanes),
    standard("LowGeneration", Machine::low_generation),
    quick("UplinkFewLanes", Machine::uplink_few_lanes),
    quick("LinksInactive", Machine::links_inactive),
    quick("SlowPair", Machine::slow_pair),
    quick("SlowOneWay", Machine::slow_one_way),
    quick("SlowGpu", Machine::slow_gpu),
    quick("SlowIntoGpu", Machine::slow_into_gpu),
    quick("SlowUplink", Machine::slow_uplink),
    quick("SlowCrossing", Machine::slow_crossing),
    quick("DroppedOneWay", Machine::dropped_one_way),
    quick("CorruptGpu", Machine::corrupt_gpu),
    quick("TooHot", Machine::too_hot),
    quick("AccessMissing", Machine::access_missing),
    quick("AccessOneWay", Machine::access_one_way),
    quick("GpuLost", Machine::gpu_lost),
    quick("TrainsDown", Machine::trains_down),
    quick("MemoryErrors", Machine::memory_errors),
    quick("Hangs", Machine::hangs),
    quick("Crashes", Machine::crashes),
    quick("WrongBytes", Machine::wrong_bytes),
    quick("EnablingRefused", Machine::enabling_refused),
    quick("GpuLow", Machine::gpu_low),
    quick("GpuReceivesLow", Machine::gpu_receives_low),
    quick("GpuSendsLow", Machine::gpu_sends_low),
    quick("NvLinkErrors", Machine::nvlink_errors),
    quick("PcieErrors", Machine::pcie_errors),
    standard("KernelStoresDropped", Machine::kernel_stores_dropped),
    standard("BothWaysPair", Machine::both_ways_pair),
    standard("BothWaysOneWay", Machine::both_ways_one_way),
    standard("BothWaysGpu", Machine::both_ways_gpu),
    full("StagedPair", Machine::staged_pair),
    full("StagedGpu", Machine::staged_gpu),
];

impl Machine {
    fn few_lanes(&mut self, one: u32, _: u32) -> Found {
        let address = self.address(one);
        let link = self.link(address).filter(|link| link.width.number() >= 4)?;
        let width = fewer(link.width, self.random.u32(1..=2));
        self.function(address).trained = Some(PcieLink { width, ..link });
        Some(("pcie-narrow", gpu(one)))
    }

    fn low_generation(&mut self, one: u32, _: u32) -> Found {
        let address = self.address(one);
        let PcieLink { generation, width } = self.link(address)?;
        // Staged copies of two GPUs end before their links are read often enough under load.
        if self.has_nvlinks()
            || generation.number() < 3
            || (self.gpus() < 4 && !self.is_all_direct())
        {
            return None;
        }
        let generation =
            Generation::try_from(self.random.u32(1..generation.number().into())).unwrap();
        let function = self.function(address);
        (function.idle, function.trained) = (None, Some(PcieLink { generation, width }));
        Some(("pcie-narrow", gpu(one)))
    }

    fn uplink_few_lanes(&mut self, one: u32, _: u32) -> Found {
        let (uplink, _) = self.shared_switch(one)?;
        let link = self.link(uplink).filter(|_| !self.shows_too_few_lanes())?;
        self.function(uplink).trained = Some(PcieLink { width: fewer(link.width, 1), ..link });
        Some(("pcie-narrow", uplink.to_string()))
    }

    fn links_inactive(&mut self, one: u32, other: u32) -> Found {
        let groups = self.spec.gpus[one as usize].nvlinks.clone();
        if !self.has_nvlinks() {
            return None;
        }
        if self.spec.gpus[0].nvlinks[0].remote == NvLinkTarget::Switch {
            let count = i64::from(groups[0].count);
            let down = self.random.i64(1..count / 2);
            let first = self.random.i64(0..=count - down);
            let part = |count: i64, active: bool| {
                let count = u8::try_from(count).unwrap();
                NvLinkSpec { count, active, ..groups[0].clone() }
            };
            let parts = [part(first, true), part(down, false), part(count - down - first, true)];
            self.spec.gpus[one as usize].nvlinks =
                parts.into_iter().filter(|part| part.count != 0).collect();
            let subject = if down == 1 { format!("link{one}.{first}") } else { gpu(one) };
            return Some(("nvlink-inactive", subject));
        }
        // Links without a remote end cannot be distinguished from those that are down.
        if self.spec.gpus.iter().flat_map(|gpu| &gpu.nvlinks).any(|links| !links.active) {
            return None;
        }
        // The fault takes down all active links between two GPUs; several GPUs must be joined in this way.
        if groups.len() < 3 || groups.iter().all(|links| links.remote != NvLinkTarget::Gpu(other)) {
            return None;
        }
        for (gpu, peer) in [(one, other), (other, one)] {
            let links = self.spec.gpus[gpu as usize].nvlinks.iter_mut();
            links
                .filter(|links| links.remote == NvLinkTarget::Gpu(peer))
                .for_each(|links| links.active = false);
        }
        Some(("nvlink-inactive", pair(one, other)))
    }

    fn slow_pair(&mut self, one: u32, other: u32) -> Found {
        (self.has_theory() && self.is_direct(one, other)).then_some(())?;
        let slow = self.slow();
        self.copies(Pairs::Both(one, other), slow);
        Some(("peer-bandwidth-low", pair(one, other)))
    }

    fn slow_one_way(&mut self, one: u32, other: u32) -> Found {
        (self.has_theory() && self.is_direct(one, other)).then_some(())?;
        let slow = self.slow();
        self.copies(Pairs::Ordered(one, other), slow);
        Some(("peer-bandwidth-low", ordered(one, other)))
    }

    fn slow_gpu(&mut self, one: u32, _: u32) -> Found {
        (self.has_theory() && self.is_all_direct()).then_some(())?;
        let slow = self.slow();
        self.copies_of(one, Pairs::Both, slow);
        Some(("peer-bandwidth-low", self.whole(one)))
    }

    fn slow_into_gpu(&mut self, one: u32, _: u32) -> Found {
        (self.has_theory() && self.is_all_direct()).then_some(())?;
        let slow = self.slow();
        self.copies_of(one, Pairs::Ordered, slow);
        Some(("peer-bandwidth-low", self.whole_destination(one)))
    }

    fn slow_uplink(&mut self, one: u32, _: u32) -> Found {
        let (uplink, below) = self.shared_switch(one)?;
        if !self.is_all_direct()
            || self.has_nvlinks()
            || self.shows_too_few_lanes()
            || below.len() == self.spec.gpus.len()
            || self.switches().len() < 3
        {
            return None;
        }
        let slow = self.slow();
        for inside in &below {
            for outside in (0..self.gpus()).filter(|gpu| !below.contains(gpu)) {
                self.copies(Pairs::Both(*inside, outside), slow);
            }
        }
        Some(("peer-bandwidth-low", uplink.to_string()))
    }

    fn slow_crossing(&mut self, _: u32, _: u32) -> Found {
        if !self.is_all_direct()
            || self.has_nvlinks()
            || self.shows_too_few_lanes()
            || self.spec.numa_nodes.len() != 2
        {
            return None;
        }
        let sides = [0, 1].map(|node| self.gpus_of(node));
        if sides.iter().any(Vec::is_empty) {
            return None;
        }
        self.spec.speeds.cross_socket.copy = 0.42.try_into().unwrap();
        // A GPU alone on its socket has no other pairs.
        let alone = sides
            .iter()
            .find(|gpus| gpus.len() == 1)
            .map(|gpus| gpus[0])
            .filter(|_| self.gpus() > 2);
        Some(("peer-bandwidth-low", alone.map_or_else(|| "machine".into(), gpu)))
    }

    fn dropped_one_way(&mut self, one: u32, other: u32) -> Found {
        self.is_direct(one, other).then_some(())?;
        self.copies(Pairs::Ordered(one, other), CopyFault::Dropped);
        Some(("data-wrong", ordered(one, other)))
    }

    fn corrupt_gpu(&mut self, one: u32, _: u32) -> Found {
        self.is_all_direct().then_some(())?;
        self.copies_of(one, Pairs::Ordered, CopyFault::Corrupt { words: 5 });
        Some(("data-wrong", self.whole_destination(one)))
    }

    fn too_hot(&mut self, one: u32, other: u32) -> Found {
        self.slow_gpu(one, other)?;
        self.spec.gpus[one as usize].state.throttle_under_load = vec!["hw-thermal".into()];
        Some(("gpu-throttled", gpu(one)))
    }

    fn access_missing(&mut self, one: u32, other: u32) -> Found {
        (self.is_direct(one, other) && self.others_have_access(one, other)).then_some(())?;
        self.refuse(Pairs::Both(one, other));
        Some(("peer-access-missing", self.pair_of_all(one, other)))
    }

    fn access_one_way(&mut self, one: u32, other: u32) -> Found {
        self.is_direct(one, other).then_some(())?;
        self.refuse(Pairs::Ordered(one, other));
        Some(("peer-access-missing", ordered(one, other)))
    }

    fn gpu_lost(&mut self, one: u32, _: u32) -> Found {
        self.spec.faults.lost_gpus.push(one);
        Some(("gpu-unreachable", gpu(one)))
    }

    fn trains_down(&mut self, one: u32, _: u32) -> Found {
        if self.has_nvlinks() {
            return None;
        }
        let function = self.address(one);
        let link = self.link(function)?;
        let trains_down_to = Some(PcieLink { width: fewer(link.width, 1), ..link });
        let errors = PcieErrors::default();
        self.spec.faults.links.push(LinkFault {
            function,
            trains_down_to,
            replays: 0,
            errors,
            only_under_load: false,
        });
        Some(("pcie-link-changed", gpu(one)))
    }

    fn memory_errors(&mut self, one: u32, _: u32) -> Found {
        self.spec.gpus[one as usize].state.remapping_failed = true;
        Some(("gpu-memory-errors", gpu(one)))
    }

    fn hangs(&mut self, one: u32, other: u32) -> Found {
        self.is_direct(one, other).then_some(())?;
        self.copies(Pairs::Ordered(one, other), CopyFault::Hangs);
        Some(("peer-copy-hung", ordered(one, other)))
    }

    fn crashes(&mut self, one: u32, other: u32) -> Found {
        self.is_direct(one, other).then_some(())?;
        self.copies(Pairs::Ordered(one, other), CopyFault::Crashes);
        Some(("copy-failed", ordered(one, other)))
    }

    fn wrong_bytes(&mut self, one: u32, other: u32) -> Found {
        self.is_direct(one, other).then_some(())?;
        let fault = match self.random.u32(0..4) {
            0 => CopyFault::Corrupt { words: self.random.u64(1..1000) },
            1 => CopyFault::Shifted { bytes: 4 * self.random.u64(1..64) },
            2 => CopyFault::FlippedBit { bit: self.random.u64(0..1 << 30) },
            _ => CopyFault::MissingTail { bytes: 8 * self.random.u64(1..64) },
        };
        self.copies(Pairs::Ordered(one, other), fault);
        Some(("data-wrong", ordered(one, other)))
    }

    fn kernel_stores_dropped(&mut self, one: u32, other: u32) -> Found {
        self.is_direct(one, other).then_some(())?;
        let pairs = Pairs::Ordered(one, other);
        self.fault(PairFault {
            engine: Some(Engine::Kernel),
            ..PairFault::new(pairs, CopyFault::Dropped)
        });
        Some(("data-wrong", ordered(one, other)))
    }

    fn enabling_refused(&mut self, one: u32, other: u32) -> Found {
        self.is_direct(one, other).then_some(())?;
        let rule = PeerRule {
            nvml: P2pStatus::Ok,
            nvml_write: None,
            cuda: CudaPeerRule::RefusedOnEnabling,
        };
        self.spec.peers.exceptions.push(PeerException { pairs: Pairs::Both(one, other), rule });
        Some(("peer-access-missing", pair(one, other)))
    }

    /// Makes a GPU 8 to 10% low, in these pairs with all others.
    fn low_gpu(&mut self, one: u32, pairs: fn(u32, u32) -> Pairs) -> Found {
        if !self.is_all_direct() || !self.has_siblings() {
            return None;
        }
        // The share refers to the links' total if that limits a healthy copy.
        let speeds = &self.spec.speeds;
        let shared =
            if self.has_nvlinks() { *speeds.nvlink_shared / *speeds.nvlink.copy } else { 1.0 };
        let low = 0.9 + self.random.f64() * 0.02;
        let share = (low * shared.min(1.0) * 1000.0).round() / 1000.0;
        self.copies_of(one, pairs, CopyFault::Slow { share: share.try_into().unwrap() });
        // A rate that is already the lowest of healthy machines has no room below it.
        Some(("peer-bandwidth-outlier|peer-bandwidth-low", gpu(one)))
    }

    fn gpu_low(&mut self, one: u32, _: u32) -> Found {
        self.low_gpu(one, Pairs::Both)
    }

    fn gpu_receives_low(&mut self, one: u32, _: u32) -> Found {
        self.low_gpu(one, Pairs::Ordered)
    }

    fn gpu_sends_low(&mut self, one: u32, _: u32) -> Found {
        self.low_gpu(one, |peer, gpu| Pairs::Ordered(gpu, peer))
    }

    /// Slows copies only while both directions are busy: 25 to 45% of the rate remains.
    fn both_ways(&mut self, pairs: Pairs) {
        let fault = self.share(0.25, 0.45);
        self.fault(PairFault { both_ways: true, ..PairFault::new(pairs, fault) });
    }

    fn both_ways_pair(&mut self, one: u32, other: u32) -> Found {
        self.is_direct(one, other).then_some(())?;
        self.both_ways(Pairs::Both(one, other));
        Some(("both-ways-low", pair(one, other)))
    }

    fn both_ways_one_way(&mut self, one: u32, other: u32) -> Found {
        self.is_direct(one, other).then_some(())?;
        self.both_ways(Pairs::Ordered(one, other));
        Some(("both-ways-low", ordered(one, other)))
    }

    fn both_ways_gpu(&mut self, one: u32, _: u32) -> Found {
        self.is_all_direct().then_some(())?;
        (0..self.gpus())
            .filter(|peer| *peer != one)
            .for_each(|peer| self.both_ways(Pairs::Both(peer, one)));
        Some(("both-ways-low", self.whole(one)))
    }

    fn staged(&mut self, pairs: Pairs, fault: CopyFault) {
        self.fault(PairFault { path: Path::Staged, ..PairFault::new(pairs, fault) });
    }

    fn staged_pair(&mut self, one: u32, other: u32) -> Found {
        (self.staged_alike(one, other) >= 3).then_some(())?;
        let fault = self.share(0.55, 0.62);
        self.staged(Pairs::Both(one, other), fault);
        Some(("staged-slow", pair(one, other)))
    }

    fn staged_gpu(&mut self, one: u32, _: u32) -> Found {
        let partners: Vec<_> = (0..self.gpus()).filter(|peer| *peer != one).collect();
        let judged = partners.iter().filter(|peer| self.staged_alike(one, **peer) >= 3).count();
        (judged >= 2).then_some(())?;
        let fault = self.share(0.55, 0.62);
        partners.into_iter().for_each(|peer| self.staged(Pairs::Both(peer, one), fault));
        Some(("staged-slow", gpu(one)))
    }

    fn nvlink_errors(&mut self, one: u32, _: u32) -> Found {
        let links = &self.spec.gpus[one as usize].nvlinks;
        let first = links.first().filter(|links| links.active)?;
        let link = self.random.u32(0..u32::from(first.count));
        let errors = NvLinkErrors { crc: 700, replay: 350, recovery: 0, ..NvLinkErrors::default() };
        self.spec.faults.nvlinks.push(NvLinkFault::new(one, link, errors));
        Some(("nvlink-errors-rose", format!("link{one}.{link}")))
    }

    fn pcie_errors(&mut self, one: u32, _: u32) -> Found {
        if self.has_nvlinks() || self.spec.host.virtual_machine {
            return None;
        }
        let errors = PcieErrors { correctable: 0, non_fatal: 1 + self.random.u64(0..9), fatal: 0 };
        let fault = LinkFault {
            function: self.address(one),
            trains_down_to: None,
            replays: 0,
            errors,
            only_under_load: false,
        };
        self.spec.faults.links.push(fault);
        Some(("pcie-errors-rose", gpu(one)))
    }
}
