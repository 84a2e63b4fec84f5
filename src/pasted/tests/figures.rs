//! Figures of the tools that measure.

use super::*;

#[test]
fn reads_and_writes_of_nvbandwidth_have_their_direction_by_the_name_of_the_test() {
    let machine = of(NVBANDWIDTH);
    assert_eq!(rates(&machine, reference), [(0, 1, 21.01), (1, 0, 21.1)]);
    assert_eq!(machine.snapshot.gpus[1].pci, Reading::Known("0000:5e:00.0".parse().unwrap()));
    let peer = &machine.measurements.as_ref().unwrap().peer;
    assert!(peer.iter().all(|cell| cell.verified == Verified::Ok));
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
fn the_first_row_of_p2p_bandwidth_is_read_though_it_is_cold() {
    let real = include_str!("../../../tests/data/pasted/h200x8/p2pBandwidthLatencyTest.txt");
    let machine = of(real);
    let direct = rates(&machine, reference);
    assert_eq!(direct.len(), 56);
    assert!(direct.iter().all(|(source, _, rate)| *source == 0 || *rate > 390.0));
}

#[test]
fn simple_p2p_without_its_head_names_the_gpus_of_wrong_values() {
    let run = "Run kernel on GPU1, taking source data from GPU0 and writing to GPU1...\n";
    let wrong = "Verification error @ element 0: val = nan, ref = 0.0\nVerification error @ element 1: val = nan, ref = 4.0\n";
    let machine = of(&format!("{run}Copy data back\n{wrong}Shutting down...\nTest failed!\n"));
    let peer = &machine.measurements.unwrap().peer;
    assert_eq!(peer.len(), 2);
    for cell in peer {
        assert_eq!((cell.verified, cell.achieved_gbps), (Verified::Corrupt, None));
    }
    assert_eq!(machine.snapshot.problems.len(), 0);
    let faults = of(wrong).pasted.faults;
    assert_eq!((faults.len(), faults[0].kind), (1, PastedFaultKind::WrongValues));
    // A run that was right, and one that was cut.
    for rest in ["Test passed\n", ""] {
        assert!(read(&[input("x", &format!("{run}{rest}"))]).is_err());
    }
}

#[test]
fn a_table_of_small_sizes_shows_no_bandwidth() {
    let remarks =
        of("    1024  256  float  sum  -1  44  192.51  336.89  0  44  192.50  336.88  0\n");
    assert!(
        remarks.pasted.remarks[0].contains("latency, not bandwidth"),
        "{:?}",
        remarks.pasted.remarks
    );
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
}

#[test]
fn rates_without_their_title_are_those_that_the_next_title_leaves() {
    let whole = of(P2P_BANDWIDTH);
    let is_both = |cell: &PeerBandwidth| cell.setup.direction == Direction::BothWays;
    let start = P2P_BANDWIDTH.find("Bidirectional").unwrap();
    let tail =
        P2P_BANDWIDTH[start..].replace("P2P=Enabled Latency (P2P Writes)", "P2P=Disabled Latency");
    // The title is missing, or the first rows are too.
    for (lines, rows) in [(1, 0), (3, 1)] {
        let tail: String = tail.lines().skip(lines).map(|line| format!("{line}\n")).collect();
        let machine = of(&tail);
        let known = rates(&whole, is_both).into_iter().filter(|(from, ..)| *from >= rows);
        let wanted: Vec<_> = known.collect();
        assert_eq!(rates(&machine, is_both), wanted);
        assert!(machine.pasted.remarks.join("\n").contains("(inferred)"));
    }
}

#[test]
fn several_runs_on_one_gpu_each_are_several_gpus() {
    let run = |gpu: u32, rate: &str| {
        let text = BANDWIDTH_TEST.replace("6.5", rate);
        format!("$ CUDA_VISIBLE_DEVICES={gpu} ./bandwidthTest\n{text}\n")
    };
    let machine = of(&(run(0, "26.2") + &run(1, "6.6")));
    assert_eq!(machine.snapshot.gpus.len(), 2);
    let host = machine.measurements.unwrap().host;
    let back = host.iter().filter(|cell| cell.direction == HostDirection::ToHost);
    let back: Vec<_> = back.map(|cell| (cell.gpu, cell.achieved_gbps.unwrap().0)).collect();
    assert_eq!(back, [(0, 26.2), (1, 6.6)]);
    // Without the commands, nobody can tell.
    let remarks = of_all(&[BANDWIDTH_TEST, BANDWIDTH_TEST]).pasted.remarks.join("\n");
    assert!(remarks.contains("perhaps on another GPU"), "{remarks}");
}

#[test]
fn rows_of_nccl_tests_show_a_fall_whatever_is_in_front() {
    let row = |bytes: u64, time: f64| {
        let own = bytes as f64 / time / 1000.0;
        let half = format!("{time} {own:.2} {:.2} 0", own * 1.75);
        format!("[3] {bytes} {} float sum -1[3] {half}[3] {half}\n", bytes / 4)
    };
    let rows = row(1 << 20, 100.0) + &row(1 << 21, 150.0);
    let (even, fall) =
        (rows.clone() + &row(1 << 22, 250.0), rows + &row(1 << 22, 2e3) + &row(1 << 23, 4e3));
    assert_eq!(of(&even).pasted.faults, []);
    let fell = &of(&fall).pasted.faults[0].said.text;
    assert!(fell.starts_with("a bus bandwidth of 24.47 GB/s with 2 MiB"), "{fell}");
    let remarks = of(&even).pasted.remarks.join("\n");
    assert!(remarks.contains("over about 8 GPUs (inferred"), "{remarks}");
}
