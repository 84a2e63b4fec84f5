use super::*;
use crate::hops::Sleep;

const LIMIT: f64 = 5e9;

fn submit(engine: &mut Engine, lane: Lane, after: &[Op], work: Work) -> Op {
    engine.enqueue(Submission {
        lanes: Few::one(lane),
        after: after.first().copied(),
        at: 0.0,
        servers: Few::NONE,
        work,
    })
}

/// Returns a flow of a thousand bytes that could reach 10 GB/s.
fn flow(hops: &[SharedHop]) -> Work {
    Work::Flow(Flow { hops: hops.into(), both_ways: 0.5, ..Flow::new(1000.0, 10.0) })
}

#[test]
fn two_flows_over_one_hop_halve_and_disjoint_ones_do_not() {
    let mut engine = Engine::default();
    let (shared, other) = (engine.hops.add(10.0), engine.hops.add(10.0));
    let lanes = [engine.add_lane(), engine.add_lane(), engine.add_lane()];
    let a = submit(&mut engine, lanes[0], &[], flow(&[shared]));
    let b = submit(&mut engine, lanes[1], &[], flow(&[shared]));
    let alone = submit(&mut engine, lanes[2], &[], flow(&[other]));
    assert_eq!(engine.run_until_ended(alone), Ok(100.0));
    assert_eq!(engine.run_until_ended(a), Ok(200.0));
    assert_eq!(engine.run_until_ended(b), Ok(200.0));
}

#[test]
fn a_flow_that_ends_leaves_its_share_to_the_other() {
    let mut engine = Engine::default();
    let hop = engine.hops.add(10.0);
    let (first, second) = (engine.add_lane(), engine.add_lane());
    let late = submit(&mut engine, second, &[], Work::Busy(50.0));
    let a = submit(&mut engine, first, &[], flow(&[hop]));
    let b = submit(&mut engine, second, &[late], flow(&[hop]));
    // Alone for 50 ns (500 bytes), then the other 500 at half the rate.
    assert_eq!(engine.run_until_ended(a), Ok(150.0));
    // By then b has moved 500, and the rest runs at the full rate.
    assert_eq!(engine.run_until_ended(b), Ok(200.0));
}

#[test]
fn the_opposite_direction_costs_what_it_is_said_to() {
    let mut engine = Engine::default();
    let (there, back) = (engine.hops.add(10.0), engine.hops.add(10.0));
    engine.hops.oppose(there, back);
    let (first, second) = (engine.add_lane(), engine.add_lane());
    let a = submit(&mut engine, first, &[], flow(&[there]));
    let b = submit(&mut engine, second, &[], flow(&[back]));
    assert_eq!(engine.run_until_ended(a), Ok(200.0));
    assert_eq!(engine.run_until_ended(b), Ok(200.0));
}

#[test]
fn a_lane_keeps_its_order_and_an_operation_in_two_lanes_joins_them() {
    let mut engine = Engine::default();
    let (left, right) = (engine.add_lane(), engine.add_lane());
    submit(&mut engine, left, &[], Work::Busy(10.0));
    submit(&mut engine, right, &[], Work::Busy(30.0));
    let both = Submission {
        lanes: Few::two(left, right),
        after: None,
        at: 0.0,
        servers: Few::NONE,
        work: Work::Busy(5.0),
    };
    let both = engine.enqueue(both);
    let after = submit(&mut engine, left, &[], Work::Mark);
    assert_eq!(engine.run_until_ended(after), Ok(35.0));
    assert_eq!(engine.end_of(both), Some(35.0));
}

#[test]
fn a_server_takes_only_so_many() {
    let mut engine = Engine::default();
    let server = engine.add_server(2);
    let ends: Vec<_> = (0..3)
        .map(|_| {
            let lane = engine.add_lane();
            let work = Work::Busy(10.0);
            engine.enqueue(Submission {
                lanes: Few::one(lane),
                after: None,
                at: 0.0,
                servers: Few::one(server),
                work,
            })
        })
        .collect();
    let ends: Vec<_> = ends.into_iter().map(|op| engine.run_until_ended(op)).collect();
    assert_eq!(ends, [Ok(10.0), Ok(10.0), Ok(20.0)]);
}

