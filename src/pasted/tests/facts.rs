//! What a paste states of the machine: versions, models, Xids, counters, widths, variables.

use super::*;

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
