//! The output of other tools → the facts and figures of one machine.
//!
//! Text comes in as [`Input`]s. [`lines`] makes lines of it, [`scan`] finds the output of tools in them by what it says, and
//! a reader for each kind of output ([`readers`]) takes it apart into statements with their lines. [`assemble`] joins the
//! statements of all inputs into a [`Snapshot`] and [`Measurements`], and names what contradicts. What no input says stays
//! unknown.

mod assemble;
mod file;
mod lines;
mod matrix;
mod reader;
mod readers;
mod scan;
mod told;
mod trouble;

pub use file::{Input, inputs, is_packed};
pub use readers::kinds;

use model::measurement::Measurements;
use model::pasted::Pasted;
use model::snapshot::Snapshot;

/// The facts and figures of a machine, and their origins.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub snapshot: Snapshot,
    /// `None` if the input has no figure.
    pub measurements: Option<Measurements>,
    pub pasted: Pasted,
}

/// Reads the output of tools in these inputs, which are of one machine. `kind` forces one kind of output.
///
/// # Errors
///
/// A sentence, if no output of a tool that is known was found, or if `kind` is no kind.
pub fn read(inputs: &[Input], kind: Option<&str>) -> Result<Machine, String> {
    let readers = readers::of_kind(kind)?;
    let read: Vec<_> = inputs
        .iter()
        .map(|input| scan::scan(input, &readers))
        .collect();
    if read
        .iter()
        .all(|one| one.sections.is_empty() && one.troubles.is_empty())
    {
        return Err(
            "has no output of a tool that peerscope reads ('peerscope diagnose --help' lists the kinds)"
                .to_owned(),
        );
    }
    assemble::assemble(&read)
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
