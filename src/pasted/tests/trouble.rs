//! What a paste states of faults, and what is not understood in it.

use super::*;

/// Returns kind and address of each fault, and the problems as one text, those that are explained as well.
fn stated(text: &str) -> (Vec<(PastedFaultKind, Option<String>)>, String) {
    let machine = of(text);
    let faults = machine.pasted.faults.into_iter();
    let (explained, faults): (Vec<_>, Vec<_>) =
        faults.partition(|fault| fault.kind == PastedFaultKind::Explained);
    let faults = faults.into_iter().map(|fault| (fault.kind, fault.pci.map(|pci| pci.to_string())));
    let explained = explained.iter().map(ToString::to_string);
    let problems: Vec<String> = machine.snapshot.problems.into_iter().chain(explained).collect();
    (faults.collect(), problems.join("\n"))
}

#[test]
fn faults_that_tools_state_are_faults() {
    let lost = "Unable to determine the device handle for GPU0000:18:00.0: GPU is lost.  Reboot the system to recover this GPU";
    let gpu = |address: &str| Some(address.to_owned());
    let of_lost = (PastedFaultKind::Lost, gpu("0000:18:00.0"));
    // Alone, before, and within the output of a tool.
    for text in [
        lost.to_owned(),
        format!("{lost}\n{QUERY}"),
        TABLE.replacen("\n|", &format!("\n{lost}\n|"), 3),
    ] {
        let (faults, problems) = stated(&text);
        assert!(faults.contains(&of_lost), "{text}: {faults:?}");
        assert_eq!(problems, "", "{text}");
    }
    for (text, wanted) in [
        (
            "[   12.0] NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x24:0xffff:1220)\n",
            (PastedFaultKind::NotStarted, gpu("0000:18:00.0")),
        ),
        (
            "[CUDA Bandwidth Test] - Starting...\n Device 0: NVIDIA A40\n\nResult = FAIL\n",
            (PastedFaultKind::TestFailed, None),
        ),
        (NCCL_TESTS, (PastedFaultKind::WrongValues, None)),
    ] {
        assert_eq!(stated(text).0, [wanted], "{text}");
    }
    let out = NCCL_TESTS
        .lines()
        .filter(|line| line.starts_with('#') && !line.contains("Out of"))
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(stated(&out).0, []);
    let out = format!("{out}\n# Out of bounds values : 9 FAILED\n");
    assert_eq!(stated(&out).0, [(PastedFaultKind::WrongValues, None)]);
}

#[test]
fn each_failure_has_its_kind_and_the_gpu_that_it_names() {
    use PastedFaultKind::*;
    let at = |address: &str| Some(address.to_owned());
    for (text, kind, gpu) in [
        ("Failed to initialize NVML: Unknown Error", NoNvml, None),
        ("Failed to initialize NVML: Insufficient Permissions", NoNvml, None),
        ("No devices were found", NoDevices, None),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            NoDriver,
            None,
        ),
        (
            "Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error",
            Lost,
            at("0000:c1:00.0"),
        ),
        ("[ 1.5] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:c1:00.0)", NoWindow, at("0000:c1:00.0")),
        (
            "[ 1.5] NVRM: The NVIDIA probe routine was not called for 2 device(s).",
            OtherDriver,
            None,
        ),
        (
            "[ 1.4] NVRM: The NVIDIA GPU 0000:c1:00.0 (PCI ID: 10de:20b5)\n\
             [ 1.5] NVRM: installed in this system is not supported by the\n\
             [ 1.5] NVRM: NVIDIA 570.1.2 driver release.",
            Unsupported,
            at("0000:c1:00.0"),
        ),
        (
            "[ 1.4] [drm] [nvidia-drm] [GPU ID 0x0000c100] Loading driver\n\
             [ 1.5] NVRM: kfspPollForResponse_IMPL: FSP command timed out",
            NotStarted,
            at("0000:c1:00.0"),
        ),
        (
            "CUDA error at a.cu:1 code=205(cudaErrorMapBufferObjectFailed) \"f()\"",
            PeerMapping,
            None,
        ),
        (
            "n:1:1 [2] NCCL WARN Cuda failure 711 'peer mapping resources exhausted'",
            TooManyPeers,
            None,
        ),
        ("n: Test CUDA failure common.cu:1 'system not yet initialized'", NotReady, None),
        (" Invalid value when checking the pattern at 0x7f00", WrongValues, None),
    ] {
        let (faults, problems) = stated(&format!("{text}\n"));
        assert_eq!(faults, [(kind, gpu)], "{text}");
        assert_eq!(problems, "", "{text}");
    }
}

