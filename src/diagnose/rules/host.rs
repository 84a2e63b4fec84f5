//! Shared by the rules on copies between host and GPU: the figure that each GPU is judged by, and words for them.

use std::cmp::Ordering;

use super::prelude::*;
use crate::expected_host;
use explain::Figure;
use model::rounding;

/// The directions that are judged one by one.
pub(super) const ONE_WAY: [HostDirection; 2] = [HostDirection::ToDevice, HostDirection::ToHost];

pub(super) const EVERY_WAY: [HostDirection; 3] =
    [HostDirection::ToDevice, HostDirection::ToHost, HostDirection::BothWays];

/// Pageable memory, to the device.
pub(super) const PAGEABLE: HostWay = HostWay::PINNED.with_memory(HostMemory::Pageable);

/// Fewest samples that give a credible spread.
pub(super) const LEAST_SAMPLES: u32 = 3;

/// A figure with its rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rated<'a> {
    pub copy: &'a HostCopy,
    pub rate: GbPerSecond,
}

impl Rated<'_> {
    /// Returns how far the rate lies below another rate, as per cent of that rate.
    pub(crate) fn below_percent(&self, of: GbPerSecond) -> f64 {
        100.0 - self.rate.percent_of(of)
    }

    /// Returns the spread of its samples, per cent.
    pub(crate) fn spread(&self) -> f64 {
        self.copy.spread_percent.unwrap_or_default()
    }
}

/// Returns the sound figures of copies in this way, one GPU at a time, on every NUMA node.
pub(super) fn rated<'a>(evidence: &Evidence<'a>, way: HostWay) -> Vec<Rated<'a>> {
    let copies = evidence.measured().host_alone(way);
    // Copies both ways at once that take turns get half the rate each: `copy-engines-fewer` judges that.
    let halved = |copy: &&HostCopy| {
        copy.direction == HostDirection::BothWays && take_turns(evidence, copy.gpu)
    };
    let copies = copies.into_iter().filter(|copy| !halved(copy));
    let rated = |copy: &'a HostCopy| Some(Rated { copy, rate: copy.rate()? });
    copies.filter_map(rated).collect()
}

/// Returns true if copies to a GPU and from it were seen to take turns.
fn take_turns(evidence: &Evidence<'_>, gpu: u32) -> bool {
    let engines = evidence.measured().engines.iter();
    let mut of_gpu = engines.filter(|cell| cell.gpu == gpu && cell.cell().tested());
    of_gpu.any(|cell| cell.observed.is_some_and(|observed| observed < 2))
}

/// Returns the best figure of each GPU over all NUMA nodes: the most that its path to the host carries.
pub(super) fn best<'a>(evidence: &Evidence<'a>, way: HostWay) -> BTreeMap<u32, Rated<'a>> {
    let mut best: BTreeMap<u32, Rated<'a>> = BTreeMap::new();
    for rated in rated(evidence, way) {
        let known = best.entry(rated.copy.gpu).or_insert(rated);
        if known.rate < rated.rate {
            *known = rated;
        }
    }
    best
}

/// Returns the spreads of the sound figures of each GPU that have enough samples.
pub(super) fn spreads(evidence: &Evidence<'_>) -> Vec<(u32, Kind, f64)> {
    let copies = evidence
        .host()
        .iter()
        .filter(|copy| copy.rate().is_some() && copy.samples >= LEAST_SAMPLES)
        .map(|copy| (copy.gpu, Kind::of_host(copy.way(), copy.at_once), copy.spread_percent));
    let pipelines = evidence
        .measured()
        .pipeline
        .iter()
        .filter(|cell| cell.cell().tested() && cell.samples >= LEAST_SAMPLES)
        .map(|cell| {
            (
                cell.gpu,
                Kind::of_pipeline(cell.memory, cell.batches, cell.streams),
                cell.spread_percent,
            )
        });
    let all = copies.chain(pipelines);
    all.filter_map(|(gpu, kind, spread)| Some((gpu, kind, spread?))).collect()
}

/// A copy that is slower than it should be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slow<'a> {
    pub rated: Rated<'a>,
    /// The rate that copies alike reach on this machine.
    pub healthy: GbPerSecond,
}

impl Slow<'_> {
    /// Returns true if the rate is below what every healthy machine reaches.
    pub(super) fn is_low(&self, evidence: &Evidence<'_>) -> bool {
        self.is_low_beyond(0.0, evidence)
    }

    /// Returns true if it is low even by more than this, per cent.
    fn is_low_beyond(&self, percent: f64, evidence: &Evidence<'_>) -> bool {
        let shares = &evidence.settings.shares;
        let expected = expected_host::of(self.rated.copy, evidence.snapshot, shares);
        let reached = self.rated.rate.0 * (1.0 + percent / 100.0);
        expected.is_some_and(|expected| reached < evidence.less_scatter(expected.floor_gbps()).0)
    }
}

