//! The comparison of a finding with the steps that its facts want. Only tests use it, in two crates (tests/machines has it
//! by path), so it names nothing of this program.

use std::collections::BTreeSet;

use serde_json::Value;

/// Parts that labels name beside steps: a step that handles such a part must fit the facts.
pub(crate) const PARTS: [&str; 5] = ["bridge", "cable", "dock", "pcie-switch", "riser"];

/// Steps that no facts make wrong, so labels need not list them.
const HARMLESS: [&str; 10] = [
    "check-again",
    "check-alone",
    "check-each-node",
    "check-on-host",
    "check-subsets",
    "clocks",
    "compare",
    "compute-again",
    "history",
    "other-findings",
];

/// Returns the identifiers of the steps of a finding and of its suspects, in the form of the report, and the parts that
/// they handle.
pub(crate) fn advised_by(finding: &Value) -> BTreeSet<String> {
    let of = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut steps = of(finding, "steps");
    for suspect in of(finding, "suspects") {
        steps.extend(of(&suspect, "steps"));
    }
    let parts = steps.iter().flat_map(|step| of(step, "parts"));
    let parts = parts.filter(|part| PARTS.iter().any(|known| part == known));
    let ids = steps.iter().map(|step| step["id"].clone());
    let names = ids.chain(parts);
    names.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

/// Compares the steps of a finding with those that must and may be in them, by identifier; all others must not. Returns
/// a complaint.
pub(crate) fn wrong_advice<T: AsRef<str>>(
    finding: &Value,
    must: &[T],
    may: &[T],
) -> Option<String> {
    let found = advised_by(finding);
    let is_in = |list: &[T], id: &str| list.iter().any(|known| known.as_ref() == id);
    let missing: Vec<&str> =
        must.iter().map(AsRef::as_ref).filter(|id| !found.contains(*id)).collect();
    let wrong: Vec<&String> = found
        .iter()
        .filter(|id| !HARMLESS.contains(&id.as_str()) && !is_in(must, id) && !is_in(may, id))
        .collect();
    (!missing.is_empty() || !wrong.is_empty()).then(|| {
        format!(
            "advice of {}: lacks {missing:?}, must not have {wrong:?}: {} {}",
            finding["code"], finding["next_step"], finding["suspects"]
        )
    })
}
