//! Shared by the rules on several flows at once: which sums are lower than single flows explain, and which hop remains
//! once those that carried as much in another pattern are left out.

use super::prelude::*;
use crate::expected_load::{self, Alone, Predicted};
use model::flow::Flow;
use model::load::{LoadFlow, LoadPattern};
use model::node::NodeId;
use model::topology::{Link, LinkKind};
use topology::load::{Step, Ways, is_inside_switch, passage};
use topology::shares::Passage;

/// Most that a sum may lie below the fastest of its flows alone, per cent, before it is a collapse. Chosen: twice the
/// spread of repeats on healthy machines.
pub(super) const COLLAPSE: Parameter = Parameter {
    name: "below_alone_percent",
    default: 10.0,
    about: "how far below the fastest of the flows alone all together may be; chosen: repeats spread by 5 to 10 \
            (cuda-samples issue 449)",
};

/// A pattern with its figures, the rates that single flows explain, and the expected rates.
pub(super) struct Judged<'a> {
    pub pattern: &'a LoadPattern,
    /// The prediction of how its flows share the graph.
    pub predicted: Predicted<'a>,
    /// Rates that single flows explain, GB/s, by flow.
    pub explained: Vec<f64>,
    /// Rate of each flow, GB/s.
    pub achieved: Vec<f64>,
}

/// Cost of a copy beside its bytes, microseconds: on H200 (docs/measurement.md). It matters if copies are short, for
/// example because the rate of a route was not known.
const COPY_COST_US: f64 = 8.0;

impl Judged<'_> {
    /// Returns the sum over the flows at these indices, GB/s.
    pub(super) fn sum(rates: &[f64], flows: &[usize]) -> f64 {
        flows.iter().filter_map(|flow| rates.get(*flow)).sum()
    }

    /// Returns the indices of all its flows.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.achieved.len()).collect()
    }

    /// Returns the share of a copy's time that its bytes take at this rate.
    fn of_bytes(&self, gbps: f64) -> f64 {
        let bytes_us = self.pattern.bytes.0 as f64 / (gbps * 1e3).max(f64::MIN_POSITIVE);
        bytes_us / (bytes_us + COPY_COST_US)
    }

    /// Returns the lowest rate that the flows at these indices must reach together, GB/s.
    pub(super) fn floor(&self, flows: &[usize]) -> f64 {
        let together = Self::sum(&self.explained, flows);
        together
            * (1.0 - self.predicted.margin_percent() / 100.0)
            * self.of_bytes(together / flows.len() as f64)
    }

    /// Returns the lowest rate that all its flows must reach together if they take turns in an unknown order, GB/s.
    pub(super) fn floor_in_any_order(&self) -> f64 {
        let least = self.predicted.in_any_order();
        least * (1.0 - self.predicted.margin_percent() / 100.0) * self.of_bytes(least)
    }

    /// Returns the fastest of these flows alone, GB/s.
    pub(super) fn best_alone(&self, flows: &[usize]) -> Option<f64> {
        flows
            .iter()
            .filter_map(|flow| self.predicted.alone.get(*flow).copied().flatten())
            .reduce(f64::max)
    }

    /// Returns the rate below which these flows collapse, GB/s.
    fn collapse_floor(&self, flows: &[usize], below_percent: f64) -> Option<f64> {
        let best = self
            .best_alone(flows)?
            .min(Self::sum(&self.explained, flows));
        Some(best * (1.0 - below_percent / 100.0))
    }

    /// Returns true if copies take turns in an order that is not predicted. A GPU that sends to several GPUs has one
    /// engine for them. If those GPUs receive from several too, some of them wait while others get more than they can
    /// take. A ring both ways of 4 x H200 reached 792, 1165 and 1554 GB/s in three runs (2026-11-22), 4 x 388 or 2 x
    /// 396.
    pub(super) fn takes_turns(&self) -> bool {
        let pairs: Vec<Pair> = self
            .pattern
            .flows
            .iter()
            .filter_map(|flow| flow.flow().pair())
            .collect();
        let sends = |gpu| pairs.iter().filter(|pair| pair.source == gpu).count() > 1;
        let receives = |gpu| pairs.iter().filter(|pair| pair.destination == gpu).count() > 1;
        pairs
            .iter()
            .any(|pair| sends(pair.source) && receives(pair.destination))
    }

    /// Returns the pairs of GPUs among its flows.
    pub(super) fn pairs(&self) -> Vec<Pair> {
        words::unique(
            self.pattern
                .flows
                .iter()
                .filter_map(|flow| flow.flow().pair())
                .collect(),
        )
    }

    /// Returns the GPUs of its flows.
    pub(super) fn gpus(&self) -> Vec<u32> {
        let ends = self
            .pattern
            .flows
            .iter()
            .flat_map(|flow| flow.flow().ends());
        ends.filter_map(model::flow::Endpoint::gpu)
            .collect::<BTreeSet<u32>>()
            .into_iter()
            .collect()
    }
}