/// Slow copies with the host that changes of one place explain.
pub(super) struct Explained<'a> {
    /// The numbers of these changes; none for copies below the floor that no change explains.
    pub causes: BTreeSet<usize>,
    /// The copies that GPUs are judged by, the worst first.
    pub slow: Vec<Slow<'a>>,
    /// True if one of them is below what every healthy machine reaches.
    pub is_low: bool,
}

impl Explained<'_> {
    /// Returns the GPUs of its copies, in order.
    pub(super) fn gpus(&self) -> Vec<u32> {
        words::unique(self.slow.iter().map(|slow| slow.rated.copy.gpu))
    }
}

/// Returns the figure of each GPU with the memory of its own node; the best of all nodes if that is not known.
fn own<'a>(evidence: &Evidence<'a>, way: HostWay) -> BTreeMap<u32, Rated<'a>> {
    let mut own = best(evidence, way);
    for rated in rated(evidence, way) {
        let node = own_node(evidence, rated.copy.gpu);
        if node.is_some() && node == rated.copy.numa_node {
            own.insert(rated.copy.gpu, rated);
        }
    }
    own
}

/// Returns the slow copies with the host by what explains them. Memory of the GPU's own node counts.
pub(super) fn explained<'a>(evidence: &Evidence<'a>) -> Vec<Explained<'a>> {
    let explanation = evidence.explanation();
    let of_way = |direction| own(evidence, HostWay::PINNED.with_direction(direction));
    let judged: BTreeMap<FigureKey, Rated<'a>> = EVERY_WAY
        .into_iter()
        .flat_map(|direction| of_way(direction).into_values())
        .map(|rated| (rated.copy.key(), rated))
        .collect();
    let slow = |figures: &[Figure]| {
        let mut slow: Vec<Slow<'a>> = figures
            .iter()
            .filter_map(|figure| {
                Some(Slow {
                    rated: *judged.get(&figure.key)?,
                    healthy: GbPerSecond(figure.healthy_gbps),
                })
            })
            .collect();
        slow.sort_by(worst_first);
        slow
    };
    let of_causes =
        explanation.faults().map(|(number, cause)| (Some(number), slow(&cause.explains)));
    let mut rest = slow(&explanation.unexplained);
    rest.retain(|slow| slow.is_low_beyond(slow.rated.spread(), evidence));
    let mut found: Vec<Explained<'a>> = Vec::new();
    for (number, slow) in of_causes.chain([(None, rest)]) {
        if slow.is_empty() {
            continue;
        }
        let is_low = slow.iter().any(|slow| slow.is_low(evidence));
        let mut one = Explained { causes: number.into_iter().collect(), slow, is_low };
        let (gpus, is_rest) = (one.gpus(), number.is_none());
        let is_known = |known: &&mut Explained<'a>| {
            let of_known = known.gpus();
            of_known == gpus || (is_rest && gpus.iter().all(|gpu| of_known.contains(gpu)))
        };
        // Several changes of one place are one finding.
        match found.iter_mut().find(is_known) {
            Some(known) => {
                known.is_low |= one.is_low;
                known.causes.append(&mut one.causes);
                known.slow.append(&mut one.slow);
                known.slow.sort_by(worst_first);
            }
            None => found.push(one),
        }
    }
    found
}

fn worst_first(one: &Slow<'_>, other: &Slow<'_>) -> Ordering {
    let left = |slow: &Slow<'_>| slow.rated.rate.percent_of(slow.healthy);
    left(one).total_cmp(&left(other))
}

/// Returns the NUMA node that a GPU is attached to.
pub(crate) fn own_node(evidence: &Evidence<'_>, gpu: u32) -> Option<u32> {
    match evidence.topology.way_up(NodeId::Gpu(gpu)).last() {
        Some(NodeId::Numa(node)) => *node,
        _ => None,
    }
}

/// Returns true if the machine is known to have several NUMA nodes.
pub(super) fn has_several_nodes(evidence: &Evidence<'_>) -> bool {
    evidence.snapshot.numa_nodes.len() > 1
}

/// Returns words such as `from the host to GPU 3 (0000:3b:00.0)`.
pub(super) fn way_of(evidence: &Evidence<'_>, gpus: &[u32], direction: HostDirection) -> String {
    let names = evidence.named(gpus);
    match direction {
        HostDirection::ToDevice => format!("from the host to {names}"),
        HostDirection::ToHost => format!("from {names} to the host"),
        HostDirection::BothWays => format!("both ways at once between the host and {names}"),
    }
}

