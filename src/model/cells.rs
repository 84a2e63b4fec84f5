//! The figures by which pairs and GPUs are judged.

use std::collections::BTreeMap;

use super::flow::Setup;
use super::host::{HostCopy, HostWay};
use super::measurement::{Measurements, PeerBandwidth, Status};
use super::placement::{Pair, Path};

impl Measurements {
    /// Returns the setups of all planned copies, each once and without its size, in the order of the report.
    pub fn setups(&self) -> Vec<Setup> {
        let mut setups: Vec<Setup> = Vec::new();
        for setup in self.peer.iter().map(|peer| peer.setup.of_any_size()) {
            if !setups.contains(&setup) {
                setups.push(setup);
            }
        }
        setups
    }

    /// Returns one cell for each pair in this setup, regardless of size. Measured cells go before others, then larger
    /// copies before smaller ones.
    pub fn in_setup(&self, setup: Setup) -> BTreeMap<Pair, &PeerBandwidth> {
        let setup = setup.of_any_size();
        let weight =
            |cell: &PeerBandwidth| (cell.ending.status == Status::Measured, cell.setup.bytes);
        let mut cells: BTreeMap<Pair, &PeerBandwidth> = BTreeMap::new();
        for cell in self.peer.iter().filter(|cell| cell.setup.of_any_size() == setup) {
            let shown = cells.entry(cell.pair).or_insert(cell);
            if weight(shown) < weight(cell) {
                *shown = cell;
            }
        }
        cells
    }

    /// Returns the figures by which pairs are judged on this path: those measured in [`Setup::REFERENCE`].
    pub fn reference(&self, path: Path) -> BTreeMap<Pair, &PeerBandwidth> {
        let mut cells = self.in_setup(Setup::REFERENCE.with_path(path));
        cells.retain(|_, cell| cell.ending.is_sound());
        cells
    }

    /// Returns true if any measurement with several flows at once has a result.
    pub fn has_load(&self) -> bool {
        self.load.iter().any(|load| load.cells().any(|cell| cell.tested()))
    }

    /// Returns the copies made in this way while no other GPU copied, one per GPU and NUMA node. Measured copies go
    /// before others, then larger ones before smaller ones.
    pub fn host_alone(&self, way: HostWay) -> Vec<&HostCopy> {
        let mut found: Vec<&HostCopy> = Vec::new();
        let weight = |copy: &HostCopy| (copy.ending.status == Status::Measured, copy.bytes);
        for copy in self.host.iter().filter(|copy| copy.at_once == 1 && copy.way() == way) {
            match found
                .iter_mut()
                .find(|other| (other.gpu, other.numa_node) == (copy.gpu, copy.numa_node))
            {
                Some(other) if weight(other) < weight(copy) => *other = copy,
                Some(_) => {}
                None => found.push(copy),
            }
        }
        found
    }
}
