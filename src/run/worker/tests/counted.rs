//! Tests of rounds around which counters are read.

use super::*;
use probes::load::Load;

/// The notified events and the requests that the worker got, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: &str, id: u32) {
        self.0.lock().unwrap().push(format!("{what} {id}"));
    }
}

impl Listener for Log {
    fn begins(&mut self, _: &Round, _: usize) {}

    fn counts(&mut self, round: &Round) {
        self.note("counts", round.id);
    }

    fn ends(&mut self, id: u32, _: &Outcome) {
        self.note("ends", id);
    }

    fn problem(&mut self, problem: &str) {
        panic!("{problem}");
    }
}

#[test]
fn while_counters_are_read_nothing_else_is_under_way() {
    let mut rounds: Vec<Round> = rounds(3).into_iter().take(6).collect();
    let pattern = model::load::Pattern::Ring;
    rounds[3].task.action =
        Load { pattern, rows: 1, copies: 4, counted: true, compared_ms: 0 }.into();
    let log = Log::default();
    let sees = log.clone();
    let answers = move |request| match request {
        Request::Share { .. } => panic!("there is no other process"),
        Request::Open { .. } => Some(vec![ready()]),
        Request::Run { rounds } => {
            rounds.iter().for_each(|round| sees.note("runs", round.id));
            Some(rounds.iter().map(|round| done(round.id)).collect())
        }
    };
    let mut launch = Launch { start_limit: FOREVER, ..launch(3) };
    let mut first = Some(worker(100, true, Box::new(answers)));
    let mut spawn = |_: &Launch| Ok(first.take().expect("one worker is enough"));
    let started = spawn(&launch);
    let Ok(Ready { worker, .. }) = start(started, &mut launch, &GOING_ON, &mut spawn) else {
        panic!("the worker does not start")
    };
    run_with(worker, launch, &rounds, &GOING_ON, &mut log.clone(), &mut spawn);
    let log = log.0.lock().unwrap().clone();
    let at = |what: &str| {
        log.iter().position(|seen| seen == what).unwrap_or_else(|| panic!("{what}: {log:?}"))
    };
    let counts = at("counts 3");
    assert_eq!(log[counts..counts + 3], ["counts 3", "runs 3", "ends 3"], "{log:?}");
    assert!((0..3).all(|id| at(&format!("ends {id}")) < counts), "{log:?}");
    assert!((4..6).all(|id| at(&format!("runs {id}")) > counts + 2), "{log:?}");
}
