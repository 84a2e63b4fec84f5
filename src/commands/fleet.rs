//! `fleet`: assesses many reports at once, and the output of other tools of machines without a report.

use std::path::{Path, PathBuf};

use super::files::Files;
use super::output;
use super::{Failure, Judging, collected, timestamp};
use crate::cli::{Cli, FleetArgs};
use fleet::{self, Earlier, Question, formats, names};
use report::{Level, Of};

/// Runs `fleet`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn run(cli: &Cli, args: &FleetArgs) -> Result<u8, Failure> {
    let files = Files::prepare(&args.output, Of::Fleet)?;
    let question = Question {
        list: args.nodes.as_deref().map(list).transpose()?,
        earlier: args.since.as_deref().map(Earlier::load).transpose()?,
        history: args.history,
        terms: cli.terms(args.fail_on),
        now: timestamp(),
    };
    let paths = paths(&args.reports)?;
    let mut gathered = fleet::gather(&paths);
    collected::add(&mut gathered, &paths, &Judging::of(cli, args.fail_on)?);
    let found = fleet::assess(&gathered, &question);
    let exported = args
        .export
        .as_ref()
        .map_or(Ok(()), |folder| fleet::export::write(folder, &gathered, &found));
    let level = if args.verbose { Level::Every } else { Level::Short };
    let style = output::style(cli.color, level);
    files.write_all(&style, &|format, style| formats::render(&found, format.name, style))?;
    output::print(&formats::render(&found, args.format.name, &style))?;
    exported?;
    Ok(found.verdict.exit_code)
}

/// Returns the named reports; `-` is a list of them on standard input, one per line.
fn paths(named: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for path in named {
        if path.as_os_str() != "-" {
            paths.push(path.clone());
            continue;
        }
        let text = super::bounded_text(std::io::stdin().lock(), "standard input")?;
        // `find -print0` ends names with a zero byte, for names that contain a line feed.
        let end = if text.contains('\0') { '\0' } else { '\n' };
        paths.extend(
            text.split(end)
                .map(|line| line.trim_end_matches('\r'))
                .filter(|line| !line.trim().is_empty())
                .map(PathBuf::from),
        );
    }
    Ok(paths)
}

/// Returns the names of a list; `@FILE` is a file that contains them.
fn list(text: &str) -> Result<Vec<String>, String> {
    let text = match text.strip_prefix('@') {
        Some(file) => {
            super::written_text(Path::new(file)).map_err(|why| format!("--nodes: {why}"))?
        }
        None => text.to_owned(),
    };
    let names = names::expand(&text).map_err(|why| format!("--nodes: {why}"))?;
    if names.is_empty() { Err("--nodes: the list has no names".into()) } else { Ok(names) }
}
