use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::handle::Worker;
use super::listener::Listener;
use super::protocol::{Reply, Request};
use super::start::{Launch, Ready, StartError, start};
use super::supervisor::run_with;
use super::testing::{GOING_ON, launch, ready, worker, worker_that_dies};
use hardware::HardwareError;
use model::broken_off::BrokenOff;
use model::flow::{Endpoint, Flow, HostMemory, Place, Setup};
use model::measurement::Status;
use model::placement::Pair;
use probes::latency::Latency;
use probes::{Outcome, Round, Task};

/// A limit that no test waits for: one that did would not end.
const FOREVER: Duration = Duration::from_secs(3600);
/// The deadline of what hangs.
const SHORT: Duration = Duration::from_millis(100);

mod ahead;
mod counted;
mod deaths;
mod together;

/// The events of a run.
#[derive(Default)]
struct Heard {
    outcomes: HashMap<u32, Outcome>,
    problems: Vec<String>,
    /// The last account of each round that broke off.
    broken: Vec<BrokenOff>,
}

impl Listener for Heard {
    fn begins(&mut self, _: &Round, _: usize) {}

    fn ends(&mut self, id: u32, outcome: &Outcome) {
        assert!(self.outcomes.insert(id, outcome.clone()).is_none(), "a round ends once: {id}");
    }

    fn broke_off(&mut self, broken: &BrokenOff) {
        self.broken.retain(|known| !known.is_of(broken));
        self.broken.push(broken.clone());
    }

    fn problem(&mut self, problem: &str) {
        self.problems.push(problem.to_owned());
    }
}

/// Returns two rounds for every ordered pair, each limited to 30 ms.
fn rounds(gpus: u32) -> Vec<Round> {
    let all: Vec<u32> = (0..gpus).collect();
    let twice = Pair::ordered(&all).into_iter().flat_map(|pair| [pair, pair]);
    let task = Task { setup: Setup::REFERENCE, action: Latency { samples: 1 }.into() };
    twice
        .zip(0..)
        .map(|(pair, id)| Round {
            id,
            slot: id,
            flows: vec![pair.into()],
            task,
            deadline: FOREVER,
            timeline: false,
            name: String::new(),
        })
        .collect()
}

fn pair_of(round: &Round) -> Pair {
    round.flows[0].pair().unwrap()
}

fn done(id: u32) -> Reply {
    Reply::Done { id, outcome: Outcome::Rows { rows: Vec::new() }, clock: Duration::ZERO }
}

/// Runs rounds of which some hang. Workers get the process ids 100, 101 and so on; a worker that hung dies if `dies` is
/// true. Also returns the GPUs that each worker was asked to open.
fn supervise(
    gpus: u32,
    rounds: &[Round],
    hangs: impl Fn(&Round) -> bool + Clone + Send + 'static,
    dies: bool,
) -> (Heard, Vec<Vec<u32>>) {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let mut pid = 99;
    let mut spawn = |_: &Launch| -> Result<Worker, HardwareError> {
        pid += 1;
        let (opened, hangs) = (Arc::clone(&opened), hangs.clone());
        let answers = move |request| match request {
            Request::Share { .. } => panic!("there is no other process"),
            Request::Open { selections, .. } => {
                opened
                    .lock()
                    .unwrap()
                    .push(selections.iter().map(|selection| selection.index).collect());
                Some(vec![ready()])
            }
            Request::Run { rounds } if rounds.iter().any(&hangs) => None,
            Request::Run { rounds } => Some(rounds.iter().map(|round| done(round.id)).collect()),
        };
        Ok(worker(pid, dies, Box::new(answers)))
    };
    // Only what hangs is waited for until its deadline; on a busy machine an answer may take long.
    let in_time = |round: &Round| {
        let mut beside = rounds.iter().filter(|other| other.slot == round.slot);
        let deadline = match beside.any(&hangs) {
            true => SHORT,
            false => FOREVER,
        };
        Round { deadline, ..round.clone() }
    };
    let rounds: Vec<Round> = rounds.iter().map(in_time).collect();
    let mut launch = Launch { start_limit: FOREVER, ..launch(gpus) };
    let Ok(Ready { worker, .. }) = start(spawn(&launch), &mut launch, &GOING_ON, &mut spawn) else {
        panic!("the first worker does not start")
    };
    let mut results = Heard::default();
    run_with(worker, launch, &rounds, &GOING_ON, &mut results, &mut spawn);
    assert_eq!(results.outcomes.len(), rounds.len(), "every round has an outcome");
    let opened = opened.lock().unwrap().clone();
    (results, opened)
}

