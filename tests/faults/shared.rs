//! Judges a run on the bed whose processes share memory: a fault costs one way of one ladder, or one copy into mapped memory.

use std::collections::BTreeSet;

use fake_machine::plan::Action;
use serde_json::Value;

use crate::cases::Case;
use crate::common::list;

/// Name of the bed.
pub(crate) const BED: &str = "share";

/// Returns the measurements that worked, by what they were planned with.
fn worked(report: &Value) -> BTreeSet<String> {
    let table = |name: &str| list(&report["measurements"][name]).iter();
    let right = |cell: &Value| cell["verified"] == "ok" || cell["verified"] == "skipped";
    let sharing = table("sharing")
        .filter(|cell| cell["works"] == true && right(cell))
        .map(|cell| {
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
    if before.len() < 20 {
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
    let tables = ["sharing", "mapped"].map(|name| list(&report["measurements"][name]));
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
    if lost.is_empty() && Some(code) != code_before {
        return Err(format!("exit code {code} although nothing is lost"));
    }
    let findings = list(&report["findings"]).iter();
    let found = findings
        .filter_map(|finding| finding["code"].as_str())
        .any(|code| code.contains("shar") || code.contains("mapped"));
    let said = report.to_string().contains("\"not_supported\":true");
    if !lost.is_empty() && code == 0 && !found && !said {
        return Err(format!("nothing says that these are lost: {lost:?}"));
    }
    if !named && !lie && case.action.is_some() {
        return Err(format!("the fault is not named; lost: {lost:?}"));
    }
    Ok(())
}
