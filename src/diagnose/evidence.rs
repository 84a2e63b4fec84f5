//! The facts that a rule may look at.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::cluster::{self, Common, Group, end};
use super::expectations::Expectations;
use super::expected::{self, Expectation};
use super::expected_host;
use super::rules::pcie_upstream_bottleneck;
use super::settings::Settings;
use super::words;
use explain::{Explanation, Floors};
use model::host::HostCopy;
use model::measurement::{AerAdded, LinkUnderLoad, Measurements, PeerBandwidth};
use model::pasted::{Pasted, PastedFault};
use model::placement::{Pair, Path};
use model::report::Report;
use model::request::Request;
use model::snapshot::Snapshot;
use model::topology::{LinkClass, Topology};
use model::units::GbPerSecond;
use model::watched::Watched;
use topology::belief::Beliefs;

/// All facts that a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The request: parts that it left out are not known to be missing.
    pub request: &'a Request,
    /// The output of other tools that everything was read from, if it was.
    pub read_from: Option<&'a Pasted>,
    pub snapshot: &'a Snapshot,
    /// The graph and the routes, including CUDA's answer on peer access if it was asked.
    pub topology: &'a Topology,
    /// The figures; `None` if nothing was to be measured.
    pub measurements: Option<&'a Measurements>,
    /// The readings of a running job; `watch` alone has them.
    pub watched: Option<&'a Watched>,
    /// Time for which the run measured, seconds; 0 if it is not known.
    pub measured_seconds: f64,
    /// Settings of the user.
    pub settings: &'a Settings,
    /// Expectations of the buyer.
    pub expectations: Option<&'a Expectations>,
    /// An earlier report of the same machine.
    pub baseline: Option<&'a Report>,
    /// The figures by pair, built once for all rules. If `None`, each rule looks for itself.
    pub index: Option<&'a Index<'a>>,
    /// The beliefs on all PCIe links, decided once for all rules; see [`crate::links::belief`].
    pub beliefs: Option<&'a Beliefs>,
}

/// The figures that pairs are judged by.
#[derive(Debug)]
pub struct Index<'a> {
    direct: BTreeMap<Pair, &'a PeerBandwidth>,
    staged: BTreeMap<Pair, &'a PeerBandwidth>,
    /// The fewest changes of the machine that account for all figures.
    pub(crate) explanation: Explanation,
}

impl<'a> Index<'a> {
    pub fn of(measurements: &'a Measurements) -> Self {
        let [direct, staged] =
            [Path::Direct, Path::Staged].map(|path| measurements.reference(path));
        Self { direct, staged, explanation: Explanation::default() }
    }

    /// Returns the index of these measurements, with the explanation of their figures.
    pub(crate) fn explained(evidence: &Evidence<'_>, measurements: &'a Measurements) -> Self {
        let Evidence { snapshot, topology, .. } = *evidence;
        let budget = explain::BUDGET;
        Self {
            explanation: explain::explain(snapshot, topology, measurements, evidence, budget),
            ..Self::of(measurements)
        }
    }

    fn figures(&self, path: Path) -> &BTreeMap<Pair, &'a PeerBandwidth> {
        match path {
            Path::Direct => &self.direct,
            Path::Staged => &self.staged,
        }
    }
}

impl<'a> Evidence<'a> {
    /// Returns the evidence that a report contains by itself.
    pub fn of(report: &'a Report, settings: &'a Settings) -> Self {
        Self {
            request: &report.request,
            read_from: report.read_from.as_ref(),
            snapshot: &report.snapshot,
            topology: &report.topology,
            measurements: report.measurements.as_ref(),
            watched: report.watched.as_ref(),
            measured_seconds: report
                .watched
                .as_ref()
                .map_or(report.timing.measure, |all| all.seconds),
            settings,
            expectations: None,
            baseline: None,
            index: None,
            beliefs: None,
        }
    }

    /// Returns the faults that lines of other tools state.
    pub(crate) fn stated(&self) -> impl Iterator<Item = &'a PastedFault> + use<'a> {
        self.read_from.into_iter().flat_map(|read| &read.faults)
    }

    /// Returns how many times in a second something was counted. A run of less than a second counts as one second, since
    /// a burst says little about a rate.
    pub(crate) fn a_second(&self, count: u64) -> f64 {
        let count = count as f64;
        count / self.measured_seconds.max(1.0)
    }

