//! The graph of a machine after a change.

use super::{graph, routes};
use model::snapshot::Snapshot;
use model::topology::{Link, Topology};

/// Draws a machine again after a change. Links that did not change keep what is known of them better than from readings
/// at rest. `known` is the topology before.
pub fn redraw(
    snapshot: &Snapshot,
    known: &Topology,
    is_changed: impl Fn(&Link) -> bool,
) -> Topology {
    let mut drawn = graph::draw(snapshot);
    for link in drawn.links.iter_mut().filter(|link| !is_changed(link)) {
        let is_same = |other: &&Link| {
            (other.kind, other.upper, other.lower) == (link.kind, link.upper, link.lower)
        };
        let before = known.links.iter().find(is_same);
        if let Some(before) = before.filter(|before| before.pcie.is_some()) {
            let of = |link: &Link| link.pcie.as_ref().map(|pcie| pcie.gpus.clone());
            let gpus = of(link).unwrap_or_default();
            *link = before.clone();
            link.pcie.iter_mut().for_each(|pcie| pcie.gpus.clone_from(&gpus));
        }
    }
    let adapter_paths = routes::to_adapters(snapshot, &drawn);
    Topology { pairs: routes::all(snapshot, &drawn), adapter_paths, ..drawn }
}
