//! Shared by the rules on wrong bytes: decides if a setting of the machine loses the bytes, or single pairs do.

use super::peer_access;
use super::prelude::*;
use crate::suspects::{self, gpus_of};

/// The ways in which copies are wrong, with their number.
pub(super) struct Wrong {
    dropped: usize,
    stale: usize,
    corrupt: usize,
}

impl Wrong {
    pub(super) fn of(all: impl Iterator<Item = Verified> + Clone) -> Self {
        let count = |wanted| all.clone().filter(|one| *one == wanted).count();
        let [dropped, stale, corrupt] =
            [Verified::Dropped, Verified::Stale, Verified::Corrupt].map(count);
        Self { dropped, stale, corrupt }
    }

    /// Returns what the bytes do.
    pub(super) const fn words(&self) -> &'static str {
        match (self.dropped, self.stale, self.corrupt) {
            (0, _, 0) => "are lost in some copies",
            (_, _, 0) => "never arrive",
            (0, 0, _) => "arrive wrong",
            _ => "arrive wrong or never",
        }
    }

    pub(super) fn facts(&self, found: Finding) -> Finding {
        found
            .fact("copies_dropped", self.dropped)
            .fact("copies_stale", self.stale)
            .fact("copies_corrupt", self.corrupt)
    }
}

/// Share of the PCIe pairs, per cent, from which their loss is one of the whole machine. Chosen: three of four.
const MOST_PERCENT: usize = 75;

/// Pairs on PCIe whose direct copies lose their bytes because of the machine's settings.
pub(super) struct Broken {
    pub pairs: Vec<Pair>,
    /// Number of PCIe pairs whose direct copies were checked.
    pub checked: usize,
    /// True if wrong bytes arrived, rather than none.
    pub corrupt: bool,
}

/// Returns `None` if fewer than most of the PCIe pairs fail in every way of copying that was checked. Also returns
/// `None` if bytes arrive wrong rather than never and no setting is known that would cause it.
pub(super) fn broken(evidence: &Evidence<'_>) -> Option<Broken> {
    let is_checked = |cell: &&PeerBandwidth| {
        let is_checked = cell.verified.is_wrong() || cell.verified == Verified::Ok;
        cell.setup.path == Path::Direct && is_checked && evidence.over_pcie(cell.pair)
    };
    let checked = evidence.peer().iter().filter(is_checked);
    let pairs = words::grouped(checked.map(|cell| (cell.pair, cell.verified)));
    let all_wrong: Vec<_> = pairs
        .iter()
        .filter(|(_, verified)| !verified.contains(&Verified::Ok))
        .map(|(pair, _)| *pair)
        .collect();
    let corrupt = all_wrong.iter().any(|pair| pairs[pair].contains(&Verified::Corrupt));
    let most = all_wrong.len() >= 2 && all_wrong.len() * 100 >= pairs.len() * MOST_PERCENT;
    let has_cause = suspects::iommu_translates(evidence, &gpus_of(&all_wrong)) == Some(true)
        || !suspects::redirecting_ports(evidence, &gpus_of(&all_wrong)).is_empty();
    (most && (has_cause || !corrupt)).then_some(Broken {
        checked: pairs.len(),
        pairs: all_wrong,
        corrupt,
    })
}

/// Returns what could spoil bytes between these GPUs over PCIe without an error of the link. The slot and the riser are
/// left out: the link checks their transfers and repeats them.
pub(super) fn suspects(evidence: &Evidence<'_>, group: &Group) -> Vec<Suspect> {
    let mut suspects = suspects::of_pcie_settings(evidence, &group.pairs);
    suspects.extend(peer_access::suspect_patched(evidence, &group.pairs));
    let switches = shared_switches(evidence, &group.pairs);
    if !switches.is_empty() {
        let switches = At(switches);
        let test = [Step::CheckOtherSwitch, Step::UpdateSwitch(switches.clone())];
        suspects.push(suspect(Cause::Switch(switches), test));
    }
    suspects.push(of_gpus(evidence, group));
    suspects
}

/// Returns the GPUs themselves as a suspect: their memory if nothing would notice a flipped bit, otherwise the parts
/// that move the bytes.
pub(super) fn of_gpus(evidence: &Evidence<'_>, group: &Group) -> Suspect {
    let own = OneOf(group.gpus());
    let swap = Step::SwapTest(Part::Gpu(own.clone()));
    if memory_is_watched(evidence, &group.pairs) {
        return suspect_if(Cause::MoversOf(own), [swap], Sign::FaultMoves);
    }
    suspect_if(Cause::MemoryOf(own), [Step::TestMemory, swap], Sign::FaultMoves)
}

/// Returns true if ECC is known to be on in the memory of all these GPUs.
pub(super) fn memory_is_watched(evidence: &Evidence<'_>, pairs: &[Pair]) -> bool {
    let has_ecc =
        |gpu: &u32| evidence.snapshot.gpu(*gpu).is_some_and(|gpu| gpu.ecc.get() == Some(true));
    gpus_of(pairs).iter().all(has_ecc)
}

/// Returns the switches that all of these pairs pass, by their upstream ports.
fn shared_switches(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<PciAddress> {
    let is_switch = |address: &PciAddress| {
        evidence
            .snapshot
            .function(*address)
            .is_some_and(|function| function.kind == PciKind::SwitchUpstream)
    };
    let passed = |pair: &Pair| -> BTreeSet<PciAddress> {
        let above = [pair.source, pair.destination].map(|gpu| {
            let functions = links::functions_above(evidence, gpu).into_iter();
            functions.map(|function| function.address).filter(is_switch).collect::<BTreeSet<_>>()
        });
        above.into_iter().flatten().collect()
    };
    let mut all = pairs.iter().map(passed);
    let first = all.next().unwrap_or_default();
    all.fold(first, |shared, next| &shared & &next).into_iter().collect()
}

/// Returns the pairs whose direct copies `peer-access-broken` reports.
pub(super) fn broken_pairs(evidence: &Evidence<'_>) -> BTreeSet<Pair> {
    broken(evidence).map(|broken| broken.pairs.into_iter().collect()).unwrap_or_default()
}