#[test]
fn a_driver_of_two_versions_is_a_fact_of_the_host() {
    let stamped = "[ 1.5] NVRM: API mismatch: the client 'x' (pid 1)\n[ 1.5] NVRM: has the version 575.1.03, but this kernel module has\n[ 1.5] NVRM: the version 570.2.04.  Please\n";
    for text in [
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 575.1.03\n$ cat v\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  570.2.04  Mon\n",
        stamped,
        "Nov 30 01:00:00 n kernel: NVRM: API mismatch: the client has the version 575.1.03, but#012NVRM: this kernel module has the version 570.2.04.  Please#012NVRM: make sure\n",
        "[ 1.5] NVRM: API mismatch: the client has the version 575.1.03, but\n   NVRM: this kernel module has the version 570.2.04.  Please\n",
    ] {
        let machine = of(text).snapshot;
        assert_eq!(machine.nvml_failure_code, Some(18), "{text}");
        assert_eq!(machine.host.driver_version, Reading::Known("575.1.03".into()), "{text}");
        assert_eq!(machine.host.kernel_module_version, Reading::Known("570.2.04".into()), "{text}");
    }
    // nvidia-smi works: a container has another version, or it is long ago.
    let machine = of(&format!("{stamped}{TABLE}")).snapshot;
    assert_eq!(
        (machine.nvml_failure_code, machine.host.kernel_module_version.known()),
        (None, None)
    );
}

#[test]
fn the_version_of_another_driver_is_none() {
    let log = "[ 1.5] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release\n\
        [ 1.6] usbhid: USB HID driver version 0.4\n[ 1.7] CUDA Driver Version / Runtime Version 12.4 / 12.4\n";
    let host = of(log).snapshot.host;
    assert_eq!(host.kernel_module_version, Reading::Known("580.159.04".into()));
    assert!(host.driver_version.known().is_none(), "{:?}", host.driver_version);
    let host = of(&format!("- Driver Version: 560.35.03\n{TABLE}")).snapshot.host;
    assert!(host.driver_version.known().is_some());
}

#[test]
fn a_lost_gpu_has_the_number_that_the_list_leaves_out() {
    let uuid = |n: u32| format!("GPU-0000000{n}-1111-2222-3333-444444444444");
    let named = |n: u32| format!("GPU {n}: NVIDIA A40 (UUID: {})\n", uuid(n));
    let lost = "Unable to determine the device handle for gpu 0000:47:00.0: GPU is lost.\n";
    let machine = of(&format!("{}{lost}{}", named(0), named(2))).snapshot;
    let silent = &machine.gpus[1];
    assert_eq!((machine.gpus.len(), silent.pci.get()), (3, "0000:47:00.0".parse().ok()));
    assert!(matches!(&silent.power_state, Reading::Unknown(model::reading::Unknown::Failed(_))));
}

#[test]
fn an_error_of_peer_access_is_that_of_the_only_pair() {
    let said = |text: &str| of(text).measurements.unwrap().driver.peer_access;
    let text = "Cuda failure p.cu:1: 'mapping of buffer object failed'\n";
    let pairs = said(&format!("{TABLE}\n{text}"));
    assert!(pairs.iter().all(|said| said.failure_code == Some(205)) && pairs.len() == 2);
    let machine =
        of("n:1:2 [5] NCCL WARN P2P is disabled between NVLINK connected GPUs 5 and 4. This\n");
    let said = machine.snapshot.pair(pair(4, 5)).map(|said| said.p2p_read.clone());
    assert_eq!(said, Some(Reading::Known(P2pStatus::NotSupported)));
    assert!(machine.pasted.faults[0].meaning.is_some());
}

