//! PCI functions, the log of the kernel and that of NCCL.

use super::*;

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
    assert_eq!((&gpu.slot, &gpu.iommu_group), (&Reading::Known("4".into()), &Reading::Known(17)));
    assert_eq!(machine.snapshot.gpus.len(), 1);
    // Without its bridges, the device is not on a root bus.
    let alone: String = LSPCI.lines().skip(11).map(|line| format!("{line}\n")).collect();
    let machine = of(&alone);
    assert_eq!(machine.snapshot.pci, []);
    assert_eq!(width(&machine.snapshot.gpus[0]), Some(8));
}

#[test]
fn lspci_of_a_machine_without_names_of_devices_is_read_by_numbers() {
    let address: model::units::PciAddress = "0000:00:06.0".parse().unwrap();
    let real = [
        include_str!("../../../tests/data/pasted/h200x1/lspci-vvv.txt"),
        include_str!("../../../tests/data/pasted/h200x1/lspci-nn.txt"),
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
        (gpu.width.get(), gpu.generation.get().map(Generation::number)),
        (Some(Lanes::X16), Some(5))
    );
    assert_eq!(
        (gpu.max_payload_bytes.get(), gpu.max_read_request_bytes.get()),
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
    let cut: String = table.lines().take(8).map(|line| format!("{line}\n")).collect();
    assert_eq!(of_all(&[&cut, &bus]).snapshot.unlisted_gpus, []);
}

#[test]
fn the_kernels_log_has_messages_of_the_driver_errors_and_the_iommu() {
    let machine = of_all(&[KERNEL, LSPCI]);
    let host = &machine.snapshot.host;
    assert_eq!(host.kernel_version, Reading::Known("6.8.0-45-generic".into()));
    assert_eq!(host.kernel_module_version, Reading::Known("580.65.06".into()));
    assert_eq!(
        host.iommu_parameters,
        Reading::Known(vec!["intel_iommu=on".into(), "iommu=pt".into()])
    );
    assert_eq!(host.iommu_translating, Reading::Known(true));
    let xids = host.xids.known().unwrap();
    let found: Vec<_> =
        xids.iter().map(|xid| (xid.pci.to_string(), xid.code, xid.seconds_since_boot)).collect();
    assert!(found.contains(&("0000:3b:00.0".into(), 79, Some(7200))), "{found:?}");
    assert!(found.contains(&("0000:5e:00.0".into(), 74, None)), "{found:?}");
    let gpu = machine.snapshot.pci.iter().find(|function| function.address.bus == 0x3b).unwrap();
    assert_eq!(gpu.aer_correctable, Reading::Known(1));
    assert!(found.contains(&("0000:c1:00.0".into(), 22013, Some(7300))), "{found:?}");
    assert!(machine.snapshot.gpus.iter().all(|gpu| gpu.pci.get() != "0000:c1:00.0".parse().ok()));
    assert!(!machine.pasted.missing.iter().any(|part| part.command == "dmesg"));
    // The same log twice, as a bug report has it, counts once.
    let twice = of(&format!("{KERNEL}\n{KERNEL}"));
    let of_79 =
        twice.snapshot.host.xids.known().unwrap().iter().find(|xid| xid.code == 79).unwrap();
    assert_eq!(of_79.times, 1);
}

#[test]
fn nccl_names_gpus_ways_variables_and_warnings() {
    let machine = of(NCCL);
    assert_eq!(machine.snapshot.gpus.len(), 2);
    assert_eq!(machine.snapshot.gpus[1].pci, Reading::Known("0000:5e:00.0".parse().unwrap()));
    assert_eq!(
        machine.snapshot.host.nccl_variables,
        Reading::Known(vec!["NCCL_P2P_LEVEL=NVL".into()])
    );
    let remarks = machine.pasted.remarks.join("\n");
    assert!(
        remarks.contains("GPU 0→1, 1→0 by SHM/direct/direct (through host memory)"),
        "{remarks}"
    );
    let explained = &machine.pasted.explained[0];
    let text = &explained.lines[0].text;
    assert!(text.contains("nvls.cc:244 NCCL WARN Cuda failure 1"), "{text}");
    assert!(explained.meaning.contains("NVLS"));
    let refused =
        of("n:1:2 [2] NCCL INFO P2P is disabled between connected GPUs 2 and 1. You can repress\n");
    let said = refused.snapshot.pair(pair(1, 2)).map(|said| said.p2p_read.clone());
    assert_eq!(said, Some(Reading::Known(P2pStatus::NotSupported)));
    let tests = of(NCCL_TESTS);
    let remarks = tests.pasted.remarks.join("\n");
    assert!(remarks.contains("12.2 GB/s with 128 MiB over 2 GPUs"), "{remarks}");
    let faults = &tests.pasted.faults;
    assert!(
        matches!(&faults[..], [fault] if fault.kind == PastedFaultKind::WrongValues),
        "{faults:?}"
    );
}

#[test]
fn addresses_in_a_log_of_nccl_are_no_further_gpus() {
    let nccl = "n:1:1 [2] NCCL INFO comm 0xa rank 2 nranks 4 cudaDev 2 busId 91000 - Destroy COMPLETE\n\
        n:1:1 [3] NCCL INFO comm 0xa rank 3 nranks 4 cudaDev 3 busId c4000 - Destroy COMPLETE\n";
    let machine = of_all(&[nccl, TOPO]);
    assert_eq!(machine.snapshot.gpus.len(), 4);
    let remarks = machine.pasted.remarks.join("\n");
    assert!(remarks.contains("2 addresses of GPUs were left out"), "{remarks}");
    assert_eq!(of(nccl).snapshot.gpus.len(), 2);
    // Another output says more of a GPU: it is kept.
    let machine =
        of_all(&[nccl, TOPO, "pci.bus_id, pcie.link.width.current\n00000000:91:00.0, 4\n"]);
    assert_eq!(machine.snapshot.gpus.len(), 5);
    assert_eq!(width(&machine.snapshot.gpus[4]), Some(4));
}

#[test]
fn lines_of_links_are_read_wherever_they_stand() {
    let lines = "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16\n\t\tLnkSta:\tSpeed 16GT/s, Width x4 (downgraded)\n";
    let title = "65:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)\n";
    for between in ["", "--\n", "\n", "[...]\n"] {
        let machine = of(&format!("{title}{between}{lines}"));
        let gpu = &machine.snapshot.gpus[0];
        assert_eq!(
            (width(gpu), gpu.pcie_width_max.get()),
            (Some(4), Some(Lanes::X16)),
            "{between}"
        );
        assert_eq!(gpu.name, Reading::Known("NVIDIA A100 PCIe 80GB".into()));
    }
    let problems = |text: &str| odd(&of(text));
    assert!(
        problems(lines)
            .contains("less than all 16 lanes of the PCIe link of a device that is not named")
    );
    let state = lines.lines().next_back().unwrap();
    assert!(problems(&format!("{title}{state}\n")).contains("fewer lanes"));
    assert!(
        problems(&format!("$ lspci -vv -s 65:00.0 | grep Lnk\n{lines}"))
            .contains("link of 65:00.0")
    );
    assert_eq!(problems(&lines.replace("x4 (downgraded)", "x16")), "");
}

#[test]
fn a_file_that_nobody_reads_is_named_first() {
    let machine = of_all(&["dear all\n", TOPO]);
    let first = &machine.snapshot.problems[0];
    assert_eq!(first, "no output of a tool that is read in a.txt; the first begins \"dear all\"");
}

#[test]
fn a_bus_bandwidth_that_falls_is_told_with_its_sizes() {
    let row = |bytes: u64, rate: f64| {
        format!(" {bytes} {} float sum -1 90.0 1.0 {rate:.2} 0 90.0 1.0 {rate:.2} 0\n", bytes / 4)
    };
    let head = "# nThread 1 nGpus 2 minBytes 1048576 maxBytes 8388608\n";
    let of_rates = |rates: [f64; 4]| {
        let rows = rates.iter().zip(20..).map(|(rate, power)| row(1 << power, *rate));
        of(&format!("{head}{}", rows.collect::<String>())).pasted.faults
    };
    let fell = of_rates([8.0, 20.0, 5.0, 6.0]);
    assert_eq!(fell[0].kind, PastedFaultKind::RateFalls);
    assert_eq!(
        fell[0].said.text,
        "a bus bandwidth of 20 GB/s with 2 MiB, and 5 GB/s from 4 MiB on"
    );
    assert_eq!(of_rates([8.0, 20.0, 5.0, 19.0]), [], "one slow size");
    assert_eq!(of_rates([8.0, 20.0, 19.0, 21.0]), []);
}

#[test]
fn functions_without_names_are_gpus_and_switches() {
    let machine = of("1b:00.0 3D controller: NVIDIA Corporation Device 20b2 (rev a1)\n\
        27:00.0 Bridge: NVIDIA Corporation Device 1af1 (rev a1)\n\
        28:00.0 Bridge [0680]: NVIDIA Corporation Device [10de:22a3] (rev a1)\n");
    let ids: Vec<_> = machine.snapshot.nvswitches.iter().map(|one| one.device_id.get()).collect();
    assert_eq!(ids, [Some(0x1af1), Some(0x22a3)]);
    assert_eq!(machine.snapshot.gpus.len(), 1);
}

#[test]
fn the_command_names_a_device_whose_own_line_is_missing() {
    let machine = of("# lspci -vvv -s 0000:01:00.0 (GPU function)\n\
        \t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16\n\t\tLnkCtl:\tASPM\n\
        \t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16\n");
    let gpu = &machine.snapshot.gpus[0];
    assert_eq!((gpu.pci.get(), width(gpu)), ("0000:01:00.0".parse().ok(), Some(16)));
    assert!(!machine.pasted.remarks.join("").contains('\t'));
}
