//! Compares a report with the reports of this machine that were kept. It names a change only if both runs would have shown it.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use serde_json::Value;

use super::baseline::Beside;
use super::compare::{OF_BOTH, between};
use super::evidence::Evidence;
use super::expectations::Expectations;
use super::figures::{Compared, Ends, Figure, Table};
use super::judge::judge;
use super::rules::changed_since_baseline;
use super::rules::fell_since_baseline::allowances;
use super::rules::worse::{self, places};
use super::settings::Settings;
use super::verdict::{Ending, is_gap};
use super::{since, words};
use model::cell::Measurement;
use model::finding::{Finding, Scope, Severity, Subject};
use model::report::{Change, Changed, Report};
use model::snapshot::Snapshot;

/// Lists of parts in a snapshot, with the keys that identify a part.
const PARTS: [(&str, &[&str]); 4] = [
    ("gpus", &["index"]),
    ("pairs", &["source", "destination"]),
    ("pci", &["address"]),
    ("nvlinks", &["link"]),
];

/// Counters and messages, which a start of the system or of the driver clears. That they are gone repairs nothing.
const PAST: &str = "aer_correctable aer_fatal aer_nonfatal crc_errors ecc_uncorrected packet_errors pcie_errors \
    pcie_replays recovery_errors replay_errors xids";

/// Fewest runs that make a level. Two runs on a sound guest had 0.8 and 3.9 GB/s of memory registered anew [M: 2 x H200].
const LEAST_RUNS: usize = 3;

/// Returns true if two snapshots are of one machine: they share a GPU, or neither knows an identifier and host name and
/// places are the same. A disk can be copied into another machine.
pub fn is_same_machine(then: &Snapshot, now: &Snapshot) -> bool {
    let identifiers = |snapshot: &Snapshot| -> BTreeSet<String> {
        snapshot.gpus.iter().filter_map(|gpu| gpu.uuid.known().cloned()).collect()
    };
    let [known, today] = [then, now].map(identifiers);
    if !(known.is_empty() && today.is_empty()) {
        return !known.is_disjoint(&today);
    }
    let place = |snapshot: &Snapshot| {
        let addresses: Vec<_> = snapshot.gpus.iter().filter_map(|gpu| gpu.pci.get()).collect();
        let name = snapshot.host.hostname.known().cloned();
        name.filter(|_| !addresses.is_empty()).map(|name| (name, addresses))
    };
    place(then).is_some_and(|then| place(now) == Some(then))
}

/// Returns true if two runs looked at the same GPUs: what one left out, it could not show.
pub fn is_same_choice(one: &Report, other: &Report) -> bool {
    let left_out = |report: &Report| -> BTreeSet<_> {
        let all = report.request.left_out_gpus.iter();
        all.map(|gpu| (gpu.pci, gpu.index.filter(|_| gpu.pci.is_none()))).collect()
    };
    left_out(one) == left_out(other)
}

/// Returns true if a run ended by itself and has tested what was asked for, or has found a fault.
pub fn is_conclusive(report: &Report) -> bool {
    let cut_off = report.measurements.as_ref().is_some_and(|measured| measured.cut_off);
    !cut_off && !matches!(Ending::of(report), Ending::Incomplete | Ending::Interrupted)
}