#[test]
fn a_sentence_names_the_model_of_as_many_gpus_as_there_are() {
    let matrix = "GPU0 X NODE\nGPU1 NODE X\n";
    for (text, wanted) in [
        ("- GPU: 2x NVIDIA A100-SXM4-80GB", Some("NVIDIA A100-SXM4-80GB")),
        ("[Bug]: stuck on 2 * L40S", Some("L40S")),
        ("2x RTX 3090, NVLink", Some("RTX 3090")),
        ("GPU 0,1: NVIDIA H100 NVL", Some("NVIDIA H100 NVL")),
        ("GPU 0,1 Compute Capability: 9.0", None),
        ("8x NVIDIA A100-SXM4-80GB", None),
        ("2x Intel Xeon 6430", None),
        ("2x E5-2680", None),
        ("it was 2x slower", None),
    ] {
        let machine = of(&format!("{text}\n{matrix}"));
        let name = machine.snapshot.gpus[1].name.known().map(String::as_str);
        assert_eq!(name, wanted, "{text}");
    }
    // What a tool prints comes first.
    let machine = of(&format!("2x RTX 3090\n{QUERY}"));
    assert_ne!(machine.snapshot.gpus[0].name, Reading::Known("RTX 3090".into()));
}

#[test]
fn a_gpu_that_was_started_after_all_is_no_fault() {
    let log = "[   12.0] NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0xffff:1220)\n";
    let (faults, problems) = stated(&format!("{log}{QUERY}"));
    assert_eq!(faults, []);
    assert!(problems.contains("RmInitAdapter"), "{problems}");
}

#[test]
fn lines_that_tell_of_an_error_or_are_not_understood_are_problems() {
    for text in [
        "[ 1.5] NVRM: Xid (PCI:...): 137, NVLink privilege error on link 4 on GPU2\n",
        "CUDA error at vectorAdd.cu:19 code=999(cudaErrorUnknown)\n",
        "n:1:1 [1] NCCL WARN Cuda failure 2 'out of memory'\n",
    ] {
        let (faults, problems) = stated(text);
        assert_eq!(faults, [], "{text}");
        let words = text.trim().rsplit("NVRM: ").next().unwrap();
        let words = words.rsplit("NCCL WARN ").next().unwrap();
        assert!(problems.contains(words), "{text}: {problems}");
    }
    // However many errors there are, a fault is named.
    let many = format!("{}GPU is lost\n", "Unknown Error\n".repeat(500));
    assert_eq!(stated(&many).0, [(PastedFaultKind::Lost, None)]);
    let machine = of(&format!("{QUERY}\n\nit is slow since\nMonday\n[...]\na link was lost\nb\n"));
    let remarks = machine.pasted.remarks.join("\n");
    let unread = "3 lines of in.txt were not understood, such as \"it is slow since\" (line ";
    assert!(remarks.contains(unread), "{remarks}");
    assert!(remarks.contains("what \"[...]\" stands for was left out"), "{remarks}");
    let problems = machine.snapshot.problems.join("\n");
    assert!(problems.starts_with("a link was lost (line "), "{problems}");
    // What tools print beside their figures is no problem.
    for (kind, text) in ALL {
        let (_, problems) = stated(text);
        let fits = matches!(*kind, "nccl-log" | "simple-p2p");
        assert!(fits || problems.is_empty(), "{kind}: {problems}");
    }
}