    /// Returns the figure that each pair is judged by, see [`Measurements::reference`].
    pub fn reference(&self, path: Path) -> BTreeMap<Pair, &'a PeerBandwidth> {
        match (self.index, self.measurements) {
            (Some(index), _) => index.figures(path).clone(),
            (None, Some(measurements)) => measurements.reference(path),
            (None, None) => BTreeMap::new(),
        }
    }

    pub(crate) fn reference_of(&self, path: Path, pair: Pair) -> Option<&'a PeerBandwidth> {
        match self.index {
            Some(index) => index.figures(path).get(&pair).copied(),
            None => self.reference(path).remove(&pair),
        }
    }

    /// Returns those figures of the pairs with one of these GPUs, in their order.
    pub(crate) fn reference_with(&self, path: Path, gpus: &[u32]) -> Vec<&'a PeerBandwidth> {
        let all = self.reference(path).into_values();
        all.filter(|cell| gpus.iter().any(|gpu| cell.pair.touches(*gpu))).collect()
    }

    /// Returns what was measured: nothing, if nothing was to be.
    pub(crate) fn measured(&self) -> &'a Measurements {
        static NOTHING: LazyLock<Measurements> = LazyLock::new(Measurements::default);
        self.measurements.unwrap_or(&NOTHING)
    }

    /// Returns all bandwidth figures.
    pub fn peer(&self) -> &'a [PeerBandwidth] {
        &self.measured().peer
    }

    /// Returns what the links of the GPUs counted while copies or a watched job ran.
    pub fn links(&self) -> &'a [LinkUnderLoad] {
        self.watched.map_or(&self.measured().links, |watched| &watched.links)
    }

    /// Returns the PCI functions whose AER counters rose meanwhile.
    pub(crate) fn aer_added(&self) -> &'a [AerAdded] {
        self.watched.map_or(&self.measured().aer_added, |watched| &watched.aer_added)
    }

    /// Returns the figure that a cell is expected to reach; `None` if its theoretical rate is not known.
    pub fn expected(&self, cell: &PeerBandwidth) -> Option<Expectation> {
        let expected = expected::of(cell, self.topology, self.snapshot, &self.settings.shares)?;
        Some(Expectation { scatter_percent: self.scatter_percent(), ..expected })
    }

    /// Returns the explanation of all figures; an empty one outside of a judgement.
    pub(crate) fn explanation(&self) -> &'a Explanation {
        static NONE: LazyLock<Explanation> = LazyLock::new(Explanation::default);
        self.index.map_or(&NONE, |index| &index.explanation)
    }

    /// Returns how far below its rate any figure may lie because all figures of this machine scatter, per cent.
    pub(crate) fn scatter_percent(&self) -> f64 {
        self.explanation().scatter_percent
    }

    /// Returns a rate less what the scatter of this machine's figures allows.
    pub(crate) fn less_scatter(&self, rate: GbPerSecond) -> GbPerSecond {
        GbPerSecond(rate.0 * (1.0 - self.scatter_percent() / 100.0))
    }

    /// Returns when the links were watched, in words.
    pub(crate) fn meanwhile(&self) -> &'static str {
        if self.watched.is_some() { "while the job ran" } else { "while copies ran" }
    }

    /// Returns all copies between host and GPUs.
    pub fn host(&self) -> &'a [HostCopy] {
        &self.measured().host
    }

    /// Returns true if this is known to be a virtual machine.
    pub fn virtual_machine(&self) -> bool {
        self.snapshot.host.virtual_machine.get() == Some(true)
    }

    /// Returns true if copies of this pair go over PCIe: its class is known and not NVLink.
    pub(crate) fn over_pcie(&self, pair: Pair) -> bool {
        let class = self.topology.route(pair).map(|route| route.class);
        class.is_some_and(|class| !matches!(class, LinkClass::NvLink(_) | LinkClass::Unknown))
    }

    /// Returns true if copies of one of these pairs go over NVLink.
    pub(crate) fn any_over_nvlink(&self, pairs: &[Pair]) -> bool {
        pairs.iter().any(|pair| self.over_nvlink(*pair))
    }

    /// Returns true if copies of one of these pairs go over PCIe.
    pub(crate) fn any_over_pcie(&self, pairs: &[Pair]) -> bool {
        pairs.iter().any(|pair| self.over_pcie(*pair))
    }

    /// Groups bad pairs by what they have in common, see [`cluster::groups`].
    pub(crate) fn groups(&self, bad: &[Pair], seen: &[Pair]) -> Vec<Group> {
        cluster::groups(bad, seen, self.topology)
    }

    /// Groups what is bad by what its pairs have in common, each group with its own; what has no pair is left out.
    pub(crate) fn places<T: Clone>(
        &self,
        bad: &[T],
        seen: &[Pair],
        pair: impl Fn(&T) -> Option<Pair>,
    ) -> Vec<(Group, Vec<T>)> {
        let with_own = |group: Group| {
            let pairs = group.pair_set();
            let is_own = |one: &&T| pair(one).is_some_and(|pair| pairs.contains(&pair));
            let own = bad.iter().filter(is_own).cloned().collect();
            (group, own)
        };
        let groups = self.groups(&words::unique(bad.iter().filter_map(&pair)), seen);
        groups.into_iter().map(with_own).collect()
    }

    /// Returns true if copies of this pair go over NVLink.
    pub(crate) fn over_nvlink(&self, pair: Pair) -> bool {
        matches!(self.topology.route(pair).map(|route| route.class), Some(LinkClass::NvLink(_)))
    }
}

