//! What the rules on wrong bytes share: whether it is the machine's setting that loses them, or
//! single pairs.

use super::prelude::*;
use crate::diagnose::suspects::{self, gpus_of};

/// Share of the PCIe pairs, per cent, from which their loss is one of the whole machine. Chosen:
/// three of four.
const MOST_PERCENT: usize = 75;

/// Pairs on PCIe whose direct copies lose their bytes because of how the machine is set up.
pub struct Broken {
    /// The pairs.
    pub pairs: Vec<Pair>,
    /// PCIe pairs whose direct copies were checked.
    pub checked: usize,
    /// Whether any byte arrived that is not the one sent, rather than none.
    pub corrupt: bool,
}

/// `None` where it is not most of the PCIe pairs, in every way of copying that was checked; or where
/// bytes arrive wrong rather than never and no setting is known that would do it.
pub fn broken(evidence: &Evidence<'_>) -> Option<Broken> {
    let mut pairs: BTreeMap<Pair, Vec<Verified>> = BTreeMap::new();
    for cell in &evidence.measurements?.peer {
        let is_checked = cell.verified.is_wrong() || cell.verified == Verified::Ok;
        if cell.setup.path == Path::Direct && is_checked && evidence.over_pcie(cell.pair) {
            pairs.entry(cell.pair).or_default().push(cell.verified);
        }
    }
    let all_wrong: Vec<_> =
        pairs.iter().filter(|(_, verified)| !verified.contains(&Verified::Ok)).map(|(pair, _)| *pair).collect();
    let corrupt = all_wrong.iter().any(|pair| pairs[pair].contains(&Verified::Corrupt));
    let most = all_wrong.len() >= 2 && all_wrong.len() * 100 >= pairs.len() * MOST_PERCENT;
    let has_cause = evidence.snapshot.host.iommu_translating.get() == Some(true)
        || !suspects::redirecting_ports(evidence, &gpus_of(&all_wrong)).is_empty();
    (most && (has_cause || !corrupt)).then_some(Broken { checked: pairs.len(), pairs: all_wrong, corrupt })
}

/// What to do about wrong bytes; `last` is the last of it.
pub fn next_step(evidence: &Evidence<'_>, last: &str) -> String {
    let whose = if evidence.virtual_machine() { "On the host of this virtual machine, switch" } else { "Switch" };
    format!(
        "Take the machine out of service: results computed on it may be wrong. {whose} off IOMMU translation \
         (iommu=pt on the kernel's command line, or in BIOS) and ACS (BIOS, or setpci on the bridges; lspci -vvv \
         shows ACSCtl), reboot, and check again. {last}"
    )
}

/// `peer-access-broken` reports the direct copies of these pairs.
pub fn broken_pairs(evidence: &Evidence<'_>) -> BTreeSet<Pair> {
    broken(evidence).map(|broken| broken.pairs.into_iter().collect()).unwrap_or_default()
}
