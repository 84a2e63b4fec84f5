//! Figures of the tools that measure.

use super::*;

#[test]
fn reads_and_writes_of_nvbandwidth_have_their_direction_by_the_name_of_the_test() {
    for text in [NVBANDWIDTH, NVBANDWIDTH_JSON] {
        let machine = of(text);
        assert_eq!(rates(&machine, reference), [(0, 1, 21.01), (1, 0, 21.1)]);
        assert_eq!(machine.snapshot.gpus[1].pci, Reading::Known("0000:5e:00.0".parse().unwrap()));
        assert!(
            machine.measurements.unwrap().peer.iter().all(|cell| cell.verified == Verified::Ok)
        );
    }
    let machine = of(NVBANDWIDTH);
    assert_eq!(machine.snapshot.host.cuda_version, Reading::Known("12.8".into()));
    let read = |cell: &PeerBandwidth| cell.setup.issuer == Side::Destination;
    assert_eq!(rates(&machine, read), [(1, 0, 20.01), (0, 1, 20.1)]);
    // The total of both directions is halved; which direction the other two matrices have depends on the version.
    let both = |cell: &PeerBandwidth| cell.setup.direction == Direction::BothWays;
    assert_eq!(rates(&machine, both), [(0, 1, 16.5), (1, 0, 16.5)]);
    let host = &machine.measurements.as_ref().unwrap().host;
    assert_eq!((host.len(), host[1].achieved_gbps.unwrap().0), (2, 25.9));
    assert_eq!((host[0].direction, host[0].engine), (HostDirection::ToDevice, Engine::Copy));
}

#[test]
fn p2p_bandwidth_knows_access_sums_and_units() {
    let machine = of(P2P_BANDWIDTH);
    let measured = machine.measurements.as_ref().unwrap();
    assert_eq!(measured.driver.said_of(pair(0, 2)).unwrap().possible, Some(false));
    assert_eq!(measured.driver.said_of(pair(2, 1)).unwrap().possible, Some(true));
    let direct = rates(&machine, reference);
    assert_eq!(direct, [(0, 1, 20.5), (1, 0, 20.7), (1, 2, 20.8), (2, 1, 20.1)]);
    // Copies "with access" of a pair that has none go through the host.
    let staged = |cell: &PeerBandwidth| {
        cell.setup.path == Path::Staged
            && cell.pair == pair(0, 2)
            && cell.setup.direction == Direction::OneWay
    };
    assert_eq!(rates(&machine, staged), [(0, 2, 9.6)]);
    let both = |cell: &PeerBandwidth| {
        cell.setup.direction == Direction::BothWays && cell.pair == pair(1, 0)
    };
    assert_eq!(rates(&machine, both), [(1, 0, 21.0)]);
    assert_eq!(measured.local[0].achieved_gbps.unwrap().0, 300.0);
    let latency = measured.latency.iter().find(|cell| cell.pair == pair(1, 2)).unwrap();
    assert_eq!((latency.latency_us, latency.bytes.0), (Some(2.7), 16));
    assert_eq!(measured.latency.len(), 6);
}

#[test]
fn the_first_row_of_p2p_bandwidth_is_left_out_where_it_is_cold() {
    let real = include_str!("../../../tests/data/pasted/h200x8/p2pBandwidthLatencyTest.txt");
    let machine = of(real);
    let direct = rates(&machine, reference);
    assert_eq!(direct.len(), 49);
    assert!(direct.iter().all(|(source, _, rate)| *source != 0 && *rate > 390.0));
    assert!(machine.pasted.remarks.iter().any(|remark| remark.contains("no warm-up")));
    // A first row that is lower by far is a figure.
    let slow: String = real
        .lines()
        .map(|line| match line.starts_with("     0 3969.83") {
            true => "     0 3969.83 130.00 130.00 130.00 130.00 130.00 130.00 130.00\n".to_owned(),
            false => format!("{line}\n"),
        })
        .collect();
    assert_eq!(rates(&of(&slow), reference).len(), 56);
}

#[test]
fn wrong_values_that_nvbandwidth_found_are_named() {
    let text = NVBANDWIDTH.split("Running").next().unwrap().to_owned()
        + "Running device_to_device_memcpy_read_ce.\n Invalid value when checking the pattern at 0x7000\n Current offset : 64 \n";
    let machine = of(&text);
    let remarks = machine.pasted.remarks.join("\n");
    assert!(remarks.contains("wrong values after device_to_device_memcpy_read_ce"), "{remarks}");
    assert_eq!(machine.snapshot.gpus.len(), 2);
}

#[test]
fn samples_of_cuda_have_units_and_verified_bytes() {
    let machine = of(SIMPLE_P2P);
    let measured = machine.measurements.as_ref().unwrap();
    assert_eq!(measured.driver.said_of(pair(1, 0)).unwrap().possible, Some(false));
    let copied = measured.peer.iter().find(|cell| cell.pair == pair(0, 1)).unwrap();
    assert_eq!((copied.achieved_gbps.unwrap().0, copied.verified), (12.5, Verified::Corrupt));
    let machine = of(BANDWIDTH_TEST);
    let host = &machine.measurements.as_ref().unwrap().host;
    assert!((host[0].achieved_gbps.unwrap().0 - 12.582_912).abs() < 1e-6);
    assert_eq!((host[1].achieved_gbps.unwrap().0, host[1].direction), (6.5, HostDirection::ToHost));
    let machine = of(DCGM);
    let [fault] = &machine.pasted.faults[..] else {
        panic!("{:?}", machine.pasted.faults);
    };
    assert!(fault.text.contains("PCIe: fail on GPU 3: bandwidth below the minimum"));
}
