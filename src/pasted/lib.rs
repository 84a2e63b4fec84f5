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
mod messages;
mod reader;
mod readers;
mod scan;
mod told;
mod trouble;

pub use file::{Input, Unread, inputs, is_packed};
pub use readers::tools;

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

/// Most lines of all inputs. A bug report of 30 MB has 366,000.
const MOST_LINES: usize = 2_000_000;

/// Most statements of all inputs: some 250 MB, without the words of their lines. The largest one is on a GPU, 1.2 kB. All
/// outputs of a machine of 8 GPUs say some 20,000 things.
const MOST_STATEMENTS: usize = 200_000;

/// Reads the output of tools in these inputs, which are of one machine.
///
/// # Errors
///
/// No output of a tool that is known was found, or there is more than can be of one machine.
pub fn read(inputs: &[Input]) -> Result<Machine, Unread> {
    let lines = |input: &Input| input.text.bytes().filter(|byte| b"\r\n".contains(byte)).count();
    if inputs.iter().map(lines).sum::<usize>() > MOST_LINES {
        return Err(Unread::Broken(format!(
            "has more than {MOST_LINES} lines: give the output of one machine"
        )));
    }
    let (mut read, mut left) = (Vec::new(), MOST_STATEMENTS);
    for input in inputs {
        let scanned = scan::scan(input, &mut left);
        if let Some(line) = scanned.full {
            return Err(Unread::Broken(format!(
                "says more than a machine has, up to line {line} of {}: give the output of one machine",
                input.name
            )));
        }
        read.push(scanned);
    }
    let nothing = |one: &scan::Scanned| one.sections.is_empty() && one.troubles.is_empty();
    if read.iter().all(nothing) {
        return Err(Unread::Nothing(NOTHING));
    }
    let beginning = |input: &Input| {
        let first = input.text.lines().map(str::trim).find(|line| !line.is_empty());
        trouble::shortened(first.unwrap_or_default())
    };
    let cut = inputs.iter().filter(|input| input.is_cut);
    let mut unread: Vec<String> =
        cut.map(|input| format!("{} was cut off, or cannot be unpacked", input.name)).collect();
    let silent: Vec<&Input> = inputs
        .iter()
        .zip(&read)
        .filter(|(input, one)| !input.is_cut && nothing(one) && !input.text.trim().is_empty())
        .map(|(input, _)| input)
        .collect();
    if let Some(first) = silent.first() {
        let names: Vec<&str> = silent.iter().map(|input| input.name.as_str()).collect();
        unread.push(format!(
            "no output of a tool that is read in {}; the first begins \"{}\"",
            names.join(", "),
            beginning(first)
        ));
    }
    assemble::assemble(&read, unread).map_err(Unread::Broken)
}

/// Why nothing was read.
const NOTHING: &str = "has no output of a tool that peerscope reads, such as 'nvidia-smi -q', 'nvidia-smi topo -m', \
    'lspci -vv', dmesg, nvbandwidth or p2pBandwidthLatencyTest ('peerscope diagnose --help' lists all)";

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
