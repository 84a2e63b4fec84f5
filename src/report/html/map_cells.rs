//! Rows, columns and cells that all heat maps share.

use std::collections::{BTreeMap, HashMap, HashSet};

use maud::{Markup, html};

use super::super::digest::Digest;
use super::super::escape::clean;
use super::super::highlight;
use super::super::paint::Paint;
use model::node::NodeId;
use model::placement::Pair;
use model::report::Report;
use model::topology::NodeKind;

/// Most GPUs with full cells. With more, cells are small and show their values on hover.
pub(super) const MOST: usize = 16;

/// Lower ends of the colour steps, per cent of the healthy rate, with the words of the legend.
pub(super) const STEPS: [(f64, &str); 6] = [
    (0.0, "below 50"),
    (50.0, "50"),
    (70.0, "70"),
    (85.0, "85"),
    (92.0, "92"),
    (98.0, "98 and more"),
];

/// Share of the healthy rate, in per cent, below which a cell has a sign too.
pub(super) const LOW: f64 = 85.0;

pub(super) struct HeatCell {
    pub(super) text: String,
    /// Per cent of the healthy rate.
    pub(super) share: Option<f64>,
    pub(super) tip: String,
}

/// Facts about the machine that every map needs.
pub(super) struct MapContext {
    pub(super) gpus: Vec<u32>,
    pub(super) marks: HashMap<Pair, Paint>,
    /// Pairs without a finding whose other direction has one.
    pub(super) reverse: HashSet<Pair>,
    of_gpu: HashMap<u32, Paint>,
    pub(super) groups: BTreeMap<u32, Group>,
    /// Number of columns and name of each socket, in order; empty if there is only one.
    pub(super) sockets: Vec<(usize, String)>,
}

/// The socket and the switch of a GPU.
pub(super) type Group = (Option<NodeId>, Option<NodeId>);

impl MapContext {
    pub(super) fn of(digest: &Digest<'_>) -> Self {
        let mut gpus = digest.gpus();
        let groups: BTreeMap<u32, Group> =
            gpus.iter().map(|&gpu| (gpu, group(digest.report, gpu))).collect();
        together(&mut gpus, &groups);
        let (mut marks, mut of_gpu): (HashMap<Pair, Paint>, HashMap<u32, Paint>) =
            Default::default();
        for finding in &digest.findings {
            let paint = highlight::paint(finding.severity);
            for pair in highlight::pairs(finding) {
                let worst = marks.entry(pair).or_default();
                *worst = paint.max(*worst);
            }
            for gpu in highlight::gpus(finding) {
                let worst = of_gpu.entry(gpu).or_default();
                *worst = paint.max(*worst);
            }
        }
        let back = |pair: &Pair| Pair { source: pair.destination, destination: pair.source };
        let bad = |pair: &Pair| marks.get(pair).is_some_and(|paint| *paint >= Paint::Warning);
        let reverse =
            marks.keys().filter(|pair| bad(pair)).map(back).filter(|pair| !bad(pair)).collect();
        let sockets = sockets(digest.report, &gpus, &groups);
        Self { gpus, marks, reverse, of_gpu, groups, sockets }
    }
}

/// Sorts GPUs by socket, within a socket by switch, else by index.
fn together(gpus: &mut [u32], groups: &BTreeMap<u32, Group>) {
    let (mut sockets, mut switches): (HashMap<_, u32>, HashMap<_, u32>) = Default::default();
    for (&gpu, &group) in groups {
        sockets.entry(group.0).or_insert(gpu);
        switches.entry(group).or_insert(gpu);
    }
    let place = |gpu: &u32| {
        groups.get(gpu).map(|group| (sockets.get(&group.0).copied(), switches.get(group).copied()))
    };
    gpus.sort_by_key(|gpu| (place(gpu), *gpu));
}

/// Returns the number of columns and the name of each socket.
fn sockets(report: &Report, gpus: &[u32], groups: &BTreeMap<u32, Group>) -> Vec<(usize, String)> {
    let of = |gpu: &u32| groups.get(gpu).and_then(|group| group.0);
    let name = |id: Option<NodeId>| {
        id.and_then(|id| report.topology.node(id)).map(|node| clean(&node.label).into_owned())
    };
    let runs: Vec<_> = gpus.chunk_by(|one, next| of(one) == of(next)).collect();
    // A name needs some columns of width.
    let least = if gpus.len() > MOST { 8 } else { 2 };
    match runs.len() {
        0 | 1 => Vec::new(),
        many if gpus.len() < many * least => Vec::new(),
        _ => runs.iter().map(|run| (run.len(), name(of(&run[0])).unwrap_or_default())).collect(),
    }
}

/// Returns the socket and the switch of a GPU; GPUs of one group are adjacent.
fn group(report: &Report, gpu: u32) -> Group {
    let way = report.topology.way_up(NodeId::Gpu(gpu));
    let is = |id: &&NodeId, kind| report.topology.node(**id).is_some_and(|node| node.kind == kind);
    let socket = way.iter().find(|id| is(id, NodeKind::NumaNode)).copied();
    (socket, way.iter().rfind(|id| is(id, NodeKind::SwitchPort)).copied())
}

fn step(share: f64) -> usize {
    STEPS.iter().rposition(|(low, _)| share >= *low).unwrap_or(0)
}

/// Returns the sign and the class of a cell.
pub(super) fn dress(heat: Option<&HeatCell>, mark: Paint) -> (&'static str, String) {
    let share = heat.and_then(|heat| heat.share);
    let sign = match mark {
        Paint::Error => "✖",
        Paint::Warning => "▲",
        _ if share.is_some_and(|share| share < LOW) => "▾",
        _ => "",
    };
    let class = match mark {
        Paint::Error => " error",
        Paint::Warning => " warning",
        _ => "",
    };
    (sign, share.map_or_else(|| "none".to_owned(), |share| format!("h{}", step(share))) + class)
}

/// Renders a GPU's name, with the mark of a finding about it.
pub(super) fn head(ground: &MapContext, gpu: u32, scope: &str, left: bool, small: bool) -> Markup {
    let paint = ground.of_gpu.get(&gpu).copied().unwrap_or_default();
    let (sign, _) = dress(None, paint);
    html! {
        th scope=(scope) .left[left].error[paint == Paint::Error].warning[paint == Paint::Warning] data-g=(gpu) {
            @if small { (gpu) } @else { (sign) @if !sign.is_empty() { "\u{a0}" } @if scope == "row" { "GPU " } (gpu) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_of_one_socket_stand_together_and_within_it_those_of_one_switch() {
        let node = |number: u32| Some(NodeId::Gpu(number));
        let groups =
            [(0, (0, 10)), (1, (1, 20)), (2, (0, 11)), (3, (1, 20)), (4, (0, 10)), (5, (0, 11))];
        let groups: BTreeMap<u32, Group> = groups
            .into_iter()
            .map(|(gpu, (socket, switch))| (gpu, (node(socket), node(switch))))
            .collect();
        let mut gpus: Vec<u32> = groups.keys().copied().collect();
        together(&mut gpus, &groups);
        assert_eq!(gpus, [0, 4, 2, 5, 1, 3]);
    }
}