#[test]
fn xids_are_read_whatever_is_printed_around_them() {
    let message = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.";
    let journal = |message: &str| {
        format!(
            "{{\"__CURSOR\":\"x\",\"SYSLOG_IDENTIFIER\":\"kernel\",\"__MONOTONIC_TIMESTAMP\":\"12345678901\",\"MESSAGE\":\"{message}\"}}"
        )
    };
    let mut texts = vec![
        format!("`{message}`"),
        format!("[ 12.5] {}", message.replace("NVRM: ", "")),
        message.replace("NVRM: ", ""),
        message.replace("PCI:", ""),
        journal(message),
    ];
    for before in [
        "kernel: ",
        "node1 kernel: ",
        "<4>[ 12345.678901] ",
        "kern  :warn  : [Mon Nov 24 03:00:00 2025] ",
        "kern  :err   : 2025-11-24T03:00:00,123456+00:00 ",
        "2025-11-24T03:00:00,123456+00:00 ",
        "10.0.0.1: kern: warning: [2026-11-24T03:00:00.5Z]: ",
        "6,1234,12345678901,-;",
        "<4>1 2025-11-24T03:00:00.5+00:00 node1 kernel - - - ",
        "gpu-dmesg dmesg 2025-11-24T03:00:00.5Z [ 12345.678901] ",
        "[   12.345678] [   T1234] ",
        "[ 12345.678901][ T1234] ",
        "[   12.345678] ",
    ] {
        texts.push(format!("{before}{message}"));
        // What is said without the driver's mark.
        if !before.contains("dmesg ") && !before.contains("10.0.0.1") && !before.contains("- - -") {
            let fatal = "nvidia 0000:1b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), x";
            let machine = of(&format!("{before}{fatal}\n"));
            assert_eq!(machine.pasted.faults.len(), 1, "{before}");
        }
    }
    for text in texts {
        let machine = of(&format!("{text}\n"));
        let xids = machine.snapshot.host.xids.known().unwrap();
        assert!(matches!(&xids[..], [xid] if xid.code == 79), "{text}: {xids:?}");
        if text.contains("12345.678901") || text.contains("12345678901") {
            assert_eq!(xids[0].seconds_since_boot, Some(12345), "{text}");
        }
    }
}

#[test]
fn memory_errors_and_reasons_of_clocks_are_read_in_each_form() {
    let ecc = "    Ecc Errors\n        Volatile\n            SRAM Correctable : 3\n            SRAM Uncorrectable Parity : 7\n            \
               SRAM Uncorrectable SEC-DED : 1\n            DRAM Uncorrectable : 2\n        Aggregate\n            DRAM Uncorrectable : 90\n";
    let text = QUERY.replacen(
        "    Compute Mode                          : Default\n",
        &format!("    Compute Mode                          : Default\n{ecc}"),
        1,
    );
    let machine = of(&text);
    assert_eq!(machine.snapshot.gpus[0].ecc_uncorrected, Reading::Known(10));
    let older = ecc.replace("SRAM Uncorrectable Parity", "x").replace(
        "            DRAM Uncorrectable : 2\n",
        "            Double Bit\n                Device Memory : 4\n                Total : 4\n",
    );
    let older = older.replace("            SRAM Uncorrectable SEC-DED : 1\n", "");
    let machine = of(&QUERY.replacen(
        "    Compute Mode                          : Default\n",
        &format!("    Compute Mode                          : Default\n{older}"),
        1,
    ));
    assert_eq!(machine.snapshot.gpus[0].ecc_uncorrected, Reading::Known(4));
    let csv = "index, pci.bus_id, ecc.errors.uncorrected.volatile.total, clocks_event_reasons.hw_thermal_slowdown\n\
               0, 00000000:3B:00.0, 5, Active\n";
    let gpu = &of(csv).snapshot.gpus[0];
    assert_eq!(gpu.ecc_uncorrected, Reading::Known(5));
    assert_eq!(gpu.throttle_reasons, Reading::Known(vec!["hw-thermal".into()]));
}

