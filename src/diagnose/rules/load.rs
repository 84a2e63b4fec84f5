//! Shared by the rules on several flows at once: which sums are lower than single flows explain, and which hop remains
//! once those that carried as much in another pattern are left out.

use super::load_judged::{Judged, judged};
use super::prelude::*;
use crate::changes::gpus_of;
use topology::load::{Leg, Ways, is_inside_switch};
use topology::shares::Passage;

/// Returns the ends of a passage, in the order in which links are stored.
fn ends((from, to): Passage) -> (NodeId, NodeId) {
    if from < to { (from, to) } else { (to, from) }
}

/// Flows that together reach too little because of one change of the machine.
pub(super) struct Low<'a> {
    /// The change that explains them and no figure of a single flow; `None` if no change explains them.
    pub cause: Option<&'a explain::Cause>,
    /// The links that the figures cannot tell apart, the likeliest first. Empty if the change is none of a link.
    pub links: Vec<&'a Link>,
    /// The pattern that shows it most.
    pub judged: Judged<'a>,
    /// Indices of its flows that the change slows.
    pub flows: Vec<usize>,
    /// True if they reach less than one of them alone.
    pub collapse: bool,
    /// Number of patterns that show it.
    pub patterns: usize,
}

impl Low<'_> {
    /// Returns true if both may be on the same link, or neither is on a known one.
    fn may_be(&self, other: &Low<'_>) -> bool {
        let (links, others) = (&self.links, &other.links);
        match (links.is_empty(), others.is_empty()) {
            (true, true) => true,
            _ => links.iter().any(|link| others.contains(link)),
        }
    }

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

/// Returns the changes that several flows at once show, each with true if single copies show it too.
fn causes<'a>(evidence: &Evidence<'a>) -> Vec<(&'a explain::Cause, bool)> {
    let of_load = evidence.measured().load.iter().flat_map(|load| {
        let flows = load.flows.iter().map(LoadFlow::flow);
        flows.map(|flow| load.key_of(flow))
    });
    let at_once = evidence.host().iter().filter(|copy| copy.at_once > 1);
    let of_several: BTreeSet<FigureKey> = of_load.chain(at_once.map(Measurement::key)).collect();
    let causes = &evidence.explanation().causes;
    let slows_single = |cause: &explain::Cause| {
        let mut figures = cause.explains.iter();
        figures.any(|figure| !of_several.contains(&figure.key))
    };
    let single: BTreeSet<&[explain::Part]> = (causes.iter())
        .filter(|cause| slows_single(cause))
        .map(|cause| cause.parts.as_slice())
        .collect();
    let with_single = |cause: &'a explain::Cause| (cause, single.contains(cause.parts.as_slice()));
    causes.iter().map(with_single).collect()
}

/// Returns the changes that several flows at once show and single flows do not: the rules on these report the others.
pub(super) fn low<'a>(evidence: &Evidence<'a>, below_percent: f64) -> Vec<Low<'a>> {
    let causes = causes(evidence).into_iter();
    let mut found: Vec<Low<'a>> = causes
        .filter(|(cause, is_of_single)| !cause.by_design && !is_of_single)
        .filter_map(|(cause, _)| of_cause(evidence, cause, below_percent))
        .collect();
    let rest = unexplained(evidence, below_percent);
    // Where a change is known already, what it does not account for is no second change.
    let rest = rest.filter(|rest| !found.iter().any(|known| known.may_be(rest)));
    found.extend(rest);
    found
}

