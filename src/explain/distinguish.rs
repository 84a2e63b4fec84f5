//! What would tell two changes apart: a copy that was not measured and passes one of the two alone.

use std::collections::BTreeSet;

use model::flow::{Endpoint, Flow, HostMemory};
use model::node::NodeId;
use model::placement::{Pair, Path};

use super::hypothesis::{Effect, Hypothesis, meet};
use super::item::Mode;
use super::problem::Problem;
use super::resource::{Number, Resource};

/// A measurement or an action that tells two causes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// A copy alone.
    Copy(Flow),
    /// Two copies at once.
    AtOnce([Flow; 2]),
    /// No copy passes one without the other: exchange the parts and measure again.
    Exchange,
}

/// Returns the first measurement for which the two changes predict different figures.
pub(crate) fn distinguish(problem: &Problem<'_>, one: &Hypothesis, other: &Hypothesis) -> Test {
    let measured: BTreeSet<&[Number]> = problem
        .observations
        .iter()
        .filter(|observation| observation.load.is_none())
        .flat_map(|observation| &observation.items)
        .filter(|item| matches!(item.mode, Mode::Host | Mode::Copy))
        .map(|item| item.passes.as_slice())
        .collect();
    let alone = !one.under_load && !other.under_load;
    let hosts = with_host(problem);
    if alone {
        let flows = hosts.iter().copied().chain(pairs(problem));
        for flow in flows {
            let passes = passes(problem, flow);
            let touches = |change: &Hypothesis| change.on.iter().any(|set| meet(set, &passes));
            if touches(one) != touches(other) && !measured.contains(passes.as_slice()) {
                return Test::Copy(flow);
            }
        }
    }
    let limits = |change: &Hypothesis| matches!(change.effect, Effect::Capacity(_));
    if !limits(one) && !limits(other) {
        return Test::Exchange;
    }
    let passes: Vec<(Flow, Vec<Number>)> =
        hosts.into_iter().map(|flow| (flow, passes(problem, flow))).collect();
    for (at, (first, of_first)) in passes.iter().enumerate() {
        for (second, of_second) in passes.iter().skip(at + 1) {
            let same_way = first.to.gpu().is_some() == second.to.gpu().is_some();
            if first.with_host() == second.with_host() || !same_way {
                continue;
            }
            let shares = |change: &Hypothesis| {
                let shared = |set: &Vec<Number>| meet(set, of_first) && meet(set, of_second);
                limits(change) && change.on.iter().any(shared)
            };
            if shares(one) != shares(other) {
                return Test::AtOnce([*first, *second]);
            }
        }
    }
    Test::Exchange
}

/// Returns the copies of every GPU with the memory of every NUMA node.
fn with_host(problem: &Problem<'_>) -> Vec<Flow> {
    let nodes = problem.state.topology.nodes.iter();
    let nodes: Vec<u32> = nodes
        .filter_map(|node| match node.id {
            NodeId::Numa(node) => node,
            _ => None,
        })
        .collect();
    let of_gpu = |gpu: &u32| {
        let up = |node: &u32| Flow {
            from: Endpoint::Gpu(*gpu),
            to: Endpoint::Host { node: Some(*node), memory: HostMemory::Pinned },
        };
        let ups: Vec<Flow> = nodes.iter().map(up).collect();
        ups.into_iter().flat_map(|up| [up, up.reversed()])
    };
    problem.state.gpus.iter().flat_map(of_gpu).collect()
}

fn pairs(problem: &Problem<'_>) -> impl Iterator<Item = Flow> {
    Pair::ordered(&problem.state.gpus).into_iter().map(Flow::from)
}

/// Returns the numbers of what a flow passes, as far as measured flows pass it too.
fn passes(problem: &Problem<'_>, flow: Flow) -> Vec<Number> {
    let path = flow.pair().map_or(Path::Direct, |pair| problem.state.ways.path(pair));
    let route = problem.state.route(flow, path);
    let known = |one: &Resource| problem.resources.known(one.part, one.way);
    let mut numbers: Vec<Number> = route.passes.iter().filter_map(known).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