/// Runs rounds of which the copies of these pairs hang.
fn run(
    gpus: u32,
    hangs: impl Fn(Pair) -> bool + Clone + Send + 'static,
    dies: bool,
) -> (Heard, Vec<Round>, Vec<Vec<u32>>) {
    let rounds = rounds(gpus);
    let (results, opened) = supervise(gpus, &rounds, move |round| hangs(pair_of(round)), dies);
    (results, rounds, opened)
}

/// Returns the pairs with a round that ended so.
fn pairs(results: &Heard, rounds: &[Round], is: impl Fn(&Outcome) -> bool) -> BTreeSet<(u32, u32)> {
    let of = |round: &&Round| is(&results.outcomes[&round.id]);
    rounds.iter().filter(of).map(pair_of).map(|pair| (pair.source, pair.destination)).collect()
}

fn measured(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rows { .. })
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
        let (results, rounds, _) =
            run(8, move |pair| pair.source == bad || pair.destination == bad, true);
        assert_eq!(
            pairs(&results, &rounds, measured).len(),
            7 * 6,
            "GPU {bad}: every pair without it"
        );
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
        let named = results.outcomes.values().filter(|outcome| {
            matches!(outcome, Outcome::Lost { status: Status::Skipped, reason }
                if reason == "not run, since 12 pairs hung and none ended")
        });
        assert!(named.count() > 2 * 8, "{gpus} GPUs");
    }
    // These hangs are too few to stop the run: all pairs are tried.
    let (results, rounds, _) = run(2, |_| true, true);
    assert_eq!(pairs(&results, &rounds, hung).len(), 2);
}

#[test]
fn gpus_that_a_stuck_process_holds_are_left_alone() {
    let (results, rounds, opened) =
        run(4, |pair| pair == Pair { source: 1, destination: 2 }, false);
    assert_eq!(opened, [vec![0, 1, 2, 3], vec![0, 3]], "the next worker must not touch them");
    let without = BTreeSet::from([(0, 3), (3, 0), (0, 1), (0, 2), (1, 0)]);
    assert_eq!(
        pairs(&results, &rounds, measured),
        without,
        "what ended before, and what needs neither"
    );
    let all = results.problems.join("\n");
    assert!(
        all.contains("GPU 1 and GPU 2 are no longer used") && all.contains("process 100"),
        "{all}"
    );
    assert!(all.contains("dmesg") && all.contains("restart the machine"), "{all}");
    let after =
        rounds.iter().find(|round| pair_of(round) == Pair { source: 3, destination: 1 }).unwrap();
    let Outcome::Lost { status: Status::Skipped, reason } = &results.outcomes[&after.id] else {
        panic!()
    };
    assert!(
        reason.contains("GPU 1 is no longer used") && reason.contains("process 100"),
        "{reason}"
    );
}

/// Starts a worker for three GPUs that answers `Open` in this way. `answer` gets the GPUs, and true if they are to be
/// opened one by one.
fn open(answer: fn(&[u32], bool) -> Option<Vec<Reply>>) -> (Result<Ready, StartError>, u32) {
    let mut spawned = 0;
    let mut spawn = |_: &Launch| {
        spawned += 1;
        let answers = move |request| {
            let Request::Open { selections, one_by_one, .. } = request else {
                panic!("{request:?}")
            };
            let gpus: Vec<u32> = selections.iter().map(|selection| selection.index).collect();
            answer(&gpus, one_by_one)
        };
        Ok(worker(spawned, true, Box::new(answers)))
    };
    let ready = start(spawn(&launch(3)), &mut launch(3), &GOING_ON, &mut spawn);
    (ready, spawned)
}