#[test]
fn widths_of_one_link_that_differ_are_a_contradiction() {
    let other = LSPCI.replace("LnkSta:\tSpeed 16GT/s, Width x8", "LnkSta:\tSpeed 16GT/s, Width x4");
    assert_eq!(of_all(&[QUERY, LSPCI]).pasted.contradictions, [""; 0]);
    let found = of_all(&[QUERY, &other]).pasted.contradictions.join("\n");
    assert!(
        found.contains("gpus[0].pcie_width is 8") && found.contains("pci[0000:3b:00.0].width is 4"),
        "{found}"
    );
}

#[test]
fn what_stands_for_a_failed_reading_is_no_value() {
    let table = TABLE.replace("NVIDIA A40 ", "ERR!       ");
    let machine = of(&table);
    let is_silent = |gpu: &Gpu| gpu.name.known().is_none() && gpu.power_state.known().is_none();
    assert!(machine.snapshot.gpus.iter().all(is_silent));
    assert!(machine.pasted.faults.iter().all(|fault| fault.kind == PastedFaultKind::Lost));
    // One reading that failed is none of a lost GPU.
    let machine = of(&TABLE.replacen("34C", "ERR!", 1));
    assert_eq!(machine.pasted.faults, []);
    assert!(machine.snapshot.problems.join("\n").contains("read it again"));
    let query = QUERY.replacen("NVIDIA A40", "GPU is lost", 1);
    let machine = of(&query);
    assert!(machine.snapshot.gpus[0].name.known().is_none());
    assert_eq!(machine.pasted.faults[0].kind, PastedFaultKind::Lost);
}

#[test]
fn a_gpu_of_which_only_pcie_errors_are_known_is_a_gpu() {
    let log = "[ 3999.5] nvidia 0000:98:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer\n";
    let machine = of(log);
    assert_eq!(machine.snapshot.gpus[0].pci, Reading::Known("0000:98:00.0".parse().unwrap()));
    // Its place in the tree is not known.
    assert_eq!(machine.snapshot.pci, []);
    let (faults, _) = stated(log);
    assert_eq!(faults, [(PastedFaultKind::PcieFatal, Some("0000:98:00.0".to_owned()))]);
    // The rule on PCIe errors judges a port.
    let port = of(&log.replace("nvidia", "pcieport"));
    assert_eq!(port.pasted.faults, []);
    assert_eq!(port.snapshot.pci[0].aer_fatal, Reading::Known(1));
    assert_eq!(stated(&log.replace("nvidia", "nvme")).1, "");
}

#[test]
fn states_that_no_sound_gpu_has_are_faults_of_it() {
    let faults = |line: &str| stated(&format!("{QUERY}    {line}\n")).0;
    for (bad, kind) in [
        ("GPU Recovery Action : Node Reboot", PastedFaultKind::NeedsReset),
        ("Unrepairable Memory : Yes", PastedFaultKind::HardwareError),
        ("SRAM Threshold Exceeded : Yes", PastedFaultKind::HardwareError),
        ("Route Unhealthy : True", PastedFaultKind::Fabric),
        ("Incorrect Configuration : Insufficient Nvlinks", PastedFaultKind::Fabric),
    ] {
        let faults = faults(bad);
        assert!(matches!(&faults[..], [(of, Some(_))] if *of == kind), "{bad}: {faults:?}");
    }
    for sound in ["Unrepairable Memory : No", "Route Unhealthy : N/A", "GPU Recovery Action : None"]
    {
        assert_eq!(faults(sound), [], "{sound}");
    }
    let retired = |pages: u32| {
        stated(&format!("{QUERY}    Retired Pages\n        Double Bit ECC : {pages}\n")).0.len()
    };
    assert_eq!([retired(12), retired(70)], [0, 1]);
}

#[test]
fn lines_of_the_kernel_that_tell_of_an_error_are_named() {
    for bad in [
        "nvidia-nvlink: training failed for link 3",
        "pcieport 0000:00:01.0: pciehp: Slot(4): Link Down",
    ] {
        let said = stated(&format!("[  1.5] {bad}\n")).1;
        assert!(said.contains(bad), "{bad}: {said}");
        assert!(!said.contains("not understood"), "{bad}: {said}");
    }
    // States that people took out of their block.
    for (line, is_bad) in [
        ("Unrepairable Memory : Yes", true),
        ("SRAM Threshold Exceeded : Yes", true),
        ("Route Unhealthy : True", true),
        ("Status : Failure", true),
        ("Unrepairable Memory : No", false),
        ("Route Unhealthy : N/A", false),
    ] {
        let said = stated(&format!("{TABLE}\n        {line}\n")).1;
        assert_eq!(said.contains(line), is_bad, "{line}: {said}");
    }
}

