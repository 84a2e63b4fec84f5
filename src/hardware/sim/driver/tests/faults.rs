//! Faults of some copies, which do not affect the others.

use super::*;
use crate::spec::Ratio;

#[test]
fn a_fault_of_one_engine_leaves_the_other_alone() {
    let driver = open_spec(faulty(CopyFault::Slow { share: Ratio(0.25) }, Some(Engine::Kernel)));
    enable(&driver, 0, 1);
    let kernel = Leg { kernel: true, ..leg(0, 1) };
    near(gbps(&driver, &[leg(0, 1)], 512 * MIB, 8)[0], 396.3, 1.0);
    near(gbps(&driver, &[kernel], 512 * MIB, 8)[0], 365.0 / 4.0, 1.0);
    near(gbps(&driver, &[Leg { kernel: true, ..leg(1, 0) }], 512 * MIB, 8)[0], 365.0, 1.0);
}

#[test]
fn a_fault_of_both_ways_leaves_one_way_alone() {
    let slow = PairFault::new(Pairs::Ordered(0, 1), CopyFault::Slow { share: Ratio(0.5) });
    let mut spec = builtin::get("h200x2").unwrap();
    spec.faults.pairs.push(PairFault { both_ways: true, ..slow });
    let driver = open_spec(spec);
    enable(&driver, 0, 1);
    enable(&driver, 1, 0);
    near(gbps(&driver, &[leg(0, 1)], 512 * MIB, 8)[0], 396.3, 1.0);
    let both = gbps(&driver, &[leg(0, 1), leg(1, 0)], 512 * MIB, 8);
    // The other direction ends first, so the second half of this one runs alone.
    near(both[0], 396.3 / 1.5, 3.0);
    near(both[1], 392.0, 2.0);
}

#[test]
fn a_fault_of_staged_copies_leaves_direct_ones_alone() {
    let slow = PairFault::new(Pairs::Both(0, 1), CopyFault::Slow { share: Ratio(0.5) });
    let rate = |path: Option<Path>, direct: bool| {
        let mut spec = builtin::get("h200x2").unwrap();
        spec.faults.pairs.extend(path.map(|path| PairFault { path, ..slow }));
        let driver = open_spec(spec);
        if direct {
            enable(&driver, 0, 1);
        }
        gbps(&driver, &[leg(0, 1)], 512 * MIB, 4)[0]
    };
    for direct in [false, true] {
        let [of_direct, of_staged] =
            [Path::Direct, Path::Staged].map(|path| rate(Some(path), direct));
        let (slow, untouched) =
            if direct { (of_direct, of_staged) } else { (of_staged, of_direct) };
        let healthy = rate(None, direct);
        near(untouched, healthy, 0.1);
        near(slow, healthy / 2.0, healthy * 0.02);
    }
}