#[test]
fn a_gpu_that_hangs_or_crashes_while_it_is_opened_costs_itself() {
    // The worker hangs after it has named the GPU. No further reply comes.
    let (hangs, _) = open(|gpus, _| match gpus.contains(&1) {
        true => Some(vec![Reply::Opening { gpu: 0 }, Reply::Opening { gpu: 1 }]),
        false => Some(vec![ready()]),
    });
    let hangs = hangs.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(hangs.left_out.len(), 1);
    let (gpu, why) = &hangs.left_out[0];
    assert!(*gpu == 1 && why.contains("within 0.5 s and hung at GPU 1"), "{why}");
    assert_eq!(hangs.facts.devices[0].failure.as_ref(), Some(why));

    // The worker dies without a message, until it is asked to open GPUs one by one.
    let (crashes, spawned) = open(|gpus, one_by_one| match (gpus.contains(&2), one_by_one) {
        (true, false) => Some(Vec::new()),
        (true, true) => Some(vec![Reply::Opening { gpu: 2 }]),
        (false, _) => Some(vec![ready()]),
    });
    let crashes = crashes.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!((crashes.left_out[0].0, spawned), (2, 3));
}

#[test]
fn a_driver_that_does_not_start_is_not_tried_again_and_again() {
    let (hangs, spawned) = open(|_, _| None);
    assert!(
        matches!(hangs, Err(StartError::Late(why)) if why.contains("did not start within 0.5 s"))
    );
    assert_eq!(spawned, 1);
    let (dies, spawned) = open(|_, _| Some(Vec::new()));
    assert!(
        matches!(dies, Err(StartError::Failed(why)) if why.message.contains("ended while the driver started"))
    );
    assert_eq!(spawned, 2);
    let (each, spawned) = open(|gpus, _| Some(vec![Reply::Opening { gpu: gpus[0] }]));
    assert!(each.is_err());
    assert_eq!(spawned, 3, "one for each GPU");
}

/// Returns the outcomes of rounds with these flows, of which those with host memory of node 1 hang.
fn with_host_node_1_hanging(flows: Vec<Vec<Flow>>) -> Vec<Outcome> {
    let task = Task { setup: Setup::REFERENCE, action: Latency { samples: 1 }.into() };
    let deadline = FOREVER;
    let rounds: Vec<_> = flows
        .into_iter()
        .zip(0..)
        .map(|(flows, id)| Round {
            id,
            slot: id,
            flows,
            task,
            deadline,
            timeline: false,
            name: String::new(),
        })
        .collect();
    let (results, _) = supervise(8, &rounds, |round| round.uses(Place::Host(Some(1))), true);
    rounds.iter().map(|round| results.outcomes[&round.id].clone()).collect()
}

#[test]
fn a_host_node_that_hangs_costs_neither_its_gpus_nor_the_other_node() {
    let up = |node, gpu| {
        let host = Endpoint::Host { node: Some(node), memory: HostMemory::Pinned };
        vec![Flow { from: host, to: Endpoint::Gpu(gpu) }]
    };
    let flows = (0..8).flat_map(|gpu| [up(1, gpu), up(0, gpu)]).collect();
    let outcomes = with_host_node_1_hanging(flows);
    let (bad, good): (Vec<_>, Vec<_>) = (0..16).partition(|id| id % 2 == 0);
    assert!(good.iter().all(|id| measured(&outcomes[*id])), "{outcomes:?}");
    let waited = bad.iter().filter(|id| hung(&outcomes[**id])).count();
    assert!((3..=4).contains(&waited), "three in a row and another chance: {waited}");
    let Outcome::Lost { reason, .. } = &outcomes[14] else { panic!("{:?}", outcomes[14]) };
    assert!(reason.contains("host memory of NUMA node 1"), "{reason}");
}

