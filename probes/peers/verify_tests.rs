//! Tests of verification over simulated machines whose copies go wrong in one way each. Every fault is found in the
//! engine that has it, and none is found without a fault.

#![allow(clippy::disallowed_macros, reason = "the counts are to be seen")]

use crate::Check;
use crate::Selection;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{Action, Round, Task};
use hardware::Driver;
use model::flow::Setup;
use model::measurement::Verified;
use model::placement::{Engine, Pair, Path, Side};
use model::units::{Bytes, MIB};
use sim::spec::{CopyFault, MachineSpec, Noise, PairFault, Pairs};

/// The least memory limit of a run, which results in buffers of 30 MiB.
const LIMIT: Bytes = Bytes(64 * MIB);
const BUFFER: u64 = 30 * MIB;

/// Returns three GPUs with NVSwitches, with or without a fault of the first pair.
fn machine(fault: Option<(CopyFault, Option<Engine>)>) -> MachineSpec {
    let mut spec = sim::builtin::get("h200x8").unwrap();
    spec.gpus.truncate(3);
    let fault = fault
        .map(|(fault, engine)| PairFault { engine, ..PairFault::new(Pairs::Ordered(0, 1), fault) });
    spec.faults.pairs.extend(fault);
    spec
}

fn bench(driver: &dyn Driver) -> Bench<'_> {
    let select = |(info, index): (&hardware::DeviceInfo, u32)| Selection {
        index,
        uuid: info.uuid.clone(),
        pci: info.pci,
        ..Selection::default()
    };
    let selections: Vec<_> = driver.devices().iter().zip(0..).map(select).collect();
    Bench::open(driver, &selections, LIMIT)
}

fn verify(bench: &Bench, pair: (u32, u32), engine: Engine, issuer: Side, path: Path) -> Verified {
    let setup = Setup { engine, issuer, path, bytes: Bytes(BUFFER), ..Setup::REFERENCE };
    let task = Task { setup, action: Action::Verify(crate::peers::Verify {}) };
    let flows = vec![Pair { source: pair.0, destination: pair.1 }.into()];
    match bench.run_one(&Round {
        id: 0,
        slot: 0,
        flows,
        task,
        deadline: Duration::from_secs(5),
        timeline: false,
        name: String::new(),
    }) {
        Outcome::Verified { flows } if flows.len() == 1 => {
            assert_eq!(flows[0].verified == Verified::Ok, flows[0].detail.is_none());
            flows[0].verified
        }
        outcome => panic!("{outcome:?}"),
    }
}

/// Returns the verdicts over the pair with the fault: of the copy engine, of a kernel that pushes, and of one that
/// pulls. Another pair has sent to the same GPU before.
fn verdicts(fault: CopyFault, engine: Option<Engine>) -> [Verified; 3] {
    let driver = sim::driver(machine(Some((fault, engine)))).unwrap();
    let bench = bench(driver.as_ref());
    let direct = |pair, engine, issuer| verify(&bench, pair, engine, issuer, Path::Direct);
    let found = [
        (Engine::Copy, Side::Source),
        (Engine::Kernel, Side::Source),
        (Engine::Kernel, Side::Destination),
    ]
    .map(|(engine, issuer)| {
        assert_eq!(direct((2, 1), engine, issuer), Verified::Ok, "{fault:?}");
        direct((0, 1), engine, issuer)
    });
    assert_eq!(
        direct((1, 0), Engine::Copy, Side::Source),
        Verified::Ok,
        "{fault:?}: the way back is well"
    );
    assert_eq!(
        verify(&bench, (0, 1), Engine::Copy, Side::Source, Path::Staged),
        Verified::Ok,
        "{fault:?}: staged"
    );
    found
}

