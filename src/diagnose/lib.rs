//! Facts, topology and figures → findings and a verdict. Nothing in this crate accesses a machine: a saved report can
//! be judged again anywhere.

mod absent;
mod advice;
mod applicable;
mod baseline;
mod causes;
mod changes;
mod cluster;
pub mod collectives;
pub mod compare;
mod complete;
pub mod config;
mod coverage;
mod disturbed;
mod evidence;
pub mod expectations;
pub mod expected;
pub mod expected_host;
pub(crate) mod expected_load;
mod expected_pcie;
mod external;
mod facts;
pub mod figures;
pub mod history;
mod judge;
pub mod kind;
mod links;
pub mod manual;
mod models;
pub mod phrases;
pub mod pick;
mod rule;
mod rules;
mod settings;
mod since;
mod steps;
mod suspects;
mod verdict;
mod words;

pub use absent::note_absent;
pub use advice::advise;
pub use complete::{complete, figures as complete_figures};
pub use coverage::{cells, outcomes};
pub use evidence::Evidence;
pub use judge::{judge, second_looks, silenced};
pub use manual::explain;
pub use rule::Rule;
pub use rules::gpu_not_listed::missing;
pub use rules::{ALL as RULES, by_topic};
pub use settings::Settings;
pub use verdict::{Contract, Ending, Terms, is_gap, verdict};

#[cfg(test)]
mod advice_steps;
#[cfg(test)]
mod compared_tests;
#[cfg(test)]
mod figure_tests;
#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod nvlink_tests;
#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
