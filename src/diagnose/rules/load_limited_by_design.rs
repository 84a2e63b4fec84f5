//! # What it means
//!
//! GPUs share a link, so together they reach less than the sum of each alone. The machine is built that way: plan
//! loading, checkpoints and collective operations with this rate.
//!
//! # What to do
//!
//! Nothing to repair. Spread GPUs that work at the same time over separate links, if the board has them.
//!
//! # How it is detected
//!
//! The sum of a pattern of several flows (`measurements.load`) is as single flows explain, and less than
//! `of_alone_percent` of what flows that share a PCIe link above their slots, or the link between processors, reach one
//! at a time. For each such link the pattern that loses most is reported.
//!
//! # Sources
//!
//! Max-min fair shares: Bertsekas and Gallager, Data Networks, 6.5.2.

use super::load;
use super::load_judged::{self, Judged};
use super::prelude::*;

rule! {
    "load-limited-by-design", Info, All(judge);
    /// what flows at once must reach of their sum alone; chosen below the 90 to 95 that repeats agree on (cuda-samples
    /// issue 449)
    SHARE: of_alone_percent = 85.0;
}

/// Flows that share a link by design.
struct Shared<'a> {
    link: &'a Link,
    pattern: String,
    pairs: Vec<Pair>,
    gpus: Vec<u32>,
    flows: usize,
    together: GbPerSecond,
    alone: GbPerSecond,
}

impl Shared<'_> {
    fn percent(&self) -> f64 {
        self.together.percent_of(self.alone)
    }

    /// Returns the same in whole per cents. Of patterns that lose equally, the one planned first is named, even if
    /// another reads a thousandth less.
    fn depth(&self) -> i64 {
        self.percent().round() as i64
    }
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    // Group links alike: one way to build a machine, one finding.
    let limits = limits(evidence).into_values();
    let kind = |shared: &Shared<'_>| (shared.link.label.clone(), shared.flows);
    let alike = words::grouped(limits.map(|shared| (kind(&shared), shared))).into_values();
    alike.filter_map(|shared| finding(evidence, &shared)).collect()
}

/// Returns a function that is true if this rule names a PCIe link above the given GPU, or one like it.
pub(crate) fn names_above<'a>(evidence: &Evidence<'a>) -> impl Fn(u32) -> bool + use<'a> {
    let kind = |link: &'a Link| Some((link.label.as_str(), link.pcie.as_ref()?.gpus.len()));
    let named: BTreeSet<_> =
        limits(evidence).into_values().filter_map(|shared| kind(shared.link)).collect();
    let topology = evidence.topology;
    move |gpu| {
        let way = topology.way_up(NodeId::Gpu(gpu)).into_iter();
        let above = way.filter_map(|node| topology.link_above(node));
        above.filter_map(kind).any(|link| named.contains(&link))
    }
}

/// Returns links that limit flows by design, by their two ends, each with the pattern that loses most there.
fn limits<'a>(evidence: &Evidence<'a>) -> BTreeMap<(NodeId, NodeId), Shared<'a>> {
    let most = SHARE.of(evidence);
    let mut found: BTreeMap<(NodeId, NodeId), Shared<'a>> = BTreeMap::new();
    let judged = load_judged::judged(evidence);
    for shared in judged.iter().filter_map(|judged| shared(judged, most)) {
        let ends = (shared.link.upper, shared.link.lower);
        match found.get(&ends) {
            Some(known) if known.depth() <= shared.depth() => {}
            _ => drop(found.insert(ends, shared)),
        }
    }
    found
}

fn finding(evidence: &Evidence<'_>, alike: &[Shared<'_>]) -> Option<Finding> {
    let shared = alike.iter().min_by_key(|shared| shared.depth())?;
    let about = match alike {
        [_] => load::subject(evidence, shared.link),
        _ => Subject::Machine,
    };
    let more = words::further("; so it is with ", alike.len() - 1, "other link");
    let message = format!(
        "{} share {}: {} reach {} GB/s together, {} one at a time; {}{more}",
        words::gpus(&shared.gpus),
        load::place(evidence, shared.link),
        words::count(shared.flows, "flow"),
        shared.together,
        shared.alone,
        shared.pattern,
    );
    let plan = [Step::Nothing(Fine::Always), Step::SpreadGpus];
    Some(RULE.finding(about, message, plan).about_pairs(shared.pairs.clone()).gpus(&shared.gpus))
}

/// Returns true if no two of these flows begin or end in the same GPU, whose own ports would be the limit.
fn are_apart(judged: &Judged<'_>, flows: &[usize]) -> bool {
    let flows: Vec<Flow> = flows.iter().filter_map(|at| judged.flow(*at)).collect();
    let are_distinct = |end: fn(&Flow) -> Option<u32>| {
        let gpus: Vec<u32> = flows.iter().filter_map(end).collect();
        words::unique(&gpus).len() == gpus.len()
    };
    are_distinct(|flow| flow.from.gpu()) && are_distinct(|flow| flow.to.gpu())
}

/// Returns the link that limits a pattern by design.
fn shared<'a>(judged: &Judged<'a>, most: f64) -> Option<Shared<'a>> {
    let all = judged.all();
    if Judged::sum(&judged.achieved, &all) < judged.floor(&all) {
        return None;
    }
    let passed = judged.predicted.load.passed().into_iter().filter(|(_, flows)| flows.len() > 1);
    let limits = passed.filter_map(|(hop, flows)| {
        let (_, link) = judged.predicted.load.step(hop)?;
        let together = Judged::sum(&judged.achieved, &flows);
        let alone = judged.predicted.sum_alone(&flows)?;
        let above_several = link.pcie.as_ref().is_some_and(|pcie| pcie.gpus.len() > 1);
        let is_shared =
            (above_several || link.kind == LinkKind::Interconnect) && are_apart(judged, &flows);
        (is_shared && 100.0 * together < most * alone).then_some((link, flows, together, alone))
    });
    // The narrowest of several links in a row is the limit.
    let rate = |link: &Link| link.capacity_gbps.map_or(f64::INFINITY, |rate| rate.0);
    let (link, flows, together, alone) = words::smallest(limits, |(link, ..)| rate(link))?;
    let ends = flows.iter().filter_map(|at| judged.flow(*at));
    let behind = link.pcie.as_ref().map(|pcie| &pcie.gpus);
    let is_behind = |gpu: &u32| behind.is_none_or(|behind| behind.contains(gpu));
    let gpus = ends.clone().filter_map(|flow| flow.gpus().find(is_behind));
    Some(Shared {
        link,
        pattern: judged.pattern.name(),
        pairs: words::unique(ends.clone().filter_map(|flow| flow.pair())),
        gpus: words::unique(gpus),
        flows: flows.len(),
        together: GbPerSecond(together),
        alone: GbPerSecond(alone),
    })
}