#[test]
fn every_way_of_losing_or_spoiling_bytes_is_caught() {
    let (dropped, corrupt) = (Verified::Dropped, Verified::Corrupt);
    let cases = [
        (CopyFault::Dropped, dropped),
        (CopyFault::WrongSource, corrupt),
        (CopyFault::Stale, corrupt),
        (CopyFault::Shifted { bytes: 2 * MIB }, corrupt),
        (CopyFault::Shifted { bytes: 8 }, corrupt),
        (CopyFault::Shifted { bytes: 4 }, corrupt),
        (CopyFault::Shifted { bytes: 1 }, corrupt),
        (CopyFault::FlippedBit { bit: 0 }, corrupt),
        (CopyFault::FlippedBit { bit: BUFFER * 8 - 1 }, corrupt),
        (CopyFault::MissingTail { bytes: 1 }, corrupt),
        (CopyFault::MissingTail { bytes: 4 }, corrupt),
        (CopyFault::MissingTail { bytes: 8 }, dropped),
        (CopyFault::MissingTail { bytes: 4096 }, dropped),
        (CopyFault::MissingTail { bytes: 4099 }, corrupt),
        (CopyFault::Corrupt { words: 1 }, corrupt),
    ];
    for (fault, verdict) in cases {
        assert_eq!(verdicts(fault, None), [verdict; 3], "{fault:?}");
        assert_eq!(
            verdicts(fault, Some(Engine::Copy)),
            [verdict, Verified::Ok, Verified::Ok],
            "{fault:?}"
        );
        assert_eq!(
            verdicts(fault, Some(Engine::Kernel)),
            [Verified::Ok, verdict, verdict],
            "{fault:?}"
        );
    }
    println!("{} faults, each of both engines and of either alone: all caught", cases.len());
}

#[test]
fn faults_of_the_rate_are_none_of_the_bytes() {
    for fault in [
        CopyFault::Slow { share: 0.1.try_into().unwrap() },
        CopyFault::Unstable { percent: 50.0.try_into().unwrap() },
    ] {
        assert_eq!(verdicts(fault, None), [Verified::Ok; 3], "{fault:?}");
    }
}

#[test]
fn a_missing_last_byte_is_seen_every_time() {
    // If the poison were a random byte, it would be the right one every 256th time by chance.
    for engine in [Engine::Copy, Engine::Kernel] {
        let driver =
            sim::driver(machine(Some((CopyFault::MissingTail { bytes: 1 }, None)))).unwrap();
        let bench = bench(driver.as_ref());
        for _ in 0..2000 {
            assert_eq!(
                verify(&bench, (0, 1), engine, Side::Source, Path::Direct),
                Verified::Corrupt
            );
        }
    }
}

#[test]
fn data_of_an_earlier_verification_of_the_same_pair_is_caught() {
    let driver = sim::driver(machine(Some((CopyFault::Stale, None)))).unwrap();
    let bench = bench(driver.as_ref());
    let direct = || verify(&bench, (0, 1), Engine::Copy, Side::Source, Path::Direct);
    assert_eq!(direct(), Verified::Dropped, "nothing was ever brought");
    // Staged copies work. No seed is used twice, so that even bytes of the same verification are recognised as old.
    assert_eq!(verify(&bench, (0, 1), Engine::Copy, Side::Source, Path::Staged), Verified::Ok);
    assert_eq!(direct(), Verified::Corrupt);
    assert_eq!(direct(), Verified::Corrupt);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_flipped_bit_anywhere_is_caught(bit in 0..BUFFER * 8) {
        let verdicts = verdicts(CopyFault::FlippedBit { bit }, None);
        prop_assert_eq!(verdicts, [Verified::Corrupt; 3]);
    }

    #[test]
    fn any_shift_and_any_missing_tail_is_caught(bytes in 1..BUFFER) {
        prop_assert_eq!(verdicts(CopyFault::Shifted { bytes }, None), [Verified::Corrupt; 3]);
        let missing = verdicts(CopyFault::MissingTail { bytes }, None);
        prop_assert!(missing.iter().all(|verdict| matches!(verdict, Verified::Dropped | Verified::Corrupt)));
    }
}

