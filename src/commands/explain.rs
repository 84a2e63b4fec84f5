//! `explain`: prints a rule's manual page.

use super::output;
use crate::cli::{Cli, ExplainArgs};
use model::nearest::did_you_mean;
use report::{Level, rules};

/// Runs `explain`.
///
/// # Errors
///
/// There is no such code.
pub(super) fn run(cli: &Cli, args: &ExplainArgs) -> Result<u8, String> {
    match &args.code {
        Some(code) => {
            let page = diagnose::explain(code).ok_or_else(|| {
                let codes: Vec<&str> = diagnose::RULES.iter().map(|rule| &*rule.id).collect();
                format!(
                    "there is no code '{code}'{}: the codes are {}",
                    did_you_mean(code, codes.iter().copied()),
                    codes.join(", ")
                )
            })?;
            output::print(&format!("{}\n", page.trim_end()))?;
        }
        None => {
            let all = diagnose::RULES.iter().map(|rule| (&*rule.id, rule.severity, rule.summary()));
            output::print(&rules::list(all, &output::style(cli.color, Level::Short)))?;
        }
    }
    Ok(0)
}