#[test]
fn rounds_of_several_flows_are_skipped_with_any_flow_that_hung() {
    let flow = |from, to| Flow { from, to };
    let (zero, one, two) = (Endpoint::Gpu(0), Endpoint::Gpu(1), Endpoint::Gpu(2));
    let host = Endpoint::Host { node: Some(1), memory: HostMemory::Pageable };
    let outcomes = with_host_node_1_hanging(vec![
        vec![flow(zero, one), flow(one, zero)],
        vec![flow(host, zero)],
        vec![flow(host, zero), flow(one, two)],
        vec![flow(one, two), flow(two, one)],
    ]);
    assert!(measured(&outcomes[0]) && hung(&outcomes[1]) && measured(&outcomes[3]), "{outcomes:?}");
    assert!(matches!(&outcomes[2], Outcome::Lost { status: Status::Skipped, .. }), "{outcomes:?}");
}

#[test]
fn rounds_without_a_worker_get_one_after_the_last_round_has_cost_it() {
    // The last round hangs, so its worker is killed and nothing is left to start another one for.
    let hangs = |round: &Round| round.id == 3;
    let answers = move |request| match request {
        Request::Share { .. } => panic!("there is no other process"),
        Request::Open { .. } => Some(vec![ready()]),
        Request::Run { rounds } if rounds.iter().any(hangs) => None,
        Request::Run { rounds } => Some(rounds.iter().map(|round| done(round.id)).collect()),
    };
    let mut started = 0;
    let mut spawn = |_: &Launch| -> Result<Worker, HardwareError> {
        started += 1;
        Ok(worker(100 + started, true, Box::new(answers)))
    };
    let launch = Launch { start_limit: FOREVER, ..launch(2) };
    let mut rounds = rounds(2);
    rounds[3].deadline = SHORT;
    assert_eq!(rounds.last().map(|round| round.id), Some(3));
    let mut heard = Heard::default();
    let ended = run_with(None, launch.clone(), &rounds, &GOING_ON, &mut heard, &mut spawn);
    assert!(ended.idle.is_none() && !ended.interrupted);
    assert_eq!(heard.outcomes.len(), rounds.len());
    let mut heard = Heard::default();
    let again = &rounds[..2];
    let ended = run_with(ended.idle, launch, again, &GOING_ON, &mut heard, &mut spawn);
    assert!(ended.idle.is_some());
    assert_eq!(heard.outcomes.len(), 2);
    assert!(heard.outcomes.values().all(measured));
    assert_eq!(started, 2);
}

/// Runs three slots of three pairs each, of which the pair in the middle hangs or ends its worker.
#[test]
fn rounds_at_once_are_run_one_by_one_when_one_of_them_goes_wrong() {
    let task = Task { setup: Setup::REFERENCE, action: Latency { samples: 1 }.into() };
    let deadline = FOREVER;
    let flows = |id: u32| vec![Pair { source: 2 * (id % 3), destination: 2 * (id % 3) + 1 }.into()];
    let rounds: Vec<_> = (0..9)
        .map(|id| Round {
            id,
            slot: id / 3,
            flows: flows(id),
            task,
            deadline,
            timeline: false,
            name: String::new(),
        })
        .collect();
    let (results, opened) = supervise(6, &rounds, |round| pair_of(round).source == 2, true);
    let is_hung = |round: &&Round| {
        matches!(&results.outcomes[&round.id], Outcome::Lost { status: Status::Hung, .. })
    };
    let hung_ids: Vec<_> = rounds.iter().filter(is_hung).map(|round| round.id).collect();
    assert_eq!(hung_ids, [1], "the first of its rounds, alone");
    let measured_ids: Vec<_> = rounds
        .iter()
        .filter(|round| measured(&results.outcomes[&round.id]))
        .map(|round| round.id)
        .collect();
    assert_eq!(measured_ids, [0, 2, 3, 5, 6, 8], "{:?}", results.outcomes);
    assert_eq!(opened.len(), 3, "one worker at once, one that showed which, one for the rest");
    assert!(
        results.problems[0].starts_with("GPU 0 → GPU 1, GPU 2 → GPU 3, GPU 4 → GPU 5 at once: ")
    );
}
