//! Traffic over single NVLinks of simulated GPUs.

use super::state::State;
use super::{SimDriver, failed};
use crate::counts::whole;
use crate::routes::PathClass;
use crate::spec::CopyFault;
use hardware::{
    BLOCK_BYTES, BlockTraffic, BlockWork, Device, ErrorKind, HardwareError, LinkBytes, LinkDriver,
    Passed,
};
use model::placement::{Engine, Path, Side};

/// Share of a link's payload rate that loads reach, and GB/s of stores that are loaded back one by one: 20.94 of 25 and 17.5 on
/// 2 x H200 (docs/dev/facts.md).
const LOAD: f64 = 0.838;
const STORE_GBPS: f64 = 17.5;
/// Nanoseconds of a load over one link, as measured there.
const LOAD_NS: f64 = 918.0;
/// Nanoseconds of one of many loads by the warp that counts.
const COUNT_NS: f64 = 57.0;
/// Nanoseconds in which NVML reads both counters of a link.
const READ_LINK_NS: f64 = 9.5e5;

impl State {
    /// Returns the links of a block of one GPU's memory that another one reaches: of the GPU that stores and loads, and of the
    /// other one. Those of the second are in an order of the pair's own, as through switches.
    fn links_of(&self, gpu: u32, other: u32, block: u32) -> Option<[u8; 2]> {
        if self.spec.direct_route(gpu, other).class != PathClass::NvLink {
            return None;
        }
        let (own, far) = (self.spec.links_towards(gpu, other), self.spec.links_towards(other, gpu));
        if own.is_empty() || far.is_empty() {
            return None;
        }
        let place = scattered(block) % own.len();
        let turn = 7 * gpu as usize + 3 * other as usize + 1;
        Some([own[place], far[(place + turn) % far.len()]])
    }

    pub(super) fn pass(&mut self, traffic: &BlockTraffic) -> Result<(), HardwareError> {
        self.kernels_loaded()?;
        let device = traffic.stream.device;
        self.answers(device)?;
        let blocks = || traffic.lists.iter().flat_map(|list| list.blocks.iter().copied());
        let end = blocks().max().map_or(0, |last| (u64::from(last) + 1) * BLOCK_BYTES);
        self.usable_buffer("cuLaunchKernel", traffic.memory, end)?;
        let of = self.mailbox_device(traffic.memory)?;
        let (gpu, other) = (self.index(device)?, self.index(of)?);
        if device != of && !self.access.is_given(device, of) {
            let meaning = "an illegal memory access was encountered";
            return Err(failed(ErrorKind::Sticky, "cuStreamSynchronize", meaning, 700));
        }
        let fault = self.spec.copy_fault((gpu, other), Engine::Kernel, Side::Source, Path::Direct);
        let fault = fault.filter(|fault| device != of && !fault.is_conditional());
        let fault = fault.map(|fault| fault.fault);
        let mut passed = Vec::new();
        for (place, list) in traffic.lists.iter().enumerate() {
            #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
            let bytes = list.bytes(traffic.work) as f64;
            let ends = list.blocks.first().and_then(|block| self.links_of(gpu, other, *block));
            let (rate, late) = match traffic.work {
                BlockWork::Store => self.spec.link_shape((gpu, other), ends),
                // The other one sends.
                _ => self.spec.link_shape((other, gpu), ends.map(|[own, far]| [far, own])),
            };
            let ns = match traffic.work {
                BlockWork::Count => COUNT_NS * bytes / 128.0,
                BlockWork::Store => bytes / STORE_GBPS.min(LOAD * rate),
                BlockWork::Load => bytes / (LOAD * rate),
                BlockWork::Chase => LOAD_NS * late * f64::from(list.repeats),
            };
            for block in list.blocks.iter().filter(|_| device != of) {
                let Some([own, far]) = self.links_of(gpu, other, *block) else { continue };
                #[allow(clippy::cast_precision_loss, reason = "few blocks")]
                let bytes = bytes / list.blocks.len() as f64;
                // The issuing GPU sends stores, the other one sends the data of loads.
                let way = usize::from(traffic.work != BlockWork::Store);
                self.links.bytes.entry((gpu, own)).or_default()[way] += bytes;
                self.links.bytes.entry((other, far)).or_default()[1 - way] += bytes;
            }
            let is_wrong = place == 0
                && matches!(
                    fault,
                    Some(
                        CopyFault::Dropped
                            | CopyFault::Corrupt { .. }
                            | CopyFault::FlippedBit { .. }
                            | CopyFault::WrongSource
                            | CopyFault::Shifted { .. }
                    )
                );
            let key = |block: &u32| (self.memory.whole(traffic.memory), *block);
            let keys: Vec<_> = list.blocks.iter().map(key).collect();
            let mut wrong = 0;
            for key in keys {
                match traffic.work {
                    BlockWork::Store if is_wrong => drop(self.links.spoiled.insert(key)),
                    BlockWork::Store => drop(self.links.spoiled.remove(&key)),
                    _ => wrong += u64::from(self.links.spoiled.contains(&key)),
                }
            }
            passed.push(Passed { ns: whole(ns), wrong });
        }
        #[allow(clippy::cast_precision_loss, reason = "milliseconds")]
        let longest = passed.iter().map(|list| list.ns).max().unwrap_or_default() as f64;
        self.links.passed.insert(device, passed);
        let hangs = fault == Some(CopyFault::Hangs);
        self.one_block(traffic.stream, longest, None, hangs).map(drop)
    }

