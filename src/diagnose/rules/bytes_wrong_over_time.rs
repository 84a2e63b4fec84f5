//! # What it means
//!
//! Bytes arrived wrong, or never, during hours under load. Everything computed from them is wrong, and a short test
//! misses it.
//!
//! # What to do
//!
//! Take the machine out of service. Look for Xid messages of that time and for error counters of the links on the
//! way. Test the memory of the GPUs at both ends. Repeat the hours; then swap the GPU that all such flows share.
//!
//! # How it is detected
//!
//! After each burst of copies every destination is compared with what was sent (`measurements.soak`). The evidence
//! has the time of the first wrong bytes and the number of bursts. Pairs whose bytes were wrong in the check before
//! are `peer-data-wrong`.
//!
//! # Sources
//!
//! Public reports of silent data corruption at scale name links and memory that fail only under load and at
//! temperature.

use super::over_time::{self, OfPlace};
use super::prelude::*;
use model::soak::{EventKind, Soak, SoakEvent, SoakPath};

pub(crate) const RULE: Rule = Rule::new("bytes-wrong-over-time", Severity::Error, judge);

/// A path whose bytes were wrong.
struct Wrong<'a> {
    path: &'a SoakPath,
    bursts: u64,
    first: Option<&'a SoakEvent>,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(soak) = over_time::soak(evidence) else {
        return Vec::new();
    };
    let known = |path: &SoakPath| {
        let mut cells = evidence.peer().iter();
        cells.any(|cell| Some(cell.pair) == path.flow().pair() && cell.verified.is_wrong())
    };
    let of = |(number, path): (u32, _)| {
        let minutes = soak.of_path(number);
        let own =
            |event: &&SoakEvent| event.kind == EventKind::WrongBytes && event.path == Some(number);
        Wrong {
            path,
            bursts: minutes.map(|(_, minute)| u64::from(minute.wrong)).sum(),
            first: soak.events.iter().find(own),
        }
    };
    let mut wrong: Vec<Wrong<'_>> = soak.numbered().map(of).collect();
    wrong.retain(|wrong| wrong.bursts > 0 && !known(wrong.path));
    let places = over_time::by_place(evidence, soak, &wrong, |wrong| wrong.path);
    places.iter().filter_map(|place| finding(soak, place)).collect()
}

fn finding(soak: &Soak, place: &OfPlace<'_, Wrong<'_>>) -> Option<Finding> {
    let wrong = &place.of;
    let first = words::smallest(wrong.iter().filter_map(|wrong| wrong.first), |one| one.at_s);
    let bursts: u64 = wrong.iter().map(|wrong| wrong.bursts).sum();
    let name = wrong.first()?.path.name();
    let more = words::further(" and ", wrong.len() - 1, "more flow");
    let when = first.map_or(String::new(), |event| {
        let [at, of] = [event.at_s, soak.seconds].map(over_time::after);
        format!(", first after {at} of {of}")
    });
    let detail = words::in_brackets(first.map(|event| &event.what));
    let message =
        format!("{name}{more}: wrong bytes after {}{when}{detail}", words::count(bursts, "burst"));
    let plan = Plan::until_repair([Step::MachineOutOfService])
        .and(When::Now, [Step::Xid, Step::LinkErrors, Step::TestMemory])
        .and(When::Now, [Step::Swap(Part::Gpu(one_of(&place.gpus)))]);
    let found = RULE
        .finding(place.subject.clone(), message, plan)
        .fact("wrong_bursts", bursts)
        .fact("first_after", first.map(|event| Fact::Seconds(event.at_s)));
    Some(place.mark(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn bytes_that_go_wrong_after_hours_are_an_error_with_their_time() {
        let mut soak = over_time::testing::hour(8, |_, _| 395.0, |_, _, _| ());
        // The flow from GPU 3.
        for minute in &mut soak.minutes[44..] {
            minute.paths[3].wrong = 2;
        }
        soak.events.push(SoakEvent {
            at_s: 45.0 * 60.0,
            kind: EventKind::WrongBytes,
            gpu: None,
            path: Some(3),
            function: None,
            xid: None,
            what: "GPU 3 → GPU 4 in ring: 8 B of 512 MiB are wrong".into(),
        });
        let all = over_time::testing::after(soak);
        let found = only(&all, "bytes-wrong-over-time", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(Pair { source: 3, destination: 4 }));
        assert!(found.message.contains("32 bursts, first after 45 min"), "{}", found.message);
        let (must, may) = (["out-of-service", "swap"], ["xid", "link-errors", "test-memory"]);
        assert_advice(&RULE, &all, &must, &may);
    }
}
