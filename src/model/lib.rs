//! The data passed between stages: plain, immutable, serialisable. Nothing here touches a machine, and every number
//! carries its unit in its name or its type.

#[macro_use]
mod words;
pub mod advice;
pub mod asynchrony;
pub mod axis;
pub mod background;
pub mod broken_off;
pub mod cell;
mod cells;
pub mod collective;
pub mod counted;
pub mod cuda;
pub mod fact;
pub mod finding;
pub mod flow;
pub mod host;
pub mod impossible;
mod latency;
pub mod live;
pub mod load;
mod local;
pub mod machine_facts;
pub mod maps;
pub mod measurement;
pub mod nearest;
pub mod node;
mod overlap;
pub mod pasted;
pub mod pcie;
mod peer;
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
pub mod sharing;
pub mod shell;
pub mod snapshot;
pub mod soak;
pub mod status;
pub mod step;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timeline;
pub mod topology;
pub mod under_load;
pub mod units;