impl Evidence<'_> {
    /// Returns words such as `GPU 3 (slot 5)`, or with the PCI address if the slot is not known.
    pub(crate) fn name(&self, index: u32) -> String {
        let address = self.snapshot.address_of(index);
        let slot = address.and_then(|address| topology::pcie::slot(self.snapshot, address));
        let place = slot.map(|slot| format!("slot {slot}"));
        format!(
            "GPU {index}{}",
            words::in_brackets(place.or_else(|| address.map(|at| at.to_string())))
        )
    }

    /// Returns one GPU with its place, several by their numbers, or `all GPUs`.
    pub(crate) fn named(&self, indices: &[u32]) -> String {
        match indices {
            [index] => self.name(*index),
            all if all.len() == self.snapshot.gpus.len() => "all GPUs".into(),
            some => words::gpus(some),
        }
    }

    /// Returns the other programs with a context on any of these GPUs: `process 4711 (python3)`.
    pub(crate) fn processes(&self, gpus: &[u32]) -> Vec<String> {
        let all = gpus.iter().filter_map(|gpu| self.snapshot.gpu(*gpu)?.processes.known());
        let named: BTreeMap<u32, Option<&str>> =
            all.flatten().map(|process| (process.pid, process.name.as_deref())).collect();
        let text = |(pid, name)| format!("process {pid}{}", words::in_brackets(name));
        named.into_iter().map(text).collect()
    }

    /// Returns the group as words for people: the place of the bad copies.
    pub(crate) fn place(&self, group: &Group) -> String {
        match &group.common {
            Common::Everything => {
                let gpus = self.named(&group.gpus());
                format!("between {gpus} ({})", words::count(group.pairs.len(), "pair"))
            }
            Common::Gpu(index) => {
                let gpu = self.name(*index);
                let ends =
                    group.pairs.iter().flat_map(|pair| pair.gpus()).filter(|end| end != index);
                let others = words::count(words::unique(ends).len(), "GPU");
                match group.pairs.iter().filter(|pair| pair.destination == *index).count() {
                    0 => format!("from {gpu} to {others}"),
                    into if into == group.pairs.len() => format!("to {gpu} from {others}"),
                    _ => format!("between {gpu} and {others}"),
                }
            }
            Common::Link(ends) => {
                let [one, other] = ends.map(end);
                let pairs = group.pair_set();
                let way = match group.pairs.iter().any(|pair| pairs.contains(&pair.reversed())) {
                    true => String::new(),
                    false => {
                        let sources = words::unique(group.pairs.iter().map(|pair| pair.source));
                        format!(" from {}", words::gpus(&sources))
                    }
                };
                format!("over {one} – {other}{way} ({})", words::count(pairs.len(), "pair"))
            }
            Common::OnePair => match group.pairs.as_slice() {
                [pair] => format!(
                    "from {} to {}{}",
                    self.name(pair.source),
                    self.name(pair.destination),
                    if group.seen_back { ", one way only," } else { " (not tested the other way)" }
                ),
                [pair, ..] => format!(
                    "between {} and {}",
                    self.name(pair.source),
                    self.name(pair.destination)
                ),
                [] => String::new(),
            },
        }
    }
}

/// The explanation takes a figure for low where the rules do.
impl Floors for Evidence<'_> {
    fn peer(&self, cell: &PeerBandwidth) -> Option<f64> {
        let expected = expected::of(cell, self.topology, self.snapshot, &self.settings.shares)?;
        Some(expected.share.floor_percent() / 100.0)
    }

    fn host(&self, copy: &HostCopy) -> Option<f64> {
        let expected = expected_host::of(copy, self.snapshot, &self.settings.shares)?;
        Some(expected.share.floor_percent() / 100.0)
    }

    fn is_below_hidden_uplink(&self, gpu: u32) -> bool {
        pcie_upstream_bottleneck::is_behind_chipset(self, gpu)
    }
}
