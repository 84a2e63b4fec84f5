//! `machines`: the built-in simulated machines.

use super::output;
use crate::hardware::sim::builtin;

/// Runs it.
///
/// # Errors
///
/// stdout cannot be written.
pub fn run() -> Result<u8, String> {
    let machines = builtin::names().filter_map(|name| Some((name, builtin::get(name)?)));
    let lines = machines.map(|(name, machine)| format!("{name:<16} {}\n", machine.summary));
    output::print(&lines.collect::<String>())?;
    Ok(0)
}