#[test]
fn ten_thousand_clean_copies_raise_no_alarm() {
    let mut spec = machine(None);
    spec.noise = Noise { percent: 5.0.try_into().unwrap(), seed: 3 };
    let driver = sim::driver(spec).unwrap();
    let bench = bench(driver.as_ref());
    let ways = [
        (Engine::Copy, Side::Source, Path::Direct),
        (Engine::Copy, Side::Destination, Path::Direct),
        (Engine::Kernel, Side::Source, Path::Direct),
        (Engine::Kernel, Side::Destination, Path::Direct),
        (Engine::Copy, Side::Source, Path::Staged),
    ];
    let mut copies = 0;
    while copies < 10_000 {
        for pair in Pair::ordered(&[0, 1, 2]) {
            for (engine, issuer, path) in ways {
                let verdict = verify(&bench, (pair.source, pair.destination), engine, issuer, path);
                assert_eq!(verdict, Verified::Ok, "{pair:?} {engine} {issuer} {path}");
                copies += 1;
            }
        }
    }
    println!("{copies} clean copies verified, no false alarm");
}

/// Returns the results of rows of copies of the pair with the fault, of which the last one is the copy of this number.
fn rows(fault: CopyFault, copies: u32) -> Check {
    let driver = sim::driver(machine(Some((fault, None)))).unwrap();
    let bench = bench(driver.as_ref());
    let setup = Setup::REFERENCE.with_bytes(Bytes(8 * MIB));
    let action = Action::Bandwidth(crate::peers::Bandwidth { rows: 1, copies });
    let pair = Pair { source: 0, destination: 1 };
    let outcome = bench.run_one(&Round {
        id: 0,
        slot: 0,
        flows: vec![pair.into()],
        task: Task { setup, action },
        deadline: Duration::from_secs(5),
        timeline: false,
        name: String::new(),
    });
    match outcome {
        Outcome::Rows { rows } => rows[0].check.clone().unwrap(),
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_line_that_one_copy_in_fifty_loses_is_found_before_the_rows() {
    for (fault, verdict) in [
        (CopyFault::LostLine { every: 50 }, Verified::Dropped),
        (CopyFault::LostLine { every: 1_000_000 }, Verified::Ok),
    ] {
        let driver = sim::driver(machine(Some((fault, None)))).unwrap();
        let bench = bench(driver.as_ref());
        let ways = [
            (Engine::Copy, Side::Source),
            (Engine::Copy, Side::Destination),
            (Engine::Kernel, Side::Source),
            (Engine::Kernel, Side::Destination),
        ];
        let of = |(engine, issuer)| verify(&bench, (0, 1), engine, issuer, Path::Direct);
        let found = ways.map(of);
        let worst = found.into_iter().find(|one| *one != Verified::Ok);
        assert_eq!(worst.unwrap_or(Verified::Ok), verdict, "{fault:?}: {found:?}");
    }
}

#[test]
fn a_line_that_the_last_copy_of_a_row_loses_is_that_of_the_copy_before() {
    // Each row, and the row of small copies after the rows, has a small copy before it.
    let numbers: Vec<_> = (2..60)
        .filter(|copies| rows(CopyFault::LostLine { every: *copies }, 50).verified != Verified::Ok)
        .collect();
    assert!(!numbers.is_empty(), "the last copy loses a line for some number");
    for every in numbers {
        let found = rows(CopyFault::LostLine { every }, 50);
        assert_eq!(found.verified, Verified::Stale, "{every}: {found:?}");
        assert_eq!(
            found.detail.as_deref(),
            Some(
                "128 B of 8 MiB are still those of the copy before the last, the first at byte 896 of the buffer"
            )
        );
    }
    let never = CopyFault::LostLine { every: 1_000_000 };
    assert_eq!(rows(never, 50).verified, Verified::Ok);
}
