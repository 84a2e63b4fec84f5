use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::handle::Worker;
use super::protocol::{Reply, Request};
use super::start::{Ready, Setup, StartError, start};
use super::supervisor::{Listener, Results, run_with};
use super::testing::worker;
use crate::hardware::Machine;
use crate::measure::{Outcome, Selection};
use crate::model::measurement::{DriverFacts, Status};
use crate::model::placement::{Pair, Path};
use crate::model::units::Bytes;
use crate::plan::{Round, Task};

static GOING_ON: AtomicBool = AtomicBool::new(false);

struct Silent;

impl Listener for Silent {
    fn begins(&mut self, _: &Round, _: usize) {}
    fn ends(&mut self, _: u32, _: &Outcome) {}
    fn problem(&mut self, _: &str) {}
}

fn setup(gpus: u32) -> Setup {
    let selection = |index| Selection { index, uuid: Some(format!("GPU-{index}")), pci: None };
    Setup {
        machine: Machine::Live,
        selections: (0..gpus).map(selection).collect(),
        memory_limit: Bytes(1 << 30),
        start_limit: Duration::from_millis(500),
    }
}

/// Two rounds for every ordered pair, that may take 30 ms each.
fn rounds(gpus: u32) -> Vec<Round> {
    let all: Vec<u32> = (0..gpus).collect();
    let twice = Pair::ordered(&all).into_iter().flat_map(|pair| [pair, pair]);
    let task = Task::Latency { path: Path::Direct, samples: 1 };
    twice
        .zip(0..)
        .map(|(pair, id)| Round { id, pair, task: task.clone(), deadline: Duration::from_millis(200) })
        .collect()
}

fn ready() -> Reply {
    Reply::Ready { facts: DriverFacts::default(), floor_seconds: 0.0 }
}

fn done(id: u32) -> Reply {
    Reply::Done { id, outcome: Outcome::Times { copy_ns: vec![1.0], small_ns: Vec::new(), host_ns: Vec::new() } }
}

/// A run on which the copies of these pairs hang. Workers get the numbers 100, 101 and so on; a
/// worker that hung dies where `dies` says so. With the GPUs that each was asked to open.
fn run(gpus: u32, hangs: fn(Pair) -> bool, dies: bool) -> (Results, Vec<Round>, Vec<Vec<u32>>) {
    let rounds = rounds(gpus);
    let opened = Arc::new(Mutex::new(Vec::new()));
    let mut pid = 99;
    let mut spawn = || -> Result<Worker, String> {
        pid += 1;
        let opened = Arc::clone(&opened);
        let answers = move |request| match request {
            Request::Open { selections, .. } => {
                opened.lock().unwrap().push(selections.iter().map(|selection| selection.index).collect());
                Some(vec![ready()])
            }
            Request::Run { round } => (!hangs(round.pair)).then(|| vec![done(round.id)]),
        };
        Ok(worker(pid, dies, Box::new(answers)))
    };
    let mut setup = setup(gpus);
    let Ok(Ready { worker, .. }) = start(spawn(), &mut setup, &GOING_ON, &mut spawn) else {
        panic!("the first worker does not start")
    };
    let results = run_with(worker, setup, &rounds, &GOING_ON, &mut Silent, &mut spawn);
    assert_eq!(results.outcomes.len(), rounds.len(), "every round has an outcome");
    let opened = opened.lock().unwrap().clone();
    (results, rounds, opened)
}

/// The pairs with a round that ended so.
fn pairs(results: &Results, rounds: &[Round], is: impl Fn(&Outcome) -> bool) -> BTreeSet<(u32, u32)> {
    let of = |round: &&Round| is(&results.outcomes[&round.id]);
    rounds.iter().filter(of).map(|round| (round.pair.source, round.pair.destination)).collect()
}

fn measured(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Times { .. })
}

fn hung(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Lost { status: Status::Hung, .. })
}

#[test]
fn one_pair_that_hangs_costs_itself() {
    let (results, rounds, opened) = run(4, |pair| pair == Pair { source: 1, destination: 2 }, true);
    assert_eq!(pairs(&results, &rounds, hung), BTreeSet::from([(1, 2)]));
    assert_eq!(pairs(&results, &rounds, measured).len(), 11);
    assert_eq!(opened, vec![vec![0, 1, 2, 3]; 2]);
}

#[test]
fn a_gpu_whose_pairs_all_hang_costs_a_few_and_the_others_nothing() {
    for bad in [0_u32, 2, 7] {
        let hangs: fn(Pair) -> bool = match bad {
            0 => |pair| pair.source == 0 || pair.destination == 0,
            2 => |pair| pair.source == 2 || pair.destination == 2,
            _ => |pair| pair.source == 7 || pair.destination == 7,
        };
        let (results, rounds, _) = run(8, hangs, true);
        assert_eq!(pairs(&results, &rounds, measured).len(), 7 * 6, "GPU {bad}: every pair without it");
        let tried = pairs(&results, &rounds, hung).len();
        assert_eq!(tried, 4, "GPU {bad}: three in a row, and another chance");
        let reasons: BTreeSet<_> = results
            .outcomes
            .values()
            .filter_map(|outcome| match outcome {
                Outcome::Lost { status: Status::Skipped, reason } => Some(reason.as_str()),
                _ => None,
            })
            .collect();
        let why = format!("not run, since 3 pairs or more of GPU {bad} hung one after the other");
        assert!(reasons.contains(why.as_str()), "{reasons:?}");
    }
}

