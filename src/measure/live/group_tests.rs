use super::*;

fn member(gpu: u32, missed: Option<(Phase, u32, u32, &[u32], bool)>) -> MemberMet {
    MemberMet {
        gpu,
        span: Span { start_ns: 0.0, end_ns: 5e7 },
        barrier_ns: Some(3000.0 + f64::from(gpu)),
        all_reduce_ns: [Some(5000.0), Some(6000.0), Some(9000.0), None],
        wrong_lines: 0,
        wrong_ranks: Vec::new(),
        missed: missed.map(|(phase, kib, round, ranks, there_later)| MissedOnes {
            phase,
            kib,
            round,
            ranks: ranks.to_vec(),
            there_later,
        }),
    }
}

fn cells_of(gpus: &[u32], members: Vec<MemberMet>) -> Vec<GroupTalk> {
    let kernels = u32::try_from(members.len()).unwrap();
    let outcome = Outcome::Group { met: Box::new(GroupMet { members, kernels }) };
    gpus.iter().map(|gpu| fill(GroupTalk::blank(*gpu, gpus.to_vec(), kernels), &outcome)).collect()
}

#[test]
fn each_gpu_has_its_own_times() {
    let cells = cells_of(&[0, 4], vec![member(0, None), member(4, None)]);
    assert_eq!(
        cells.iter().map(|cell| cell.barrier_us).collect::<Vec<_>>(),
        [Some(3.0), Some(3.004)]
    );
    assert_eq!((cells[0].all_reduce_128k_us, cells[0].all_reduce_256k_us), (Some(9.0), None));
    assert!(cells.iter().all(|cell| cell.verified == Verified::Ok && cell.ending.is_sound()));
}

#[test]
fn who_missed_first_names_the_gpu_and_the_others_are_not_tested() {
    // GPU 5 never sees GPU 3, and leaves; the others then miss GPU 5.
    let left: &[u32] = &[2];
    let cells = cells_of(
        &[3, 4, 5],
        vec![
            member(3, Some((Phase::Barrier, 0, 1, left, false))),
            member(4, Some((Phase::Barrier, 0, 1, left, false))),
            member(5, Some((Phase::Arrival, 0, 1, &[0], false))),
        ],
    );
    assert_eq!(cells[2].missed_from, [3]);
    assert_eq!((cells[2].ending.status, cells[2].verified), (Status::Failed, Verified::Dropped));
    let reason = cells[2].ending.reason.as_deref().unwrap();
    assert!(
        reason.starts_with("GPU 5 waited for a store of GPU 3 in vain while all GPUs talked at once (phase arrival, round 1)"),
        "{reason}"
    );
    for cell in &cells {
        let by = cell.ended_by.unwrap();
        assert_eq!((by.source, by.destination), (3, 5));
    }
    for cell in &cells[..2] {
        assert_eq!(
            (cell.ending.status, cell.verified, cell.missed),
            (Status::Skipped, Verified::Skipped, None)
        );
    }
}

#[test]
fn a_larger_all_reduce_comes_after_a_smaller_one() {
    let cells = cells_of(
        &[0, 1],
        vec![
            member(0, Some((Phase::AllReduce, 32, 1, &[1], true))),
            member(1, Some((Phase::AllReduce, 8, 200, &[0], true))),
        ],
    );
    assert_eq!(cells[0].ending.status, Status::Skipped);
    assert_eq!(cells[1].missed.unwrap().miss, Miss::Late);
    assert!(
        cells[1]
            .ending
            .reason
            .as_deref()
            .unwrap()
            .contains("(phase all-reduce of 8 KiB, round 200)")
    );
}

#[test]
fn wrong_lines_name_the_gpu_that_stored_them() {
    let mut wrong = member(1, None);
    (wrong.wrong_lines, wrong.wrong_ranks) = (7, vec![0]);
    let cells = cells_of(&[0, 1], vec![member(0, None), wrong]);
    assert_eq!(cells[0].verified, Verified::Ok);
    assert_eq!((cells[1].verified, cells[1].wrong_lines), (Verified::Corrupt, Some(7)));
    assert_eq!(cells[1].wrong_from, [0]);
}

#[test]
fn kernels_of_a_single_gpu_share_a_cell() {
    let mut kernels = vec![member(2, None); 4];
    kernels[3].barrier_ns = Some(9000.0);
    kernels[1].missed = Some(MissedOnes {
        phase: Phase::AllReduce,
        kib: 8,
        round: 3,
        ranks: vec![0],
        there_later: false,
    });
    let cells = cells_of(&[2], kernels);
    assert_eq!(cells.len(), 1);
    assert_eq!((cells[0].barrier_us, cells[0].kernels), (Some(9.0), 4));
    assert_eq!(cells[0].missed_from, [2]);
    assert_eq!(cells[0].verified, Verified::Dropped);
}

#[test]
fn a_member_that_ran_later_proves_nothing() {
    let missed: Option<(Phase, u32, u32, &[u32], bool)> = Some((Phase::Arrival, 0, 1, &[1], true));
    let (one, mut other) = (member(0, missed), member(1, None));
    assert_eq!(not_together(&[one.clone(), other.clone()]), None);
    other.span = Span { start_ns: 5.1e7, end_ns: 7e7 };
    let error = not_together(&[one, other]).unwrap();
    assert_eq!(error.kind, ErrorKind::Hindered);
}