#[test]
fn a_start_below_an_event_is_named_and_ends_nothing() {
    let xid = "[ 9.5] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.\n";
    let boot = "[ 0.0] Linux version 5.15.0\n";
    let of = |text: String| {
        let machine = of(&text);
        let remarks = machine.pasted.remarks.join("\n");
        (machine.snapshot.host.xids.known().map(Vec::len), remarks.contains("above a start"))
    };
    assert_eq!(of(format!("{xid}{boot}")), (Some(1), true));
    assert_eq!(of(format!("{boot}{xid}")), (Some(1), false));
}

#[test]
fn problems_that_differ_in_figures_only_are_told_once() {
    let line = |n: u32| format!("[ {n}.5] nvidia-modeset: training failed for head {n}\n");
    let (_, said) = stated(&(line(3) + &line(4) + &line(5)));
    assert!(said.ends_with("and 2 alike") && said.matches("training").count() == 1, "{said}");
    // However many lines mean the same, a fault is named.
    let many = "CUDA error: an illegal memory access was encountered\n".repeat(500);
    let (faults, explained) = stated(&(many + "GPU is lost\n"));
    assert_eq!(faults, [(PastedFaultKind::Lost, None)]);
    assert_eq!(explained.lines().count(), 8);
    let gsp = |n: usize| format!("x: GPU{} GSP Timeout\n", n % 9);
    let many: String = (0..90).map(gsp).collect();
    assert_eq!(stated(&(many + "GPU is lost\n")).0, [(PastedFaultKind::Lost, None)]);
}

#[test]
fn every_fact_that_a_reader_sets_is_used() {
    let sources = |folder: &str| {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(folder);
        let mut folders = vec![root];
        let mut text = String::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "rs") {
                    text.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        text
    };
    let readers = sources("pasted/readers");
    let users: String = ["diagnose", "report", "topology", "explain"].map(sources).concat();
    let mut facts = 0;
    let mut unused = Vec::new();
    for of in ["gpu.", "facts.", "host.", "link.", "pair."] {
        for ((), rest) in readers.match_indices(of).map(|(at, _)| ((), &readers[at + of.len()..])) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
            let (name, after) = rest.split_at(end);
            let is_set = after.starts_with(" = ") || after.starts_with(", ");
            if is_set && !name.is_empty() {
                facts += 1;
                if !users.contains(&format!(".{name}")) && !unused.contains(&name) {
                    unused.push(name);
                }
            }
        }
    }
    assert!(facts > 40, "{facts}");
    // The JSON alone has them.
    unused.sort_unstable();
    assert_eq!(unused, ["iommu_group", "max_read_request_bytes"]);
}

#[test]
fn lines_that_follow_a_loss_are_part_of_it() {
    let lines = "[ 9.1] NVRM: GPU2 _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 78!\n\
        [ 9.2] NVRM: GPU2 RmFreeX: GspRmFree failed: hClient=0x1; status=0x0000000f\n\
        [ 9.3] NVRM: API_GPU_ATTACHED_SANITY_CHECK failed!\n\
        [ 9.4] NVRM: GPU2 krcRcAndNotifyAllChannels_IMPL: RC all channels for critical error 79.\n\
        [ 9.5] NVRM: GPU2 kchannelFree failed to free a Channel\n";
    let machine = of(lines);
    let faults = &machine.pasted.faults;
    let stated = faults.iter().filter(|fault| fault.meaning.is_none());
    assert_eq!(stated.map(|fault| fault.kind).collect::<Vec<_>>(), [PastedFaultKind::Lost]);
    assert!(faults[0].text.contains("GPU2"));
    let remarks = machine.pasted.remarks.join("\n");
    assert!(remarks.contains("began before this text") && remarks.contains("follow"), "{remarks}");
    let off = "[ 9.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n";
    let machine = of(&format!("{off}{lines}"));
    // A channel that is not freed is explained as what follows.
    let faults = &machine.pasted.faults;
    assert!(faults.iter().all(|one| one.meaning.as_ref().is_some_and(|one| one.follows)));
    assert_eq!(machine.snapshot.problems.len(), 0);
    assert!(
        machine.pasted.remarks[0].starts_with("4 lines follow"),
        "{:?}",
        machine.pasted.remarks
    );
}

