use super::{build, refute};
use model::flow::Setup;
use model::measurement::{LinkUnderLoad, Measurements, PeerBandwidth, Verified};
use model::pcie::Narrow;
use model::placement::{Pair, Path};
use model::snapshot::Snapshot;
use model::testing::{function_mut, generation, lanes, two_sockets, two_sockets_with_narrow_gpu};
use model::topology::{Link, Topology};
use model::units::GbPerSecond;

fn link_to<'a>(topology: &'a Topology, lower: &str) -> &'a Link {
    topology.links.iter().find(|link| link.lower == lower.parse().unwrap()).unwrap()
}

pub(crate) fn cell(pair: Pair, path: Path, gbps: f64) -> PeerBandwidth {
    PeerBandwidth {
        achieved_gbps: Some(GbPerSecond(gbps)),
        samples: 5,
        verified: Verified::Ok,
        ..PeerBandwidth::blank(pair, Setup::REFERENCE.with_path(path))
    }
}

/// Returns measurements in which every pair reaches this share of the rate of a Gen4 x16 link.
pub(crate) fn at_full_rate(machine: &Snapshot, share: f64) -> Measurements {
    let pairs = build(machine).pairs;
    let peer = pairs.iter().map(|route| cell(route.pair, Path::Direct, 31.5 * share));
    Measurements { peer: peer.collect(), ..Measurements::default() }
}

fn refuted(machine: &Snapshot, measurements: &mut Measurements) -> Topology {
    let mut topology = build(machine);
    refute::readings(machine, &mut topology, measurements);
    let again = topology.clone();
    refute::readings(machine, &mut topology, measurements);
    assert_eq!(topology, again, "twice is once");
    topology
}

#[test]
fn a_rate_over_a_link_refutes_a_reading_that_allows_less() {
    let mut machine = two_sockets();
    for end in ["0000:80:01.0", "0000:81:00.0"] {
        function_mut(&mut machine, end).generation = generation(1);
    }
    let uplink = |topology: &Topology| link_to(topology, "0000:81:00.0").pcie.clone().unwrap();
    assert_eq!(uplink(&build(&machine)).narrow, [Narrow::LowerGeneration]);
    let across = Pair { source: 0, destination: 2 };
    let mut measurements = at_full_rate(&machine, 0.7);
    let topology = refuted(&machine, &mut measurements);
    let link = uplink(&topology);
    assert_eq!((link.now.to_string().as_str(), link.narrow.as_slice()), ("Gen4 x16", &[][..]));
    assert_eq!(link.at_rest.to_string(), "Gen1 x16", "what was read stays");
    let [why] = link.refuted.as_slice() else { panic!("{link:?}") };
    assert!(why.to_string().contains("the reading Gen1 x16, which carries 4.0 GB/s"), "{why}");
    let route = topology.route(across).unwrap();
    assert!((route.theoretical_gbps.unwrap().0 - 31.5).abs() < 0.1, "{route:?}");
    let percent =
        measurements.peer.iter().find(|cell| cell.pair == across).and_then(|cell| cell.percent);
    assert!(percent.is_some_and(|percent| (percent - 70.0).abs() < 0.1), "{percent:?}");

    // Staged copies pass it too. Bytes that did not arrive prove nothing, nor does an impossible rate.
    let mut staged = at_full_rate(&machine, 0.1);
    staged.peer.push(cell(Pair { source: 2, destination: 3 }, Path::Staged, 12.0));
    assert_eq!(uplink(&refuted(&machine, &mut staged)).now.to_string(), "Gen4 x16");
    let mut dropped = at_full_rate(&machine, 0.7);
    dropped.peer.iter_mut().for_each(|cell| cell.verified = Verified::Dropped);
    assert_eq!(uplink(&refuted(&machine, &mut dropped)).now.to_string(), "Gen1 x16");
    let mut impossible = at_full_rate(&machine, 9.0);
    assert_eq!(uplink(&refuted(&machine, &mut impossible)).refuted, []);
    // A link that is no faster than its reading.
    let mut slow = at_full_rate(&machine, 0.1);
    assert_eq!(uplink(&refuted(&machine, &mut slow)).refuted, []);
}

#[test]
fn what_a_rate_leaves_of_a_reading_stays() {
    let mut machine = two_sockets();
    for end in ["0000:80:01.0", "0000:81:00.0"] {
        function_mut(&mut machine, end).generation = generation(1);
        function_mut(&mut machine, end).width = lanes(8);
    }
    for (share, is, narrow) in [
        (0.4, "Gen4 x8", &[Narrow::FewerLanes][..]),
        (0.7, "Gen4 x16", &[]),
        (0.05, "Gen1 x8", &[Narrow::FewerLanes, Narrow::LowerGeneration]),
    ] {
        let topology = refuted(&machine, &mut at_full_rate(&machine, share));
        let link = link_to(&topology, "0000:81:00.0").pcie.as_ref().unwrap();
        assert_eq!(
            (link.now.to_string().as_str(), link.narrow.as_slice()),
            (is, narrow),
            "{share}"
        );
    }
}

#[test]
fn a_reading_under_load_refutes_one_at_rest() {
    let machine = two_sockets_with_narrow_gpu();
    let wide =
        LinkUnderLoad { index: 3, readings: 9, width: Some([4, 16]), ..LinkUnderLoad::default() };
    let mut measurements = Measurements { links: vec![wide], ..at_full_rate(&machine, 0.1) };
    let topology = refuted(&machine, &mut measurements);
    let link = topology.pcie_link_of(3).unwrap();
    assert_eq!((link.now.to_string().as_str(), link.narrow.as_slice()), ("Gen4 x16", &[][..]));
    assert!(
        link.refuted[0].to_string().ends_with("under load the link shows x16"),
        "{}",
        link.refuted[0]
    );
    // More lanes than possible are a broken reading.
    measurements.links[0].width = Some([4, 32]);
    assert_eq!(refuted(&machine, &mut measurements).pcie_link_of(3).unwrap().refuted, []);
}
