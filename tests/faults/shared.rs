//! Judges a run on the bed whose processes share memory: a fault costs one way of one ladder.

use std::collections::BTreeSet;

use fake_machine::plan::Action;
use serde_json::Value;

use crate::cases::Case;
use crate::common::list;

/// Name of the bed.
pub(crate) const BED: &str = "share";

/// Measurements that work there: 3 ways within a GPU, 6 across and 2 talks for each view.
const WORKS: usize = 19;
/// Ends the name of a talk, after the way by which its mailboxes were handed over.
const TALK: &str = " talk";

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
    // Each talk is two rows, one for what either GPU heard.
    let heard = |cell: &&Value| cell["status"] == "measured" && cell["verified"] == "ok";
    let missed = table("live").filter(|cell| !heard(cell)).map(talk);
    let missed: BTreeSet<String> = missed.collect();
    let talks = table("live").map(talk).filter(|talk| !missed.contains(talk));
    sharing.chain(talks).collect()
}

/// Returns the name of a talk: that of the way by which its mailboxes were handed over.
fn talk(cell: &Value) -> String {
    let part = |key: &str| cell["processes"][key].to_string();
    format!("0 1 {} {}{TALK}", part("view"), part("rung"))
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
    let places: BTreeSet<&str> = lost.iter().map(|lost| lost.trim_end_matches(TALK)).collect();
    if places.len() > most {
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
