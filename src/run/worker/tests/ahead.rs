//! Tests of rounds that are sent ahead.

use super::*;

/// Runs three slots of ten rounds each on a worker that answers nothing of a slot before it has the next one.
#[test]
fn the_next_slot_is_sent_while_the_one_before_it_runs() {
    let rounds: Vec<Round> = rounds(6).into_iter().take(30).collect();
    let slot = |round: Round| Round { slot: round.id / 10, ..round };
    let rounds: Vec<Round> = rounds.into_iter().map(slot).collect();
    let mut held: Vec<Round> = Vec::new();
    let answers = move |request| match request {
        Request::Share { .. } => panic!("there is no other process"),
        Request::Open { .. } => Ok(vec![ready()]),
        Request::Run { rounds } => {
            let is_last = rounds.iter().any(|round| round.slot == 2);
            let mut ended = std::mem::replace(&mut held, rounds);
            if is_last {
                ended.append(&mut held);
            }
            Ok(ended.iter().map(|round| done(round.id)).collect())
        }
    };
    let mut launch = Launch { start_limit: FOREVER, ..launch(6) };
    let mut first = Some(worker_that_dies(100, answers));
    let mut spawn = |_: &Launch| Ok(first.take().expect("one worker is enough"));
    let started = spawn(&launch);
    let Ok(Ready { worker, .. }) = start(started, &mut launch, &GOING_ON, &mut spawn) else {
        panic!("the worker does not start")
    };
    let mut heard = Heard::default();
    run_with(worker, launch, &rounds, &GOING_ON, &mut heard, &mut spawn);
    assert_eq!((heard.outcomes.len(), heard.problems), (30, Vec::new()));
    assert!(heard.outcomes.values().all(measured));
}
