//! A gap in the hours under load.

use super::over_time;
use super::prelude::*;
use model::soak::SoakEnd;

/// Returns the finding on hours that do not show that the machine is healthy. Hours that tested nothing must not look like
/// hours that found nothing.
pub(super) fn finding(rule: &Rule, evidence: &Evidence<'_>) -> Option<Finding> {
    let soak = evidence.measured().soak.as_deref()?;
    let asked = over_time::after(soak.requested_seconds);
    let ran = over_time::after(soak.seconds);
    let of_kind = |kind| soak.events.iter().rfind(|event| event.kind == kind);
    let (last, unsure) = (of_kind(EventKind::NotRun), of_kind(EventKind::NotCompared));
    let why = words::after("; ", last.map(|event| event.what.as_str()));
    let left_out = left_out(soak);
    let crash = crash(soak);
    let (message, steps) = match soak.ended {
        SoakEnd::NothingRuns => (
            format!("Of {asked} under load {ran} ran; no round ran to its end any more{why}"),
            vec![Step::Xid],
        ),
        SoakEnd::CutOff => {
            (format!("Of {asked} under load {ran} are known; the program was killed"), vec![])
        }
        _ if soak.seconds < soak.requested_seconds
            && !soak.events.iter().any(SoakEvent::is_fault) =>
        {
            (format!("Of {asked} under load {ran} ran"), vec![])
        }
        _ if !has_figures(soak) => {
            (format!("The report has no compared bytes of {asked} under load"), vec![])
        }
        _ if !left_out.is_empty() => (
            format!(
                "{} left out of the hours under load; not run twice in a row: {}{why}",
                words::count(left_out.len(), "flow"),
                words::first(&left_out, NAMED)
            ),
            vec![Step::Xid],
        ),
        _ if unsure.is_some() => {
            (format!("Bytes could not be compared under load; {}", unsure?.what), vec![Step::Xid])
        }
        _ => (
            format!(
                "Copies crashed their process once under load; they worked when tried again: {}",
                crash?
            ),
            vec![Step::Xid, Step::LinkErrors],
        ),
    };
    let plan = Plan::now(steps).and(When::Afterwards, [Step::CheckAgain]);
    Some(
        rule.on_machine(message, plan)
            .fact("ran_for", Fact::Seconds(soak.seconds))
            .fact("rounds_not_run", usize::try_from(soak.rounds_lost).unwrap_or(usize::MAX)),
    )
}

/// Most flows that a message names (chosen).
const NAMED: usize = 4;

/// Returns the first flow of each arrangement that was not run and has no rate after that.
fn left_out(soak: &Soak) -> Vec<String> {
    let of_path = |(number, path): (u32, &model::soak::SoakPath)| {
        let not_run = soak
            .events
            .iter()
            .rfind(|event| event.kind == EventKind::NotRun && event.path == Some(number))?;
        let runs_on = soak.of_path(number).any(|(until, _)| until > not_run.at_s + MINUTE);
        let is_last = soak.seconds - not_run.at_s <= 2.0 * MINUTE;
        (!runs_on && !is_last).then(|| path.name())
    };
    soak.numbered().filter_map(of_path).collect()
}

/// Returns true if bytes of some copy were compared.
fn has_figures(soak: &Soak) -> bool {
    let of_path = |(number, _)| soak.of_path(number);
    let mut figures = soak.numbered().flat_map(of_path);
    figures.any(|(_, path)| path.gbps > 0.0 && path.verified_bytes > 0)
}

/// Seconds of a minute.
const MINUTE: f64 = 60.0;

/// Returns the only crash.
fn crash(soak: &Soak) -> Option<&str> {
    let crashes = || soak.events.iter().filter(|event| event.kind == EventKind::Crashed);
    (crashes().count() == 1).then(|| crashes().next())?.map(|event| event.what.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::not_tested;
    use crate::testing::prelude::*;

    fn after(change: impl Fn(&mut Soak)) -> Vec<Finding> {
        let mut soak = over_time::testing::hour(8, |_, _| 395.0, |_, _, _| ());
        change(&mut soak);
        over_time::testing::after(soak)
    }

    fn not_run(at_s: f64) -> SoakEvent {
        SoakEvent {
            at_s,
            kind: EventKind::NotRun,
            gpu: None,
            path: Some(0),
            function: None,
            xid: None,
            what: "GPU 0 → GPU 1 and 7 more: the worker was killed".into(),
        }
    }

    #[test]
    fn hours_that_ended_early_or_left_copies_out_are_no_proof() {
        for ended in [SoakEnd::NothingRuns, SoakEnd::CutOff] {
            let all = after(|soak| {
                (soak.ended, soak.seconds) = (ended, 0.0);
                soak.minutes.clear();
            });
            only(&all, "not-tested", Severity::Warning);
            assert_eq!(exit(&all, Some(&Measurements::default())), 3);
        }
        let all = after(|soak| {
            soak.events.extend([not_run(1200.0), not_run(1260.0)]);
            for minute in soak.minutes.iter_mut().filter(|minute| minute.until_s > 1260.0) {
                minute.paths.retain(|path| path.path != 0);
            }
        });
        let found = only(&all, "not-tested", Severity::Warning);
        assert!(found.message.contains("GPU 0 → GPU 1 in ring"), "{}", found.message);
        let all = after(|soak| {
            soak.events.push(SoakEvent { kind: EventKind::NotCompared, ..not_run(1200.0) });
        });
        assert_eq!(exit(&all, Some(&Measurements::default())), 3);
        only(&all, "not-tested", Severity::Warning);
        // A round that was killed and ran again a minute later is no gap.
        assert_eq!(after(|soak| soak.events.push(not_run(1200.0))), []);
        // Ended by a signal, or at a fault that it does not name.
        for ended in [SoakEnd::Interrupted, SoakEnd::FirstFault] {
            let all = after(|soak| {
                (soak.ended, soak.seconds) = (ended, 60.0);
                soak.minutes.truncate(1);
            });
            only(&all, "not-tested", Severity::Warning);
        }
        // No figure at all, or none that was compared.
        let changes: [fn(&mut Soak); 3] = [
            |soak| soak.minutes.clear(),
            |soak| soak.paths.clear(),
            |soak| {
                let minutes = soak.minutes.iter_mut();
                for path in minutes.flat_map(|minute| &mut minute.paths) {
                    path.verified_bytes = 0;
                }
            },
        ];
        for change in changes {
            only(&after(change), "not-tested", Severity::Warning);
        }
    }

    #[test]
    fn its_advice() {
        let all = after(|soak| soak.ended = SoakEnd::NothingRuns);
        assert_advice(&not_tested::RULE, &all, &["xid"], &["check-again"]);
    }
}
