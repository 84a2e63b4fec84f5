//! `completions` and `manual`: write the files that packages install beside the program, from the definition of the
//! command line.

use clap::Command;

use super::output;
use crate::cli::{CompletionsArgs, ManualArgs};

/// The program's name, also used as a file name.
const NAME: &str = env!("CARGO_PKG_NAME");

/// Prints the script that a shell reads to complete command lines.
///
/// # Errors
///
/// Stdout cannot be written to.
pub(super) fn completions(args: &CompletionsArgs) -> Result<u8, String> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut shown(), NAME, &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

/// Writes a manual page for each command.
///
/// # Errors
///
/// The folder cannot be written to.
pub(super) fn manual(args: &ManualArgs) -> Result<u8, String> {
    let folder = &args.folder;
    clap_mangen::generate_to(shown(), folder).map_err(|error| {
        format!("cannot write manual pages to {}: {}", folder.display(), error.kind())
    })?;
    Ok(0)
}

/// Returns the command line without the subcommands that are not for people.
fn shown() -> Command {
    let all = super::refuse::command();
    // Clap adds these to every command line by itself.
    let is_own = |arg: &&clap::Arg| !["help", "version"].contains(&arg.get_id().as_str());
    let kept = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
        .cloned();
    let shown = Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(all.get_arguments().filter(is_own).cloned())
        .subcommands(kept);
    let shown = all.get_about().into_iter().fold(shown, |shown, text| shown.about(text.clone()));
    all.get_after_help().into_iter().fold(shown, |shown, text| shown.after_help(text.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_is_shown_is_in_it_and_no_other() {
        let shown = shown();
        shown.clone().debug_assert();
        let names: Vec<&str> = shown.get_subcommands().map(Command::get_name).collect();
        assert!(
            ["topo", "check", "fleet", "completions"].iter().all(|name| names.contains(name)),
            "{names:?}"
        );
        assert!(!names.contains(&worker::protocol::SUBCOMMAND), "{names:?}");
        assert!(shown.get_arguments().any(|argument| argument.get_id() == "machine"));
        assert!(shown.get_about().is_some() && shown.get_after_help().is_some());
    }
}
