use super::belief::{Belief, Beliefs, Known};
use super::{build, refute};
use crate::refute_tests::{at_full_rate, cell};
use model::measurement::{LinkUnderLoad, Measurements};
use model::pcie::{Narrow, RefutedBy};
use model::placement::{Pair, Path};
use model::reading::Reading;
use model::snapshot::Snapshot;
use model::testing::{function_mut, generation, h200_vm, lanes, two_sockets};
use model::topology::Topology;
use model::units::{GbPerSecond, Lanes};

/// GPU 0 of a machine whose GPUs rest at Gen1 x16 and can do Gen4 x16.
const GPU: u32 = 0;

fn read(readings: u32, generations: [u8; 2], lanes: [u8; 2]) -> LinkUnderLoad {
    LinkUnderLoad {
        index: GPU,
        readings,
        generation: Some(generations),
        width: Some(lanes),
        ..LinkUnderLoad::default()
    }
}

/// Returns measurements in which every pair reaches `share` of a Gen4 x16 link, with these readings under load.
fn run(machine: &Snapshot, share: f64, links: &[LinkUnderLoad]) -> Measurements {
    Measurements { links: links.to_vec(), ..at_full_rate(machine, share) }
}

/// Returns the belief on the link of [`GPU`], which is the same after the links were corrected.
fn believed(machine: &Snapshot, measurements: Option<&Measurements>, slow: bool) -> Belief {
    let mut topology = build(machine);
    let mut measurements = measurements.cloned();
    let on_gpu = |topology: &Topology, measurements: &Option<Measurements>| {
        let beliefs = Beliefs::of(machine, topology, measurements.as_ref(), |_| slow);
        beliefs.on_gpu(GPU).unwrap()
    };
    let before = on_gpu(&topology, &measurements);
    if let Some(measurements) = &mut measurements {
        refute::readings(machine, &mut topology, measurements);
    }
    let after = on_gpu(&topology, &measurements);
    assert_eq!(before, after, "corrected links change no belief");
    before
}

fn by_load(width: Lanes) -> Known {
    Known::Refuted(RefutedBy::UnderLoad { width })
}

fn is_by_copies(known: Known) -> bool {
    matches!(known, Known::Refuted(RefutedBy::Copies { .. }))
}

fn shape(belief: Belief) -> String {
    belief.shape.to_string()
}

#[test]
fn a_reading_at_rest_shows_the_lanes_and_not_the_generation() {
    let mut machine = two_sockets();
    for (lanes_read, is) in [(16, "Gen4 x16"), (4, "Gen4 x4")] {
        machine.gpus[0].pcie_width = lanes(lanes_read);
        let belief = believed(&machine, None, false);
        assert_eq!(
            (shape(belief).as_str(), belief.known, belief.in_use),
            (is, Known::AtRest, false)
        );
        assert_eq!((belief.measured_lanes(), belief.measured_generation()), (None, None));
    }
    // Copies that passed the link show that it was in use, and no more.
    let belief = believed(&machine, Some(&run(&machine, 0.1, &[])), false);
    assert_eq!(
        (shape(belief).as_str(), belief.known, belief.in_use),
        ("Gen4 x4", Known::AtRest, true)
    );
}

#[test]
fn a_link_at_its_highest_generation_is_in_use_without_a_copy() {
    let mut machine = two_sockets();
    machine.gpus[0].pcie_generation = generation(4);
    for address in machine.gpus[0].pci.get().into_iter().collect::<Vec<_>>() {
        let parent = machine.function(address).unwrap().parent.unwrap();
        for address in [address, parent] {
            function_mut(&mut machine, &address.to_string()).generation = generation(4);
        }
    }
    let belief = believed(&machine, None, false);
    assert_eq!((belief.known, belief.in_use), (Known::AtRest, true));
}

#[test]
fn few_readings_under_load_decide_nothing_but_show_lanes_that_the_link_has() {
    let machine = two_sockets();
    let few = run(&machine, 0.1, &[read(2, [1, 1], [8, 8])]);
    let belief = believed(&machine, Some(&few), false);
    assert_eq!((shape(belief).as_str(), belief.known), ("Gen4 x16", Known::AtRest));
    let mut narrow = machine.clone();
    narrow.gpus[0].pcie_width = lanes(4);
    let few = run(&narrow, 0.1, &[read(1, [1, 1], [4, 16])]);
    let belief = believed(&narrow, Some(&few), false);
    assert_eq!((shape(belief).as_str(), belief.known), ("Gen4 x16", by_load(Lanes::X16)));
    assert_eq!(belief.measured_lanes(), Some(Lanes::X16));
}

