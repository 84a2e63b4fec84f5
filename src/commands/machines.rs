//! `machines`: the built-in simulated machines.

use super::output;
use crate::hardware::sim::builtin;

/// Runs it.
///
/// # Errors
///
/// stdout cannot be written.
pub fn run() -> Result<u8, String> {
    let lines = builtin::names().map(|name| format!("{name:<16} {}\n", builtin::summary(name)));
    output::print(&lines.collect::<String>())?;
    Ok(0)
}
