//! `pick`: the best GPUs of a report, by their slowest measured pair.

use super::{Failure, Judging, complain, output};
use crate::cli::{Cli, PickArgs, PickFormat};
use ::diagnose::Ending;
use ::diagnose::pick::{NoPick, pick};
use model::finding::Severity;
use report::read::load;
use report::{json, pick as shown};

/// Runs `pick`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn run(cli: &Cli, args: &PickArgs) -> Result<u8, Failure> {
    let mut report = load(&args.report)?;
    Judging::of(cli, Severity::Error)?.judge(&mut report);
    let (ending, why) = match pick(&report, usize::from(args.number)) {
        Ok(pick) => {
            output::print(&match args.format {
                _ if args.shell => shown::exports(&pick),
                PickFormat::Json => json::tidy(&pick),
                PickFormat::Text => shown::text(&pick),
            })?;
            return Ok(0);
        }
        Err(NoPick::TooMany(there)) => {
            return Err(format!("-k {}: the machine has {there}", args.number).into());
        }
        Err(NoPick::NotMeasured) => (
            Ending::Incomplete,
            "the report has no rate of a copy between GPUs to pick by".to_owned(),
        ),
        Err(NoPick::TooFew(why)) => (Ending::Fault, why),
    };
    complain(&why.into());
    Ok(cli.exit_contract.code(ending))
}
