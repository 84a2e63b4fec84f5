//! Kernels that talk, and loads that follow pointers.

use super::*;
use crate::spec::{PairTalkFault, TalkFault};
use hardware::{Chase, Heard, MAILBOX_BYTES, Talk, TalkDriver, TalkLimits};
use model::live::Phase;

const LIMITS: TalkLimits = TalkLimits {
    arrival: Duration::from_millis(50),
    wait: Duration::from_millis(20),
    total: Duration::from_millis(250),
    channels: Duration::from_millis(5),
};

/// A machine whose first two GPUs talk.
fn with_fault(fault: Option<TalkFault>) -> SimDriver {
    let mut spec = builtin::get("h200x2").unwrap();
    spec.faults.talk = fault
        .map(|fault| PairTalkFault { pairs: Pairs::Ordered(0, 1), fault })
        .into_iter()
        .collect();
    let driver = open_spec(spec);
    enable(&driver, 0, 1);
    driver
}

fn sides(driver: &SimDriver) -> [Talk; 2] {
    let [mine, theirs] = [0, 1].map(|gpu| driver.allocate(Device(gpu), MAILBOX_BYTES).unwrap());
    let side = |gpu: u32, mine, theirs| Talk {
        stream: driver.create_stream(Device(gpu), StreamKind::Side).unwrap(),
        mine,
        theirs,
        answers: gpu == 1,
        rounds: 300,
        base: 77,
        atomics: true,
        limits: LIMITS,
    };
    [side(0, mine, theirs), side(1, theirs, mine)]
}

/// Runs these sides, and returns what each heard with the milliseconds of the host's clock.
fn talk(driver: &SimDriver, talks: &[Talk]) -> (Vec<Heard>, f64) {
    let began = driver.now();
    driver.talk(talks).unwrap();
    let heard = talks.iter().map(|talk| {
        driver.synchronize(talk.stream).unwrap();
        driver.heard(talk.stream.device, talk.answers).unwrap()
    });
    let heard = heard.collect();
    (heard, (driver.now() - began).as_secs_f64() * 1e3)
}

#[test]
fn both_sides_hear_everything_at_the_times_of_hardware() {
    let driver = with_fault(None);
    let (heard, ms) = talk(&driver, &sides(&driver));
    for side in &heard {
        assert!(side.has_ended() && side.unseen().is_none());
        near(side.ns(Phase::Push).unwrap() / 300.0, 2800.0, 1.0);
        for (gbps, known) in side.gbps().into_iter().zip([313.0, 141.0, 133.5]) {
            near(gbps.unwrap(), known, 1.0);
        }
        assert_eq!(side.atomics_lost(), Some(0));
    }
    // 2.81 ms were measured on H200, and each phase of channels takes 5 ms.
    near(ms, 17.81, 1.0);
    assert!(driver.native_atomics(Device(0), Device(1)).unwrap());
}

#[test]
fn a_side_without_its_partner_gives_up_when_its_time_is_over() {
    let driver = with_fault(None);
    let [one, other] = sides(&driver);
    let wrong = Talk { theirs: driver.allocate(Device(1), MAILBOX_BYTES).unwrap(), ..one };
    let from = |talk: u32, side: Talk| Talk { base: talk * 100_000, ..side };
    for talks in
        [vec![one], vec![from(1, wrong), from(1, other)], vec![from(2, one), from(3, other)]]
    {
        let (heard, ms) = talk(&driver, &talks);
        for side in heard {
            let unseen = side.unseen().unwrap();
            assert_eq!((unseen.phase, unseen.round), (Phase::Arrival, 1));
        }
        near(ms, 50.0, 1.0);
        assert_ne!(driver.look(one.mine, 0).unwrap(), talks[0].base);
    }
    let short = sides(&driver).map(|side| Talk {
        limits: TalkLimits { wait: Duration::from_micros(1), ..LIMITS },
        ..side
    });
    let (heard, ms) = talk(&driver, &short);
    assert!(ms < 1.0, "{ms}");
    assert!(heard.iter().all(|side| side.unseen().is_some()));
}

