use std::sync::Arc;

use super::*;

const LIMIT: f64 = 5e9;

fn submit(engine: &mut Engine, lane: Lane, after: &[Op], work: Work) -> Op {
    engine.enqueue(Submission { lanes: vec![lane], after: after.to_vec(), at: 0.0, server: None, work })
}

/// A flow of a thousand bytes that could do 10 GB/s.
fn flow(hops: &[SharedHop]) -> Work {
    Work::Flow(Flow { bytes: 1000.0, hops: hops.into(), cap: 10.0, both_ways: 0.5, each_ns: 0.0, first_ns: 0.0 })
}

#[test]
fn two_flows_over_one_hop_halve_and_disjoint_ones_do_not() {
    let mut engine = Engine::default();
    let (shared, other) = (engine.add_hop(10.0), engine.add_hop(10.0));
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
    let hop = engine.add_hop(10.0);
    let (first, second) = (engine.add_lane(), engine.add_lane());
    let late = submit(&mut engine, second, &[], Work::Busy(50.0));
    let a = submit(&mut engine, first, &[], flow(&[hop]));
    let b = submit(&mut engine, second, &[late], flow(&[hop]));
    // Alone for 50 ns (500 bytes), then the other 500 at half the rate.
    assert_eq!(engine.run_until_ended(a), Ok(150.0));
    // By then b has moved 500, and the rest goes at the full rate.
    assert_eq!(engine.run_until_ended(b), Ok(200.0));
}

#[test]
fn the_opposite_direction_costs_what_it_is_said_to() {
    let mut engine = Engine::default();
    let (there, back) = (engine.add_hop(10.0), engine.add_hop(10.0));
    engine.oppose(there, back);
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
    let both = Submission { lanes: vec![left, right], after: vec![], at: 0.0, server: None, work: Work::Busy(5.0) };
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
            engine.enqueue(Submission { lanes: vec![lane], after: vec![], at: 0.0, server: Some(server), work })
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
        Work::Flow(Flow { bytes: 0.0, hops: Arc::new([]), cap: 1.0, both_ways: 1.0, each_ns: 3.0, first_ns: 9.0 });
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
    submit(&mut engine, lane, &[], Work::Gate(LIMIT));
    let held = submit(&mut engine, lane, &[], Work::Busy(10.0));
    engine.run_to(1000.0);
    assert_eq!(engine.end_of(held), None);
    engine.open_gates(2000.0);
    assert_eq!(engine.run_until_ended(held), Ok(2010.0));
    assert!(!engine.take_expired());
    // A later wait does not see the first gate's limit pass.
    engine.run_to(2.0 * LIMIT);
    assert!(!engine.take_expired());
}

#[test]
fn a_gate_opened_before_its_turn_holds_nothing() {
    let mut engine = Engine::default();
    let lane = engine.add_lane();
    submit(&mut engine, lane, &[], Work::Busy(100.0));
    submit(&mut engine, lane, &[], Work::Gate(LIMIT));
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