#[test]
fn the_first_of_a_row_costs_more() {
    let mut engine = Engine::default();
    let lane = engine.add_lane();
    let work =
        Work::Flow(Flow { each_ns: 3.0, first_ns: 9.0, event_ns: 100.0, ..Flow::new(0.0, 1.0) });
    let first = submit(&mut engine, lane, &[], work.clone());
    submit(&mut engine, lane, &[], Work::Mark);
    let second = submit(&mut engine, lane, &[], work.clone());
    assert_eq!(engine.run_until_ended(second), Ok(15.0));
    assert_eq!(engine.end_of(first), Some(12.0));
    engine.run_to(20.0);
    let later = submit(&mut engine, lane, &[], work);
    assert_eq!(engine.run_until_ended(later), Ok(32.0));
}

#[test]
fn a_gate_holds_what_comes_after_until_it_opens() {
    let mut engine = Engine::default();
    let lane = engine.add_lane();
    submit(&mut engine, lane, &[], Work::Gate { limit: LIMIT, late: 0.0 });
    let held = submit(&mut engine, lane, &[], Work::Busy(10.0));
    engine.run_to(1000.0);
    assert_eq!(engine.end_of(held), None);
    engine.open_gates(2000.0);
    assert_eq!(engine.run_until_ended(held), Ok(2010.0));
    assert!(!engine.take_expired());
    // A later wait is not affected by the first gate's limit.
    engine.run_to(2.0 * LIMIT);
    assert!(!engine.take_expired());
}

#[test]
fn a_gate_opened_before_its_turn_holds_nothing() {
    let mut engine = Engine::default();
    let lane = engine.add_lane();
    submit(&mut engine, lane, &[], Work::Busy(100.0));
    submit(&mut engine, lane, &[], Work::Gate { limit: LIMIT, late: 0.0 });
    let held = submit(&mut engine, lane, &[], Work::Mark);
    engine.open_gates(10.0);
    assert_eq!(engine.run_until_ended(held), Ok(100.0));
}

#[test]
fn what_stands_behind_work_that_never_ends_is_stuck_and_nothing_else() {
    let mut engine = Engine::default();
    let (sick, well) = (engine.add_lane(), engine.add_lane());
    submit(&mut engine, sick, &[], Work::Never);
    let behind = submit(&mut engine, sick, &[], Work::Mark);
    let beside = submit(&mut engine, well, &[], Work::Busy(10.0));
    assert_eq!(engine.run_until_ended(beside), Ok(10.0));
    assert_eq!(engine.run_until_ended(behind), Err(Stuck));
}

#[test]
fn an_event_between_two_flows_of_a_row_costs_time_and_one_around_them_does_not() {
    let mut engine = Engine::default();
    let lane = engine.add_lane();
    let work =
        Work::Flow(Flow { each_ns: 3.0, first_ns: 9.0, event_ns: 4.0, ..Flow::new(0.0, 1.0) });
    submit(&mut engine, lane, &[], Work::Record);
    submit(&mut engine, lane, &[], work.clone());
    submit(&mut engine, lane, &[], work.clone());
    let plain = submit(&mut engine, lane, &[], Work::Record);
    assert_eq!(engine.run_until_ended(plain), Ok(15.0));
    engine.run_to(100.0);
    submit(&mut engine, lane, &[], work.clone());
    submit(&mut engine, lane, &[], Work::Record);
    // Another lane's event, for which this lane waits, is not an event of this lane.
    let between = submit(&mut engine, lane, &[], work.clone());
    submit(&mut engine, lane, &[], Work::Mark);
    let waited = submit(&mut engine, lane, &[], work);
    assert_eq!(engine.run_until_ended(waited), Ok(122.0));
    assert_eq!(engine.end_of(between), Some(119.0));
}

#[test]
fn an_operation_waits_for_all_its_servers_and_gives_all_back() {
    let mut engine = Engine::default();
    let (one, other) = (engine.add_server(1), engine.add_server(1));
    let mut busy = |servers: Few<Server>| {
        let lane = engine.add_lane();
        let work = Work::Busy(10.0);
        engine.enqueue(Submission { lanes: Few::one(lane), after: None, at: 0.0, servers, work })
    };
    let ops = [
        busy(Few::one(one)),
        busy(Few::two(one, other)),
        busy(Few::one(other)),
        busy(Few::one(one)),
    ];
    let ends = ops.map(|op| engine.run_until_ended(op));
    // The second takes no server before the first is done, so the third goes ahead.
    assert_eq!(ends, [Ok(10.0), Ok(20.0), Ok(10.0), Ok(30.0)]);
}