#[test]
fn two_groups_that_cannot_reach_each_other_are_measured_in_themselves() {
    let (results, rounds, _) = run(8, |pair| (pair.source < 4) != (pair.destination < 4), true);
    assert_eq!(pairs(&results, &rounds, measured).len(), 2 * 4 * 3);
    let tried = pairs(&results, &rounds, hung).len();
    assert!((3..=24).contains(&tried), "{tried} of 32 were waited for");
}

#[test]
fn where_everything_hangs_twelve_pairs_are_enough() {
    for gpus in [8, 16] {
        let (results, rounds, _) = run(gpus, |_| true, true);
        assert_eq!(pairs(&results, &rounds, hung).len(), 12);
        let told = results.outcomes.values().filter(|outcome| {
            matches!(outcome, Outcome::Lost { status: Status::Skipped, reason }
                if reason == "not run, since 12 pairs hung and none ended")
        });
        assert!(told.count() > 2 * 8, "{gpus} GPUs");
    }
    // Too few to be enough: all are tried, as before.
    let (results, rounds, _) = run(2, |_| true, true);
    assert_eq!(pairs(&results, &rounds, hung).len(), 2);
}

#[test]
fn gpus_that_a_stuck_process_holds_are_left_alone() {
    let (results, rounds, opened) = run(4, |pair| pair == Pair { source: 1, destination: 2 }, false);
    assert_eq!(opened, [vec![0, 1, 2, 3], vec![0, 3]], "the next worker must not touch them");
    let without = BTreeSet::from([(0, 3), (3, 0), (0, 1), (0, 2), (1, 0)]);
    assert_eq!(pairs(&results, &rounds, measured), without, "what ended before, and what needs neither");
    let all = results.problems.join("\n");
    assert!(all.contains("GPU 1 and GPU 2 are not used any more") && all.contains("process 100"), "{all}");
    assert!(all.contains("dmesg") && all.contains("restart the machine"), "{all}");
    let after = rounds.iter().find(|round| round.pair == Pair { source: 3, destination: 1 }).unwrap();
    let Outcome::Lost { status: Status::Skipped, reason } = &results.outcomes[&after.id] else { panic!() };
    assert!(reason.contains("GPU 1 is not used any more") && reason.contains("process 100"), "{reason}");
}

/// Starts a worker for three GPUs that answers `Open` in this way, given the GPUs and whether they
/// are to be opened one by one.
fn open(answer: fn(&[u32], bool) -> Option<Vec<Reply>>) -> (Result<Ready, StartError>, u32) {
    let mut spawned = 0;
    let mut spawn = || {
        spawned += 1;
        let answers = move |request| {
            let Request::Open { selections, one_by_one, .. } = request else { panic!("{request:?}") };
            let gpus: Vec<u32> = selections.iter().map(|selection| selection.index).collect();
            answer(&gpus, one_by_one)
        };
        Ok(worker(spawned, true, Box::new(answers)))
    };
    let ready = start(spawn(), &mut setup(3), &GOING_ON, &mut spawn);
    (ready, spawned)
}

#[test]
fn a_gpu_that_hangs_or_crashes_while_it_is_opened_costs_itself() {
    // The worker hangs after it has said where it is. What follows its last words never comes.
    let (hangs, _) = open(|gpus, _| match gpus.contains(&1) {
        true => Some(vec![Reply::Opening { gpu: 0 }, Reply::Opening { gpu: 1 }]),
        false => Some(vec![ready()]),
    });
    let hangs = hangs.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(hangs.left_out.len(), 1);
    let (gpu, why) = &hangs.left_out[0];
    assert!(*gpu == 1 && why.contains("within 0.5 s and hung at GPU 1"), "{why}");
    assert_eq!(hangs.facts.devices[0].failure.as_ref(), Some(why));

    // It dies without a word, until it is told to go one by one.
    let (crashes, spawned) = open(|gpus, one_by_one| match (gpus.contains(&2), one_by_one) {
        (true, false) => Some(Vec::new()),
        (true, true) => Some(vec![Reply::Opening { gpu: 2 }]),
        (false, _) => Some(vec![ready()]),
    });
    let crashes = crashes.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!((crashes.left_out[0].0, spawned), (2, 3));
}

#[test]
fn a_driver_that_does_not_start_is_not_tried_for_ever() {
    let (hangs, spawned) = open(|_, _| None);
    assert!(matches!(hangs, Err(StartError::Late(why)) if why.contains("did not start within 0.5 s")));
    assert_eq!(spawned, 1);
    let (dies, spawned) = open(|_, _| Some(Vec::new()));
    assert!(matches!(dies, Err(StartError::Failed(why)) if why.message.contains("ended while the driver started")));
    assert_eq!(spawned, 2);
    let (each, spawned) = open(|gpus, _| Some(vec![Reply::Opening { gpu: gpus[0] }]));
    assert!(each.is_err());
    assert_eq!(spawned, 3, "one for each GPU");
}
