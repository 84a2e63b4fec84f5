//! What a rule may look at.

use std::collections::BTreeMap;

use super::expectations::Expectations;
use super::expected::{self, Expectation};
use super::settings::Settings;
use crate::model::measurement::{LinkUnderLoad, Measurements, PeerBandwidth};
use crate::model::placement::{Pair, Path};
use crate::model::report::Report;
use crate::model::request::Request;
use crate::model::snapshot::Snapshot;
use crate::model::topology::{LinkClass, Topology};

/// Everything that a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// What was asked for: what it left out is not known to be missing.
    pub request: &'a Request,
    /// The facts.
    pub snapshot: &'a Snapshot,
    /// The graph and the routes, CUDA's word on peer access included where it was asked.
    pub topology: &'a Topology,
    /// The figures; none where nothing was to be measured.
    pub measurements: Option<&'a Measurements>,
    /// What the user set.
    pub settings: &'a Settings,
    /// What the buyer expects.
    pub expectations: Option<&'a Expectations>,
    /// An earlier report of the same machine.
    pub baseline: Option<&'a Report>,
}

impl<'a> Evidence<'a> {
    /// What a report holds by itself.
    pub fn of(report: &'a Report, settings: &'a Settings) -> Self {
        Self {
            request: &report.request,
            snapshot: &report.snapshot,
            topology: &report.topology,
            measurements: report.measurements.as_ref(),
            settings,
            expectations: None,
            baseline: None,
        }
    }

    /// The figure that each pair is judged by, see [`Measurements::reference`].
    pub fn reference(&self, path: Path) -> BTreeMap<Pair, &'a PeerBandwidth> {
        self.measurements.map(|measurements| measurements.reference(path)).unwrap_or_default()
    }

    /// All bandwidth figures.
    pub fn peer(&self) -> &'a [PeerBandwidth] {
        self.measurements.map_or(&[], |measurements| &measurements.peer)
    }

    /// The PCIe links of the GPUs while copies ran.
    pub fn links(&self) -> &'a [LinkUnderLoad] {
        self.measurements.map_or(&[], |measurements| &measurements.links)
    }

    /// What a cell is expected to reach; `None` where its theoretical rate is not known.
    pub fn expected(&self, cell: &PeerBandwidth) -> Option<Expectation> {
        expected::of(cell, self.topology, self.snapshot, &self.settings.shares)
    }

    /// Whether this is known to be a virtual machine.
    pub fn virtual_machine(&self) -> bool {
        self.snapshot.host.virtual_machine.get() == Some(true)
    }

    /// Whether copies of this pair go over PCIe: its class is known and no NVLink.
    pub fn over_pcie(&self, pair: Pair) -> bool {
        let class = self.topology.route(pair).map(|route| route.class);
        class.is_some_and(|class| !matches!(class, LinkClass::NvLink(_) | LinkClass::Unknown))
    }

    /// Whether copies of this pair go over NVLink.
    pub fn over_nvlink(&self, pair: Pair) -> bool {
        matches!(self.topology.route(pair).map(|route| route.class), Some(LinkClass::NvLink(_)))
    }
}
