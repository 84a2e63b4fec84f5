use super::*;
use crate::Task;
use crate::soak::run::{SoakFlow, SoakTimes};
use model::flow::Setup;
use model::load::Pattern;
use model::placement::Pair;
use model::reading::Reading;
use model::snapshot::NvLink;
use model::units::{Generation, Lanes};

fn round() -> Round {
    let pair = |source, destination| Pair { source, destination }.into();
    Round {
        id: 7,
        slot: 7,
        flows: vec![pair(0, 1), pair(1, 0)],
        task: Task {
            setup: Setup::REFERENCE,
            action: Action::Soak(crate::soak::Soak {
                pattern: Some(Pattern::Ring),
                millis: 1000,
                bursts: 2,
            }),
        },
        deadline: Duration::from_secs(9),
        timeline: false,
        name: String::new(),
    }
}

fn soak(gbps: [f64; 2], wrong: u64) -> Outcome {
    let flow = |wrong| SoakFlow {
        slowed_percent: None,
        unsure: None,
        gbps: gbps.to_vec(),
        copied: 1000,
        compared: 100,
        wrong,
        detail: (wrong > 0).then(|| "8 B of 100 B are wrong".into()),
    };
    Outcome::Soak { soak: Box::new(SoakTimes { flows: vec![flow(0), flow(wrong)] }) }
}

fn begun() -> Minutes {
    Minutes::new(&[round()], &[0, 1], Duration::from_secs(5), Counted::default())
}

#[test]
fn a_minute_has_the_rates_of_its_rounds() {
    let mut minutes = begun();
    for second in [20, 40, 65] {
        minutes.clock(Duration::from_secs(second));
        let copied =
            minutes.ended(&round(), &soak([390.0, f64::from(u32::try_from(second).unwrap())], 0));
        assert_eq!(copied.iter().map(|(_, bytes)| *bytes).sum::<u64>(), 2000);
    }
    assert!(minutes.is_over());
    let minute = minutes.close(Counted::default());
    assert_eq!(minute.until_s, 60.0);
    let [first, _] = minute.paths.as_slice() else { panic!("{minute:?}") };
    assert_eq!((first.lowest_gbps, first.bytes, first.verified_bytes), (20.0, 3000, 300));
    assert_eq!(first.gbps, 227.5, "the median of 20, 40, 65 and three times 390");
    assert!(!minutes.is_over() && minutes.close(Counted::default()).paths.is_empty());
}

#[test]
fn bytes_that_cannot_be_compared_are_an_event_and_no_fault() {
    let mut minutes = begun();
    let Outcome::Soak { mut soak } = soak([390.0; 2], 0) else { unreachable!() };
    soak.flows[1].unsure = Some("the check itself does not work on GPU 0".into());
    minutes.ended(&round(), &Outcome::Soak { soak });
    let events = minutes.take_events();
    assert_eq!((events.len(), minutes.has_fault()), (1, false));
    assert_eq!((events[0].kind, events[0].path), (EventKind::NotCompared, Some(1)));
    assert_eq!(events[0].what, "GPU 1 → GPU 0 in ring: the check itself does not work on GPU 0");
}

#[test]
fn wrong_bytes_and_hangs_are_events_with_their_time() {
    let mut minutes = begun();
    minutes.clock(Duration::from_secs(15));
    minutes.ended(&round(), &soak([390.0; 2], 1));
    minutes.ended(&round(), &soak([390.0; 2], 2));
    let events = minutes.take_events();
    assert_eq!(events.len(), 1, "once a minute: {events:?}");
    assert_eq!(
        (events[0].at_s, events[0].kind, events[0].path),
        (10.0, EventKind::WrongBytes, Some(1))
    );
    minutes.ended(&round(), &Outcome::Lost { status: Status::Hung, reason: "did not end".into() });
    assert_eq!(minutes.take_events()[0].kind, EventKind::Hung);
    assert_eq!(minutes.seconds(), 19.0, "its deadline has passed too");
    // Another worker begins with its clock at zero.
    minutes.clock(Duration::from_secs(1));
    assert_eq!(minutes.seconds(), 20.0);
    assert_eq!((minutes.ran, minutes.lost), (2, 1));
    assert_eq!(minutes.close(Counted::default()).paths[1].wrong, 3);
}

