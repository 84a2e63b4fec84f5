//! Judges a run on the bed whose processes share memory: a fault costs one way.

use std::collections::BTreeSet;

use fake_machine::plan::Action;
use serde_json::Value;

use crate::cases::Case;
use crate::common::list;

/// Name of the bed.
pub(crate) const BED: &str = "share";

/// Ways that work there.
const WORKS: usize = 3;

/// Returns the rows of a table; none if the driver did not start.
fn rows<'a>(report: &'a Value, name: &str) -> &'a [Value] {
    report["measurements"][name].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the measurements that worked, by what they were planned with.
fn worked(report: &Value) -> BTreeSet<String> {
    let right = |cell: &Value| cell["verified"] == "ok" || cell["verified"] == "skipped";
    let works = |cell: &&Value| cell["works"] == true && right(cell);
    let ways = rows(report, "sharing").iter().filter(works);
    ways.map(|cell| cell["rung"].to_string()).collect()
}

/// Judges a report beside the one without the fault. `named` is true if the report names the fault.
pub(crate) fn judge(
    case: &Case,
    (before, code_before): (&Value, Option<i32>),
    (report, code): (&Value, i32),
    named: bool,
) -> Result<(), String> {
    let (before, now) = (worked(before), worked(report));
    if before.len() != WORKS {
        return Err(format!("the bed itself shares little: {before:?}"));
    }
    let lost: Vec<_> = before.difference(&now).collect();
    let lie = case.action == Some(Action::Skip);
    // A lie may be found by the next call on the same memory.
    let most = match (case.lasting || case.action.is_none(), lie) {
        (true, _) => usize::MAX,
        (false, true) => 2,
        (false, false) => 1,
    };
    if lost.len() > most {
        return Err(format!("it cost {} measurements: {lost:?}", lost.len()));
    }
    let mut cells = rows(report, "sharing").iter();
    let silent = cells.find(|cell| {
        cell["works"] != true && cell["refused"].is_null() && cell["reason"].is_null()
    });
    if let Some(cell) = silent {
        return Err(format!("there is no reason: {cell}"));
    }
    let codes: Vec<&str> =
        list(&report["findings"]).iter().filter_map(|finding| finding["code"].as_str()).collect();
    // A copy that failed once and then worked is a finding of its own.
    let once = codes.contains(&"copy-failed-once");
    if lost.is_empty() && !once && Some(code) != code_before {
        return Err(format!("exit code {code} although nothing is lost"));
    }
    let found = codes.iter().any(|code| code.contains("shar"));
    let said = report.to_string().contains("\"not_supported\":true");
    if !lost.is_empty() && code == 0 && !found && !said {
        return Err(format!("nothing says that these are lost: {lost:?}"));
    }
    if !named && !lie && case.action.is_some() {
        return Err(format!("the fault is not named; lost: {lost:?}"));
    }
    Ok(())
}
