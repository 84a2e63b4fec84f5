//! Many reports at once: one small digest for each, comparable nodes, and the outliers among them.
//!
//! ```text
//!  sources         digest            cohort, outliers, patterns, inventory      page, formats, export
//!  files, tar  →  a report in     →  what is odd, low, shared, missing,     →  text html json ...
//!                 little             changed                                   tables for DuckDB
//! ```
//!
//! Nothing here judges hardware: the rules did, in each report. A fleet adds what a report alone cannot know:
//! the rates of other machines of its kind.

mod archive;
mod assess;
mod blame;
mod changes;
mod cohort;
mod digest;
pub mod export;
pub mod formats;
#[cfg(test)]
mod fuzz;
mod inventory;
mod model;
pub mod names;
mod newest;
mod outliers;
mod over_time;
mod page;
mod patterns;
mod picture;
mod robust;
#[cfg(test)]
mod schema;
mod sources;
mod steps;
mod summary;
#[cfg(test)]
mod testing;

pub use assess::{Question, assess};
pub use changes::Earlier;
pub use sources::{Broken, Gathered, gather};