/// Returns what changed in a judged report since the last conclusive one. `earlier` has the reports before that, the newest
/// first; they are read only if a figure changed.
pub fn changes(
    new: &Report,
    (settings, expectations): (&Settings, Option<&Expectations>),
    last: &Report,
    earlier: impl Iterator<Item = Report>,
) -> Vec<Change> {
    let beside = Beside::new(last, &new.snapshot);
    let evidence = Evidence { baseline: Some(last), ..Evidence::of(new, settings) };
    let judged =
        |report: &Report| judge(&Evidence { expectations, ..Evidence::of(report, settings) });
    let mut all = Vec::new();
    // If numbers of GPUs have changed, findings are about others of the same number.
    if !beside.is_renumbered() {
        let is_own = |found: &&Finding| OF_BOTH.iter().all(|rule| rule.id != found.code);
        let now: Vec<Finding> = new.findings.iter().filter(is_own).cloned().collect();
        let before = judged(last);
        let [mut gone, appeared] = between(&before, &now);
        gone.retain(|found| {
            is_conclusive(new)
                && beside.is_looked_at(&evidence, found)
                && is_still_there(found, [last, new].map(|report| &report.snapshot))
        });
        let fixed = (Changed::Fixed, gone, now, [last, new]);
        for (what, mut found, others, [of, to]) in
            [fixed, (Changed::New, appeared, before, [new, last])]
        {
            found.retain(|found| found.severity >= Severity::Warning && !is_gap(&found.code));
            // Judging takes long, and is rarely needed once more.
            let restricted = if found.is_empty() { None } else { restricted(of, to) };
            let shown = restricted.as_ref().map(judged).unwrap_or_default();
            let key = |found: &Finding| (found.code.clone(), found.subject.clone());
            let shown: BTreeSet<_> = shown.iter().map(key).collect();
            for found in found.into_iter().filter(|found| shown.contains(&key(found))) {
                let text = in_words(&evidence, &found, &others);
                let (code, subject) = (Some(found.code), Some(found.subject));
                all.extend(text.map(|text| Change { what, code, subject, text }));
            }
        }
    }
    let started = since::restarted(&last.snapshot, &new.snapshot);
    let started = started.then(|| "The machine was started again".to_owned());
    let gone = beside.vanished(&evidence).into_iter().map(|gpu| format!("{} is gone", gpu.label()));
    let machine = started.into_iter().chain(gone);
    let machine = machine.chain(changed_since_baseline::machine(&evidence, &beside));
    let plain = |what| move |text| Change { what, code: None, subject: None, text };
    all.extend(machine.map(plain(Changed::Machine)));
    let figures = figures(&evidence, &beside.figures(&evidence), earlier);
    all.extend(figures.into_iter().map(plain(Changed::Figure)));
    all.dedup();
    all
}

/// Returns true if the parts of a finding are still there, and its ports are up that were down. A rule that judges by what
/// most ports do says nothing once most are down.
fn is_still_there(found: &Finding, [then, now]: [&Snapshot; 2]) -> bool {
    if let Subject::PciFunction { address } = found.subject {
        let adapter = |of: &Snapshot| of.adapters.iter().find(|it| it.pci == address).cloned();
        let ports = |of: &Snapshot| adapter(of)?.ports.known().cloned();
        let Some(before) = ports(then) else { return true };
        let after = ports(now).unwrap_or_default();
        let is_up = |number| after.iter().any(|it| it.port == number && it.is_up() == Some(true));
        return before.iter().all(|port| port.is_up() != Some(false) || is_up(port.port));
    }
    gpus_of(found).iter().all(|gpu| now.gpu(*gpu).is_some())
}

/// Returns a finding in words; `None` if findings of the same rule in the other report may be about the same. One finding
/// may be about what were two, and the reverse.
fn in_words(evidence: &Evidence<'_>, found: &Finding, others: &[Finding]) -> Option<String> {
    let gpus = gpus_of(found);
    let others = others.iter().filter(|other| other.code == found.code);
    let known: BTreeSet<u32> = others.flat_map(gpus_of).collect();
    let own: Vec<u32> = gpus.difference(&known).copied().collect();
    let of_pairs =
        found.scope.gpus.is_empty() && matches!(found.subject, Subject::Machine | Subject::Pair(_));
    if own.len() < gpus.len() && (of_pairs || own.is_empty()) {
        return None;
    }
    let place = match &found.subject {
        Subject::Machine => Some(evidence.named(&own)).filter(|_| !own.is_empty()),
        Subject::Gpu { index } => Some(evidence.name(*index)),
        Subject::PciFunction { address } => {
            let mut adapters = evidence.snapshot.adapters.iter();
            let adapter = adapters.find(|adapter| adapter.pci == *address);
            Some(adapter.map_or_else(|| address.to_string(), |adapter| adapter.name.clone()))
        }
        other => Some(other.to_string()),
    };
    Some(format!("{}{}", found.code, words::after(" of ", place)))
}

