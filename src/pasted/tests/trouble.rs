//! What a paste states of faults, and what is not understood in it.

use super::*;

/// Returns kind and address of each fault, and the lines that were not understood or are of known messages.
fn stated(text: &str) -> (Vec<(PastedFaultKind, Option<String>)>, String) {
    let machine = of(text);
    let faults = machine.pasted.faults.iter();
    let faults = faults.map(|fault| (fault.kind, fault.said.pci.map(|pci| pci.to_string())));
    (faults.collect(), odd(&machine))
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
    assert_eq!(machine.pasted.explained.len(), 1);
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
        let (faults, said) = stated(&format!("{TABLE}\n        {line}\n"));
        assert_eq!(faults.len() == 1 || said.contains(line), is_bad, "{line}: {said}");
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
fn lines_that_follow_a_loss_are_part_of_it() {
    let lines = "[ 9.1] NVRM: GPU2 _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 78!\n\
        [ 9.2] NVRM: GPU2 RmFreeX: GspRmFree failed: hClient=0x1; status=0x0000000f\n\
        [ 9.3] NVRM: API_GPU_ATTACHED_SANITY_CHECK failed!\n\
        [ 9.4] NVRM: GPU2 krcRcAndNotifyAllChannels_IMPL: RC all channels for critical error 79.\n\
        [ 9.5] NVRM: GPU2 kchannelFree failed to free a Channel\n";
    let machine = of(lines);
    let faults = &machine.pasted.faults;
    assert_eq!((faults.len(), faults[0].kind), (1, PastedFaultKind::Lost));
    assert!(faults[0].said.text.contains("GPU2"));
    let remarks = machine.pasted.remarks.join("\n");
    assert!(remarks.contains("began before this text") && remarks.contains("follow"), "{remarks}");
    let off = "[ 9.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n";
    let machine = of(&format!("{off}{lines}"));
    assert_eq!((machine.pasted.faults.len(), machine.snapshot.problems.len()), (0, 0));
    assert_eq!(machine.pasted.explained, []);
    assert!(
        machine.pasted.remarks[0].starts_with("5 lines follow"),
        "{:?}",
        machine.pasted.remarks
    );
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
