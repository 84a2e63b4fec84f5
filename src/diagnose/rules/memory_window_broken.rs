//! # What it means
//!
//! A GPU reaches only a part of another's memory. What it writes to the rest is lost, or spoils other data. Programs
//! compute with wrong numbers once they use that much memory.
//!
//! # What to do
//!
//! Run without peer access (`NCCL_P2P_DISABLE=1`). A patched driver reaches the peer through its BAR1 window, which must
//! hold the whole memory: switch on Resizable BAR, or use NVIDIA's own driver. Over PCIe, switch off an IOMMU that
//! translates; in a virtual machine its host must do that. Over NVLink, look for Xid messages, reboot, swap the GPU.
//!
//! # How it is detected
//!
//! The group `addresses` (`full`, or by name) writes a tag of its own at every 32 MiB of nearly all free memory, and
//! compares all once all are written (`measurements.addresses`). Addresses count the memory that was tried, in the
//! driver's order. If ordinary copies arrive wrong too, `data-wrong` or `peer-access-broken` reports them.
//!
//! # Sources
//!
//! github.com/tinygrad/open-gpu-kernel-modules (BAR1); CUDA Programming Guide 3.4.2.5 (IOMMU on Linux); a virtual
//! machine with a mirrored window: 27 GB/s passed and no byte arrived.

use super::prelude::*;
use super::{peer_access, remedy, windows};
use model::addresses::{Fate, MemoryReach};
use model::cell::Subject as _;
use model::units::GIB;

rule! {
    "memory-window-broken", Error, All(judge);
}

/// Most ranges that a message names. Chosen.
const NAMED: usize = 2;

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let measured = evidence.measured();
    let copied = measured.peer.iter().filter(|cell| cell.verified.is_wrong());
    let copied: BTreeSet<_> = copied
        .filter(|cell| cell.setup.path == Path::Direct)
        .map(|cell| cell.pair.unordered())
        .collect();
    let tried = measured.addresses.iter().filter(|cell| !copied.contains(&cell.pair.unordered()));
    let pairs = words::grouped(tried.map(|cell| (cell.pair, cell)));
    let wrong = pairs.iter().filter_map(|(pair, cells)| Some((wrong_at(cells)?, *pair)));
    words::grouped(wrong).iter().map(|(at, pairs)| finding(evidence, at, pairs)).collect()
}

/// Returns in words where memory is out of reach, and in which ways; none if it is nowhere.
fn wrong_at(cells: &[&MemoryReach]) -> Option<String> {
    let wrong = || cells.iter().filter(|cell| cell.verified.is_wrong());
    let mut ranges = BTreeMap::new();
    for range in wrong().flat_map(|cell| &cell.ranges) {
        let known = ranges.entry((range.from_bytes, range.to_bytes)).or_insert(range);
        // An address that is reached instead says most about the cause.
        if range.fate == Fate::Elsewhere {
            *known = range;
        }
    }
    let named = ranges.values().map(|range| {
        let at = match Bytes(range.to_bytes.0.saturating_sub(range.from_bytes.0)) {
            few if few.0 < GIB => format!("{few} from {} GiB on", gib(range.from_bytes)),
            _ => format!("{} to {} GiB", gib(range.from_bytes), gib(range.to_bytes)),
        };
        match (range.fate, range.instead_bytes) {
            (Fate::Lost, _) => format!("bytes of {at} are lost"),
            (Fate::Elsewhere, Some(instead)) => format!("{at} lead to {} GiB", gib(instead)),
            _ => format!("bytes of {at} are wrong"),
        }
    });
    let named: Vec<_> = named.collect();
    let what = match named.is_empty() {
        true => "its bytes are wrong".to_owned(),
        false => words::first(&named, NAMED),
    };
    let ways = words::unique(wrong().map(|cell| cell.what()));
    let (first, all) = (wrong().next()?, ways.len() == cells.len());
    let ways = if all { "in every way".to_owned() } else { format!("only {}", ways.join(", ")) };
    Some(format!("{what}; {ways}, of {} that were tried", first.span_bytes))
}

fn gib(Bytes(bytes): Bytes) -> String {
    #[allow(clippy::cast_precision_loss, reason = "one decimal place is shown")]
    let value = bytes as f64 / GIB as f64;
    format!("{value:.1}")
}

/// Returns a finding on pairs that are alike.
fn finding(evidence: &Evidence<'_>, at: &str, pairs: &[Pair]) -> Finding {
    let owners = words::unique(pairs.iter().map(|pair| pair.destination));
    let tried =
        evidence.measured().addresses.iter().filter(|cell| owners == [cell.pair.destination]);
    let who = match pairs {
        [pair] if words::unique(tried.map(|cell| cell.pair.source)).len() == 1 => {
            format!("GPU {}, the only one that tried, does", pair.source)
        }
        [pair] => format!("GPU {} does", pair.source),
        _ => "Other GPUs do".to_owned(),
    };
    let over_pcie = evidence.any_over_pcie(pairs);
    let patched = peer_access::patched(evidence, pairs);
    let windows: Vec<Pair> =
        owners.iter().map(|gpu| Pair { source: *gpu, destination: *gpu }).collect();
    let small = windows::small(evidence, &windows).filter(|_| patched);
    let find = match &small {
        Some(small) => vec![small.step(), Step::CheckAgain],
        None if !remedy::settings(evidence, pairs).is_empty() => Vec::new(),
        None if over_pcie => vec![Step::Reboot, Step::CheckAgain],
        None => vec![Step::XidOf("74"), Step::Reboot, Step::CheckAgain],
    };
    let common = if pairs.len() > 1 { Common::Everything } else { Common::OnePair };
    let group = Group { common, pairs: pairs.to_vec(), seen_back: false };
    let plan = remedy::plan(evidence, &group, find)
        .if_it_stays([Step::Swap(Part::of(&owners))])
        .and(When::Afterwards, [Step::ComputeAgain]);
    let subject = match pairs {
        [pair] => Subject::Pair(*pair),
        _ => Subject::of_gpus(&owners),
    };
    let window = small.as_ref().map(windows::Small::says).unwrap_or_default();
    let message = format!("{who} not reach all memory of {}: {at}{window}", words::gpus(&owners));
    let mut found = RULE.finding(subject, message, plan).pairs(pairs);
    let settings = if over_pcie { suspects::of_pcie_settings(evidence, pairs) } else { Vec::new() };
    let own = match small {
        Some(small) => small.suspect(),
        None if over_pcie => suspect(Cause::Window, [Step::Reboot, Step::CheckAgain]),
        None => suspect(Cause::GpuOrNvLinks, [Step::XidOf("74"), Step::Reboot]),
    };
    let driver = peer_access::suspect_patched(evidence, pairs);
    found.suspects = settings.into_iter().chain([own]).chain(driver).collect();
    found
}
