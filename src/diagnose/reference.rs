//! The figure that a pair is judged by.

use std::collections::BTreeMap;

use crate::model::measurement::{Measurements, PeerBandwidth, Status};
use crate::model::placement::{Direction, Engine, Pair, Path, Placement, Side};

/// Of each pair the figure that it is judged by: copy engine, issued by the source, one way,
/// reference placement, and of several sizes the largest.
pub fn cells(measurements: Option<&Measurements>, path: Path) -> BTreeMap<Pair, &PeerBandwidth> {
    let mut cells: BTreeMap<Pair, &PeerBandwidth> = BTreeMap::new();
    for cell in measurements.map_or(&[][..], |measurements| &measurements.peer) {
        let is_reference = cell.status == Status::Measured
            && cell.engine == Engine::Copy
            && cell.issuer == Side::Source
            && cell.direction == Direction::OneWay
            && cell.placement == Placement::REFERENCE
            && cell.path == path;
        if is_reference && cells.get(&cell.pair).is_none_or(|other| other.bytes < cell.bytes) {
            cells.insert(cell.pair, cell);
        }
    }
    cells
}