#[test]
fn readings_are_means_and_changes_of_the_link_are_events() {
    let mut minutes = begun();
    let sample = |temperature, lanes: u32, replays| LinkSample {
        temperature_c: Some(temperature),
        generation: Generation::try_from(5_u32).ok(),
        width: Lanes::try_from(lanes).ok(),
        replays: Some(replays),
        ..LinkSample::default()
    };
    minutes.read(&[(0, sample(60, 16, 3)), (0, sample(61, 8, 3)), (0, sample(61, 16, 10))]);
    let minute = minutes.close(Counted::default());
    let own = &minute.gpus[0];
    assert_eq!((own.temperature_c, own.temperature_max_c), (Some(60.67), Some(61)));
    assert_eq!((own.link, own.replays_added), (Some([5, 8]), Some(7)));
    assert_eq!(minute.gpus[1].temperature_c, None);
    let kinds: Vec<EventKind> = minutes.take_events().iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::LinkChanged, EventKind::Replays]);
    // What was counted by the end of a minute is not counted again.
    minutes.read(&[(0, sample(61, 16, 12))]);
    assert_eq!(minutes.close(Counted::default()).gpus[0].replays_added, Some(2));
}

#[test]
fn programs_that_begin_and_end_are_named() {
    let mut minutes = begun();
    let with = |processes: Vec<GpuProcess>| {
        let programs = Some(processes);
        [(0, LinkSample { programs, ..LinkSample::default() })]
    };
    let python = GpuProcess { pid: 4711, name: Some("python3".into()), memory_bytes: None };
    minutes.read(&with(Vec::new()));
    assert!(minutes.take_events().is_empty());
    minutes.read(&with(vec![python.clone()]));
    assert_eq!(minutes.take_events()[0].what, "python3 (process 4711) began to use GPU 0");
    // A GPU that does not answer has not lost its programs.
    minutes.read(&[(0, LinkSample::default())]);
    assert!(minutes.take_events().is_empty());
    minutes.read(&with(Vec::new()));
    assert_eq!(minutes.take_events()[0].kind, EventKind::ProgramEnded);
}

#[test]
fn xids_are_events_and_what_could_not_be_read_is_not_none() {
    let mut minutes = begun();
    let sample = |xids| LinkSample { xids: Some(xids), ..LinkSample::default() };
    let known = |codes: &[u32]| sample(Ok(codes.to_vec()));
    let failed = || sample(Err(Unknown::Failed("NVML: no".into())));
    minutes.read(&[(0, known(&[13])), (0, known(&[13, 79])), (1, known(&[]))]);
    assert!(minutes.has_fault(), "79 is of the hardware");
    let minute = minutes.close(Counted::default());
    assert_eq!(minute.gpus[0].xids, Some(vec![13, 13, 79]));
    assert_eq!(minute.gpus[1].xids, Some(vec![]));
    let events = minutes.take_events();
    let xids: Vec<_> = events.iter().map(|event| (event.gpu, event.xid)).collect();
    assert_eq!(xids, [(Some(0), Some(13)), (Some(0), Some(79))]);
    minutes.read(&[(0, known(&[13])), (0, failed()), (0, failed())]);
    assert_eq!(minutes.close(Counted::default()).gpus[0].xids, None);
    let events = minutes.take_events();
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Xid, EventKind::Problem], "once");
}

#[test]
fn minutes_keep_the_links_that_corrected_many_symbols_alone() {
    let link = |number: u8, codewords: [u64; 5]| {
        let mut link = NvLink::unread(number, &Unknown::Unsupported);
        link.recovery_errors = Reading::Known(0);
        link.fec_histogram = Reading::Known(codewords.to_vec());
        link
    };
    let counted =
        |links: Vec<NvLink>| Counted { links: HashMap::from([(0, links)]), functions: Vec::new() };
    let before = counted(vec![link(0, [10, 5, 1, 0, 7]), link(1, [10, 0, 0, 0, 0])]);
    let after = counted(vec![link(0, [90, 500, 90, 0, 7]), link(1, [90, 3, 1, 0, 2])]);
    let mut minutes = Minutes::new(&[round()], &[0, 1], Duration::from_secs(5), before);
    minutes.clock(Duration::from_secs(70));
    let minute = minutes.close(after);
    let found = minute.gpus[0].nvlink_corrected.clone().unwrap();
    assert_eq!(found, [NvLinkCorrected { link: 1, codewords: vec![80, 3, 1, 0, 2] }]);
    assert_eq!(minute.gpus[0].nvlink_errors, Some(Vec::new()), "no error");
    assert_eq!(minute.gpus[1].nvlink_corrected, None, "not counted");
    assert!(!minutes.has_fault());
}
