//! Counters, read at the end of each minute under load.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::watch::errors::{collect_links, read_functions, read_links};
use hardware::Telemetry;
use model::snapshot::{NvLink, PciFunction, Snapshot};

/// Longest wait for counters at the end of a minute. Copies go on meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// The counters of a machine at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    pub(crate) links: HashMap<u32, Vec<NvLink>>,
    pub(crate) functions: Vec<PciFunction>,
}

impl Counted {
    /// Reads them now.
    pub fn now(telemetry: &Arc<dyn Telemetry>, snapshot: &Snapshot) -> Self {
        let links = read_links(telemetry, &snapshot.gpus);
        let functions = read_functions(telemetry);
        let patience = telemetry.patience(PATIENCE);
        Self {
            links: collect_links(&links, patience),
            functions: functions.recv_timeout(patience).unwrap_or_default(),
        }
    }
}