/// Returns the patterns with sound figures and a prediction.
pub(super) fn judged<'a>(evidence: &Evidence<'a>) -> Vec<Judged<'a>> {
    let Some(measurements) = evidence
        .measurements
        .filter(|measurements| !measurements.load.is_empty())
    else {
        return Vec::new();
    };
    let set = &evidence.settings.shares;
    let (ways, alone) = (
        Ways::of(evidence.snapshot, evidence.topology),
        Alone::of(measurements),
    );
    let one = |pattern: &'a LoadPattern| {
        pattern.rate()?;
        let machine = (&ways, evidence.topology, evidence.snapshot);
        let predicted = Predicted::of(pattern, machine, &alone, set);
        // A flow with an unknown route may pass any hop, and takes a share of it.
        if predicted.load.ways.iter().any(Vec::is_empty) {
            return None;
        }
        let shares = predicted.explained(expected_load::near(set)).into_iter();
        let explained = shares
            .map(|share| Some(share?.gbps))
            .collect::<Option<Vec<f64>>>()?;
        let achieved = pattern
            .flows
            .iter()
            .map(|flow| Some(flow.achieved_gbps?.0))
            .collect::<Option<Vec<f64>>>()?;
        Some(Judged {
            pattern,
            predicted,
            explained,
            achieved,
        })
    };
    measurements.load.iter().filter_map(one).collect()
}

/// A link by its two ends, in either direction.
pub(super) type Ends = (NodeId, NodeId);

/// Returns the ends of a passage, in the order in which links are stored.
pub(super) fn ends((from, to): Passage) -> Ends {
    if from < to { (from, to) } else { (to, from) }
}

/// Flows that together reach too little through hops that they share.
pub(super) struct Low<'a> {
    /// The link that remains. If several remain, all of them, the likeliest first.
    pub links: Vec<&'a Link>,
    /// The pattern that shows it most.
    pub judged: Judged<'a>,
    /// Indices of its flows that pass the link.
    pub flows: Vec<usize>,
    /// True if they reach less than one of them alone.
    pub collapse: bool,
    /// The patterns that show it, by name.
    pub patterns: Vec<String>,
}

impl Low<'_> {
    /// Returns the rate of these flows together.
    pub(super) fn together(&self) -> GbPerSecond {
        GbPerSecond(Judged::sum(&self.judged.achieved, &self.flows))
    }

    /// Returns the rate that single flows explain.
    pub(super) fn explained(&self) -> GbPerSecond {
        GbPerSecond(Judged::sum(&self.judged.explained, &self.flows))
    }

    /// Returns the share that is left of the rate that single flows explain, in whole per cents. Both directions of a
    /// link are equally low. Rounding names the one that was planned first, even if the other reads a thousandth less.
    fn depth(&self) -> i64 {
        (100.0 * self.together().0 / self.explained().0.max(f64::MIN_POSITIVE)).round() as i64
    }
}

/// A hop of a pattern through which too little passes.
struct Suspected<'a> {
    link: &'a Link,
    flows: Vec<usize>,
    collapse: bool,
}

/// Returns every cause of sums that are too low, each once.
pub(super) fn low<'a>(evidence: &Evidence<'a>, below_percent: f64) -> Vec<Low<'a>> {
    let all = judged(evidence);
    let carried = carried(&all);
    // If copies take turns, ports are idle in turn, and no hop is at fault.
    let is_in_order = |judged: &Judged<'a>| !judged.takes_turns();
    let mut open: Vec<(Judged<'a>, BTreeMap<Ends, Suspected<'a>>)> = all
        .into_iter()
        .filter(is_in_order)
        .map(|judged| {
            let suspected = suspected(&judged, &carried, below_percent);
            (judged, suspected)
        })
        .filter(|(_, suspected)| !suspected.is_empty())
        .collect();
    let mut found = Vec::new();
    while !open.is_empty() {
        let mut shown: BTreeMap<Ends, usize> = BTreeMap::new();
        open.iter()
            .flat_map(|(_, suspected)| suspected.keys())
            .for_each(|ends| *shown.entry(*ends).or_default() += 1);
        let most = shown.values().copied().max().unwrap_or_default();
        let likeliest: BTreeSet<Ends> = shown
            .into_iter()
            .filter(|(_, number)| *number == most)
            .map(|(of, _)| of)
            .collect();
        let Some(first) = likeliest.first().copied() else {
            break;
        };
        let (shows, rest) = open
            .into_iter()
            .partition(|(_, suspected)| suspected.contains_key(&first));
        open = rest;
        found.extend(cause(shows, first, &likeliest));
    }
    found
}

