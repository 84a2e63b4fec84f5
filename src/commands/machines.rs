//! `machines`: lists the built-in simulated machines.

use super::output;
use crate::cli::MachinesArgs;
use sim::Simulated;
use sim::builtin::{self, Condition};

/// Runs `machines`.
///
/// # Errors
///
/// There is no machine of the given name, or stdout cannot be written.
pub(super) fn run(args: &MachinesArgs) -> Result<u8, String> {
    let text = match &args.show {
        Some(name) => description(name)?,
        None => list(),
    };
    output::print(&text)?;
    Ok(0)
}

fn description(name: &str) -> Result<String, String> {
    if let Some(text) = builtin::description(name) {
        return Ok(text.to_owned());
    }
    let machine = Simulated::find(name)?;
    toml::to_string(&machine.spec)
        .map_err(|error| format!("cannot write '{name}' as TOML: {error}"))
}

/// Returns one line for each machine, those without a fault first.
fn list() -> String {
    let mut text = String::new();
    for (kind, heading) in [
        (Condition::Sound, "Without a fault, to see the report of a healthy machine of each kind:"),
        (Condition::Faulty, "With a fault, to see how it is reported:"),
    ] {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("{heading}\n");
        let machines = builtin::names_of(kind).filter_map(|name| Some((name, builtin::get(name)?)));
        text.extend(machines.map(|(name, machine)| format!("  {name:<17} {}\n", machine.summary)));
    }
    text + "\nUse one with --machine NAME; --show NAME prints it as a template for your own.\n"
}
