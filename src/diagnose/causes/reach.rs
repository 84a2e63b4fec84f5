//! Tells if a finding explains another, by their scopes.

use crate::coverage::{self, coverage};
use crate::evidence::Evidence;
use crate::rules::{
    acs_redirect, fabric_not_ready, host, iommu_translating, latency_high,
    nvlink_slower_than_siblings, pcie_upstream_bottleneck, unstable_measurement,
};
use crate::steps::{At, Cause};
use model::cell::Measurement;
use model::finding::{Finding, Severity, Subject};
use model::flow::{Endpoint, HostMemory};
use model::measurement::{Cell, Measurements};
use model::placement::{Pair, Path};

/// The reach of a cause: the effects that it explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Direct copies over PCIe that pass the cause's link, at rates that it allows.
    PcieLink,
    /// Direct copies that wait for the slowest of the cause's NVLinks.
    SlowestLink,
    /// Staged copies of the GPUs below the cause's link, at rates that it allows.
    PcieLinkStaged,
    /// Findings on the very same link: the state it reached means more than the errors it counted.
    SameSubject,
    /// Findings on the links of the cause's GPUs, if both are about their own links.
    OwnLink,
    /// Copies over PCIe between GPUs whose NVLinks the cause is about.
    PcieInstead,
    /// Figures that the same change of the machine explains.
    SameCause,
    /// Copies of the cause's GPUs that do not go over PCIe.
    NvLinks,
    /// Copies of the cause's GPUs, if several of their partners are affected.
    SeveralPartners,
    /// Copies between the cause's GPUs. For a single GPU, its copies if several of its partners are affected.
    SlowGpus,
    /// Direct copies of the cause's pairs that would be fast enough without the time that they take to begin.
    LongToBegin,
    /// The very pairs of the cause.
    SamePairs,
    /// The cause names the pair, which is over PCIe: bytes that go by NVLink take another way through the host.
    SamePairsOverPcie,
    /// The very pairs of the cause, if the effect has no others.
    EveryPair,
    /// Pairs that ACS redirects: both directions pass the same port upwards, and share it.
    Redirected,
    /// The pairs of the cause and their other directions.
    EitherDirection,
    /// The same, and pairs that are skipped after a copy that hung: a whole GPU, or the whole machine.
    LeftAlone,
    /// Slow copies over PCIe, if all of them are slow.
    AllOverPcie,
    /// Pairs with a GPU of the cause.
    AnyEnd,
    /// A driver that does not start because the fabric is not ready.
    NotReady,
    /// GPUs of the cause that have no NVLink up: links of a fabric that was never started.
    AllLinksDown,
    /// Tests skipped because the cause's GPUs cannot be used.
    LostGpu,
    /// Tests skipped because work within the cause's GPU failed: all others of this GPU, and loops that wait for it.
    WithinGpu,
    /// Copies through the host's memory, whatever the finding on them.
    ByTheHost,
    /// Copies of the cause's GPUs with memory of another NUMA node, if all its pairs copy over PCIe between two nodes.
    BetweenNodes,
    /// Findings on the cause's GPUs and no others.
    SameGpus,
    /// The same, if their copies with the host reach what the narrow place above the GPUs leaves.
    AtRateOfUplink,
    /// Tests skipped because memory of the host could not be page-locked.
    PageLocked,
    /// Tests skipped because host copies of the cause's GPU fail, alone or together with other GPUs.
    LostWithTheHost,
    /// Pairs of the cause some of whose copies stall, in both directions. For a GPU, all of its pairs.
    Stalling,
    /// The setting of the machine that is among the cause's suspects. It is reported there, with the test that would
    /// show if it is the cause.
    SuspectedSetting,
}