#[test]
fn copies_that_fit_the_generation_at_rest_show_it_unless_a_reading_rose() {
    let machine = two_sockets();
    for (links, is, known) in [
        (vec![], "Gen1 x16", Known::ByCopies),
        (vec![read(2, [1, 1], [16, 16])], "Gen1 x16", Known::ByCopies),
        (vec![read(2, [1, 3], [16, 16])], "Gen4 x16", Known::AtRest),
        (vec![read(3, [1, 3], [16, 16])], "Gen3 x16", Known::UnderLoad),
    ] {
        let measurements = run(&machine, 0.1, &links);
        let belief = believed(&machine, Some(&measurements), true);
        assert_eq!((shape(belief).as_str(), belief.known), (is, known));
        let other = believed(&machine, Some(&measurements), false);
        if known == Known::ByCopies {
            assert_eq!((shape(other).as_str(), other.known), ("Gen4 x16", Known::AtRest));
        } else {
            assert_eq!(other, belief);
        }
    }
}

#[test]
fn enough_readings_under_load_decide_where_copies_passed_the_link() {
    let machine = two_sockets();
    for (readings, is) in
        [(read(3, [1, 1], [16, 16]), "Gen1 x16"), (read(40, [1, 3], [4, 8]), "Gen3 x8")]
    {
        let measurements = run(&machine, 0.1, std::slice::from_ref(&readings));
        let belief = believed(&machine, Some(&measurements), false);
        assert_eq!(
            (shape(belief).as_str(), belief.known, belief.in_use),
            (is, Known::UnderLoad, true)
        );
        assert_eq!(belief.measured_lanes(), belief.shape.width);
        assert_eq!(belief.measured_generation(), belief.shape.generation);
        // Without a copy over it, these were readings at rest.
        let idle = Measurements { links: vec![readings], ..Measurements::default() };
        let belief = believed(&machine, Some(&idle), false);
        assert_eq!(
            (shape(belief).as_str(), belief.known, belief.in_use),
            ("Gen4 x16", Known::AtRest, false)
        );
    }
    // More lanes than possible are a broken reading.
    let measurements = run(&machine, 0.1, &[read(40, [1, 1], [16, 32])]);
    let belief = believed(&machine, Some(&measurements), false);
    assert_eq!((shape(belief).as_str(), belief.known), ("Gen4 x16", Known::AtRest));
}

#[test]
fn one_reading_of_the_highest_generation_is_no_reading_at_rest() {
    let mut machine = two_sockets();
    let once = Measurements { links: vec![read(1, [1, 4], [8, 8])], ..Measurements::default() };
    let belief = believed(&machine, Some(&once), false);
    assert_eq!(
        (shape(belief).as_str(), belief.known, belief.in_use),
        ("Gen4 x8", Known::UnderLoad, true)
    );
    // Nobody knows which generation is the highest.
    let gpu = &mut machine.gpus[0];
    (gpu.pci, gpu.pcie_generation_max) = (Reading::unsupported(), Reading::unsupported());
    let belief = believed(&machine, Some(&once), false);
    assert_eq!(
        (shape(belief).as_str(), belief.known, belief.in_use),
        ("x16", Known::AtRest, false)
    );
}

#[test]
fn an_uplink_is_what_it_reads_unless_copies_refute_it() {
    let mut machine = two_sockets();
    for end in ["0000:80:01.0", "0000:81:00.0"] {
        function_mut(&mut machine, end).generation = generation(1);
    }
    let topology = build(&machine);
    let link = topology
        .pcie_links()
        .find(|link| link.below.is_some_and(|below| below.to_string() == "0000:81:00.0"));
    let on_uplink = |measurements: Option<&Measurements>| {
        Beliefs::of(&machine, &topology, measurements, |_| true).on(link.unwrap())
    };
    let belief = on_uplink(None);
    assert_eq!(
        (shape(belief).as_str(), belief.known, belief.in_use),
        ("Gen1 x16", Known::AtRest, false)
    );
    let belief = on_uplink(Some(&run(&machine, 0.1, &[])));
    assert_eq!(
        (shape(belief).as_str(), belief.known, belief.in_use),
        ("Gen1 x16", Known::AtRest, true)
    );
    let belief = on_uplink(Some(&run(&machine, 0.7, &[])));
    assert_eq!((shape(belief).as_str(), belief.in_use), ("Gen4 x16", true));
    assert!(is_by_copies(belief.known), "{belief:?}");
}

