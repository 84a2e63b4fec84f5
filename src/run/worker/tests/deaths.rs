//! Tests of workers that die.

use super::*;

/// Runs rounds whose workers die in the rounds of these pairs. `status` returns the nth raw status of wait(2), which is
/// the signal.
pub(super) fn dying(
    gpus: u32,
    pairs: &'static [Pair],
    status: fn(usize) -> i32,
) -> (Heard, Vec<Round>, u32) {
    let rounds = rounds(gpus);
    let (mut pid, deaths) = (99, Arc::new(Mutex::new(0)));
    let mut spawn = |_: &Launch| -> Result<Worker, HardwareError> {
        pid += 1;
        let deaths = Arc::clone(&deaths);
        Ok(worker_that_dies(pid, move |request| match request {
            Request::Share { .. } => panic!("there is no other process"),
            Request::Open { .. } => Ok(vec![ready()]),
            Request::Run { rounds }
                if rounds.iter().any(|round| pairs.contains(&pair_of(round))) =>
            {
                let mut deaths = deaths.lock().unwrap();
                *deaths += 1;
                Err(status(*deaths))
            }
            Request::Run { rounds } => Ok(rounds.iter().map(|round| done(round.id)).collect()),
        }))
    };
    let mut launch = Launch { start_limit: FOREVER, ..launch(gpus) };
    let Ok(Ready { worker, .. }) = start(spawn(&launch), &mut launch, &GOING_ON, &mut spawn) else {
        panic!("the first worker does not start")
    };
    let mut results = Heard::default();
    run_with(worker, launch, &rounds, &GOING_ON, &mut results, &mut spawn);
    assert_eq!(results.outcomes.len(), rounds.len(), "every round has an outcome");
    (results, rounds, pid - 99)
}

pub(super) const ONE: &[Pair] = &[Pair { source: 1, destination: 2 }];
pub(super) const KILLED: i32 = 9;
pub(super) const CRASHED: i32 = 11;

fn lost_as(results: &Heard, rounds: &[Round], wanted: Status) -> BTreeSet<(u32, u32)> {
    pairs(
        results,
        rounds,
        |outcome| matches!(outcome, Outcome::Lost { status, .. } if *status == wanted),
    )
}

#[test]
fn only_two_crashes_of_its_own_accuse_a_pair() {
    let both = |of: fn(usize) -> i32| {
        let (results, rounds, workers) = dying(3, ONE, of);
        assert_eq!(workers, 3);
        assert_eq!(pairs(&results, &rounds, measured).len(), 5, "the other pairs");
        lost_as(&results, &rounds, Status::Failed)
    };
    assert_eq!(both(|_| CRASHED), BTreeSet::from([(1, 2)]));
    assert_eq!(both(|_| KILLED), BTreeSet::new());
    assert_eq!(both(|time| if time == 1 { CRASHED } else { KILLED }), BTreeSet::new());
    assert_eq!(both(|time| if time == 1 { KILLED } else { CRASHED }), BTreeSet::new());
}

#[test]
fn workers_that_are_killed_again_and_again_are_not_started_for_ever() {
    let (results, rounds, workers) = dying(4, &EVERY, |_| KILLED);
    // Two workers for each of three pairs, including the first worker.
    assert_eq!(workers, 6);
    assert_eq!(lost_as(&results, &rounds, Status::Failed), BTreeSet::new());
    assert_eq!(lost_as(&results, &rounds, Status::Skipped).len(), 12);
    let given_up = |outcome: &Outcome| matches!(outcome, Outcome::Lost { reason, .. } if reason.contains("again and again"));
    assert_eq!(pairs(&results, &rounds, given_up).len(), 9);
}

/// Every pair of four GPUs.
static EVERY: [Pair; 12] = {
    let mut all = [Pair { source: 0, destination: 0 }; 12];
    let mut at = 0;
    while at < 12 {
        let (source, other) = (at as u32 / 3, at as u32 % 3);
        all[at] = Pair { source, destination: if other < source { other } else { other + 1 } };
        at += 1;
    }
    all
};