/// Combines all patterns that show one cause.
fn cause<'a>(
    shows: Vec<(Judged<'a>, BTreeMap<Ends, Suspected<'a>>)>,
    first: Ends,
    likeliest: &BTreeSet<Ends>,
) -> Option<Low<'a>> {
    let patterns: Vec<String> = shows
        .iter()
        .map(|(judged, _)| judged.pattern.name())
        .collect();
    // The links that all of these patterns share: the figures do not show which of them is the cause.
    let common = |of: &&Ends| {
        shows
            .iter()
            .all(|(_, suspected)| suspected.contains_key(of))
    };
    let common: Vec<Ends> = likeliest.iter().filter(common).copied().collect();
    let lows = shows.into_iter().filter_map(|(judged, mut suspected)| {
        let mut links: Vec<&'a Link> = common
            .iter()
            .filter_map(|ends| suspected.get(ends))
            .map(|of| of.link)
            .collect();
        links.sort_by_key(|link| rank(link));
        let Suspected {
            flows, collapse, ..
        } = suspected.remove(&first)?;
        Some(Low {
            links,
            judged,
            flows,
            collapse,
            patterns: patterns.clone(),
        })
    });
    lows.min_by_key(|low| (!low.collapse, low.depth()))
}

/// Returns the highest rate seen through each hop in one direction, GB/s.
fn carried(all: &[Judged<'_>]) -> BTreeMap<Passage, f64> {
    let mut most: BTreeMap<Passage, f64> = BTreeMap::new();
    for judged in all {
        for (hop, flows) in judged
            .predicted
            .load
            .passed()
            .into_iter()
            .filter(|(_, flows)| flows.len() > 1)
        {
            let sum = Judged::sum(&judged.achieved, &flows);
            let known = most.entry(hop).or_insert(sum);
            *known = known.max(sum);
        }
    }
    most
}

/// Returns the hops that several flows of a pattern pass and that may be why they reach too little. A processor or the
/// inside of a switch counts only if no link does.
fn suspected<'a>(
    judged: &Judged<'a>,
    carried: &BTreeMap<Passage, f64>,
    below_percent: f64,
) -> BTreeMap<Ends, Suspected<'a>> {
    let mut found: BTreeMap<Ends, Suspected<'a>> = BTreeMap::new();
    for (hop, flows) in judged
        .predicted
        .load
        .passed()
        .into_iter()
        .filter(|(_, flows)| flows.len() > 1)
    {
        let sum = Judged::sum(&judged.achieved, &flows);
        let collapse = judged
            .collapse_floor(&flows, below_percent)
            .filter(|floor| sum < *floor);
        let low = Some(judged.floor(&flows)).filter(|floor| sum < *floor);
        let Some(floor) = collapse
            .or(low)
            .filter(|_| judged.predicted.are_healthy_alone(&flows))
        else {
            continue;
        };
        // The hop carried as much in another pattern.
        if carried.get(&hop).is_some_and(|most| *most >= floor) {
            continue;
        }
        if let Some((_, link)) = judged
            .predicted
            .load
            .step(hop)
            .filter(|step| !is_inside_switch(step))
        {
            found.entry(ends(hop)).or_insert(Suspected {
                link,
                flows,
                collapse: collapse.is_some(),
            });
        }
    }
    if found.values().any(|of| rank(of.link) < 2) {
        found.retain(|_, of| rank(of.link) < 2);
    }
    found
}

/// Returns the rank of a link as the cause, likeliest first: visible links, then links between the processors, then the
/// inside of a processor.
const fn rank(link: &Link) -> u8 {
    match (link.kind, link.capacity_gbps.is_some()) {
        (LinkKind::NvLink | LinkKind::Pcie, true) => 0,
        (LinkKind::NvLink | LinkKind::Pcie | LinkKind::Interconnect, _) => 1,
        (LinkKind::RootComplex, _) => 2,
    }
}

/// Returns the subject of a finding on this link.
pub(super) fn subject(evidence: &Evidence<'_>, link: &Link) -> Subject {
    match (link.kind, link.upper, link.lower) {
        (LinkKind::NvLink, NodeId::Gpu(source), NodeId::Gpu(destination)) => Subject::Pair(Pair {
            source,
            destination,
        }),
        (LinkKind::NvLink, _, NodeId::Gpu(index)) => Subject::Gpu { index },
        (LinkKind::Pcie, _, lower) => match evidence.topology.node(lower).and_then(|node| node.pci)
        {
            Some(address) => Subject::PcieLink { address },
            None => Subject::Machine,
        },
        _ => Subject::Machine,
    }
}

