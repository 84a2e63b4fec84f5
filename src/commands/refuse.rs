//! Refuses options that would have no effect: whoever gives one expects an effect.

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::cli::{CheckArgs, Cli, Command, DiagnoseArgs, RecoverArgs, SoakArgs, help};
use run::worker::protocol::SUBCOMMAND;
use sim::builtin;

/// The commands on which a global option has an effect; `--color` and `--exit-contract` have one on every
/// command's output and exit code.
const EFFECTS: [(&str, &[&str]); 4] = [
    ("machine", &["topo", "check", "soak", "watch", SUBCOMMAND]),
    ("gpus", &["topo", "check", "soak", "watch"]),
    ("driver_deadline", &["topo", "check", "soak", "watch", SUBCOMMAND]),
    ("config", &["topo", "check", "soak", "watch", "diagnose", "recover", "compare", "pick"]),
];

/// Options of `check` that `soak` refuses.
const NOT_OF_A_SOAK: [&str; 1] = ["serial"];

/// Returns the command line. The help of a command lists only options that have an effect on it.
pub(super) fn command() -> clap::Command {
    let mut all = Cli::command();
    all.build();
    let names = all.get_subcommands().map(clap::Command::get_name);
    let names: Vec<String> = names.map(str::to_owned).collect();
    for name in names {
        let is_useless = |arg: &clap::Arg| {
            let mut effects = EFFECTS.iter();
            effects.any(|(id, commands)| arg.get_id() == *id && !commands.contains(&&*name))
                || (name == "soak" && NOT_OF_A_SOAK.contains(&arg.get_id().as_str()))
        };
        all = all.mut_subcommand(&name, |command| {
            command.mut_args(|arg| {
                let hide = arg.is_hide_set() || is_useless(&arg);
                help::placed(arg.hide(hide))
            })
        });
        all = all.mut_subcommand(&name, help::with_examples);
    }
    all.mut_args(help::placed)
}

/// Reads the command line.
///
/// # Errors
///
/// Clap's text: help, or a complaint.
pub fn parse() -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches().map_err(with_machine)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    let subcommand = matches.subcommand();
    let given =
        |matches: &ArgMatches, id| matches.value_source(id) == Some(ValueSource::CommandLine);
    cli.without_effect = EFFECTS.iter().find_map(|(id, commands)| {
        let (name, of_command) = subcommand?;
        let useless = !commands.contains(&name) && (given(&matches, id) || given(of_command, id));
        useless.then(|| format!("--{} has no effect on {name}", id.replace('_', "-")))
    });
    Ok(cli)
}

/// Adds to a complaint about a machine's name without its option what was meant.
fn with_machine(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if builtin::names().any(|name| name.eq_ignore_ascii_case(word)) {
        let tip = format!("to test a simulated machine, use '--machine {word}'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Refuses options that have no effect on this command.
///
/// # Errors
///
/// A sentence that names the option.
pub(super) fn without_effect(cli: &Cli) -> Result<(), String> {
    if let Some(sentence) = &cli.without_effect {
        return Err(sentence.clone());
    }
    let (more, format, files) = match &cli.command {
        Command::Topo(args) => (args.verbose.then_some("--verbose"), args.format(), &args.output),
        Command::Check(CheckArgs { out, .. })
        | Command::Soak(SoakArgs { check: CheckArgs { out, .. }, .. })
        | Command::Diagnose(DiagnoseArgs { out, .. })
        | Command::Recover(RecoverArgs { out, .. }) => {
            let figures = out.figures.then_some("--figures");
            (out.verbose.then_some("--verbose").or(figures), out.format, &out.output)
        }
        Command::Fleet(args) => (args.verbose.then_some("--verbose"), args.format, &args.output),
        _ => return Ok(()),
    };
    let mut formats = files.iter().filter_map(|file| report::for_path(file).ok()).chain([format]);
    if let Some(option) = more
        && !formats.any(|format| format.has_verbose())
    {
        return Err(format!(
            "{option}: only the formats text and html show more; nothing is written in them"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_only_options_with_an_effect() {
        let help = |name: &str| {
            let matches = command().try_get_matches_from(["peerscope", name, "--help"]);
            matches.unwrap_err().to_string()
        };
        for name in ["diagnose", "compare", "fleet", "expect", "recover"] {
            let help = help(name);
            assert!(!help.contains("--machine"), "{help}");
            assert!(help.contains("--color"), "{help}");
        }
        assert!(help("check").contains("--machine"));
        assert!(help("diagnose").contains("--config") && !help("fleet").contains("--config"));
    }
}