/// Returns words such as [`way_of`], for copies in several directions.
pub(super) fn ways_of(
    evidence: &Evidence<'_>,
    gpus: &[u32],
    directions: &BTreeSet<HostDirection>,
) -> String {
    let mut each = directions.iter();
    match (each.next(), each.next()) {
        (Some(only), None) => way_of(evidence, gpus, *only),
        _ if ONE_WAY.iter().all(|way| directions.contains(way)) => {
            let names = evidence.named(gpus);
            format!("between the host and {names}, in each direction,")
        }
        // Both directions at once are slow because one of them is.
        _ => {
            let alone = ONE_WAY.into_iter().find(|way| directions.contains(way));
            way_of(evidence, gpus, alone.unwrap_or(HostDirection::BothWays))
        }
    }
}

/// Returns what else may slow copies between host and GPU beside the link itself, as far as the facts show.
pub(super) fn suspects(evidence: &Evidence<'_>, gpus: &[u32]) -> Vec<Suspect> {
    let busy = suspects::busy_among(evidence, gpus);
    let mut found = Vec::new();
    if let Some(tasks) = busy_tasks(evidence) {
        let test = [Step::Stop(Work::OnMachine), Step::CheckIdle];
        found.push(suspect(Cause::HostTasks(tasks), test));
    }
    if !busy.is_empty() {
        found.push(suspects::other_work(&busy));
    }
    if evidence.virtual_machine() {
        found.push(suspect(Cause::GuestMemory, [Step::AskHost(Ask::NumaNodes)]));
    } else if has_several_nodes(evidence) && !memory_is_ruled_out(evidence, gpus) {
        let test = [Step::CheckFull, Step::CheckEachNode];
        found.push(suspect(Cause::OtherNode, test));
    }
    if evidence.snapshot.host.iommu_translating.get() == Some(true) {
        found.push(suspect(Cause::Iommu, [Step::PassThrough, Step::CheckAgain]));
    }
    let serves_others = |gpu: &u32| is_served(evidence, *gpu, gpus);
    // A guest does not see the channels.
    let is_enough = gpus.iter().all(serves_others) || memory_is_ruled_out(evidence, gpus);
    if evidence.virtual_machine() || is_enough {
        return found;
    }
    let test = [Step::MemoryModules, Step::CheckIdle];
    found.push(suspect(Cause::FewChannels, test));
    found
}

/// Returns true if the memory of another NUMA node, which serves another GPU faster, serves each of these no faster than their
/// own does: then the memory is not what slows them.
pub(super) fn memory_is_ruled_out(evidence: &Evidence<'_>, gpus: &[u32]) -> bool {
    let rated = rated(evidence, HostWay::PINNED);
    let fastest = |is_it: &dyn Fn(&HostCopy) -> bool| {
        let rates = rated.iter().filter(|one| is_it(one.copy)).map(|one| one.rate.0);
        rates.reduce(f64::max)
    };
    let is_no_faster = |gpu: u32, node: Option<u32>| {
        let own = own_node(evidence, gpu);
        let here = fastest(&|copy| copy.gpu == gpu && copy.numa_node == node)?;
        let near = fastest(&|copy| copy.gpu == gpu && copy.numa_node == own)?;
        let there = fastest(&|copy| !gpus.contains(&copy.gpu) && copy.numa_node == node)?;
        Some(node != own && here < near * SERVES_FASTER && here * SERVES_FASTER < there)
    };
    let nodes = || rated.iter().map(|one| one.copy.numa_node);
    gpus.iter().all(|gpu| nodes().any(|node| is_no_faster(*gpu, node) == Some(true)))
}

/// Returns true if the memory of this GPU's node serves another one, not of these, clearly faster: it has channels enough.
pub(super) fn is_served(evidence: &Evidence<'_>, gpu: u32, but: &[u32]) -> bool {
    let best = best(evidence, HostWay::PINNED);
    let node = own_node(evidence, gpu);
    let own = best.get(&gpu).map_or(0.0, |rated| rated.rate.0);
    best.iter().any(|(other, rated)| {
        !but.contains(other)
            && own_node(evidence, *other) == node
            && rated.rate.0 > own * SERVES_FASTER
    })
}

/// Factor by which a node's memory has to be faster to be another one. Chosen.
const SERVES_FASTER: f64 = 1.15;

/// Returns the number of tasks that ran on the host before the check, if they may take so much of its memory's rate that
/// copies suffer. Chosen: 12 processes that stream through memory brought a warning on a sound server; a host at rest
/// has fewer than 2.
pub(super) fn busy_tasks(evidence: &Evidence<'_>) -> Option<u32> {
    const BUSY: u32 = 4;
    let tasks = evidence.snapshot.host.busy_tasks.get();
    tasks.filter(|tasks| *tasks >= BUSY)
}

/// Returns the lowest and the highest of these values, written `6.1 to 7.4`.
pub(super) fn span(values: impl IntoIterator<Item = f64>) -> Option<String> {
    let values: Vec<f64> = values.into_iter().collect();
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some(rounding::range(low, high, rounding::rate, " to "))
}
