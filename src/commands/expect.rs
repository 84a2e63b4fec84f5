//! `expect`: writes expectations from a report of a machine that is known to be healthy.

use super::{Failure, Judging, output, remark};
use crate::cli::{Cli, ExpectArgs};
use diagnose::expectations::Expectations;
use model::finding::Severity;
use model::report::Conclusion;
use report::escape::{acts, clean};
use report::read::load;

/// Runs `expect`.
///
/// # Errors
///
/// One sentence.
pub(super) fn run(cli: &Cli, args: &ExpectArgs) -> Result<u8, Failure> {
    let mut report = load(&args.report)?;
    let caveats = report::caveats(&report);
    // The version that wrote it may have known less.
    Judging::of(cli, Severity::Error)?.judge(&mut report);
    if report.verdict.verdict != Conclusion::Healthy && !args.anyway {
        let said = match report.verdict.verdict {
            Conclusion::Faulty => "faulty",
            _ => "inconclusive",
        };
        return Err(format!(
            "{} is the report of a machine that is {said}: its faults would become expectations; give a report of a \
             healthy machine, or --anyway",
            args.report.display()
        )
        .into());
    }
    let left_out = report.request.gpus_left_out;
    if left_out > 0 && !args.anyway {
        return Err(format!(
            "{} is a partial report: {left_out} of {} GPUs were left out (--gpus), and a machine without them would \
             meet the expectations; give a report of the whole machine, or --anyway",
            args.report.display(),
            report.snapshot.gpus.len() + left_out as usize
        )
        .into());
    }
    caveats.iter().for_each(|caveat| remark(&format!("{}: {caveat}", args.report.display())));
    let expectations = Expectations::from_report(&report, args.margin);
    let head = format!(
        "# Expectations for machines like the one measured at {} ({}), made by peerscope {}.\n\
         # Floors are {}% below the lowest figure of each class, in GB/s; further where the memory or the processor of \
         the host decides. See docs/expectations.md.\n{}\n",
        report.started_at.escape_debug(),
        report.machine.escape_debug(),
        env!("CARGO_PKG_VERSION"),
        args.margin,
        // Keep each caveat on one line, whatever it contains: TOML follows.
        caveats.iter().map(|caveat| format!("# {}\n", clean(caveat))).collect::<String>()
    );
    // TOML would keep some characters that a terminal acts on, and has the same escape for each.
    let escaped = |c: char| match acts(c) && c != '\n' {
        true => format!("\\U{:08X}", u32::from(c)),
        false => c.to_string(),
    };
    let text: String = (head + &expectations.to_toml()?).chars().map(escaped).collect();
    output::print(&text)?;
    Ok(0)
}
