//! Tests which common parts of bad pairs are found.

use super::*;
use model::node::NodeId;
use model::snapshot::Snapshot;
use model::testing::{h200_vm, two_sockets};
use model::topology::Topology;
use topology::build;

fn bad(pairs: &[(u32, u32)]) -> Vec<Pair> {
    pairs.iter().map(|&(source, destination)| Pair { source, destination }).collect()
}

fn link(from: &str, to: &str) -> (NodeId, NodeId) {
    (from.parse().unwrap(), to.parse().unwrap())
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
fn pairs_that_share_an_uplink_are_that_uplink() {
    let found = commons(&build(&two_sockets()), 4, &[(0, 2), (0, 3), (1, 2), (1, 3)]);
    let [Common::Links(links)] = found.as_slice() else { panic!("{found:?}") };
    assert!(
        links.contains(&link("0000:01:00.0", "0000:00:01.0")),
        "as the pairs pass it: {links:?}"
    );
    assert!(links.contains(&link("numa0", "numa1")));

    // One switch of two below each socket: its uplink, in one direction, and the crossing separately.
    let machine = two_switches_each();
    let topology = build(&machine);
    let out_of: Vec<_> =
        [0, 1].iter().flat_map(|&gpu| (2..8).map(move |other| (gpu, other))).collect();
    let found = groups_of(&topology, 8, &out_of);
    let [group] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(group.common, Common::Links(vec![link("0000:01:00.0", "0000:00:01.0")]));
    assert!(
        group.place(&machine).contains("0000:01:00.0 → 0000:00:01.0"),
        "{}",
        group.place(&machine)
    );
    let crossing: Vec<_> =
        (0..4).flat_map(|gpu| (4..8).flat_map(move |other| [(gpu, other), (other, gpu)])).collect();
    let found = groups_of(&topology, 8, &crossing);
    let [group] = found.as_slice() else { panic!("{found:?}") };
    let Common::Links(links) = &group.common else { panic!("{group:?}") };
    assert!(links.contains(&link("numa0", "numa1")), "{links:?}");
    assert!(
        group.place(&machine).contains("NUMA node 0 – NUMA node 1"),
        "{}",
        group.place(&machine)
    );
}

/// Returns two sockets, two switches below each, two GPUs below each: GPU 0 and 1 share the first.
fn two_switches_each() -> Snapshot {
    let mut machine = two_sockets();
    let (mut functions, mut gpus) = (machine.pci.clone(), Vec::new());
    for function in &machine.pci {
        let mut other = function.clone();
        other.address.bus += 0x20;
        if other.parent.is_none() {
            other.address.device += 1;
        }
        other.parent = function.parent.map(|mut parent| {
            parent.bus += 0x20;
            parent.device += u8::from(
                function
                    .parent
                    .is_some_and(|above| machine.function(above).unwrap().parent.is_none()),
            );
            parent
        });
        functions.push(other);
    }
    for socket in [0, 2] {
        for (at, offset) in [(socket, 0), (socket + 1, 0), (socket, 0x20), (socket + 1, 0x20)] {
            let mut gpu = machine.gpus[at].clone();
            let mut address = gpu.pci.get().unwrap();
            address.bus += offset;
            gpu.pci = model::reading::Reading::Known(address);
            gpu.index = u32::try_from(gpus.len()).unwrap();
            gpus.push(gpu);
        }
    }
    (machine.pci, machine.gpus) = (functions, gpus);
    machine
}

fn groups_of(topology: &Topology, gpus: u32, pairs: &[(u32, u32)]) -> Vec<Group> {
    groups(&bad(pairs), &Pair::ordered(&(0..gpus).collect::<Vec<_>>()), topology)
}

#[test]
fn directions_are_distinguished() {
    let machine = h200_vm(8);
    let topology = build(&machine);
    let out: Vec<_> = (0..8).filter(|&other| other != 3).map(|other| (3, other)).collect();
    let into: Vec<_> = out.iter().map(|&(gpu, other)| (other, gpu)).collect();
    let both: Vec<_> = out.iter().chain(&into).copied().collect();
    for (pairs, way) in [(&out, "from GPU 3"), (&into, "to GPU 3"), (&both, "between GPU 3")] {
        let found = groups_of(&topology, 8, pairs);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&found[0].common, found[0].pairs.len()), (&Common::Gpu(3), pairs.len()));
        assert!(found[0].place(&machine).starts_with(way), "{}", found[0].place(&machine));
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
