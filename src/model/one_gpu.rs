//! What figures of probes on one GPU have in common: pipelines, copy engines, calls that hold the host, loops
//! of launches, and data that is read too early.

use serde::{Deserialize, Serialize};

use super::flow::{Flow, Setup};
use super::probe::{Cell, Probe};
use super::status::{Status, Verified};
use super::units::Bytes;

/// How a measurement ended, and whether its figure counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Ending {
    /// How the measurement ended.
    pub status: Status,
    /// Why there is no figure.
    pub reason: Option<String>,
    /// Whether another program moved data over the links of this GPU or worked on it: the figure is shown, and
    /// nothing is judged by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

impl Ending {
    /// It has a figure.
    pub const MEASURED: Self = Self {
        status: Status::Measured,
        reason: None,
        disturbed: false,
    };

    /// It has none, for this reason.
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

    /// From where to where bytes are copied; within the GPU where none are.
    fn flow(&self) -> Flow;

    /// Bytes of a copy; 0 where nothing is copied.
    fn bytes(&self) -> Bytes;

    /// In what it differs from other measurements of its probe and flow, for people.
    fn what(&self) -> String;

    /// Its figures by their keys, the one that counts first.
    fn figures(&self) -> Vec<(&'static str, Option<f64>)>;

    /// Takes its figures out.
    fn forget(&mut self);

    fn ending(&self) -> &Ending;

    /// How it ended, to be changed.
    fn ending_mut(&mut self) -> &mut Ending;

    /// Its name: no other measurement of a report has it.
    fn name(&self) -> String {
        format!("{}, {}, {}", self.probe(), self.flow(), self.what())
    }

    /// What every probe has in common.
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