#[test]
fn copies_over_nvlink_leave_the_link_at_rest() {
    let mut machine = h200_vm(2);
    machine.gpus[0].pcie_generation = generation(1);
    let mut measurements = run(&machine, 0.1, &[read(40, [1, 1], [16, 16])]);
    let belief = believed(&machine, Some(&measurements), false);
    assert_eq!(
        (shape(belief).as_str(), belief.known, belief.in_use),
        ("Gen5 x16", Known::AtRest, false)
    );
    let pair = Pair { source: 0, destination: 1 };
    measurements.peer.push(cell(pair, Path::Staged, 3.0));
    let belief = believed(&machine, Some(&measurements), false);
    assert_eq!(
        (shape(belief).as_str(), belief.known, belief.in_use),
        ("Gen1 x16", Known::UnderLoad, true)
    );
}

#[test]
fn copies_that_are_faster_than_a_reading_refute_it_at_rest_and_under_load() {
    let machine = two_sockets();
    let stale = read(40, [1, 1], [16, 16]);
    let belief = believed(&machine, Some(&run(&machine, 0.7, &[stale])), false);
    assert_eq!(shape(belief), "Gen4 x16");
    assert!(is_by_copies(belief.known), "{belief:?}");
    assert_eq!(belief.measured_generation(), None);
    // A higher generation explains the rate, so the lanes stay.
    let narrow = read(40, [1, 1], [8, 8]);
    let belief = believed(&machine, Some(&run(&machine, 0.4, &[narrow])), false);
    assert_eq!(shape(belief), "Gen4 x8");
    assert!(is_by_copies(belief.known), "{belief:?}");
    let mut machine = machine;
    machine.gpus[0].pcie_width = lanes(4);
    let belief = believed(&machine, Some(&run(&machine, 0.7, &[])), false);
    assert_eq!(shape(belief), "Gen4 x16");
    assert!(is_by_copies(belief.known), "{belief:?}");
    assert_eq!(belief.measured_lanes(), Some(Lanes::X16));
    // Both ends together carry less than this rate: it refutes nothing.
    let belief = believed(&machine, Some(&run(&machine, 9.0, &[])), false);
    assert_eq!((shape(belief).as_str(), belief.known), ("Gen4 x4", Known::AtRest));
}

#[test]
fn theory_has_the_lanes_under_load_and_the_generation_that_the_link_could_rise_to() {
    let machine = two_sockets();
    let mut measurements = run(&machine, 0.05, &[read(9, [1, 1], [8, 8])]);
    assert_eq!(shape(believed(&machine, Some(&measurements), false)), "Gen1 x8");
    let mut topology = build(&machine);
    refute::readings(&machine, &mut topology, &mut measurements);
    let link = topology.pcie_link_of(GPU).unwrap();
    assert_eq!(
        (link.now.to_string().as_str(), link.narrow.as_slice()),
        ("Gen4 x8", &[Narrow::FewerLanes][..])
    );
    let theory = |source, destination| {
        let pair = Pair { source, destination };
        topology.route(pair).unwrap().theoretical_gbps
    };
    let half = |rate: GbPerSecond| (rate.0 - 15.75).abs() < 0.1;
    assert!(theory(0, 1).is_some_and(half), "{:?}", theory(0, 1));
    assert!(!theory(2, 3).is_some_and(half), "{:?}", theory(2, 3));
}

#[test]
fn lanes_that_nothing_showed_at_rest_are_not_refuted() {
    let mut machine = two_sockets();
    let gpu = &mut machine.gpus[0];
    (gpu.pci, gpu.pcie_width) = (Reading::unsupported(), Reading::unsupported());
    let mut measurements = run(&machine, 0.1, &[read(9, [4, 4], [16, 16])]);
    let mut topology = build(&machine);
    refute::readings(&machine, &mut topology, &mut measurements);
    let link = topology.pcie_link_of(GPU).unwrap();
    assert_eq!((link.now.width, link.refuted.len()), (None, 0));
}
