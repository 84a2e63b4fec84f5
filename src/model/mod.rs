//! The data that the stages hand on: plain, immutable, serialisable. Nothing here touches a
//! machine, and every number carries its unit in its name or its type.

pub mod background;
pub mod cells;
pub mod cuda;
pub mod fact;
pub mod finding;
pub mod flow;
pub mod impossible;
pub mod measurement;
pub mod nearest;
pub mod node;
pub mod pcie;
pub mod placement;
pub mod reading;
pub mod report;
pub mod request;
pub mod restore;
pub mod rounding;
mod rule_id;
#[cfg(test)]
mod schema;
pub mod snapshot;
#[cfg(test)]
pub mod testing;
pub mod topology;
pub mod under_load;
pub mod units;
