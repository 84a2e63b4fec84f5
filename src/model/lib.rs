//! The data passed between stages: plain, immutable, serialisable. Nothing here touches a machine, and every number
//! carries its unit in its name or its type. Cells of probes are modules of this crate, because every room reads them; their files
//! are `probes/NAME/cell.rs`.

#[macro_use]
mod words;
#[path = "../../probes/addresses/cell.rs"]
pub mod addresses;
pub mod advice;
#[path = "../../probes/asynchrony/cell.rs"]
pub mod asynchrony;
pub mod axis;
pub mod background;
pub mod broken_off;
pub mod cell;
mod cells;
pub mod choice;
pub mod collective;
#[path = "../../probes/contention/cell.rs"]
pub mod contention;
pub mod counted;
pub mod cuda;
pub mod fact;
pub mod finding;
pub mod flow;
#[path = "../../probes/host/cell.rs"]
pub mod host;
pub mod impossible;
#[path = "../../probes/latency/cell.rs"]
mod latency;
#[path = "../../probes/links/cell.rs"]
pub mod links;
#[path = "../../probes/live/cell.rs"]
pub mod live;
#[path = "../../probes/load/cell.rs"]
pub mod load;
#[path = "../../probes/local/cell.rs"]
mod local;
pub mod machine_facts;
pub mod maps;
pub mod measurement;
pub mod nearest;
pub mod node;
#[path = "../../probes/overlap/cell.rs"]
mod overlap;
pub mod pasted;
pub mod pcie;
#[path = "../../probes/peers/cell.rs"]
mod peer;
#[path = "../../probes/pipeline/cell.rs"]
pub mod pipeline;
pub mod placement;
mod probe;
pub mod reading;
pub mod report;
pub mod request;
pub mod restore;
pub mod rounding;
mod rule_id;
#[cfg(any(test, feature = "testing"))]
pub mod schema;
#[cfg(test)]
mod schema_tests;
#[path = "../../probes/share/cell.rs"]
pub mod sharing;
pub mod shell;
pub mod snapshot;
#[path = "../../probes/soak/cell.rs"]
pub mod soak;
pub mod status;
pub mod step;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timeline;
pub mod topology;
pub mod under_load;
pub mod units;
pub mod watched;
