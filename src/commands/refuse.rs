//! Refuses options that would have no effect: whoever gives one expects an effect.

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::cli::{CheckArgs, Cli, Command, DiagnoseArgs, RecoverArgs};
use worker::protocol::SUBCOMMAND;

/// The commands on which a global option has an effect; `--color` and `--exit-contract` have one on every
/// command's output and exit code.
const EFFECTS: [(&str, &[&str]); 4] = [
    ("machine", &["topo", "check", SUBCOMMAND]),
    ("gpus", &["topo", "check"]),
    ("driver_deadline", &["topo", "check", SUBCOMMAND]),
    (
        "config",
        &["topo", "check", "diagnose", "recover", "compare"],
    ),
];

/// Reads the command line.
///
/// # Errors
///
/// Clap's text: help, or a complaint.
pub fn parse() -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches()?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    let subcommand = matches.subcommand();
    let given =
        |matches: &ArgMatches, id| matches.value_source(id) == Some(ValueSource::CommandLine);
    cli.without_effect = EFFECTS.iter().find_map(|(id, commands)| {
        let (name, of_command) = subcommand?;
        let useless = !commands.contains(&name) && (given(&matches, id) || given(of_command, id));
        useless.then(|| format!("--{}", id.replace('_', "-")))
    });
    Ok(cli)
}

/// Refuses options that have no effect on this command.
///
/// # Errors
///
/// A sentence that names the option.
pub(super) fn without_effect(cli: &Cli) -> Result<(), String> {
    if let Some(option) = &cli.without_effect {
        let (name, reads) = match cli.command {
            Command::Diagnose(_) => ("diagnose", "it reads a saved report"),
            Command::Compare(_) => ("compare", "it reads saved reports"),
            Command::Fleet(_) => ("fleet", "it reads saved reports as they were judged"),
            Command::Expect(_) => ("expect", "it reads a saved report"),
            Command::Recover(_) => ("recover", "it reads a journal"),
            Command::Explain(_) => ("explain", "it explains rules as they are"),
            Command::Machines(_) => ("machines", "it lists the simulated machines"),
            Command::Completions(_) => ("completions", "it writes what a shell reads"),
            Command::Manual(_) => ("manual", "it writes manual pages"),
            Command::Topo(_) | Command::Check(_) | Command::Worker(_) => {
                ("this command", "it does not use it")
            }
        };
        return Err(format!("{option} has no effect on {name}: {reads}"));
    }
    let (verbose, brief, format, files) = match &cli.command {
        Command::Topo(args) => (args.verbose, args.brief, args.format(), &args.output),
        Command::Check(CheckArgs { out, .. })
        | Command::Diagnose(DiagnoseArgs { out, .. })
        | Command::Recover(RecoverArgs { out, .. }) => {
            (out.verbose, out.brief, out.format, &out.output)
        }
        Command::Fleet(args) => (args.verbose, false, args.format, &args.output),
        _ => return Ok(()),
    };
    let mut formats = files
        .iter()
        .filter_map(|file| report::for_path(file).ok())
        .chain([format]);
    if brief && !formats.clone().any(|format| format.name == "text") {
        return Err(
            "--brief: only the format text can be shorter; nothing is written in it".into(),
        );
    }
    if verbose && !formats.any(|format| format.has_verbose()) {
        return Err(
            "--verbose: only the formats text and html show more; nothing is written in them"
                .into(),
        );
    }
    Ok(())
}