impl Reach {
    /// Returns true if a cause explains an effect as a whole, whatever its pairs are.
    pub(super) fn explains_whole(
        self,
        cause: &Finding,
        effect: &Finding,
        evidence: &Evidence<'_>,
    ) -> bool {
        match self {
            Self::SameSubject => cause.subject == effect.subject,
            Self::SameCause => !cause.scope.causes.is_disjoint(&effect.scope.causes),
            Self::OwnLink => {
                let own = cause.scope.own_links && effect.scope.own_links;
                own && Self::SameGpus.explains_whole(cause, effect, evidence)
            }
            Self::EveryPair => {
                let pairs = &effect.scope.pairs;
                !pairs.is_empty() && pairs.iter().all(|pair| cause.scope.pairs.contains(pair))
            }
            Self::BetweenNodes => {
                let (pairs, gpus) = (&cause.scope.pairs, &effect.scope.gpus);
                let node = |gpu| host::own_node(evidence, gpu);
                let is_between = |pair: &Pair| {
                    let nodes = node(pair.source).zip(node(pair.destination));
                    evidence.over_pcie(*pair) && nodes.is_some_and(|(one, other)| one != other)
                };
                let is_own = |gpu: &u32| pairs.iter().any(|pair| pair.touches(*gpu));
                !gpus.is_empty() && gpus.iter().all(is_own) && pairs.iter().all(is_between)
            }
            Self::AllOverPcie => {
                let over = evidence.reference(Path::Direct);
                let mut over = over.keys().filter(|pair| evidence.over_pcie(**pair)).peekable();
                over.peek().is_some() && over.all(|pair| effect.scope.pairs.contains(pair))
            }
            Self::NotReady => fabric_not_ready::cuda_is_not_ready(evidence),
            Self::AllLinksDown => {
                let all_down = |index: &u32| {
                    let links = evidence.snapshot.gpu(*index).and_then(|gpu| gpu.nvlinks.known());
                    links.is_some_and(|links| {
                        links.iter().all(|link| link.active.get() == Some(false))
                    })
                };
                Self::SameGpus.explains_whole(cause, effect, evidence)
                    && effect.scope.gpus.iter().all(all_down)
            }
            // A high latency that is an error is one of direct copies.
            Self::ByTheHost => {
                effect.code != latency_high::RULE.id || effect.severity < Severity::Error
            }
            Self::SameGpus => {
                let gpus = &effect.scope.gpus;
                !gpus.is_empty() && gpus.iter().all(|gpu| cause.scope.gpus.contains(gpu))
            }
            Self::AtRateOfUplink => {
                Self::SameGpus.explains_whole(cause, effect, evidence)
                    && pcie_upstream_bottleneck::explains_host(evidence, &effect.scope.gpus)
            }
            Self::LostWithTheHost => only_host_copies_are_untested(&cause.scope.gpus, evidence),
            Self::PageLocked => only_page_locked_is_untested(evidence),
            Self::LostGpu => nothing_else_is_untested(&cause.scope.gpus, evidence),
            // A finding on pairs explains by its pairs.
            Self::WithinGpu => {
                cause.scope.pairs.is_empty() && only_these_are_untested(&cause.scope.gpus, evidence)
            }
            Self::SuspectedSetting => {
                let settings = [
                    (iommu_translating::RULE.id, Cause::Iommu),
                    (acs_redirect::RULE.id, Cause::Acs(At(Vec::new()))),
                ];
                let mut settings = settings.iter().filter(|(rule, _)| *rule == effect.code);
                settings.any(|(_, setting)| cause.suspects.iter().any(|of| setting.is(of)))
            }
            _ => false,
        }
    }

    /// Returns true if a cause explains the part of an effect that concerns one of its pairs.
    pub(super) fn explains_pair(
        self,
        cause: &Finding,
        pair: Pair,
        pairs: &[Pair],
        evidence: &Evidence<'_>,
    ) -> bool {
        let (gpus, named) = (&cause.scope.gpus, &cause.scope.pairs);
        let ends =
            [pair.source, pair.destination].into_iter().filter(|gpu| gpus.contains(gpu)).count();
        match self {
            // Copies between two GPUs below one uplink do not pass it, unless they go through the host.
            Self::PcieLink => {
                (ends == 1 || (ends == 2 && cause.scope.own_links))
                    && evidence.over_pcie(pair)
                    && rate_fits(cause, pair, Path::Direct, evidence)
            }
            Self::PcieLinkStaged => ends > 0 && rate_fits(cause, pair, Path::Staged, evidence),
            Self::SlowestLink => nvlink_slower_than_siblings::holds_up(cause, pair, evidence),
            Self::PcieInstead => ends == 2 && evidence.over_pcie(pair),
            Self::NvLinks => ends > 0 && !evidence.over_pcie(pair),
            // A GPU with only one slow pair of many is not the cause.
            Self::SeveralPartners => {
                let partner = |pair: &Pair| match gpus.as_slice() {
                    [gpu] if pair.source == *gpu => Some(pair.destination),
                    [gpu] if pair.destination == *gpu => Some(pair.source),
                    _ => None,
                };
                let mut partners = pairs.iter().filter_map(partner);
                let first = partners.next();
                ends > 0
                    && (partners.any(|gpu| Some(gpu) != first)
                        || evidence.topology.pairs.len() <= 2)
            }
            Self::SlowGpus if gpus.len() > 1 => ends == 2,
            Self::SlowGpus => Self::SeveralPartners.explains_pair(cause, pair, pairs, evidence),
            Self::LongToBegin => named.contains(&pair) && is_low_by_its_cost(pair, evidence),
            Self::SamePairs => named.contains(&pair),
            Self::Stalling => {
                let stalling = unstable_measurement::stalling(evidence);
                let both = [pair, pair.reversed()];
                let own = both.iter().any(|pair| named.contains(pair) && stalling.contains(pair));
                // It is chance which of the GPU's pairs show it in a few rows.
                let of_gpu = matches!(cause.subject, Subject::Gpu { index } if pair.touches(index));
                own || (of_gpu && named.iter().any(|pair| stalling.contains(pair)))
            }
            Self::SamePairsOverPcie => named.contains(&pair) && evidence.over_pcie(pair),
            Self::Redirected => !acs_redirect::redirecting(evidence, pair).is_empty(),
            Self::EitherDirection => named.contains(&pair) || named.contains(&pair.reversed()),
            Self::LeftAlone => match cause.subject {
                Subject::Machine => true,
                Subject::Gpu { .. } if ends > 0 => true,
                _ => Self::EitherDirection.explains_pair(cause, pair, pairs, evidence),
            },
            Self::AnyEnd => ends > 0,
            _ => false,
        }
    }
}

