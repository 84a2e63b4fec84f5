//! Tests of rounds that break off while several run at once, and work one by one.

use super::deaths::{CRASHED, KILLED, ONE, dying};
use super::*;
use hardware::ErrorKind;
use model::broken_off::{Again, How};

/// The behaviour of a worker with rounds that run at once.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Does {
    Works,
    Hangs,
    /// The worker ends with this raw status of wait(2).
    Ends(i32),
    /// The worker reports an error after which it is of no use.
    Breaks,
    /// The worker reports an error that it survives.
    Fails,
}

fn error(kind: ErrorKind) -> HardwareError {
    HardwareError::new(kind, "cuMemcpyPeerAsync: gone (719)").with_code(719)
}

/// Runs slots of three pairs each. The nth time that several rounds run at once the worker does the nth of these
/// things, and works from then on. A round by itself always works.
fn run_at_once(slots: u32, does: &'static [Does]) -> (Heard, u32) {
    let task = Task { setup: Setup::REFERENCE, action: Latency { samples: 1 }.into() };
    // Only one that hangs is waited for until its deadline; on a busy machine an answer may take long.
    let deadline = match does.contains(&Does::Hangs) {
        true => Duration::from_secs(1),
        false => FOREVER,
    };
    let flows = |id: u32| vec![Pair { source: 2 * (id % 3), destination: 2 * (id % 3) + 1 }.into()];
    let round = |id| Round {
        id,
        slot: id / 3,
        flows: flows(id),
        task,
        deadline,
        timeline: false,
        name: String::new(),
    };
    let rounds: Vec<_> = (0..3 * slots).map(round).collect();
    let (mut pid, times) = (99, Arc::new(Mutex::new(0)));
    let mut spawn = |_: &Launch| -> Result<Worker, HardwareError> {
        pid += 1;
        let times = Arc::clone(&times);
        Ok(worker_that_dies(pid, move |request| {
            let Request::Run { rounds } = request else {
                return Ok(vec![ready()]);
            };
            let all = || rounds.iter().map(|round| done(round.id));
            let mut times = times.lock().unwrap();
            let what = if rounds.len() > 1 {
                does.get(*times).copied().unwrap_or(Does::Works)
            } else {
                Does::Works
            };
            *times += usize::from(rounds.len() > 1);
            drop(times);
            let outcome = Outcome::Failed { error: error(ErrorKind::Sticky) };
            match what {
                Does::Works => Ok(all().collect()),
                Does::Hangs => loop {
                    std::thread::park();
                },
                Does::Ends(status) => Err(status),
                Does::Breaks => {
                    Ok(vec![Reply::Done { id: rounds[0].id, outcome, clock: Duration::ZERO }])
                }
                Does::Fails => {
                    let apart = Reply::Apart { id: rounds[0].id, error: error(ErrorKind::Other) };
                    Ok(std::iter::once(apart).chain(all()).collect())
                }
            }
        }))
    };
    let mut launch = Launch { start_limit: FOREVER, ..launch(6) };
    let Ok(Ready { worker, .. }) = start(spawn(&launch), &mut launch, &GOING_ON, &mut spawn) else {
        panic!("the first worker does not start")
    };
    let mut heard = Heard::default();
    run_with(worker, launch, &rounds, &GOING_ON, &mut heard, &mut spawn);
    assert!(
        rounds.iter().all(|round| measured(&heard.outcomes[&round.id])),
        "{:?}",
        heard.outcomes
    );
    (heard, pid - 99)
}

const KINDS: [(Does, How, Option<i32>, Option<u32>); 5] = [
    (Does::Hangs, How::Hung, None, None),
    (Does::Ends(6), How::Crashed, Some(6), None),
    (Does::Ends(11), How::Crashed, Some(11), None),
    (Does::Breaks, How::Failed, None, Some(719)),
    (Does::Fails, How::Failed, None, Some(719)),
];

#[test]
fn a_round_that_breaks_off_once_is_run_together_once_more() {
    for (does, how, signal, code) in KINDS {
        let (heard, _) = run_at_once(3, Box::leak(Box::new([Does::Works, does])));
        let [broken] = heard.broken.as_slice() else { panic!("{does:?}: {:?}", heard.broken) };
        assert_eq!(
            (broken.first.how, broken.first.signal, broken.first.error_code),
            (how, signal, code),
            "{does:?}"
        );
        assert_eq!(
            (broken.round, broken.flows.len(), &broken.again),
            (3, 3, &Again::Worked),
            "{does:?}"
        );
        assert!(
            heard.problems.last().unwrap().contains("once more: it ended well"),
            "{:?}",
            heard.problems
        );
    }
}

