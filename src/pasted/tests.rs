use super::samples::*;
use super::*;
use model::flow::Setup;
use model::host::HostDirection;
use model::measurement::{PeerBandwidth, Verified};
use model::placement::{Direction, Engine, Pair, Path, Side};
use model::reading::Reading;
use model::snapshot::{
    BoundDriver, CommonAncestor, FabricState, Gpu, NvLinkRemote, P2pStatus, PciKind,
};
use model::units::{Generation, Lanes};

fn input(name: &str, text: &str) -> Input {
    Input {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

fn of(text: &str) -> Machine {
    read(&[input("in.txt", text)], None).unwrap()
}

fn of_all(texts: &[&str]) -> Machine {
    let names = ["a.txt", "b.txt", "c.txt", "d.txt"];
    let inputs: Vec<Input> = texts
        .iter()
        .zip(names)
        .map(|(text, name)| input(name, text))
        .collect();
    read(&inputs, None).unwrap()
}

fn pair(source: u32, destination: u32) -> Pair {
    Pair {
        source,
        destination,
    }
}

fn generation(gpu: &Gpu) -> Option<u8> {
    gpu.pcie_generation.get().map(Generation::number)
}

fn width(gpu: &Gpu) -> Option<u8> {
    gpu.pcie_width.get().map(Lanes::number)
}

fn rates(machine: &Machine, with: impl Fn(&PeerBandwidth) -> bool) -> Vec<(u32, u32, f64)> {
    let peer = &machine.measurements.as_ref().unwrap().peer;
    let cells = peer.iter().filter(|cell| with(cell));
    cells
        .map(|cell| {
            (
                cell.pair.source,
                cell.pair.destination,
                cell.achieved_gbps.unwrap().0,
            )
        })
        .collect()
}

fn reference(cell: &PeerBandwidth) -> bool {
    cell.setup.with_bytes(Setup::REFERENCE.bytes) == Setup::REFERENCE
}

#[test]
fn every_sample_is_recognised_by_what_it_says() {
    for (kind, text) in ALL {
        let machine = of(text);
        let kinds: Vec<&str> = machine.pasted.inputs[0]
            .sections
            .iter()
            .map(|section| section.kind.as_str())
            .collect();
        assert!(kinds.contains(kind), "{kind}: {kinds:?}");
        let forced = read(&[input("x", text)], Some(kind));
        assert!(forced.is_ok(), "--as {kind}: {forced:?}");
    }
    assert!(
        read(&[input("x", "nothing\n")], None)
            .unwrap_err()
            .starts_with("has no output")
    );
    assert!(
        read(&[input("x", TOPO)], Some("topo"))
            .unwrap_err()
            .contains("is no kind")
    );
}

#[test]
fn a_topology_has_classes_nvlinks_and_nodes() {
    let machine = of(TOPO);
    let snapshot = &machine.snapshot;
    assert_eq!(snapshot.gpus.len(), 4);
    let ancestor = |one, other| {
        snapshot
            .pair(pair(one, other))
            .unwrap()
            .common_ancestor
            .get()
    };
    assert_eq!(ancestor(0, 2), Some(CommonAncestor::System));
    assert_eq!(ancestor(0, 1), None);
    let bonds: Vec<_> = snapshot
        .bonds
        .iter()
        .map(|bond| (bond.source, bond.destination, bond.links))
        .collect();
    assert_eq!(bonds, [(0, 1, 4), (1, 0, 4), (2, 3, 4), (3, 2, 4)]);
    assert_eq!(snapshot.gpus[3].numa_node, Reading::Known(1));
    let origin = machine
        .pasted
        .origins
        .iter()
        .find(|origin| origin.of == "bonds[2→3].links");
    assert_eq!(
        origin.map(|origin| (origin.line, origin.input.as_str())),
        Some((4, "in.txt"))
    );
    assert!(machine.measurements.is_none());
}

#[test]
fn more_nvlinks_than_a_gpu_has_lead_to_switches() {
    let row = |own: usize| {
        let cells = (0..8).map(|other| if own == other { "X" } else { "NV18" });
        format!("GPU{own} {}\n", cells.collect::<Vec<_>>().join(" "))
    };
    let header: Vec<_> = (0..8).map(|gpu| format!("GPU{gpu}")).collect();
    let text = format!(
        "{}\n{}",
        header.join(" "),
        (0..8).map(row).collect::<String>()
    );
    let machine = of(&text);
    assert_eq!(machine.snapshot.bonds, []);
    let links = machine.snapshot.gpus[5].nvlinks.known().unwrap();
    assert_eq!(links.len(), 18);
    assert!(
        links
            .iter()
            .all(|link| link.remote.get() == Some(NvLinkRemote::Switch))
    );
}

#[test]
fn access_is_read_by_the_command_above_it() {
    let machine = of(P2P);
    let said = machine.snapshot.pair(pair(1, 0)).unwrap();
    assert_eq!(
        said.p2p_read,
        Reading::Known(P2pStatus::ChipsetNotSupported)
    );
    assert_eq!(said.p2p_write, Reading::Known(P2pStatus::Ok));
    // Without its command, a matrix does not say what it shows.
    let bare: String = P2P
        .lines()
        .skip(1)
        .take(3)
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(read(&[input("x", &bare)], None).is_err());
    let forced = read(&[input("x", &bare)], Some("smi-p2p-atomics")).unwrap();
    assert_eq!(
        forced.snapshot.pair(pair(0, 1)).unwrap().p2p_atomics,
        Reading::Known(P2pStatus::Ok)
    );
}

#[test]
fn links_have_states_rates_and_errors() {
    let machine = of(NVLINK);
    let gpu = &machine.snapshot.gpus[0];
    let links = gpu.nvlinks.known().unwrap();
    assert_eq!(links[0].active, Reading::Known(true));
    assert_eq!(links[0].speed_mbps, Reading::Known(25_000));
    assert_eq!(links[0].version, Reading::Known("3.0".into()));
    let errors = (
        &links[0].crc_errors,
        &links[0].replay_errors,
        &links[0].recovery_errors,
    );
    assert_eq!(
        errors,
        (&Reading::Known(12), &Reading::Known(7), &Reading::Known(1))
    );
    assert_eq!(links[1].active, Reading::Known(false));
    assert!(links[1].speed_mbps.known().is_none());
    assert_eq!(
        gpu.uuid,
        Reading::Known("GPU-a1b2c3d4-0000-0000-0000-000000000001".into())
    );
}

#[test]
fn the_other_ends_of_links_are_gpus_or_switches() {
    // The table has the addresses of two GPUs.
    let machine = of_all(&[NVLINK_REMOTE, TABLE]);
    let links = |gpu: usize| machine.snapshot.gpus[gpu].nvlinks.known().unwrap();
    let ends = |gpu: usize| {
        let ends = links(gpu).iter().map(|link| {
            let address = link.remote_pci.get().map(|address| address.to_string());
            (address.unwrap_or_default(), link.remote.get())
        });
        ends.collect::<Vec<_>>()
    };
    let to = |address: &str, kind| (address.to_owned(), kind);
    let (gpu, switch) = (Some(NvLinkRemote::Gpu), Some(NvLinkRemote::Switch));
    assert_eq!(
        ends(0),
        [
            to("0000:5e:00.0", gpu),
            to("0000:5e:00.0", gpu),
            to("", None)
        ]
    );
    assert_eq!(ends(1)[1], to("0000:3b:00.0", gpu));
    // No GPU has a link 33: that device is a switch, and so it is at its other ports.
    assert_eq!(
        ends(2),
        [
            to("0000:c3:00.0", switch),
            to("0000:c3:00.0", switch),
            to("", None)
        ]
    );
    assert_eq!(links(0)[2].active, Reading::Known(false));
    // That a link leads somewhere does not say that it is up.
    assert!(links(0)[0].active.known().is_none());
    // Without addresses of GPUs, nothing shows what is at the other end.
    let machine = of(NVLINK_REMOTE);
    let first = &machine.snapshot.gpus[0].nvlinks.known().unwrap()[0];
    assert!(first.remote.known().is_none() && first.remote_pci.known().is_some());
}

#[test]
fn capabilities_of_links_show_that_they_are_there() {
    let machine = of(NVLINK_CAPABILITIES);
    let links = machine.snapshot.gpus[0].nvlinks.known().unwrap();
    assert_eq!(links.len(), 2);
    assert!(links.iter().all(|link| link.active.known().is_none()));
    let remarks = machine.pasted.remarks.join("\n");
    assert!(
        remarks.contains("NVLink 1 of GPU 0 does not carry peer copies"),
        "{remarks}"
    );
}

#[test]
fn error_counters_of_newer_drivers_are_read() {
    let machine = of(NVLINK_ERRORS);
    let links = machine.snapshot.gpus[0].nvlinks.known().unwrap();
    let crc: Vec<_> = links.iter().map(|link| link.crc_errors.get()).collect();
    assert_eq!(crc, [Some(88), Some(0), Some(0), Some(0), Some(0), Some(0)]);
    assert!(links[0].replay_errors.known().is_none());
    assert_eq!(links[5].replay_errors, Reading::Known(0));
    let fifth = machine.snapshot.gpus[1].nvlinks.known().unwrap();
    assert_eq!(fifth.len(), 2);
    assert!(fifth[0].recovery_errors.known().is_none());
}

#[test]
fn nvloom_has_sources_in_columns_and_sums_of_both_ways() {
    let machine = of(NVLOOM);
    let bytes = |cell: &PeerBandwidth| cell.setup.bytes.0 == 256 << 20;
    let write = |cell: &PeerBandwidth| reference(cell) && bytes(cell);
    assert_eq!(
        rates(&machine, write),
        [
            (1, 0, 271.1),
            (2, 0, 272.2),
            (0, 1, 270.01),
            (2, 1, 272.21),
            (0, 2, 270.02),
            (1, 2, 271.12)
        ]
    );
    let both = |cell: &PeerBandwidth| {
        cell.setup.direction == Direction::BothWays
            && cell.setup.issuer == Side::Destination
            && cell.setup.engine == Engine::Kernel
    };
    assert_eq!(rates(&machine, both)[0], (1, 0, 250.0));
    // What runs on all GPUs at once is no rate of a pair.
    assert_eq!(rates(&machine, |_| true).len(), 12);
    assert_eq!(
        machine.snapshot.gpus[2].pci,
        Reading::Known("0000:47:00.0".parse().unwrap())
    );
    let kinds: Vec<_> = machine.pasted.inputs[0].sections.iter().collect();
    assert_eq!(
        (kinds.len(), kinds[0].version.as_deref()),
        (1, Some("1.2.0"))
    );
    // On several hosts, the numbers are not of one machine.
    let wide = NVLOOM.replacen("(node1)", "(node0)", 1);
    let machine = of(&wide);
    assert!(machine.measurements.is_none() && machine.snapshot.gpus.is_empty());
    assert!(machine.pasted.remarks[0].contains("on 2 hosts"));
}

#[test]
fn a_list_of_links_that_was_cut_is_no_lack_of_links() {
    let cut: String = NVLINK
        .lines()
        .take(5)
        .map(|line| format!("{line}\n"))
        .collect();
    let machine = of(&cut);
    assert_eq!(machine.snapshot.gpus[0].nvlinks.known().unwrap().len(), 2);
    assert!(machine.snapshot.gpus[1].nvlinks.known().is_none());
    assert!(
        machine
            .pasted
            .remarks
            .iter()
            .any(|remark| remark.contains("it was cut"))
    );
}

#[test]
fn a_query_has_the_facts_of_each_gpu() {
    let machine = of(QUERY);
    let host = &machine.snapshot.host;
    assert_eq!(host.driver_version, Reading::Known("580.65.06".into()));
    assert_eq!(host.virtual_machine, Reading::Known(false));
    let [first, second] = &machine.snapshot.gpus[..] else {
        panic!("{:?}", machine.snapshot.gpus.len());
    };
    assert_eq!(first.pci, Reading::Known("0000:3b:00.0".parse().unwrap()));
    assert_eq!((generation(first), width(first)), (Some(1), Some(8)));
    assert_eq!(first.pcie_width_max, Reading::Known(Lanes::X16));
    assert_eq!(first.pcie_replays, Reading::Known(3));
    assert_eq!(
        first.throttle_reasons,
        Reading::Known(vec!["sw_power_cap".into()])
    );
    let rows = first.remapped_rows.get().unwrap();
    assert_eq!(
        (rows.corrected, rows.uncorrected, rows.pending, rows.failed),
        (1, 2, true, false)
    );
    assert_eq!(first.mig, Reading::Known(false));
    assert_eq!(first.processes.known().unwrap()[0].pid, 4711);
    assert_eq!(first.sm_clock_mhz, Reading::Known(210));
    assert_eq!((generation(second), width(second)), (Some(4), Some(16)));
    assert!(second.mig.known().is_none() && second.ecc.known().is_none());
    assert!(first.serial.known().is_none());
    let origin = machine
        .pasted
        .origins
        .iter()
        .find(|origin| origin.of == "gpus[0].pcie_width");
    assert_eq!(origin.unwrap().line, 31);
    assert_eq!(
        machine.pasted.inputs[0].sections[0].version.as_deref(),
        Some("580.65.06")
    );
}

#[test]
fn text_xml_table_and_csv_of_one_machine_agree() {
    let machine = of_all(&[QUERY, TABLE, CSV]);
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    assert_eq!(machine.snapshot.gpus.len(), 2);
    let xml = of(XML);
    let gpu = &xml.snapshot.gpus[0];
    assert_eq!((generation(gpu), width(gpu)), (Some(1), Some(8)));
    assert_eq!(gpu.mig, Reading::Known(false));
    for (text, what) in [(TABLE, "table"), (CSV, "csv")] {
        let gpus = of(text).snapshot.gpus;
        assert_eq!(gpus.len(), 2, "{what}");
        assert_eq!(gpus[1].name, Reading::Known("NVIDIA A40".into()), "{what}");
        assert_eq!(
            gpus[0].memory_total_bytes,
            Reading::Known(model::units::Bytes(46_068 << 20)),
            "{what}"
        );
    }
    assert_eq!(of(TABLE).snapshot.gpus[0].persistence, Reading::Known(true));
    assert_eq!(width(&of(CSV).snapshot.gpus[0]), Some(8));
}

#[test]
fn outputs_that_contradict_each_other_are_named_with_their_lines() {
    let other = TABLE.replace("580.65.06", "570.10.01");
    let machine = of_all(&[QUERY, &other]);
    let all = machine.pasted.contradictions.join("\n");
    assert!(
        all.contains(
            "host.driver_version is 580.65.06 (line 4 of a.txt) and 570.10.01 (line 2 of b.txt)"
        ),
        "{all}"
    );
    // A link at rest lowers its generation: that is no contradiction, and the higher one counts.
    let busy = QUERY.replace(
        "Current                   : 1\n",
        "Current                   : 4\n",
    );
    let machine = of_all(&[QUERY, &busy]);
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    assert_eq!(generation(&machine.snapshot.gpus[0]), Some(4));
}

#[test]
fn reads_and_writes_of_nvbandwidth_have_their_direction_by_the_name_of_the_test() {
    for text in [NVBANDWIDTH, NVBANDWIDTH_JSON] {
        let machine = of(text);
        assert_eq!(rates(&machine, reference), [(0, 1, 21.01), (1, 0, 21.1)]);
        assert_eq!(
            machine.snapshot.gpus[1].pci,
            Reading::Known("0000:5e:00.0".parse().unwrap())
        );
        assert!(
            machine
                .measurements
                .unwrap()
                .peer
                .iter()
                .all(|cell| cell.verified == Verified::Ok)
        );
    }
    let machine = of(NVBANDWIDTH);
    assert_eq!(
        machine.snapshot.host.cuda_version,
        Reading::Known("12.8".into())
    );
    let read = |cell: &PeerBandwidth| cell.setup.issuer == Side::Destination;
    assert_eq!(rates(&machine, read), [(1, 0, 20.01), (0, 1, 20.1)]);
    // The total of both directions is halved; which direction the other two matrices have depends on the version.
    let both = |cell: &PeerBandwidth| cell.setup.direction == Direction::BothWays;
    assert_eq!(rates(&machine, both), [(0, 1, 16.5), (1, 0, 16.5)]);
    let host = &machine.measurements.as_ref().unwrap().host;
    assert_eq!((host.len(), host[1].achieved_gbps.unwrap().0), (2, 25.9));
    assert_eq!(
        (host[0].direction, host[0].engine),
        (HostDirection::ToDevice, Engine::Copy)
    );
}

#[test]
fn p2p_bandwidth_knows_access_sums_and_units() {
    let machine = of(P2P_BANDWIDTH);
    let measured = machine.measurements.as_ref().unwrap();
    assert_eq!(
        measured.driver.said_of(pair(0, 2)).unwrap().possible,
        Some(false)
    );
    assert_eq!(
        measured.driver.said_of(pair(2, 1)).unwrap().possible,
        Some(true)
    );
    let direct = rates(&machine, reference);
    assert_eq!(
        direct,
        [(0, 1, 20.5), (1, 0, 20.7), (1, 2, 20.8), (2, 1, 20.1)]
    );
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
    let latency = measured
        .latency
        .iter()
        .find(|cell| cell.pair == pair(1, 2))
        .unwrap();
    assert_eq!((latency.latency_us, latency.bytes.0), (Some(2.7), 16));
    assert_eq!(measured.latency.len(), 6);
}

#[test]
fn the_first_row_of_p2p_bandwidth_is_left_out_where_it_is_cold() {
    let real = include_str!("../../tests/data/pasted/h200x8/p2pBandwidthLatencyTest.txt");
    let machine = of(real);
    let direct = rates(&machine, reference);
    assert_eq!(direct.len(), 49);
    assert!(
        direct
            .iter()
            .all(|(source, _, rate)| *source != 0 && *rate > 390.0)
    );
    assert!(
        machine
            .pasted
            .remarks
            .iter()
            .any(|remark| remark.contains("no warm-up"))
    );
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
fn pci_functions_form_the_way_to_the_root() {
    let machine = of(LSPCI);
    let [port, gpu] = &machine.snapshot.pci[..] else {
        panic!("{:?}", machine.snapshot.pci);
    };
    assert_eq!(
        (port.kind, port.parent, port.host_bridge.as_str()),
        (PciKind::RootPort, None, "pci0000:3a")
    );
    assert_eq!(gpu.parent, Some(port.address));
    assert_eq!(port.acs_redirect, Reading::Known(true));
    assert_eq!(port.max_payload_possible_bytes, Reading::Known(512));
    assert_eq!(port.max_payload_bytes, Reading::Known(256));
    assert_eq!(port.generation_max.get().map(Generation::number), Some(5));
    assert_eq!(
        (gpu.width.get().map(Lanes::number), gpu.width_max.clone()),
        (Some(8), Reading::Known(Lanes::X16))
    );
    assert_eq!(
        (&gpu.slot, &gpu.iommu_group),
        (&Reading::Known("4".into()), &Reading::Known(17))
    );
    assert_eq!(machine.snapshot.gpus.len(), 1);
    let tree = of_all(&[TREE, CSV]);
    let way: Vec<String> = tree
        .snapshot
        .pci
        .iter()
        .map(|function| function.address.to_string())
        .collect();
    assert_eq!(way, ["0000:3a:01.0", "0000:3b:00.0"]);
    // Without its bridges, the device is not on a root bus.
    let alone: String = LSPCI
        .lines()
        .skip(11)
        .map(|line| format!("{line}\n"))
        .collect();
    let machine = of(&alone);
    assert_eq!(machine.snapshot.pci, []);
    assert_eq!(width(&machine.snapshot.gpus[0]), Some(8));
}

#[test]
fn lspci_of_a_machine_without_names_of_devices_is_read_by_numbers() {
    let address: model::units::PciAddress = "0000:00:06.0".parse().unwrap();
    let real = [
        include_str!("../../tests/data/pasted/h200x1/lspci-vvv.txt"),
        include_str!("../../tests/data/pasted/h200x1/lspci-nn.txt"),
        "00:00.0 0600: 8086:0d57\n00:06.0 0302: 10de:2335 (rev a1)\n",
    ];
    for text in real {
        let machine = of(text);
        let [gpu] = &machine.snapshot.gpus[..] else {
            panic!("{:?} in {text}", machine.snapshot.gpus);
        };
        assert_eq!(gpu.pci, Reading::Known(address));
        let [function] = &machine.snapshot.pci[..] else {
            panic!("{:?}", machine.snapshot.pci);
        };
        assert_eq!(
            (function.vendor.get(), function.device_id.get()),
            (Some(0x10de), Some(0x2335)),
            "{text}"
        );
    }
    let machine = of(real[0]);
    let gpu = &machine.snapshot.pci[0];
    assert_eq!(
        (
            gpu.width.get(),
            gpu.generation.get().map(Generation::number)
        ),
        (Some(Lanes::X16), Some(5))
    );
    assert_eq!(
        (
            gpu.max_payload_bytes.get(),
            gpu.max_read_request_bytes.get()
        ),
        (Some(256), Some(4096))
    );
}

#[test]
fn a_gpu_on_the_bus_that_nvml_does_not_list_is_named() {
    let table: String = TABLE
        .lines()
        .filter(|line| !line.contains("|   1 ") && !line.contains("35C"))
        .map(|line| format!("{line}\n"))
        .collect();
    let bus = LSPCI.to_owned()
        + &LSPCI
            .lines()
            .skip(11)
            .map(|line| line.replace("3b:00.0", "3b:01.0") + "\n")
            .collect::<String>();
    let machine = of_all(&[&table, &bus]);
    let unlisted = &machine.snapshot.unlisted_gpus;
    assert_eq!(unlisted.len(), 1);
    assert_eq!(unlisted[0].address.to_string(), "0000:3b:01.0");
    assert_eq!(unlisted[0].driver, Reading::Known(BoundDriver::Nvidia));
    // A list that may be cut shows no lack.
    let cut: String = table
        .lines()
        .take(8)
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(of_all(&[&cut, &bus]).snapshot.unlisted_gpus, []);
}

#[test]
fn the_kernels_log_has_messages_of_the_driver_errors_and_the_iommu() {
    let machine = of_all(&[KERNEL, LSPCI]);
    let host = &machine.snapshot.host;
    assert_eq!(
        host.kernel_version,
        Reading::Known("6.8.0-45-generic".into())
    );
    assert_eq!(
        host.kernel_module_version,
        Reading::Known("580.65.06".into())
    );
    assert_eq!(
        host.iommu_parameters,
        Reading::Known(vec!["intel_iommu=on".into(), "iommu=pt".into()])
    );
    assert_eq!(host.iommu_translating, Reading::Known(true));
    let xids = host.xids.known().unwrap();
    let found: Vec<_> = xids
        .iter()
        .map(|xid| (xid.pci.to_string(), xid.code, xid.seconds_since_boot))
        .collect();
    assert!(
        found.contains(&("0000:3b:00.0".into(), 79, Some(7200))),
        "{found:?}"
    );
    assert!(
        found.contains(&("0000:5e:00.0".into(), 74, None)),
        "{found:?}"
    );
    let gpu = machine
        .snapshot
        .pci
        .iter()
        .find(|function| function.address.bus == 0x3b)
        .unwrap();
    assert_eq!(gpu.aer_correctable, Reading::Known(1));
    assert!(
        machine
            .pasted
            .remarks
            .iter()
            .any(|remark| remark.contains("SXid 22013"))
    );
    assert!(
        !machine
            .pasted
            .missing
            .iter()
            .any(|part| part.command == "dmesg")
    );
    // The same log twice, as a bug report has it, counts once.
    let twice = of(&format!("{KERNEL}\n{KERNEL}"));
    let of_79 = twice
        .snapshot
        .host
        .xids
        .known()
        .unwrap()
        .iter()
        .find(|xid| xid.code == 79)
        .unwrap();
    assert_eq!(of_79.times, 1);
}

#[test]
fn nccl_names_gpus_ways_variables_and_warnings() {
    let machine = of(NCCL);
    assert_eq!(machine.snapshot.gpus.len(), 2);
    assert_eq!(
        machine.snapshot.gpus[1].pci,
        Reading::Known("0000:5e:00.0".parse().unwrap())
    );
    assert_eq!(
        machine.snapshot.host.nccl_variables,
        Reading::Known(vec!["NCCL_P2P_LEVEL=NVL".into()])
    );
    let remarks = machine.pasted.remarks.join("\n");
    assert!(
        remarks.contains("2 x SHM/direct") && remarks.contains("NCCL warns: Cuda failure 1"),
        "{remarks}"
    );
    let tests = of(NCCL_TESTS);
    let remarks = tests.pasted.remarks.join("\n");
    assert!(
        remarks.contains("12.2 GB/s with 128 MiB over 2 GPUs") && remarks.contains("wrong values"),
        "{remarks}"
    );
    let xml = of(NCCL_XML);
    let gpu = &xml.snapshot.gpus[0];
    assert_eq!(gpu.nvlinks.known().unwrap().len(), 9);
    assert!(
        gpu.nvlinks
            .known()
            .unwrap()
            .iter()
            .all(|link| link.remote.get() == Some(NvLinkRemote::Switch))
    );
    assert_eq!(
        (&gpu.numa_node, &gpu.pcie_width_max),
        (&Reading::Known(1), &Reading::Known(Lanes::X16))
    );
}

#[test]
fn addresses_in_a_log_of_nccl_are_no_further_gpus() {
    let nccl = "n:1:1 [2] NCCL INFO comm 0xa rank 2 nranks 4 cudaDev 2 busId 91000 - Destroy COMPLETE\n\
        n:1:1 [3] NCCL INFO comm 0xa rank 3 nranks 4 cudaDev 3 busId c4000 - Destroy COMPLETE\n";
    let machine = of_all(&[nccl, TOPO]);
    assert_eq!(machine.snapshot.gpus.len(), 4);
    let remarks = machine.pasted.remarks.join("\n");
    assert!(
        remarks.contains("2 addresses of GPUs were left out"),
        "{remarks}"
    );
    assert_eq!(of(nccl).snapshot.gpus.len(), 2);
    // Another output says more of a GPU: it is kept.
    let machine = of_all(&[
        nccl,
        TOPO,
        "pci.bus_id, pcie.link.width.current\n00000000:91:00.0, 4\n",
    ]);
    assert_eq!(machine.snapshot.gpus.len(), 5);
    assert_eq!(width(&machine.snapshot.gpus[4]), Some(4));
}

#[test]
fn wrong_values_that_nvbandwidth_found_are_named() {
    let text = NVBANDWIDTH.split("Running").next().unwrap().to_owned()
        + "Running device_to_device_memcpy_read_ce.\n Invalid value when checking the pattern at 0x7000\n Current offset : 64 \n";
    let machine = of(&text);
    let remarks = machine.pasted.remarks.join("\n");
    assert!(
        remarks.contains("wrong values after device_to_device_memcpy_read_ce"),
        "{remarks}"
    );
    assert_eq!(machine.snapshot.gpus.len(), 2);
}

#[test]
fn samples_of_cuda_have_units_and_verified_bytes() {
    let machine = of(SIMPLE_P2P);
    let measured = machine.measurements.as_ref().unwrap();
    assert_eq!(
        measured.driver.said_of(pair(1, 0)).unwrap().possible,
        Some(false)
    );
    let copied = measured
        .peer
        .iter()
        .find(|cell| cell.pair == pair(0, 1))
        .unwrap();
    assert_eq!(
        (copied.achieved_gbps.unwrap().0, copied.verified),
        (12.5, Verified::Corrupt)
    );
    let machine = of(BANDWIDTH_TEST);
    let host = &machine.measurements.as_ref().unwrap().host;
    assert!((host[0].achieved_gbps.unwrap().0 - 12.582_912).abs() < 1e-6);
    assert_eq!(
        (host[1].achieved_gbps.unwrap().0, host[1].direction),
        (6.5, HostDirection::ToHost)
    );
    let machine = of(TRANSFER_BENCH);
    assert_eq!(rates(&machine, |_| true), [(0, 1, 21.5), (1, 0, 21.7)]);
    let machine = of(DCGM);
    assert!(machine.pasted.remarks[0].contains("PCIe: fail on GPU 3: bandwidth below the minimum"));
}

#[test]
fn facts_of_a_fabric_are_read() {
    let text = QUERY.replace(
        "    Compute Mode                          : Default\n",
        "    Compute Mode                          : Default\n    Fabric\n        State                             : In Progress\n",
    );
    let machine = of(&text);
    assert_eq!(
        machine.snapshot.gpus[0].fabric.known().unwrap().state,
        FabricState::InProgress
    );
}

#[test]
fn several_outputs_of_one_paste_are_one_machine() {
    let paste = format!(
        "My node is slow.\n\n$ nvidia-smi -q\n```\n{QUERY}```\nand\n```\n{NVBANDWIDTH}```\n> quoted\n{LSPCI}\nThanks!\n"
    );
    let machine = of(&paste.replace("12080", "13000"));
    let kinds: Vec<&str> = machine.pasted.inputs[0]
        .sections
        .iter()
        .map(|section| section.kind.as_str())
        .collect();
    assert_eq!(kinds, ["smi-query", "nvbandwidth", "lspci"]);
    assert_eq!(machine.snapshot.gpus.len(), 2);
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    assert_eq!(rates(&machine, reference).len(), 2);
}

#[test]
fn the_outputs_of_a_real_machine_read_together_agree() {
    let machine = of_all(&[
        include_str!("../../tests/data/pasted/h200x8/nvidia-smi-topo-m.txt"),
        include_str!("../../tests/data/pasted/h200x8/nvidia-smi-topo-p2p.txt"),
        include_str!("../../tests/data/pasted/h200x8/p2pBandwidthLatencyTest.txt"),
        include_str!("../../tests/data/pasted/h200x8/nvidia-smi-nvlink.txt"),
    ]);
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    let snapshot = &machine.snapshot;
    assert_eq!(snapshot.gpus.len(), 8);
    let words = |pair: Pair| {
        let said = snapshot.pair(pair).unwrap();
        [
            said.p2p_read.get(),
            said.p2p_write.get(),
            said.p2p_nvlink.get(),
            said.p2p_atomics.get(),
            said.p2p_pci.get(),
        ]
    };
    let ok = Some(P2pStatus::Ok);
    assert_eq!(
        words(pair(7, 0)),
        [ok, ok, ok, ok, Some(P2pStatus::NotSupported)]
    );
    assert_eq!(snapshot.gpus[2].active_nvlinks(), Some(18));
    assert_eq!(
        snapshot.gpus[7].pci,
        Reading::Known("0000:00:0d.0".parse().unwrap())
    );
}

#[test]
fn the_outputs_of_one_real_gpu_agree_and_lack_nothing() {
    let part = |name: &str| {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/data/pasted/h200x1/"
        );
        input(
            name,
            &std::fs::read_to_string(format!("{folder}{name}.txt")).unwrap(),
        )
    };
    let names = [
        "nvidia-smi",
        "nvidia-smi-q",
        "nvidia-smi-q-x",
        "nvidia-smi-query-gpu",
        "nvidia-smi-list",
        "nvidia-smi-topo-m",
        "nvidia-smi-topo-p2p",
        "lspci-vvv",
        "lspci-nn",
        "lspci-tv",
        "nvbandwidth",
        "nvbandwidth-json",
        "dmesg",
    ];
    let inputs = names.map(part);
    let machine = read(&inputs, None).unwrap();
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    assert_eq!(machine.pasted.missing, []);
    let [gpu] = &machine.snapshot.gpus[..] else {
        panic!("{:?}", machine.snapshot.gpus.len());
    };
    assert_eq!(gpu.vbios, Reading::Known("96.00.A5.00.1A".into()));
    assert_eq!((generation(gpu), width(gpu)), (Some(5), Some(16)));
    assert_eq!(gpu.numa_node, Reading::Known(0));
    assert!(gpu.uuid.known().is_none());
    assert_eq!(machine.snapshot.host.virtual_machine, Reading::Known(true));
    let measured = machine.measurements.unwrap();
    assert_eq!((measured.host.len(), measured.local.len()), (2, 1));
    // The same in one paste, with the commands above each output.
    let paste: String = inputs
        .iter()
        .map(|input| format!("$ {}\n{}\n", input.name, input.text))
        .collect();
    assert_eq!(of(&paste).snapshot, machine.snapshot);
}