#[test]
fn a_talk_with_the_flags_of_an_earlier_one_is_refused() {
    let driver = with_fault(None);
    let sides = sides(&driver);
    let with_base = |base| sides.map(|side| Talk { base, ..side });
    talk(&driver, &with_base(1000));
    for base in [1000, 1300, 701, 33_771] {
        let again = driver.talk(&with_base(base)).unwrap_err();
        assert!(again.message.contains("earlier talk"), "{again:?}");
    }
    let driver = with_fault(None);
    let sides = self::sides(&driver);
    for base in [u32::MAX - 100, 33_000, 65_773] {
        let (heard, _) = talk(&driver, &sides.map(|side| Talk { base, ..side }));
        assert!(heard.iter().all(|heard| heard.unseen().is_none()));
    }
}

#[test]
fn each_fault_shows_where_its_stores_should_arrive() {
    for (fault, phase, there) in [
        (TalkFault::LiveWritesLost, Phase::Arrival, false),
        (TalkFault::Late, Phase::Arrival, true),
    ] {
        let driver = with_fault(Some(fault));
        let talks = sides(&driver);
        let (heard, _) = talk(&driver, &talks);
        let unseen = heard[1].unseen().unwrap();
        assert_eq!(unseen.phase, phase);
        let now = driver.look(talks[1].mine, unseen.offset).unwrap();
        assert_eq!(now == unseen.wanted, there, "{fault:?}");
        assert_eq!(heard[0].unseen().unwrap().phase, Phase::Push, "it was seen");
    }
    for (fault, phases) in [
        (TalkFault::Torn, &[Phase::Ll128, Phase::Ll128Channels][..]),
        (TalkFault::TornLl, &[Phase::Ll]),
        (TalkFault::Order, &[Phase::Simple, Phase::SimplePush, Phase::SimplePull]),
        (TalkFault::OrderOfBlocks, &[Phase::SimplePush, Phase::SimplePull]),
        (TalkFault::AtomicsLost, &[Phase::Atomics]),
    ] {
        let driver = with_fault(Some(fault));
        let (heard, _) = talk(&driver, &sides(&driver));
        let wrong = |side: &Heard| Phase::ALL.map(|phase| side.wrong(phase) > 0);
        assert_eq!(wrong(&heard[1]), Phase::ALL.map(|of| phases.contains(&of)), "{fault:?}");
        assert!(!wrong(&heard[0]).contains(&true), "{fault:?}");
    }
    let driver = with_fault(Some(TalkFault::NeverResident));
    let (heard, ms) = talk(&driver, &sides(&driver));
    assert_eq!(heard[0].unseen().unwrap().phase, Phase::Arrival);
    near(ms, 70.0, 1.0);
}

#[test]
fn a_store_into_memory_that_is_not_reached_breaks_the_context() {
    let driver = open("h200x2");
    let talks = sides(&driver);
    driver.talk(&talks).unwrap();
    let error = driver.synchronize(talks[0].stream).unwrap_err();
    assert_eq!((error.kind, error.code), (ErrorKind::Sticky, Some(700)));
}

#[test]
fn loads_take_as_long_as_their_memory_is_far() {
    let driver = with_fault(None);
    let stream = driver.create_stream(Device(0), StreamKind::Side).unwrap();
    for (gpu, ns) in [(0, 142.0), (1, 800.0)] {
        let chase = Chase {
            stream,
            memory: driver.allocate(Device(gpu), 2 * MIB).unwrap(),
            count: 8192,
            stride: 256,
            hops: 1000,
            limit: LIMITS.total,
        };
        driver.chase(&chase).unwrap();
        driver.synchronize(stream).unwrap();
        let hops = driver.chased(Device(0)).unwrap();
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let each = hops.ns as f64 / hops.made as f64;
        near(each, ns, 2.0);
    }
}
