//! `compare`: the differences between two reports of the same machine.

use super::files::Files;
use super::{Failure, Judging, output};
use crate::cli::{Cli, CompareArgs};
use diagnose::compare;
use report::read::{at_most_one_stdin, load};
use report::{Level, Of, comparison};

/// Runs `compare`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn run(cli: &Cli, args: &CompareArgs) -> Result<u8, Failure> {
    at_most_one_stdin([args.old.as_path(), &args.new])?;
    let files = Files::prepare(&args.output, Of::Comparison)?;
    let judging = Judging::of(cli, args.fail_on)?;
    let reports = (load(&args.old)?, load(&args.new)?);
    let reports = [&reports.0, &reports.1];
    let comparison = compare::compare(reports[0], reports[1], &judging.settings, judging.terms);
    let style = output::style(cli.color, Level::Short);
    files.write_all(&style, &|format, style| {
        comparison::render(&comparison, reports, format, style)
    })?;
    output::print(&comparison::render(&comparison, reports, args.format, &style))?;
    Ok(comparison.verdict.exit_code)
}