#[test]
fn two_flows_have_less_together_over_a_hop_that_collapses() {
    let mut engine = Engine::default();
    let hop = engine.hops.add(10.0);
    engine.hops.collapse(hop, 2.0);
    let lanes = [engine.add_lane(), engine.add_lane()];
    let alone = submit(&mut engine, lanes[0], &[], flow(&[hop]));
    assert_eq!(engine.run_until_ended(alone), Ok(100.0));
    let together = lanes.map(|lane| submit(&mut engine, lane, &[], flow(&[hop])));
    for op in together {
        assert_eq!(engine.run_until_ended(op), Ok(1100.0));
    }
}

#[test]
fn a_link_that_slept_carries_less_until_it_is_awake() {
    let mut engine = Engine::default();
    let (hop, back) = (engine.hops.add(10.0), engine.hops.add(10.0));
    engine.hops.oppose(hop, back);
    for hop in [hop, back] {
        engine.hops.put_to_sleep(hop, Sleep { after_ns: 500.0, lasts_ns: 40.0, share: 0.25 });
    }
    let lane = engine.add_lane();
    let mut run = |hop| {
        let began = engine.now;
        let op = submit(&mut engine, lane, &[], flow(&[hop]));
        let took = engine.run_until_ended(op).unwrap() - began;
        engine.run_to(began + took + 100.0);
        took
    };
    // 40 ns move 100 bytes, and 90 more move the rest.
    assert_eq!((run(hop), run(hop), run(back)), (130.0, 100.0, 100.0));
    engine.run_to(2000.0);
    let late = submit(&mut engine, lane, &[], flow(&[back]));
    assert_eq!(engine.run_until_ended(late), Ok(2130.0));
}

#[test]
fn gates_open_with_the_skew_that_they_have() {
    let mut engine = Engine::default();
    let lanes = [engine.add_lane(), engine.add_lane()];
    let gates = [0.0, 7.0].map(|late| Work::Gate { limit: LIMIT, late });
    let ops: Vec<_> =
        lanes.iter().zip(gates).map(|(lane, gate)| submit(&mut engine, *lane, &[], gate)).collect();
    engine.open_gates(100.0);
    assert_eq!(engine.run_until_ended(ops[1]), Ok(107.0));
    assert_eq!(engine.end_of(ops[0]), Some(100.0));
    assert!(!engine.take_expired());
}

#[test]
fn a_flow_knows_what_it_met_on_its_way() {
    let mut engine = Engine::default();
    let (there, back, far) = (engine.hops.add(10.0), engine.hops.add(10.0), engine.hops.add(10.0));
    engine.hops.oppose(there, back);
    let between = |hop, places| {
        let slowed =
            Flow { hops: [hop].into(), places, beside_others: 0.5, ..Flow::new(1000.0, 10.0) };
        Work::Flow(slowed)
    };
    let lanes = [0; 4].map(|_| engine.add_lane());
    let ops = [
        submit(&mut engine, lanes[0], &[], between(there, [0, 1])),
        submit(&mut engine, lanes[1], &[], between(back, [2, 3])),
        submit(&mut engine, lanes[2], &[], between(far, [1, 1])),
        submit(&mut engine, lanes[3], &[], between(far, [8, 9])),
    ];
    let ends = ops.map(|op| engine.run_until_ended(op));
    // The first and the third flow share place 1.
    assert_eq!(ends, [Ok(200.0), Ok(100.0), Ok(200.0), Ok(200.0)]);
    let mut ended = Vec::new();
    engine.take_ended(&mut ended);
    let contention: std::collections::HashMap<_, _> = ended
        .iter()
        .map(|ended| (ended.op, (ended.contention.opposite, ended.contention.others)))
        .collect();
    assert_eq!(
        ops.map(|op| contention[&op]),
        [(true, true), (true, false), (false, true), (false, false)]
    );
}
