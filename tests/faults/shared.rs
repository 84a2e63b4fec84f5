//! Judges a run on the bed whose processes share memory: a fault costs one way of one ladder, or one copy into mapped memory.

use std::collections::BTreeSet;

use fake_machine::plan::Action;
use serde_json::Value;

use crate::cases::Case;
use crate::common::list;

/// Name of the bed.
pub(crate) const BED: &str = "share";

/// Measurements that work there: 3 ways within a GPU, 6 across for each view, and 4 kinds of copies into mapped
/// memory.
const WORKS: usize = 19;

/// Returns the rows of a table; none if the driver did not start.
fn rows<'a>(report: &'a Value, name: &str) -> &'a [Value] {
    report["measurements"][name].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the measurements that worked, by what they were planned with.
fn worked(report: &Value) -> BTreeSet<String> {
    let table = |name: &str| rows(report, name).iter();
    let right = |cell: &Value| cell["verified"] == "ok" || cell["verified"] == "skipped";
    let sharing =
        table("sharing").filter(|cell| cell["works"] == true && right(cell)).map(|cell| {
            let part = |key: &str| cell[key].to_string();
            ["owner", "user", "view", "rung"].map(part).join(" ")
        });
    let mapped = table("mapped")
        .filter(|cell| cell["status"] == "measured" && cell["verified"] == "ok")
        .map(|cell| {
            let part = |key: &str| cell[key].to_string();
            ["source", "destination", "engine"].map(part).join(" ")
        });
    sharing.chain(mapped).collect()
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
    // Copies of a pair that hung or broke a context are not tried in another way.
    let places: BTreeSet<&str> = lost
        .iter()
        .map(|lost| lost.trim_end_matches(" \"kernel\"").trim_end_matches(" \"copy\""))
        .collect();
    if places.len() > most {
        return Err(format!("it cost {} measurements: {lost:?}", lost.len()));
    }
    let tables = ["sharing", "mapped"].map(|name| rows(report, name));
    let mut cells = tables.iter().flat_map(|cells| cells.iter());
    let silent = cells.find(|cell| {
        cell["works"] != true
            && cell["achieved_gbps"].is_null()
            && cell["refused"].is_null()
            && cell["reason"].is_null()
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
    let found = codes.iter().any(|code| code.contains("shar") || code.contains("mapped"));
    let said = report.to_string().contains("\"not_supported\":true");
    if !lost.is_empty() && code == 0 && !found && !said {
        return Err(format!("nothing says that these are lost: {lost:?}"));
    }
    if !named && !lie && case.action.is_some() {
        return Err(format!("the fault is not named; lost: {lost:?}"));
    }
    Ok(())
}