/// Returns what is too low in patterns of which no change explains a flow: if few patterns were measured, they prove none.
fn unexplained<'a>(evidence: &Evidence<'a>, below_percent: f64) -> Option<Low<'a>> {
    let causes = causes(evidence).into_iter();
    let explained: BTreeSet<&FigureKey> =
        causes.flat_map(|(cause, _)| &cause.explains).map(|figure| &figure.key).collect();
    let all = judged(evidence);
    let carried = carried(&all);
    let is_open = |judged: &Judged<'_>| {
        !(judged.flows()).any(|flow| explained.contains(&judged.key_of(flow)))
    };
    let low = |judged: Judged<'a>| {
        let load = &judged.predicted.load;
        let low_hops = load.passed().into_iter().filter_map(|(hop, flows)| {
            let (_, link) = load.step(hop).filter(|step| !is_inside_switch(step))?;
            let is_shared = flows.len() > 1;
            let is_low = judged.is_collapse(&flows, below_percent) || judged.is_low(&flows);
            let carried = carried.get(&hop);
            let is_less = carried.is_none_or(|most| *most < judged.sound(&flows, below_percent));
            (is_shared && is_low && is_less).then_some((*link, flows))
        });
        let mut hops: Vec<(&'a Link, Vec<usize>)> = low_hops.collect();
        hops.sort_by_key(|(link, _)| rank(link));
        let flows = hops
            .first()
            .map(|(_, flows)| flows.clone())
            .unwrap_or_else(|| judged.low_by_kernel().unwrap_or_else(|| judged.all()));
        let collapse = !hops.is_empty() && judged.is_collapse(&flows, below_percent);
        ((collapse || judged.is_low(&flows)) && judged.predicted.are_healthy_alone(&flows)).then(
            || Low {
                cause: None,
                links: hops.into_iter().map(|(link, _)| link).collect(),
                judged,
                flows,
                collapse,
                patterns: 1,
            },
        )
    };
    let lows: Vec<Low<'a>> = all.into_iter().filter(is_open).filter_map(low).collect();
    let mut links = lows.first()?.links.clone();
    links.retain(|link| lows.iter().all(|low| low.links.contains(link)));
    let links = likeliest(links);
    let worst = worst(lows)?;
    Some(Low { links, ..worst })
}

/// Returns the one that shows it most, with their number.
fn worst(lows: Vec<Low<'_>>) -> Option<Low<'_>> {
    let patterns = lows.len();
    let worst = lows.into_iter().min_by_key(|low| (!low.collapse, low.depth()))?;
    Some(Low { patterns, ..worst })
}

fn of_cause<'a>(
    evidence: &Evidence<'a>,
    cause: &'a explain::Cause,
    below_percent: f64,
) -> Option<Low<'a>> {
    let low: BTreeSet<&FigureKey> = cause.explains.iter().map(|of| &of.key).collect();
    let links = links(evidence, cause);
    let all = judged(evidence);
    let carried = carried(&all);
    let mut lows = Vec::new();
    for judged in all {
        let is_slowed = |flow: Flow| low.contains(&judged.key_of(flow));
        let slowed: Vec<bool> = judged.flows().map(is_slowed).collect();
        if slowed.contains(&true) {
            let of_link = (cause, links.as_slice());
            lows.extend(of_pattern(of_link, judged, &slowed, &carried, below_percent));
        }
    }
    worst(lows)
}

