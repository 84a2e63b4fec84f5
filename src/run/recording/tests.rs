use super::testing::RUN;
use super::{Event, Recording, read};
use crate::discover::LateFacts;
use model::measurement::Status;
use model::reading::Reading;
use model::snapshot::{NvLinkRemote, P2pStatus};
use model::testing::nvlinks;

#[test]
fn what_is_read_back_of_a_whole_journal_is_what_the_run_came_to_and_that_it_was_cut_off() {
    let (bytes, recorded) = &*RUN;
    let (header, recording) = read(bytes).unwrap();
    assert_eq!((header.machine.as_str(), header.profile.as_str()), ("demo", "quick"));
    let mut expected = recorded.clone();
    expected.measurements.cut_off = true;
    let cut_off = "the run was cut off before its end; what follows is what its journal has";
    expected.measurements.problems.insert(0, cut_off.into());
    assert_eq!(recording.conclude(), expected);

    let measurements = &recorded.measurements;
    assert!(!measurements.cut_off && measurements.links.len() == 2, "{measurements:?}");
    assert!(
        measurements.links.iter().all(|link| link.readings >= 2 && link.nvlink_errors.is_none())
    );
    assert!(measurements.peer.iter().all(|cell| cell.ending.status == Status::Measured));
    assert_eq!(
        (measurements.problems.as_slice(), measurements.left_out.len()),
        (["something".to_owned()].as_slice(), 1)
    );
}

#[test]
fn a_journal_cut_off_anywhere_gives_all_that_was_written() {
    let bytes = &RUN.0;
    let header = 1 + bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let whole = |end: usize| bytes[..end].iter().filter(|byte| **byte == b'\n').count();
    // Around the end of each line, and now and then within one: every byte would read the journal thousands of times.
    let is_near_an_end = |end: usize| {
        let near = end.saturating_sub(3)..bytes.len().min(end + 3);
        bytes[near].contains(&b'\n')
    };
    let mut last = None::<Recording>;
    for end in (0..=bytes.len()).filter(|end| end % 23 == 0 || is_near_an_end(*end)) {
        let found = read(&bytes[..end]);
        if end < header {
            assert!(found.is_err(), "{end}");
            continue;
        }
        let (_, recording) = found.unwrap();
        if bytes[end - 1] != b'\n' {
            // Only whole lines count, and the report that one line is torn.
            let mut expected = last.clone().unwrap();
            expected.unread("its last line is not complete".into());
            assert_eq!(recording, expected, "{end}");
            continue;
        }
        assert_ne!(Some(&recording), last.as_ref(), "every line says something: {}", whole(end));
        last = Some(recording.clone());
        let outcomes = recording.outcomes().len();
        let recorded = recording.conclude();
        let cells = &recorded.measurements.peer;
        assert!(recorded.measurements.cut_off, "{end}");
        assert!(cells.is_empty() || cells.len() == RUN.1.measurements.peer.len());
        let measured = cells.iter().filter(|cell| cell.ending.status == Status::Measured).count();
        let within = recorded
            .measurements
            .local
            .iter()
            .filter(|cell| cell.ending.status == Status::Measured)
            .count();
        // The first round of each pair verifies.
        assert!(measured + within + 2 >= outcomes, "{measured} and {within} of {outcomes}");
    }
    assert!(whole(bytes.len()) > 20);
}

#[test]
fn a_reading_of_a_link_that_nobody_watched_is_no_harm() {
    let mut recording = super::Recording::new("quick");
    let sample = hardware::LinkSample::default();
    recording.take(super::Entry { at: 1.0, event: Event::Links { readings: vec![(7, sample)] } });
    let links = recording.conclude().measurements.links;
    assert_eq!((links[0].index, links[0].readings), (7, 1));
    assert!(links[0].reason.as_ref().unwrap().contains("cut off"));
}

#[test]
fn what_is_read_while_copies_run_takes_the_place_of_what_was_not() {
    let snapshot = RUN.1.snapshot.clone();
    let mut pairs = snapshot.pairs.clone();
    pairs[0].p2p_read = Reading::Known(P2pStatus::GpuNotSupported);
    let mut recording = super::Recording::new("quick");
    let mut links = nvlinks(4, "4.0", 26562, NvLinkRemote::Switch, None);
    links[2].crc_errors = Reading::Known(7);
    let problems = vec!["one did not answer".into()];
    let late =
        Event::Late(LateFacts { pairs: pairs.clone(), links: vec![(1, links.clone())], problems });
    recording.take(super::Entry { at: 1.0, event: Event::Facts { snapshot } });
    recording.take(super::Entry { at: 2.0, event: late });
    let recorded = recording.conclude();
    assert_eq!(recorded.snapshot.pairs, pairs);
    assert_eq!(recorded.snapshot.gpus[1].nvlinks, Reading::Known(links));
    assert_eq!(recorded.snapshot.problems.last().map(String::as_str), Some("one did not answer"));
    let said = &recorded.topology.pairs[0].peer_access;
    assert_eq!(said.nvml_read, Some(P2pStatus::GpuNotSupported), "the topology is made of it too");
    assert!((recorded.timing.discover - 1.0).abs() < 1e-9, "{:?}", recorded.timing);
}
