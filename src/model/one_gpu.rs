//! Common parts of the probes on one GPU: pipelines, copy engines, calls that block the host, launch loops, and data
//! that is read too early.

use serde::{Deserialize, Serialize};

use super::flow::{Flow, Setup};
use super::probe::{Cell, Probe};
use super::status::{Status, Verified};
use super::units::Bytes;

/// The end of a measurement: its status, and if its figure counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Ending {
    /// Status of the measurement.
    pub status: Status,
    /// Reason why there is no figure.
    pub reason: Option<String>,
    /// True if another program moved data over the links of this GPU or worked on it. The figure is shown but not
    /// judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

impl Ending {
    /// The ending of a measurement that has a figure.
    pub const MEASURED: Self = Self {
        status: Status::Measured,
        reason: None,
        disturbed: false,
    };

    /// Creates an ending without a figure, for this reason.
    pub const fn without(status: Status, reason: Option<String>) -> Self {
        Self {
            status,
            reason,
            disturbed: false,
        }
    }
}

/// A measurement on one GPU.
pub trait OneGpu {
    fn probe(&self) -> Probe;

    /// Returns source and destination of the copied bytes. A measurement without copies returns the GPU for both.
    fn flow(&self) -> Flow;

    /// Returns the bytes of a copy, 0 if nothing is copied.
    fn bytes(&self) -> Bytes;

    /// Describes, for people, the difference from other measurements of its probe and flow.
    fn what(&self) -> String;

    /// Returns its figures by their keys, the main figure first.
    fn figures(&self) -> Vec<(&'static str, Option<f64>)>;

    /// Removes its figures.
    fn forget(&mut self);

    fn ending(&self) -> &Ending;

    /// Returns its ending, mutable.
    fn ending_mut(&mut self) -> &mut Ending;

    /// Returns its name, unique within a report.
    fn name(&self) -> String {
        format!("{}, {}, {}", self.probe(), self.flow(), self.what())
    }

    /// Returns the fields that all probes share.
    fn cell(&self) -> Cell<'_> {
        let Ending {
            status,
            reason,
            disturbed,
        } = self.ending();
        Cell {
            probe: self.probe(),
            flow: self.flow(),
            setup: Setup::REFERENCE.with_bytes(self.bytes()),
            status: *status,
            has_figure: self
                .figures()
                .first()
                .is_some_and(|(_, figure)| figure.is_some()),
            reason: reason.as_deref(),
            verified: Verified::Skipped,
            disturbed: *disturbed,
        }
    }
}