    fn link_bytes(&mut self, gpu: u32) -> Result<Vec<LinkBytes>, HardwareError> {
        let counters = self.spec.faults.counters.iter().find(|fault| fault.gpu == gpu);
        if counters.is_some_and(|fault| fault.unread) {
            let why =
                "NVML does not count the bytes of single links: unknown error of the driver (999)";
            return Err(HardwareError::new(ErrorKind::Hindered, why));
        }
        let is_counted = !counters.is_some_and(|fault| fault.unsupported);
        let links = self.spec.gpus.get(gpu as usize).map_or(0, |of| of.link_count());
        let links = u8::try_from(links).unwrap_or(u8::MAX);
        self.clock_ns += READ_LINK_NS * f64::from(links);
        let seconds = self.seconds();
        let others = self.spec.faults.others.iter().filter(|others| others.gpu == gpu);
        let others = [0, 1].map(|way| {
            let rates = others.clone().map(|others| *others.nvlink[way]);
            rates.sum::<f64>() * 1e9 * seconds / f64::from(links.max(1))
        });
        let of = |link: u8| {
            let carried = self.links.bytes.get(&(gpu, link)).copied().unwrap_or_default();
            // The counters have units of 1 KiB.
            let [sent, received] =
                [0, 1].map(|way| whole(((carried[way] + others[way]) / 1024.0).floor()) * 1024);
            LinkBytes { link, sent, received }
        };
        Ok((0..links).filter(|_| is_counted).map(of).collect())
    }
}

/// Returns a number that neighbouring blocks do not share.
fn scattered(block: u32) -> usize {
    let mut mixed = (u64::from(block) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 33) as usize
}

impl LinkDriver for SimDriver {
    fn pass(&self, traffic: &BlockTraffic) -> Result<(), HardwareError> {
        self.state.borrow_mut().pass(traffic)
    }

    fn passed(&self, device: Device, lists: usize) -> Result<Vec<Passed>, HardwareError> {
        let mut state = self.call(device)?;
        state.catch_up();
        let passed = state.links.passed.get(&device).cloned().unwrap_or_default();
        Ok(passed.into_iter().take(lists).collect())
    }

    fn link_bytes(&self, gpu: u32) -> Result<Vec<LinkBytes>, HardwareError> {
        let mut state = self.state.borrow_mut();
        state.catch_up();
        state.link_bytes(gpu)
    }
}
