//! `machines`: the built-in simulated machines.

use super::output;
use crate::cli::MachinesArgs;
use crate::hardware::sim::{Simulated, builtin};

/// Runs it.
///
/// # Errors
///
/// There is no machine of the name that was given, or stdout cannot be written.
pub fn run(args: &MachinesArgs) -> Result<u8, String> {
    if let Some(name) = &args.show {
        let machine = Simulated::find(name)?;
        let text = toml::to_string(&machine.spec).map_err(|error| format!("cannot write '{name}' as TOML: {error}"))?;
        output::print(&text)?;
        return Ok(0);
    }
    let machines = builtin::names().filter_map(|name| Some((name, builtin::get(name)?)));
    let lines = machines.map(|(name, machine)| format!("{name:<16} {}\n", machine.summary));
    output::print(&lines.collect::<String>())?;
    Ok(0)
}