#[test]
fn an_xid_that_names_its_cause_tells_of_that_too() {
    let line = |channel: u32| {
        format!(
            "[ 9.0] NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=x, Ch 0000000{channel}, caused by previous Xid 48\n"
        )
    };
    let xids = |text: &str| {
        let xids = of(text).snapshot.host.xids.known().unwrap().clone();
        let mut xids: Vec<(u32, u32)> = xids.iter().map(|xid| (xid.code, xid.times)).collect();
        xids.sort_unstable();
        xids
    };
    assert_eq!(xids(&(line(1) + &line(2).replace("9.0", "10.0"))), [(45, 2), (48, 1)]);
    let first = "[ 8.0] NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=x, DBE\n";
    assert_eq!(xids(&format!("{first}{}", line(1))), [(45, 1), (48, 1)]);
    // Records that became one line, and lines that end with CR alone.
    let one = "[1.0] NVRM: Xid (PCI:0000:9b:00): 13, a [1.1] NVRM: Xid (PCI:0000:8b:00): 79, b\n";
    assert_eq!(xids(one), [(13, 1), (79, 1)]);
    assert_eq!(xids("[1.0] a\r[1.1] NVRM: Xid (PCI:0000:8b:00): 79, b\r[1.2] c\r"), [(79, 1)]);
}

#[test]
fn lines_that_only_name_a_fault_state_none() {
    for text in [
        "$ dmesg | grep -i \"fallen off the bus\"",
        "GPU is lost: no",
        "fallen off the bus: 0",
        "OK: no GPU has fallen off the bus",
        "[    0.1] BIOS-e820: [mem 0x0000000f80000000-0x0000000fffffffff] usable",
        "Xid 79 means that the GPU has fallen off the bus.",
        "static const char *err[] = { \"GPU has fallen off the bus\" };",
        "If nvidia-smi prints 'GPU is lost', reboot.",
    ] {
        assert_eq!(stated(&format!("{TABLE}\n{text}\n")).0, [], "{text}");
    }
}

#[test]
fn variables_of_commands_are_those_of_the_host() {
    let row = "    1048576  256  float  sum  -1  44  192.51  336.89  0  44  192.50  336.88  0\n";
    let set = |text: &str| {
        let host = of(&format!("{text}\n{row}")).snapshot.host;
        host.nccl_variables.known().cloned().unwrap_or_default()
    };
    for text in [
        "**NCCL_P2P_DISABLE=1 ./all_reduce_perf -b 8**",
        "$ mpirun -np 2 -x NCCL_P2P_DISABLE=1 ./a",
        "export NCCL_P2P_DISABLE=1",
        "NCCL_P2P_DISABLE=1",
    ] {
        assert_eq!(set(text), ["NCCL_P2P_DISABLE=1"], "{text}");
    }
    for text in ["NCCL_P2P_DISABLE=1 fixes it", "I set NCCL_P2P_DISABLE=1"] {
        assert_eq!(set(text).len(), 0, "{text}");
    }
    let remarks = of(&format!("CUDA_VISIBLE_DEVICES=6,7 ./a\n{row}")).pasted.remarks.join("\n");
    assert!(remarks.contains("CUDA_VISIBLE_DEVICES=6,7 renumbers"), "{remarks}");
}
