//! Part of `data-wrong`: bytes that went wrong during hours under load.

use super::over_time::{self, OfPlace};
use super::prelude::*;

/// A path whose bytes were wrong.
struct WrongPath<'a> {
    path: &'a SoakPath,
    copies: u64,
    first: Option<&'a SoakEvent>,
}

/// Returns the findings on hours under load.
pub(super) fn findings(rule: &Rule, evidence: &Evidence<'_>) -> Vec<Finding> {
    let soak = over_time::soak(evidence);
    let known = |path: &SoakPath| {
        let mut cells = evidence.peer().iter();
        cells.any(|cell| Some(cell.pair) == path.flow().pair() && cell.verified.is_wrong())
    };
    let of = |(number, path): (u32, _)| {
        let minutes = soak.of_path(number);
        let own =
            |event: &&SoakEvent| event.kind == EventKind::WrongBytes && event.path == Some(number);
        WrongPath {
            path,
            copies: minutes.map(|(_, minute)| minute.wrong).sum(),
            first: soak.events.iter().find(own),
        }
    };
    let mut wrong: Vec<WrongPath<'_>> = soak.numbered().map(of).collect();
    wrong.retain(|wrong| wrong.copies > 0 && !known(wrong.path));
    let places = over_time::by_place(evidence, soak, &wrong, |wrong| wrong.path);
    places.iter().filter_map(|place| of_place(rule, soak, place)).collect()
}

fn of_place(rule: &Rule, soak: &Soak, place: &OfPlace<'_, WrongPath<'_>>) -> Option<Finding> {
    let wrong = &place.of;
    let first = words::smallest(wrong.iter().filter_map(|wrong| wrong.first), |one| one.at_s);
    let copies: u64 = wrong.iter().map(|wrong| wrong.copies).sum();
    let name = wrong.first()?.path.name();
    let more = words::further(" and ", wrong.len() - 1, "more flow");
    let when = first.map_or(String::new(), |event| {
        let [at, of] = [event.at_s, soak.seconds].map(over_time::after);
        format!(", first after {at} of {of}")
    });
    let detail = words::after("; ", first.map(|event| &event.what));
    let message = format!("{name}{more}: wrong bytes in {copies} of the copies{when}{detail}");
    let plan = Plan::until_repair([Step::MachineOutOfService])
        .then([Step::Xid, Step::LinkErrors, Step::TestMemory])
        .then([Step::Swap(Part::of(&place.gpus))]);
    let found = rule
        .finding(place.subject.clone(), message, plan)
        .fact("wrong_copies", copies)
        .fact("first_after", first.map(|event| Fact::Seconds(event.at_s)));
    Some(place.mark(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::data_wrong;
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
        let found = only(&all, "data-wrong", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(Pair { source: 3, destination: 4 }));
        assert!(
            found.message.contains("in 32 of the copies, first after 45 min"),
            "{}",
            found.message
        );
        let (must, may) = (["out-of-service", "swap"], ["xid", "link-errors", "test-memory"]);
        assert_advice(&data_wrong::RULE, &all, &must, &may);
    }
}
