//! The order of ranks: that in which a ring is fastest, and what parallel jobs want from it.

use model::rounding::four_places;
use serde::Serialize;

use super::outlook::{Outlook, between};
use super::place::{Binding, binding};
use super::ring::{Between, Shape};

/// The best orders of all GPUs, beside the natural one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Order {
    /// In the order of NVML's indices.
    pub natural: Sequence,
    /// The natural order, unless another one is better than by noise.
    pub ring: Sequence,
    /// The same for a tree, which is a chain within one machine.
    pub tree: Sequence,
    /// What groups of neighbours in the order of the ring have, by their size.
    pub groups: Vec<Groups>,
    /// GPUs without figures, which are in no order.
    pub left_out: Vec<u32>,
    /// What the process of each rank should be bound to, in the order of the ring.
    pub ranks: Vec<Binding>,
}

/// An order with what it reaches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sequence {
    pub gpus: Vec<u32>,
    /// Predicted bus bandwidth of an all-reduce over a ring in this order.
    pub ring_bus_gbps: f64,
    /// The same over a tree.
    pub tree_bus_gbps: f64,
    /// False if not all orders were looked at, and a better one may exist.
    pub exact: bool,
}

/// Groups of neighbouring ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Groups {
    /// Ranks of a group: the degree of tensor parallelism.
    pub size: usize,
    pub groups: Vec<Vec<u32>>,
    /// Rate of the slowest pair within a group: what tensor parallelism gets.
    pub within_gbps: f64,
    /// Rate of the slowest pair of the same rank in neighbouring groups: what a pipeline over the groups gets. Null if
    /// there is one group.
    pub across_gbps: Option<f64>,
}

/// Splits the GPUs into those with figures and those without.
fn measured(outlook: &Outlook<'_>) -> (Vec<u32>, Vec<u32>) {
    let all = outlook.gpus();
    let has_figure = |gpu: &u32| {
        let others = all.iter().filter(|other| *other != gpu);
        others.into_iter().any(|other| {
            let flows = [between(*gpu, *other), between(*other, *gpu)];
            flows.iter().all(|flow| outlook.alone(*flow).is_some())
        })
    };
    all.iter().partition(|gpu| has_figure(gpu))
}

/// Returns the predicted bus bandwidth of an all-reduce over all GPUs with figures by their best ring, GB/s; `None` if there
/// are fewer than two.
pub(crate) fn best_ring(outlook: &Outlook<'_>) -> Option<f64> {
    let (gpus, _) = measured(outlook);
    let table = (gpus.len() > 1).then(|| Between::of(outlook, &gpus))?;
    Some(table.best(&table.places(&gpus), Shape::Ring, 0.0).gbps)
}

/// Finds the best orders of all GPUs with figures; `None` if there are fewer than two.
pub fn order(outlook: &Outlook<'_>) -> Option<Order> {
    let (gpus, left_out) = measured(outlook);
    if gpus.len() < 2 {
        return None;
    }
    let table = Between::of(outlook, &gpus);
    let natural = table.places(&gpus);
    let sequence = |order: &[usize], exact: bool| Sequence {
        gpus: table.gpus(order),
        ring_bus_gbps: four_places(table.rate(order, Shape::Ring)),
        tree_bus_gbps: four_places(tree_bus(order.len(), table.rate(order, Shape::Chain))),
        exact,
    };
    let ring = table.best(&natural, Shape::Ring, 0.0);
    // A chain in the order of the ring is as good as any, unless one is better than by noise.
    let tree = table.best(&ring.order, Shape::Chain, 0.0);
    let ring = sequence(&ring.order, ring.exact);
    Some(Order {
        natural: sequence(&natural, true),
        groups: groups(outlook, &ring.gpus),
        ranks: ring.gpus.iter().map(|gpu| binding(outlook, *gpu)).collect(),
        tree: sequence(&tree.order, tree.exact),
        ring,
        left_out,
    })
}

/// Returns the bus bandwidth of an all-reduce over a chain whose flows, both ways at once, have this rate: the data goes
/// up and down once (nccl-tests, doc/PERFORMANCE.md).
#[allow(clippy::cast_precision_loss, reason = "a number of GPUs")]
fn tree_bus(gpus: usize, rate: f64) -> f64 {
    let gpus = gpus as f64;
    rate * 2.0 * (gpus - 1.0) / gpus
}

fn groups(outlook: &Outlook<'_>, order: &[u32]) -> Vec<Groups> {
    let sizes = (2..=order.len()).filter(|size| order.len().is_multiple_of(*size));
    let rate = |(from, to): (u32, u32)| {
        let there = outlook.alone(between(from, to)).unwrap_or(0.0);
        let back = outlook.alone(between(to, from)).unwrap_or(0.0);
        there.min(back)
    };
    let lowest = |pairs: Vec<(u32, u32)>| pairs.into_iter().map(rate).reduce(f64::min);
    let of_size = |size: usize| {
        let groups: Vec<Vec<u32>> = order.chunks(size).map(<[u32]>::to_vec).collect();
        let within = groups.iter().flat_map(|group| {
            let pairs = group.iter().enumerate();
            pairs.flat_map(|(at, one)| group[at + 1..].iter().map(|other| (*one, *other)))
        });
        let neighbours = groups.iter().zip(groups.iter().skip(1));
        let across = neighbours.flat_map(|(one, next)| {
            one.iter().copied().zip(next.iter().copied()).collect::<Vec<_>>()
        });
        Some(Groups {
            size,
            within_gbps: four_places(lowest(within.collect())?),
            across_gbps: lowest(across.collect()).map(four_places),
            groups: groups.clone(),
        })
    };
    sizes.filter_map(of_size).collect()
}
