//! `compare`: the differences between two reports of the same machine.

use super::{Failure, Judging, output};
use crate::cli::{Cli, CompareArgs, CompareFormat};
use diagnose::compare;
use report::read::{at_most_one_stdin, load};
use report::{Level, comparison};

/// Runs `compare`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn run(cli: &Cli, args: &CompareArgs) -> Result<u8, Failure> {
    at_most_one_stdin([args.old.as_path(), &args.new])?;
    let judging = Judging::of(cli, args.fail_on)?;
    let (old, new) = (load(&args.old)?, load(&args.new)?);
    let comparison = compare::compare(&old, &new, &judging.settings, judging.terms);
    let text = match args.format {
        CompareFormat::Json => comparison::json(&comparison),
        CompareFormat::Html => comparison::html(&comparison, [&old, &new]),
        CompareFormat::Markdown => comparison::markdown(&comparison, [&old, &new]),
        CompareFormat::Text => {
            comparison::text(&comparison, [&old, &new], &output::style(cli.color, Level::Short))
        }
    };
    output::print(&text)?;
    Ok(comparison.verdict.exit_code)
}