/// Returns the highest rate that several flows had together through each hop in one direction, GB/s.
fn carried(all: &[Judged<'_>]) -> BTreeMap<Passage, f64> {
    let mut most: BTreeMap<Passage, f64> = BTreeMap::new();
    for judged in all {
        let passed = judged.predicted.load.passed().into_iter();
        for (hop, flows) in passed.filter(|(_, flows)| flows.len() > 1) {
            let known = most.entry(hop).or_default();
            *known = known.max(Judged::sum(&judged.achieved, &flows));
        }
    }
    most
}

fn of_pattern<'a>(
    (cause, links): (&'a explain::Cause, &[&'a Link]),
    judged: Judged<'a>,
    slowed: &[bool],
    carried: &BTreeMap<Passage, f64>,
    below_percent: f64,
) -> Option<Low<'a>> {
    let is_slowed = |flow: &usize| slowed.get(*flow) == Some(&true);
    let sum = |flows: &[usize]| Judged::sum(&judged.achieved, flows);
    let flows = if let Some(link) = links.first() {
        let passed = judged.predicted.load.passed().into_iter();
        let through_link = passed.filter(|(hop, flows)| {
            let is_link = ends(*hop) == ends((link.upper, link.lower));
            // It may have carried as much in another pattern.
            let carried = carried.get(hop).copied().unwrap_or_default();
            let is_shared = is_link && flows.len() > 1 && flows.iter().any(is_slowed);
            is_shared && carried < judged.sound(flows, below_percent)
        });
        let left = |flows: &Vec<usize>| sum(flows) / Judged::sum(&judged.explained, flows);
        words::smallest(through_link.map(|(_, flows)| flows), left)?
    } else {
        judged.all().into_iter().filter(is_slowed).collect()
    };
    let collapse = judged.is_collapse(&flows, below_percent);
    // Where figures agree closely, the explanation accounts for smaller losses too.
    let is_sure = collapse || judged.is_low(&flows);
    (is_sure && judged.predicted.are_healthy_alone(&flows)).then(|| Low {
        cause: Some(cause),
        links: links.to_vec(),
        collapse,
        judged,
        flows,
        patterns: 1,
    })
}

/// Returns the links that a cause means, the likeliest first. Several, if exactly the same flows pass them.
fn links<'a>(evidence: &Evidence<'a>, cause: &explain::Cause) -> Vec<&'a Link> {
    let suspects = cause.suspects.iter();
    let alike = suspects.filter(|of| of.gain_bits >= cause.gain_bits);
    let parts = std::iter::once(&cause.parts).chain(alike.map(|of| &of.parts));
    let single = parts.filter_map(|parts| match parts.as_slice() {
        [part] => Some(*part),
        _ => None,
    });
    let links = single.filter_map(|part| link_of(evidence, part));
    likeliest(links.collect())
}

/// Returns these links, the likeliest cause first. The inside of a processor is one only if nothing else is.
fn likeliest(mut links: Vec<&Link>) -> Vec<&Link> {
    links.sort_by_key(|link| rank(link));
    if links.iter().any(|link| rank(link) < 2) {
        links.retain(|link| rank(link) < 2);
    }
    links
}

fn link_of<'a>(evidence: &Evidence<'a>, part: explain::Part) -> Option<&'a Link> {
    let between = |is_meant: &dyn Fn(&Link) -> bool| {
        let links = &evidence.topology.links;
        links.iter().find(|link| is_meant(link))
    };
    match part {
        explain::Part::Link(lower) => evidence.topology.link_above(lower),
        explain::Part::NvPort(gpu) => between(&|link| {
            let ends = [link.upper, link.lower];
            let switched = !ends.iter().all(|end| end.is_gpu());
            link.kind == LinkKind::NvLink && switched && ends.contains(&NodeId::Gpu(gpu))
        }),
        explain::Part::NvPair(one, other) => between(&|link| {
            let gpus = (NodeId::Gpu(one), NodeId::Gpu(other));
            link.kind == LinkKind::NvLink && ends((link.upper, link.lower)) == gpus
        }),
        explain::Part::Interconnect(one, other) => between(&|link| {
            link.kind == LinkKind::Interconnect
                && ends((link.upper, link.lower)) == ends((one, other))
        }),
        _ => None,
    }
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
        (LinkKind::NvLink, NodeId::Gpu(source), NodeId::Gpu(destination)) => {
            Subject::Pair(Pair { source, destination })
        }
        (LinkKind::NvLink, _, NodeId::Gpu(index)) => Subject::Gpu { index },
        (LinkKind::Pcie, _, lower) => {
            let address = evidence.topology.node(lower).and_then(|node| node.pci);
            address.map_or(Subject::Machine, |address| Subject::PcieLink { address })
        }
        _ => Subject::Machine,
    }
}