/// Returns words by which a person can find a link.
pub(super) fn place(evidence: &Evidence<'_>, link: &Link) -> String {
    match link.kind {
        LinkKind::Interconnect => format!("the link between {} and {}", link.upper, link.lower),
        LinkKind::RootComplex => format!("the processor at {}", link.lower),
        _ => Ways::of(evidence.snapshot, evidence.topology).describe((link.upper, link.lower)),
    }
}

/// Returns the findings of a rule on rates that are too low. If the ports of many GPUs are all too low, they have one
/// cause: the part that joins them.
pub(super) fn findings(
    evidence: &Evidence<'_>,
    rule: &Rule,
    lows: &[Low<'_>],
    message: impl Fn(&str, &Low<'_>) -> String,
    plan: impl Fn(&Low<'_>) -> Plan,
) -> Vec<Finding> {
    let is_port =
        |low: &&Low<'_>| matches!(low.links.as_slice(), [link] if link.kind == LinkKind::NvLink);
    let ports = lows.iter().filter(is_port).count();
    let many = ports > 2 && 2 * ports > evidence.snapshot.gpus.len();
    let of_ports = lows
        .iter()
        .filter(|low| many && is_port(low))
        .min_by_key(|low| low.depth());
    let single = lows
        .iter()
        .filter(|low| !(many && is_port(low)))
        .map(|low| {
            let place = match low.links.as_slice() {
                [] => "what they share".to_owned(),
                [link] => place(evidence, link),
                several => format!(
                    "one of {}",
                    words::distinct(several.iter().map(|link| place(evidence, link)))
                ),
            };
            let about = match low.links.as_slice() {
                [link] => subject(evidence, link),
                _ => Subject::Machine,
            };
            finding(evidence, rule, (about, &place), low, &message, &plan)
        });
    let joint = of_ports.map(|low| {
        let place = format!("the NVLinks of one GPU, of {ports} alike");
        finding(
            evidence,
            rule,
            (Subject::Machine, &place),
            low,
            &message,
            &plan,
        )
    });
    joint.into_iter().chain(single).collect()
}

fn finding(
    evidence: &Evidence<'_>,
    rule: &Rule,
    (about, place): (Subject, &str),
    low: &Low<'_>,
    message: impl Fn(&str, &Low<'_>) -> String,
    plan: impl Fn(&Low<'_>) -> Plan,
) -> Finding {
    let mut suspects: Vec<Suspect> = Vec::new();
    if low.links.len() > 1 {
        suspects = low
            .links
            .iter()
            .map(|link| {
                let cause = Cause::OneOfLinks(self::place(evidence, link));
                suspect(cause, [steps::Step::CheckOneLink])
            })
            .collect();
    }
    rule.finding(about, message(place, low), plan(low))
        .pairs(&low.judged.pairs())
        .about_gpus(&low.judged.gpus())
        .fact("pattern", low.judged.pattern.name())
        .fact("patterns", low.patterns.len())
        .fact("together", low.together())
        .fact("alone", low.judged.best_alone(&low.flows).map(GbPerSecond))
        .fact("explained", low.explained())
        .fact(
            "of_explained",
            Fact::percent(low.together().percent_of(low.explained())),
        )
        .suspecting(suspects)
}

/// Returns true if a flow of this pattern passes one of these links.
pub(super) fn passes(judged: &Judged<'_>, links: &BTreeSet<Ends>) -> bool {
    judged
        .predicted
        .load
        .ways
        .iter()
        .flatten()
        .any(|step| links.contains(&ends(passage(step))))
}

/// Returns true if every hop of this pattern has a known rate, so that no invisible hop may limit it.
pub(super) fn is_all_known(judged: &Judged<'_>) -> bool {
    let known = |step: &Step<'_>| step.0.capacity_gbps.is_some() || is_inside_switch(step);
    judged.predicted.load.ways.iter().flatten().all(known)
}

/// Returns the flows of a pattern as words: `GPU 1 → GPU 0, GPU 2 → GPU 0 and 5 more`.
pub(super) fn flows(of: &[LoadFlow]) -> String {
    flow_names(&of.iter().map(LoadFlow::flow).collect::<Vec<Flow>>())
}

/// Returns flows without figures as the same words.
pub(super) fn flow_names(of: &[Flow]) -> String {
    let named: Vec<String> = of.iter().take(3).map(ToString::to_string).collect();
    match of.len().saturating_sub(3) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