/// Returns true if everything that was not tested is of pairs with these GPUs, all other GPUs could be used, and all
/// figures are verified.
fn nothing_else_is_untested(gpus: &[u32], evidence: &Evidence<'_>) -> bool {
    let measurements = evidence.measured();
    let summary = coverage(measurements);
    summary.untested > 0
        && summary.unverified == 0
        && measurements.driver.failure.is_none()
        && untested(measurements).all(|cell| gpus.iter().any(|gpu| cell.uses(*gpu)))
        && coverage::unusable(measurements).all(|(gpu, _)| gpus.contains(&gpu))
}

/// Returns true if everything that was not tested is of these GPUs, or waits for them, and all others could be used.
fn only_these_are_untested(gpus: &[u32], evidence: &Evidence<'_>) -> bool {
    let measurements = evidence.measured();
    let of_these = |cell: &Cell<'_>| gpus.iter().any(|gpu| cell.uses(*gpu));
    let waits = measurements.launch_loop.iter().filter(|cell| !cell.cell().tested());
    let waits =
        waits.filter(|cell| gpus.contains(&cell.synchronized) && !gpus.contains(&cell.gpu)).count();
    let other = untested(measurements).filter(|cell| !of_these(cell)).count();
    all_can_be_used(measurements) && !gpus.is_empty() && other == waits
}

fn untested(measurements: &Measurements) -> impl Iterator<Item = Cell<'_>> {
    coverage::cells(measurements).filter(|cell| !cell.tested())
}

/// Returns true if all GPUs could be used, and all figures are verified.
fn all_can_be_used(measurements: &Measurements) -> bool {
    measurements.driver.failure.is_none()
        && coverage(measurements).unverified == 0
        && coverage::unusable(measurements).next().is_none()
}

/// Returns true if everything that was not tested copies between these GPUs and the host, by itself, at once with
/// others, or as part of another probe, and all figures are verified.
fn only_host_copies_are_untested(gpus: &[u32], evidence: &Evidence<'_>) -> bool {
    let measurements = evidence.measured();
    let lost = measurements.host.iter().filter(|copy| !copy.cell().tested());
    let beside = lost.filter(|copy| copy.at_once > 1 && !gpus.contains(&copy.gpu)).count();
    let with_host = |cell: &Cell<'_>| cell.flow.ends().iter().any(|end| end.gpu().is_none());
    let of_these = |cell: &Cell<'_>| with_host(cell) && gpus.iter().any(|gpu| cell.uses(*gpu));
    let other = untested(measurements).filter(|cell| !of_these(cell)).count();
    all_can_be_used(measurements) && other == beside
}

/// Returns true if everything that was not tested needs memory of the host that is page-locked, and all figures are
/// verified.
fn only_page_locked_is_untested(evidence: &Evidence<'_>) -> bool {
    let measurements = evidence.measured();
    let is_locked = |end: Endpoint| match end {
        Endpoint::Host { memory, .. } => memory != HostMemory::Pageable,
        Endpoint::Gpu(_) => false,
    };
    all_can_be_used(measurements)
        && untested(measurements).all(|cell| cell.flow.ends().into_iter().any(is_locked))
}

/// Returns true if a direct copy of this pair would be fast enough without its cost beside its bytes.
fn is_low_by_its_cost(pair: Pair, evidence: &Evidence<'_>) -> bool {
    let cells = evidence.reference(Path::Direct);
    let without_cost = || {
        let cell = cells.get(&pair)?;
        let (achieved, cost_us) = (cell.achieved_gbps?, latency_high::cost_us(evidence, pair)?);
        let bytes_us = cell.setup.bytes.0 as f64 / achieved.0 / 1e3 - cost_us;
        let rate = cell.setup.bytes.0 as f64 / bytes_us / 1e3;
        Some(bytes_us > 0.0 && rate >= evidence.expected(cell)?.floor_gbps().0)
    };
    without_cost().unwrap_or(false)
}

/// Returns true if a link of the cause's rate allows the rate of a pair: not above it, and not below what healthy
/// copies reach over such a link. An unknown rate is no evidence against it.
fn rate_fits(cause: &Finding, pair: Pair, path: Path, evidence: &Evidence<'_>) -> bool {
    let Some(rate) = cause.scope.rate else {
        return true;
    };
    let Some(cell) = evidence.reference_of(path, pair) else {
        return true;
    };
    let Some((achieved, expected)) = cell.achieved_gbps.zip(evidence.expected(cell)) else {
        return true;
    };
    achieved <= rate && achieved.0 >= rate.0 * expected.share.floor_percent() / 100.0
}
