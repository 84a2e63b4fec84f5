//! Tests which common parts of bad pairs are found.

use super::*;
use crate::settings::Settings;
use crate::testing::without_request;
use model::testing::{h200_vm, two_sockets};
use model::topology::Topology;
use topology::build;

fn bad(pairs: &[(u32, u32)]) -> Vec<Pair> {
    pairs.iter().map(|&(source, destination)| Pair { source, destination }).collect()
}

fn commons(topology: &Topology, gpus: u32, pairs: &[(u32, u32)]) -> Vec<Common> {
    let seen = Pair::ordered(&(0..gpus).collect::<Vec<_>>());
    groups(&bad(pairs), &seen, topology).into_iter().map(|group| group.common).collect()
}

#[test]
fn pairs_with_one_gpu_in_common_are_that_gpu() {
    let topology = build(&h200_vm(4));
    assert_eq!(commons(&topology, 4, &[(0, 3), (1, 3), (3, 2)]), [Common::Gpu(3)]);
    assert_eq!(commons(&topology, 4, &[(0, 3)]), [Common::OnePair]);
    assert_eq!(commons(&topology, 4, &[(0, 3), (3, 0)]), [Common::OnePair]);
    assert_eq!(commons(&topology, 4, &[(0, 1), (2, 3)]), [Common::OnePair, Common::OnePair]);
    assert_eq!(commons(&topology, 4, &[(0, 3), (1, 3)]), [Common::Gpu(3)]);
    assert_eq!(commons(&topology, 4, &[]), []);
}

#[test]
fn everything_bad_is_no_single_gpu() {
    let topology = build(&h200_vm(3));
    let all: Vec<_> =
        Pair::ordered(&[0, 1, 2]).into_iter().map(|pair| (pair.source, pair.destination)).collect();
    assert_eq!(commons(&topology, 3, &all), [Common::Everything]);
    assert_eq!(commons(&topology, 2, &[(0, 1), (1, 0)]), [Common::OnePair]);
}

#[test]
fn two_bad_gpus_are_two() {
    let topology = build(&h200_vm(5));
    let pairs = [(0, 3), (1, 3), (2, 3), (4, 3), (0, 4), (1, 4), (2, 4)];
    assert_eq!(commons(&topology, 5, &pairs), [Common::Gpu(3), Common::Gpu(4)]);
}

#[test]
fn pairs_between_two_nodes_are_the_way_between_them() {
    let machine = two_sockets();
    let topology = build(&machine);
    let settings = Settings::default();
    let evidence = without_request(&machine, &topology, None, &settings);
    let crossing = [(0, 2), (2, 0), (0, 3), (3, 0), (1, 2), (2, 1), (1, 3), (3, 1)];
    let found = groups_of(&topology, 4, &crossing);
    let [group] = found.as_slice() else { panic!("{found:?}") };
    let ends = ["numa0", "numa1"].map(|node| node.parse().unwrap());
    assert_eq!(group.common, Common::Link(ends));
    assert_eq!(evidence.place(group), "over NUMA node 0 – NUMA node 1 (8 pairs)");
}

fn groups_of(topology: &Topology, gpus: u32, pairs: &[(u32, u32)]) -> Vec<Group> {
    groups(&bad(pairs), &Pair::ordered(&(0..gpus).collect::<Vec<_>>()), topology)
}

#[test]
fn directions_are_distinguished() {
    let machine = h200_vm(8);
    let topology = build(&machine);
    let settings = Settings::default();
    let evidence = without_request(&machine, &topology, None, &settings);
    let out: Vec<_> = (0..8).filter(|&other| other != 3).map(|other| (3, other)).collect();
    let into: Vec<_> = out.iter().map(|&(gpu, other)| (other, gpu)).collect();
    let both: Vec<_> = out.iter().chain(&into).copied().collect();
    for (pairs, way) in [(&out, "from GPU 3"), (&into, "to GPU 3"), (&both, "between GPU 3")] {
        let found = groups_of(&topology, 8, pairs);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&found[0].common, found[0].pairs.len()), (&Common::Gpu(3), pairs.len()));
        assert!(evidence.place(&found[0]).starts_with(way), "{}", evidence.place(&found[0]));
    }
    // Without one pair, and with one more in the other direction, it is still the same GPU.
    assert_eq!(commons(&topology, 8, &both[1..]), [Common::Gpu(3)]);
    let mut with_one = out.clone();
    with_one.push((5, 3));
    assert_eq!(commons(&topology, 8, &with_one), [Common::Gpu(3)]);

    // Both pairs out of two of three GPUs are bad: two GPUs and not all.
    let topology = build(&h200_vm(3));
    assert_eq!(
        commons(&topology, 3, &[(0, 1), (0, 2), (1, 0), (1, 2)]),
        [Common::Gpu(0), Common::Gpu(1)]
    );
}

#[test]
fn independent_faults_stay_apart() {
    let topology = build(&h200_vm(8));
    let mut pairs: Vec<_> = (0..8).filter(|&other| other != 3).map(|other| (3, other)).collect();
    pairs.push((0, 1));
    assert_eq!(commons(&topology, 8, &pairs), [Common::Gpu(3), Common::OnePair]);
    // All but two of 56 pairs: the whole machine.
    let all: Vec<_> = Pair::ordered(&(0..8).collect::<Vec<_>>()).into_iter().skip(2).collect();
    let all: Vec<_> = all.into_iter().map(|pair| (pair.source, pair.destination)).collect();
    assert_eq!(commons(&topology, 8, &all), [Common::Everything]);
}
