//! # What it means
//!
//! Something differs from an earlier report of the same machine, but is not worse.
//!
//! # How it is detected
//!
//! The comparison is that of `fell-since-baseline`, for what appeared or changed. Reported are a GPU that is new or was
//! replaced, and every fact that should stay from run to run: versions of driver, CUDA, kernel and video BIOS, settings
//! such as ECC, MIG, IOMMU and ACS, sizes of memory and BAR1, highest rates of links, more NVLinks, and peer access that
//! is granted now. Bandwidth figures are reported if they rose by more than `least_rise_percent` and their noise. Other
//! figures are reported if they rose by as much as `fell-since-baseline` asks of those that fell. A GPU that `--gpus`
//! left out of the earlier report is not new.
//!
//! # Why it matters
//!
//! It may explain other differences.
//!
//! # What to do
//!
//! Nothing, if the change was intended. In that case use the new report as the next baseline.
//!
//! # Sources
//!
//! As `fell-since-baseline`.

use super::fell_since_baseline;
use super::prelude::*;
use crate::baseline::Beside;
use crate::figures::Allowances;
use model::machine_facts::{Component, in_words};

const LEAST_RISE: Parameter = Parameter {
    name: "least_rise_percent",
    default: 3.0,
    about: "a smaller rise is not reported; as least_fall_percent of fell-since-baseline",
};
pub(crate) const RULE: Rule =
    Rule::new("changed-since-baseline", Severity::Info, judge).with(&[LEAST_RISE]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(beside) = Beside::of(evidence) else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    for gpu in beside.appeared(evidence) {
        changes.push(format!(
            "{} is new",
            words::gpu(evidence.snapshot, gpu.index)
        ));
    }
    for (old, new) in beside.gpus(evidence) {
        // Reports that were passed on have no identifiers.
        let uuids = old.uuid.known().zip(new.uuid.known());
        if uuids.is_some_and(|(old, new)| old != new) {
            changes.push(format!(
                "another card is in the slot of {}",
                words::gpu(evidence.snapshot, new.index)
            ));
        }
    }
    let mut facts: BTreeMap<(String, String, String), Vec<Component>> = BTreeMap::new();
    for change in beside
        .facts(evidence)
        .iter()
        .filter(|change| change.is_other())
    {
        let [then, now] = [&change.then, &change.now].map(in_words);
        facts
            .entry((change.what(), now, then))
            .or_default()
            .push(change.part);
    }
    let granted = ("peer access".to_owned(), "on".to_owned(), "off".to_owned());
    if let Some(pairs) = facts.remove(&granted) {
        let pairs = words::count(pairs.len(), "pair");
        changes.push(format!("{pairs} with peer access that had none"));
    }
    changes.extend(facts.iter().map(|((what, now, then), parts)| {
        format!("{what} {now}, was {then}{}", of(evidence, parts))
    }));
    let allowed = Allowances {
        pair: RULE.parameter(evidence, &LEAST_RISE),
        ..fell_since_baseline::allowances(evidence)
    };
    let figures = beside.figures(evidence);
    match figures
        .iter()
        .filter(|figure| figure.is_better(&allowed))
        .count()
    {
        0 => {}
        rose => changes.push(format!("{rose} of {} figures rose", figures.len())),
    }
    if changes.is_empty() {
        return Vec::new();
    }
    vec![
        RULE.finding(
            Subject::Machine,
            format!(
                "Since the earlier report of {}: {}",
                beside.old.started_at,
                changes.join("; ")
            ),
            [Step::Nothing(Fine::IfMeant), Step::NewBaseline],
        )
        .fact("changes", changes.len()),
    ]
}

/// Returns the parts of the machine that a change concerns, in brackets; empty for the machine itself.
fn of(evidence: &Evidence<'_>, parts: &[Component]) -> String {
    let gpu = |part: &Component| match part {
        Component::Gpu(index) => Some(*index),
        _ => None,
    };
    match parts {
        [Component::Machine, ..] => String::new(),
        [Component::Gpu(_), ..] => {
            let gpus: Vec<u32> = parts.iter().filter_map(gpu).collect();
            format!(" ({})", words::all_or(evidence.snapshot, &gpus))
        }
        [Component::Pair(_), ..] => format!(" ({})", words::count(parts.len(), "pair")),
        [Component::Function(address)] => format!(" ({address})"),
        _ => format!(" ({})", words::count(parts.len(), "PCI function")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::beside_recorded;
    use crate::testing::prelude::*;

    #[test]
    fn another_driver_wants_another_baseline() {
        let found = beside_recorded(|new| {
            new.snapshot.host.driver_version = Reading::Known("580.200.01".into());
        });
        assert_advice(&RULE, &found, &["new-baseline"], &["nothing"]);
    }
}
