//! Kernels that all talk to each other at once.

use super::*;
use crate::spec::{Occasion, PairTalkFault, TalkFault};
use hardware::{BOX_BYTES, GroupDriver, Meeting, Member, Met, TalkDriver, TalkLimits};
use model::live::Phase;

/// A machine whose four GPUs reach each other.
fn with_fault(fault: Option<(TalkFault, Option<Occasion>)>) -> SimDriver {
    let mut spec = builtin::get("h200x8").unwrap();
    spec.faults.talk = fault
        .map(|(fault, only)| PairTalkFault { pairs: Pairs::Ordered(1, 3), fault, only })
        .into_iter()
        .collect();
    let driver = open_spec(spec);
    for one in 0..4 {
        for other in (0..4).filter(|other| *other != one) {
            driver.set_peer_access(Device(one), Device(other), true).unwrap();
        }
    }
    driver
}

fn meeting(driver: &SimDriver) -> (Meeting, Vec<Member>) {
    let boxes = (0..4).map(|gpu| driver.allocate(Device(gpu), BOX_BYTES).unwrap()).collect();
    let member = |gpu: u32| Member {
        stream: driver.create_stream(Device(gpu)).unwrap(),
        rank: gpu,
        place: 0,
    };
    let meeting = Meeting {
        boxes,
        rounds: 200,
        base: 77,
        blocks: 32,
        limits: TalkLimits {
            arrival: Duration::from_millis(50),
            wait: Duration::from_millis(20),
            total: Duration::from_millis(250),
        },
        phase: Duration::from_millis(20),
    };
    (meeting, (0..4).map(member).collect())
}

/// Runs these members, and returns what each met with the milliseconds of the host's clock.
fn meet(driver: &SimDriver, meeting: &Meeting, members: &[Member]) -> (Vec<Met>, f64) {
    let began = driver.now();
    driver.meet(meeting, members).unwrap();
    let met = members.iter().map(|member| {
        driver.synchronize(member.stream).unwrap();
        driver.met(member.stream.device, member.place).unwrap()
    });
    let met = met.collect();
    (met, (driver.now() - began).as_secs_f64() * 1e3)
}

/// Returns phase and ranks of what each member missed.
fn missed(met: &[Met]) -> Vec<Option<(Phase, Vec<u32>)>> {
    let missed = met.iter().map(Met::missed);
    missed.map(|missed| missed.map(|missed| (missed.phase, missed.ranks))).collect()
}

#[test]
fn all_see_each_other_and_larger_all_reduces_take_longer() {
    let driver = with_fault(None);
    let (meeting, members) = meeting(&driver);
    let (met, ms) = meet(&driver, &meeting, &members);
    assert!(ms < 20.0, "{ms}");
    assert_eq!(missed(&met), vec![None; 4]);
    for one in met {
        let all = one.all_reduce_ns().map(Option::unwrap);
        assert!(all.is_sorted() && one.barrier_ns().unwrap() < all[0]);
        assert_eq!(one.wrong_lines(), 0);
    }
}

#[test]
fn lost_stores_of_one_direction_are_missed_at_the_barrier() {
    for (fault, late) in [(TalkFault::LiveWritesLost, false), (TalkFault::Late, true)] {
        let driver = with_fault(Some((fault, None)));
        let (meeting, members) = meeting(&driver);
        let (met, ms) = meet(&driver, &meeting, &members);
        near(ms, 50.0, 2.0);
        // GPU 3 misses GPU 1 and leaves; all others then miss GPU 3.
        let left = Some((Phase::Barrier, vec![3]));
        assert_eq!(
            missed(&met),
            [left.clone(), left.clone(), left, Some((Phase::Arrival, vec![1]))]
        );
        let ones = met[3].missed().unwrap();
        let word = driver.look(meeting.boxes[3], ones.offset_of(1)).unwrap();
        assert_eq!(ones.is_awaited(word), late, "{fault:?}");
    }
}

#[test]
fn a_fault_of_all_at_once_spares_two_and_the_other_way_round() {
    for (only, is_missed) in [(Occasion::AllAtOnce, true), (Occasion::TwoAlone, false)] {
        let driver = with_fault(Some((TalkFault::LiveWritesLost, Some(only))));
        let (meeting, members) = meeting(&driver);
        let (met, _) = meet(&driver, &meeting, &members);
        assert_eq!(met[3].missed().is_some(), is_missed);
    }
}

#[test]
fn a_member_that_never_comes_is_missed_by_all() {
    let driver = with_fault(None);
    let (meeting, members) = meeting(&driver);
    let (met, ms) = meet(&driver, &meeting, &members[..3]);
    assert_eq!(missed(&met), vec![Some((Phase::Arrival, vec![3])); 3]);
    near(ms, 50.0, 2.0);
    let short = Meeting {
        limits: TalkLimits { wait: Duration::from_micros(1), ..meeting.limits },
        ..meeting
    };
    let (met, ms) = meet(&driver, &short, &members);
    assert!(ms < 1.0, "{ms}");
    assert!(met.iter().all(|one| one.missed().is_some()));
}

#[test]
fn a_member_that_begins_when_the_others_have_left_is_late() {
    let driver = with_fault(Some((TalkFault::NeverResident, None)));
    let (meeting, members) = meeting(&driver);
    let (met, ms) = meet(&driver, &meeting, &members);
    assert_eq!(missed(&met)[0], Some((Phase::Arrival, vec![3])));
    near(ms, 70.0, 2.0);
}

#[test]
fn data_behind_its_flag_is_counted_with_its_rank() {
    let driver = with_fault(Some((TalkFault::Order, None)));
    let (meeting, members) = meeting(&driver);
    let (met, _) = meet(&driver, &meeting, &members);
    let wrong: Vec<_> = met.iter().map(|one| (one.wrong_lines() > 0, one.wrong_ranks())).collect();
    let none = (false, Vec::new());
    assert_eq!(wrong, [none.clone(), none.clone(), none, (true, vec![1])]);
}
