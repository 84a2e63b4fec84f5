//! `completions` and `manual`: write the files that packages install beside the program, from the definition of the
//! command line.

use std::io::Write;

use clap::Command;
use clap_mangen::Man;

use super::output;
use crate::cli::{CompletionsArgs, ManualArgs, help};

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
    let mut all = shown().disable_help_subcommand(true);
    all.build();
    for command in std::iter::once(&all).chain(all.get_subcommands()) {
        let man = Man::new(command.clone());
        let file = args.folder.join(man.get_filename());
        page(&man, command)
            .and_then(|page| std::fs::write(&file, page))
            .map_err(|error| format!("cannot write {}: {}", file.display(), error.kind()))?;
    }
    Ok(0)
}

/// Returns the manual page of a command.
fn page(man: &Man, command: &Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = command.clone().render_usage().to_string();
    write!(page, ".SH SYNOPSIS\n{}\n", roff(usage.trim_start_matches("Usage: ")))?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let examples: Vec<_> = help::examples(command.get_name()).collect();
    if !examples.is_empty() {
        writeln!(page, ".SH EXAMPLES")?;
    }
    for (line, what) in examples {
        write!(page, ".TP\n\\fB{}\\fR\n{}\n", roff(line), roff(what))?;
    }
    writeln!(page, ".SH EXIT STATUS")?;
    for (code, what) in help::exit_codes(command) {
        write!(page, ".TP\n{code}\n{}\n", roff(what))?;
    }
    man.render_version_section(&mut page)?;
    Ok(page)
}

/// Returns text as roff shows it unchanged.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
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
        assert!(!names.contains(&run::worker::protocol::SUBCOMMAND), "{names:?}");
        assert!(shown.get_arguments().any(|argument| argument.get_id() == "machine"));
        assert!(shown.get_about().is_some() && shown.get_after_help().is_some());
    }

    #[test]
    fn manual_pages_have_examples_and_exit_codes() {
        let folder = tempfile::tempdir().unwrap();
        manual(&ManualArgs { folder: folder.path().to_owned() }).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let check = read("peerscope-check.1");
        for section in ["SYNOPSIS", "OPTIONS", "OUTPUT", "EXAMPLES", "EXIT STATUS", "VERSION"] {
            assert!(
                check.contains(&format!(".SH {section}"))
                    || check.contains(&format!(".SH \"{section}\"")),
                "{section}: {check}"
            );
        }
        assert!(read("peerscope.1").contains("interrupted"), "its exit codes");
        let pages = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(pages, 1 + shown().get_subcommands().count(), "no page of a help command");
    }
}