/// Returns words by which a person can find a link.
pub(super) fn place(evidence: &Evidence<'_>, link: &Link) -> String {
    match link.kind {
        LinkKind::Interconnect => {
            let [one, other] = [link.upper, link.lower].map(cluster::end);
            format!("the link between {one} and {other}")
        }
        LinkKind::RootComplex => format!("the processor at {}", link.lower),
        LinkKind::Pcie => {
            format!("the PCIe link {} – {} ({})", link.upper, link.lower, link.label)
        }
        LinkKind::NvLink => {
            Ways::of(evidence.snapshot, evidence.topology).describe((link.upper, link.lower))
        }
    }
}

/// Returns the finding of a rule on rates that are too low.
pub(super) fn finding(
    evidence: &Evidence<'_>,
    rule: &Rule,
    low: &Low<'_>,
    message: impl Fn(&str) -> String,
    plan: impl Into<Plan>,
) -> Finding {
    let places = || low.links.iter().map(|link| place(evidence, link));
    let (about, place) = match (low.links.as_slice(), low.cause) {
        ([], None) => (Subject::Machine, unnamed(low.patterns)),
        ([], Some(cause)) => of_part(evidence, &cause.parts),
        ([link], _) => (subject(evidence, link), place(evidence, link)),
        _ => (Subject::Machine, format!("one of {}", words::distinct(places()))),
    };
    let suspected = |place| suspect(Cause::OneOfLinks(place), [steps::Step::CheckOneLink]);
    let several = places().filter(|_| low.links.len() > 1);
    // Without a place, the slow flows themselves say where to look.
    let flows = match about {
        Subject::Machine if low.links.is_empty() => low.flows.clone(),
        _ => low.judged.all(),
    };
    rule.finding(about, message(&place), plan)
        .pairs(&low.judged.pairs_of(&flows))
        .about_gpus(&low.judged.gpus_of(&flows))
        .fact("pattern", low.judged.pattern.name())
        .fact("patterns", low.patterns)
        .fact("together", low.together())
        .fact("alone", low.judged.best_alone(&low.flows).map(GbPerSecond))
        .fact("explained", low.explained())
        .suspecting(several.map(suspected).collect())
}

/// Returns words for what flows of some patterns share.
fn unnamed(patterns: usize) -> String {
    match patterns {
        1 => "what they share".into(),
        several => format!("what they share, one of {several} alike"),
    }
}

/// Returns the subject and the place of a change that is none of a link.
fn of_part(evidence: &Evidence<'_>, parts: &[explain::Part]) -> (Subject, String) {
    match parts {
        [explain::Part::Gpu(index) | explain::Part::Host(index)] => {
            (Subject::Gpu { index: *index }, format!("GPU {index}"))
        }
        [part] => (Subject::Machine, part.to_string()),
        exits => {
            let gpus = exits.iter().flat_map(|part| gpus_of(evidence, *part));
            let gpus = words::gpus(&gpus.collect::<Vec<u32>>());
            let place = format!("a hop above {gpus} that no file shows");
            (Subject::Machine, place)
        }
    }
}

/// Returns true if every hop of this pattern has a known rate, so that no invisible hop may limit it.
pub(super) fn is_all_known(judged: &Judged<'_>) -> bool {
    let known = |step: &Leg<'_>| step.0.capacity_gbps.is_some() || is_inside_switch(step);
    judged.predicted.load.ways.iter().flatten().all(known)
}

/// Returns the flows of a pattern as words: `GPU 1 → GPU 0, GPU 2 → GPU 0 and 5 more`.
pub(super) fn flows(of: &[LoadFlow]) -> String {
    flow_names(&of.iter().map(LoadFlow::flow).collect::<Vec<Flow>>())
}

/// Returns flows without figures as the same words.
pub(super) fn flow_names(of: &[Flow]) -> String {
    words::first(of, 3)
}
