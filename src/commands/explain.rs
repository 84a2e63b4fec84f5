//! `explain`: a rule's manual page.

use super::output;
use crate::cli::ExplainArgs;
use crate::diagnose;

/// Runs it.
///
/// # Errors
///
/// There is no such code.
pub fn run(args: &ExplainArgs) -> Result<u8, String> {
    match &args.code {
        Some(code) => {
            let page = diagnose::explain(code).ok_or_else(|| {
                let codes: Vec<_> = diagnose::registry().iter().map(|rule| rule.code()).collect();
                format!("there is no code '{code}': the codes are {}", codes.join(", "))
            })?;
            output::print(&format!("{}\n", page.trim_end()))?;
        }
        None => {
            let lines = diagnose::registry().iter().map(|rule| {
                let (code, severity, summary) = (rule.code(), rule.severity(), rule.summary());
                format!("{code:<22} {severity:<8} {summary}\n")
            });
            output::print(&lines.collect::<String>())?;
        }
    }
    Ok(0)
}
