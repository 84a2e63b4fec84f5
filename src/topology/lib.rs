//! Snapshot → graph and routes: the connection of every ordered pair of GPUs, and the most that it can carry.

pub mod belief;
pub mod capacity;
mod graph;
pub mod healthy;
pub mod host;
pub mod load;
mod network;
pub mod nvlink;
pub mod pcie;
mod placeholder;
pub mod refute;
mod routes;
pub mod shares;

pub use routes::class;

use model::measurement::DriverFacts;
use model::node::NodeId;
use model::rounding::four_places;
use model::snapshot::Snapshot;
use model::topology::{Hop, PairRoute, Topology};
use model::units::GbPerSecond;

/// Draws the graph of a machine and finds the route of every ordered pair of its GPUs.
pub fn build(snapshot: &Snapshot) -> Topology {
    let graph = graph::draw(snapshot);
    let adapter_paths = routes::to_adapters(snapshot, &graph);
    Topology { pairs: routes::all(snapshot, &graph), adapter_paths, ..graph }
}

/// Returns true if this route passes the NVSwitch plane.
pub fn passes_nvswitch(route: &PairRoute) -> bool {
    route.hops.iter().any(|hop| hop.to == NodeId::NvSwitch)
}

/// Returns true if this hop lies between two ports of one switch and is therefore no link of its own.
pub fn is_inside_switch(hop: &Hop) -> bool {
    hop.label == graph::INSIDE_SWITCH
}

/// Returns the topology with CUDA's answer on peer access beside NVML's.
#[must_use]
pub fn with_cuda(mut topology: Topology, driver: &DriverFacts) -> Topology {
    let device_failure = |index: u32| {
        let device = driver.devices.iter().find(|device| device.index == index)?;
        device.failure.as_ref().map(|why| format!("GPU {index}: {why}"))
    };
    for route in &mut topology.pairs {
        let said = driver.said_of(route.pair);
        // A pair that a limit prevented from being asked has no answer yet.
        route.peer_access.cuda = said.filter(|said| !said.hindered).and_then(|said| said.possible);
        route.peer_access.cuda_failure = match said {
            Some(said) => said.failure.clone(),
            None => driver
                .failure
                .clone()
                .or_else(|| device_failure(route.pair.source))
                .or_else(|| device_failure(route.pair.destination)),
        };
    }
    topology
}

/// Sets the theoretical rate beside a figure, and its share of that. A rate that is known already, as it is written, stays
/// with its share: a report that is judged again gives the same figures. Returns true if the rate is new.
pub(crate) fn set_theory(
    (theory, achieved): (Option<GbPerSecond>, Option<GbPerSecond>),
    (theoretical, percent): (&mut Option<GbPerSecond>, &mut Option<f64>),
) -> bool {
    let written = |rate: GbPerSecond| four_places(rate.0);
    let is_new = theory.is_some() && theory.map(written) != theoretical.map(written);
    if is_new {
        *theoretical = theory;
        *percent = achieved.zip(theory).map(|(achieved, theory)| achieved.percent_of(theory));
    }
    is_new
}

#[cfg(test)]
mod belief_tests;
#[cfg(test)]
mod refute_tests;
#[cfg(test)]
mod tests;