#[test]
fn a_round_that_breaks_off_again_says_how() {
    for (does, how, signal, code) in KINDS {
        // There are three slots, and the last of them goes wrong twice.
        let (heard, _) =
            run_at_once(3, Box::leak(Box::new([Does::Works, Does::Works, does, does])));
        let [broken] = heard.broken.as_slice() else { panic!("{does:?}: {:?}", heard.broken) };
        let Again::BrokeOff(again) = &broken.again else { panic!("{does:?}: {broken:?}") };
        assert_eq!((again.how, again.signal, again.error_code), (how, signal, code), "{does:?}");
    }
}

#[test]
fn where_two_rounds_broke_off_neither_is_run_again() {
    let (heard, workers) = run_at_once(4, &[Does::Hangs, Does::Ends(6)]);
    assert_eq!((heard.broken.len(), workers), (2, 3), "{:?}", heard.broken);
    let not_run = |broken: &BrokenOff| matches!(&broken.again, Again::NotRun { why } if why.contains("more than one"));
    assert!(heard.broken.iter().all(not_run), "{:?}", heard.broken);
}

#[test]
fn after_three_rounds_that_broke_off_the_rest_is_run_one_at_a_time() {
    let (heard, workers) = run_at_once(9, &[Does::Hangs; 9]);
    assert_eq!((heard.broken.len(), workers), (3, 4), "{:?}", heard.broken);
    assert!(heard.problems.last().unwrap().contains("one at a time"), "{:?}", heard.problems);
}

#[test]
fn a_worker_that_somebody_killed_or_that_ended_in_order_broke_nothing_off() {
    // The statuses are SIGKILL, SIGTERM, and the exit code 0.
    for status in [9, 15, 0] {
        let (heard, workers) = run_at_once(2, Box::leak(Box::new([Does::Ends(status)])));
        assert_eq!(
            (heard.broken.len(), workers, heard.problems.len()),
            (0, 2, 1),
            "{status}: {:?}",
            heard.problems
        );
    }
    // A worker that is killed during the retry is evidence for neither result.
    let (heard, _) = run_at_once(1, &[Does::Hangs, Does::Ends(9)]);
    let [broken] = heard.broken.as_slice() else { panic!("{:?}", heard.broken) };
    assert!(
        matches!(&broken.again, Again::NotRun { why } if why.contains("SIGKILL")),
        "{broken:?}"
    );
}

#[test]
fn an_error_that_a_limit_or_full_memory_explains_is_a_remark() {
    for kind in [
        ErrorKind::OutOfMemory,
        ErrorKind::Hindered,
        ErrorKind::Unsupported,
        ErrorKind::TooManyPeers,
    ] {
        let mut heard = Heard::default();
        let rounds: Vec<Round> =
            rounds(4).into_iter().take(3).map(|round| Round { slot: 0, ..round }).collect();
        let mut first = Some(worker_that_dies(100, move |request| match request {
            Request::Share { .. } => panic!("there is no other process"),
            Request::Run { rounds } => {
                let apart = Reply::Apart { id: rounds[0].id, error: error(kind) };
                Ok(std::iter::once(apart)
                    .chain(rounds.iter().map(|round| done(round.id)))
                    .collect())
            }
            Request::Open { .. } => Ok(vec![ready()]),
        }));
        let mut spawn = |_: &Launch| Ok(first.take().expect("one worker is enough"));
        let mut launch = Launch { start_limit: FOREVER, ..launch(4) };
        let started = spawn(&launch);
        let Ok(Ready { worker, .. }) = start(started, &mut launch, &GOING_ON, &mut spawn) else {
            panic!("the worker does not start")
        };
        run_with(worker, launch, &rounds, &GOING_ON, &mut heard, &mut spawn);
        assert_eq!(
            (heard.broken.len(), heard.problems.len()),
            (0, 1),
            "{kind:?}: {:?}",
            heard.problems
        );
    }
}

#[test]
fn a_crash_while_one_flow_runs_is_known_with_what_came_of_the_second_try() {
    let again = |of: fn(usize) -> i32| {
        let (heard, ..) = dying(3, ONE, of);
        let [broken] = heard.broken.as_slice() else { panic!("{:?}", heard.broken) };
        assert_eq!(
            (broken.first.how, broken.first.signal, broken.in_company()),
            (How::Crashed, Some(CRASHED), false)
        );
        broken.again.clone()
    };
    assert!(matches!(again(|_| CRASHED), Again::BrokeOff(again) if again.how == How::Crashed));
    assert!(matches!(again(|time| if time == 1 { CRASHED } else { KILLED }), Again::NotRun { .. }));
    let (heard, ..) = dying(3, ONE, |_| KILLED);
    assert_eq!(heard.broken, []);
}