/// Returns the GPUs that a finding is on. The pairs of one on a GPU or a link are those that pass it.
fn gpus_of(finding: &Finding) -> BTreeSet<u32> {
    match &finding.subject {
        Subject::Machine if finding.scope.gpus.is_empty() => finding.scope.all_gpus(),
        Subject::Machine | Subject::PcieLink { .. } => finding.scope.gpus.iter().copied().collect(),
        subject => Scope::from(subject).all_gpus(),
    }
}

/// Returns the first report with no more than what the other one read and measured.
fn restricted(of: &Report, to: &Report) -> Option<Report> {
    let mut of = of.clone();
    let mut snapshot = serde_json::to_value(&of.snapshot).ok()?;
    dim(&mut snapshot, &serde_json::to_value(&to.snapshot).ok()?);
    of.snapshot = serde_json::from_value(snapshot).ok()?;
    if let Some(measured) = &mut of.measurements {
        let other = to.measurements.as_ref()?;
        let key = |one: &dyn Measurement| (one.probe(), Ends::of(one), one.what_of_any_size());
        let tested = other.each().filter(|one| one.cell().tested()).map(key);
        let tested: BTreeSet<_> = tested.collect();
        measured.retain(|one| tested.contains(&key(one)));
        measured.links.retain(|link| other.links.iter().any(|other| other.index == link.index));
        measured.soak = measured.soak.take().filter(|_| other.soak.is_some());
    }
    Some(of)
}

/// Removes the facts that the other snapshot does not know, and takes its counters.
fn dim(of: &mut Value, to: &Value) {
    let (Value::Object(of), Value::Object(to)) = (of, to) else {
        return;
    };
    for (key, value) in of {
        let Some(other) = to.get(key) else {
            continue;
        };
        match (&mut *value, other) {
            (_, Value::Null) => *value = Value::Null,
            _ if PAST.split(' ').any(|past| past == key) => *value = other.clone(),
            (Value::Array(of), Value::Array(to)) => {
                let Some((_, keys)) = PARTS.iter().find(|(parts, _)| parts == key) else {
                    continue;
                };
                of.retain_mut(|part| {
                    let is_it = |other: &&Value| keys.iter().all(|key| part[key] == other[key]);
                    let other = to.iter().find(is_it);
                    other.inspect(|other| dim(part, other)).is_some()
                });
            }
            _ => dim(value, other),
        }
    }
}

/// Returns a line for each place whose figures are at another level than in the last report, with the number of runs that
/// had that level.
fn figures(
    evidence: &Evidence<'_>,
    all: &[Compared<Ends>],
    earlier: impl Iterator<Item = Report>,
) -> Vec<String> {
    let allowed = allowances(evidence);
    let tables = earlier.map(|report| Beside::new(&report, evidence.snapshot).table());
    let tables = LazyCell::new(|| tables.collect::<Vec<Table>>());
    let line = |place: &worse::Worse<'_>, rose: bool| {
        let Compared { identity, kind, then, now } = place.worst.clone();
        let is_level = |earlier: &Figure| {
            let both = Compared { then: *earlier, now: Some(then), ..place.worst.clone() };
            !both.is_worse(&allowed) && !both.is_better(&allowed)
        };
        let key = (identity, kind.clone());
        let known = tables.iter().filter_map(|table| table.get(&key).copied().flatten());
        let runs = 1 + known.take_while(is_level).count();
        if runs < LEAST_RUNS {
            return None;
        }
        let runs = words::count(runs, "run");
        let [then, now] = [then, now?].map(|figure| worse::shown(&kind, figure.value));
        let of = place.group.is_none().then(|| format!("{kind}{}", place.more));
        let (what, of) = (place.what(evidence), words::after("; ", of));
        // A place within a sentence may end with a comma.
        let what = what.trim_end_matches(',');
        // A place shows the figure that rose least.
        let or_more = if rose && place.group.is_some() { " or more" } else { "" };
        Some(format!("{what}: {then} {} for {runs}, {now}{or_more} now{of}", kind.unit))
    };
    let fell = places(evidence, all, |figure| figure.is_worse(&allowed));
    let rose = places(evidence, all, |figure| figure.is_better(&allowed));
    let fell = fell.iter().filter_map(|place| line(place, false));
    fell.chain(rose.iter().filter_map(|place| line(place, true))).collect()
}
