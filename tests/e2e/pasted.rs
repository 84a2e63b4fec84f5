//! The output of other tools: what a simulated machine's report says, printed as those tools print it, is diagnosed alike.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Ran, finish, flowing, peerscope, run};
use crate::provisioning::stand_in;

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("N/A")
}

/// Returns a number as nvidia-smi prints it: `N/A` if it is not known.
fn number(value: &Value, key: &str) -> String {
    value[key].as_u64().map_or_else(|| "N/A".to_owned(), |number| number.to_string())
}

/// `nvidia-smi -q`.
fn smi_query(report: &Value) -> String {
    let gpus = report["snapshot"]["gpus"].as_array().unwrap();
    let host = &report["snapshot"]["host"];
    let mut all = format!(
        "\n==============NVSMI LOG==============\n\nDriver Version      : {}\nCUDA Version        : {}\n\nAttached GPUs       : {}\n",
        text(host, "driver_version"),
        text(host, "cuda_version"),
        gpus.len()
    );
    for gpu in gpus {
        let link = |key: &str| number(gpu, key);
        writeln!(
            all,
            "GPU 0000{}\n    Product Name    : {}\n    GPU UUID        : {}\n    PCI\n        GPU Link Info\n            \
             PCIe Generation\n                Max      : {}\n                Current  : {}\n            Link Width\n                \
             Max      : {}x\n                Current  : {}x\n    Compute Mode    : Default\n    Performance State : P0\n",
            text(gpu, "pci"),
            text(gpu, "name"),
            text(gpu, "uuid"),
            link("pcie_generation_max"),
            link("pcie_generation"),
            link("pcie_width_max"),
            link("pcie_width"),
        )
        .unwrap();
    }
    all
}

/// `nvidia-smi topo -m`, and `-p2p r` below its command.
fn smi_topo(report: &Value) -> String {
    let gpus: Vec<u64> =
        list(&report["snapshot"]["gpus"]).map(|gpu| gpu["index"].as_u64().unwrap()).collect();
    let pair = |from: u64, to: u64| {
        let is_it = |pair: &&Value| {
            (pair["source"].as_u64(), pair["destination"].as_u64()) == (Some(from), Some(to))
        };
        list(&report["topology"]["pairs"]).find(is_it).unwrap()
    };
    let matrix = |cell: &dyn Fn(&Value) -> String| {
        let head: String = gpus.iter().map(|gpu| format!("\tGPU{gpu}")).collect();
        let row = |from: &u64| {
            let cells = gpus.iter().map(|to| match from == to {
                true => "\t X ".to_owned(),
                false => format!("\t{}", cell(pair(*from, *to))),
            });
            format!("GPU{from}{}\n", cells.collect::<String>())
        };
        format!("{head}\n{}", gpus.iter().map(row).collect::<String>())
    };
    let classes = matrix(&|pair| text(pair, "class").to_owned());
    let access = matrix(&|pair| text(&pair["peer_access"], "nvml_read").to_owned());
    format!("{classes}\n$ nvidia-smi topo -p2p r\n{access}")
}

/// `nvidia-smi nvlink -s`.
fn smi_nvlink(report: &Value) -> String {
    let mut all = String::new();
    for gpu in list(&report["snapshot"]["gpus"]) {
        writeln!(all, "GPU {}: {} (UUID: {})", gpu["index"], text(gpu, "name"), text(gpu, "uuid"))
            .unwrap();
        for link in list(&gpu["nvlinks"]) {
            let state = match link["active"].as_bool() {
                Some(true) => format!("{} GB/s", link["speed_mbps"].as_f64().unwrap() / 1000.0),
                _ => "<inactive>".to_owned(),
            };
            writeln!(all, "\t Link {}: {state}", link["link"]).unwrap();
        }
    }
    all + "$\n"
}

/// `lspci -vvvnn`.
fn lspci(report: &Value) -> String {
    let pci = report["snapshot"]["pci"].as_array().unwrap();
    let mut all = String::new();
    for function in pci {
        let address = text(function, "address");
        let (kind, title) = match text(function, "kind") {
            "root-port" => ("Root Port (Slot+)", "PCI bridge [0604]: Some Device"),
            "switch-upstream" => ("Upstream Port", "PCI bridge [0604]: Some Device"),
            "switch-downstream" => ("Downstream Port (Slot+)", "PCI bridge [0604]: Some Device"),
            _ => ("Endpoint", "3D controller [0302]: NVIDIA Corporation Device"),
        };
        let vendor = function["vendor"].as_u64().unwrap_or(0x8086);
        writeln!(all, "{address} {title} [{vendor:04x}:2235] (rev a1)").unwrap();
        if let Some(node) = function["numa_node"].as_u64() {
            writeln!(all, "\tNUMA node: {node}").unwrap();
        }
        if let Some(below) = pci.iter().find(|other| other["parent"] == function["address"]) {
            let bus = &text(below, "address")[5..7];
            writeln!(
                all,
                "\tBus: primary={}, secondary={bus}, subordinate={bus}, sec-latency=0",
                &address[5..7]
            )
            .unwrap();
        }
        writeln!(all, "\tCapabilities: [40] Express (v2) {kind}, MSI 00").unwrap();
        let rates = ["2.5", "5", "8", "16", "32", "64"];
        for (label, generation, width) in [
            ("LnkCap:\tPort #0,", "generation_max", "width_max"),
            ("LnkSta:\t", "generation", "width"),
        ] {
            if let (Some(generation), Some(width)) =
                (function[generation].as_u64(), function[width].as_u64())
            {
                let rate = rates[usize::try_from(generation).unwrap() - 1];
                writeln!(all, "\t\t{label} Speed {rate}GT/s, Width x{width}").unwrap();
            }
        }
        if let Some(redirects) = function["acs_redirect"].as_bool() {
            let sign = if redirects { '+' } else { '-' };
            writeln!(all, "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{sign} CmpltRedir{sign} UpstreamFwd{sign} EgressCtrl- DirectTrans-").unwrap();
        }
        all.push('\n');
    }
    all
}

/// Codes and subjects of the findings of a report that are at least warnings.
fn found(report: &Value) -> BTreeSet<(String, String)> {
    list(&report["findings"])
        .filter(|finding| finding["severity"] != "info")
        .map(|finding| (text(finding, "code").to_owned(), finding["subject"].to_string()))
        .collect()
}

/// Returns what nvbandwidth prints of a report's figures.
fn nvbandwidth(report: &Value) -> String {
    let gpus = list(&report["snapshot"]["gpus"]).count();
    let figure = |rate: Option<f64>| rate.map_or("N/A".to_owned(), |rate| format!("{rate:.2}"));
    let peers = |issuer: &str| -> Vec<Vec<String>> {
        let of = |row: usize, column: usize| {
            let is_it = |cell: &&Value| {
                cell["issuer"] == issuer
                    && cell["engine"] == "copy"
                    && cell["direction"] == "one-way"
                    && cell["path"] == "direct"
                    && cell["placement"]
                        == json!({"source": "side", "destination": "side", "host": "non-blocking"})
                    && cell["source"] == if issuer == "source" { row } else { column }
                    && cell["destination"] == if issuer == "source" { column } else { row }
            };
            list(&report["measurements"]["peer"]).find(is_it)?["achieved_gbps"].as_f64()
        };
        (0..gpus).map(|row| (0..gpus).map(|column| figure(of(row, column))).collect()).collect()
    };
    let host = |direction: &str| -> Vec<Vec<String>> {
        let of = |gpu: usize| {
            let is_it = |cell: &&Value| {
                cell["gpu"] == gpu
                    && cell["memory"] == "pinned"
                    && cell["engine"] == "copy"
                    && cell["direction"] == direction
            };
            list(&report["measurements"]["host"]).find(is_it)?["achieved_gbps"].as_f64()
        };
        vec![(0..gpus).map(|gpu| figure(of(gpu))).collect()]
    };
    let testcase = |name: &str, row: &str, matrix: Vec<Vec<String>>| {
        let columns: String = (0..gpus).map(|gpu| format!("{gpu:10}")).collect();
        let rows = matrix.iter().enumerate().map(|(row, cells)| {
            let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
            format!(" {row}{cells}\n")
        });
        let rows: String = rows.collect();
        format!(
            "Running {name}.\nmemcpy CE {row} GPU(column) bandwidth (GB/s)\n  {columns}\n{rows}\nSUM {name} 1.00\n\n"
        )
    };
    [
        "nvbandwidth Version: v0.8\nBuilt from Git version: v0.8\n\n".to_owned(),
        testcase("host_to_device_memcpy_ce", "CPU(row) ->", host("to-device")),
        testcase("device_to_host_memcpy_ce", "CPU(row) <-", host("to-host")),
        testcase("device_to_device_memcpy_write_ce", "GPU(row) <-", peers("source")),
        testcase("device_to_device_memcpy_read_ce", "GPU(row) ->", peers("destination")),
    ]
    .concat()
}

/// Writes the output of other tools for a machine. Returns the report of a check of it.
fn print_all(machine: &str, folder: &Path) -> Value {
    let check = run(&["check", "--machine", machine, "--profile", "standard", "--format", "json"]);
    let report = check.json();
    for (name, text) in [
        ("q.txt", smi_query(&report)),
        ("topo.txt", smi_topo(&report)),
        ("nvlink.txt", smi_nvlink(&report)),
        ("lspci.txt", lspci(&report)),
        ("nvbandwidth.txt", nvbandwidth(&report)),
        ("dmesg", "[    0.000000] Linux version 6.8.0-45-generic (x) (gcc)\n".to_owned()),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    report
}

#[test]
fn what_other_tools_print_of_a_machine_is_diagnosed_as_a_check_of_it() {
    for (machine, codes) in [
        ("demo", &["pcie-narrow", "peer-access-missing"][..]),
        ("h200x8", &[]),
        ("two-sockets", &[]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let checked = print_all(machine, folder.path());
        let ran = run(&["diagnose", &folder.path().to_string_lossy(), "--format", "json"]);
        let report = ran.json();
        let (wanted, there) = (found(&checked), found(&report));
        for code in codes {
            let of = |all: &BTreeSet<(String, String)>| {
                all.iter().filter(|(known, _)| known == code).cloned().collect::<Vec<_>>()
            };
            assert!(!of(&wanted).is_empty(), "{machine}: no {code} in {wanted:?}");
            assert_eq!(of(&there), of(&wanted), "{machine}: {code}");
        }
        let more: Vec<_> = there.difference(&wanted).collect();
        assert_eq!(more, Vec::<&(String, String)>::new(), "{machine}");
        assert_eq!(
            report["verdict"]["verdict"], checked["verdict"]["verdict"],
            "{machine}: {:?} {}",
            ran.code, report["findings"]
        );
        // The figures of pairs are those of the check, to the two places that nvbandwidth prints.
        let rates = |report: &Value| {
            let cells = list(&report["measurements"]["peer"]).filter(|cell| {
                cell["issuer"] == "source"
                    && cell["engine"] == "copy"
                    && cell["direction"] == "one-way"
                    && cell["path"] == "direct"
                    && cell["placement"]
                        == json!({"source": "side", "destination": "side", "host": "non-blocking"})
                    && cell["status"] == "measured"
            });
            cells
                .map(|cell| {
                    format!(
                        "{} {} {:.1}",
                        cell["source"],
                        cell["destination"],
                        cell["achieved_gbps"].as_f64().unwrap_or(0.0)
                    )
                })
                .collect::<BTreeSet<_>>()
        };
        assert!(
            !rates(&report).is_empty() && rates(&report).is_subset(&rates(&checked)),
            "{machine}"
        );
        assert_eq!(report["machine"], "live");
        assert_eq!(report["read_from"]["contradictions"], serde_json::json!([]), "{machine}");
        let origins = list(&report["read_from"]["origins"]);
        assert!(origins.count() > 20, "{machine}");
    }
}

/// Runs the program with this text as its standard input.
fn run_with_input(args: &[&str], text: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    std::fs::write(&path, text).unwrap();
    finish(peerscope(args).stdin(std::fs::File::open(path).unwrap()))
}

#[test]
fn a_paste_from_standard_input_says_what_it_lacks_and_keeps_what_it_was_read_from() {
    let topo = "$ nvidia-smi topo -m\n\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-15\nGPU1\tPHB\t X \t0-15\n";
    let ran = run_with_input(&["diagnose", "-"], topo);
    let page = flowing(&ran.stdout);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(page.contains("READ FROM OUTPUT of nvidia-smi topo -m"), "{page}");
    assert!(page.contains("it lacks the rate of any pair"), "{page}");
    assert!(page.contains("then run 'peerscope check' on the machine"), "{page}");
    // A saved report says the same when it is read again.
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.json");
    let saved = saved.to_string_lossy();
    run_with_input(&["diagnose", "-", "-o", &saved], topo);
    let again = run(&["diagnose", &saved]);
    assert_eq!(again.code, Some(3));
    assert!(flowing(&again.stdout).contains("READ FROM OUTPUT of nvidia-smi topo -m"), "{again:?}");
}

#[test]
fn figures_of_other_tools_are_counted_and_shown_as_what_they_are() {
    let text = "> Peer access from NVIDIA L4 (GPU0) -> NVIDIA L4 (GPU1) : Yes\n\
        > Peer access from NVIDIA L4 (GPU1) -> NVIDIA L4 (GPU0) : Yes\n\
        cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 19.87GB/s\nTest passed\n";
    let page = flowing(&run_with_input(&["diagnose", "-", "--figures"], text).stdout);
    assert!(page.contains("2 figures read"), "{page}");
    assert!(page.contains("Bandwidth: achieved, GB/s 19.9"), "{page}");
    assert!(page.contains("lacks the rate of any pair that can be compared"), "{page}");
    // Direct copies were cut off: that a pair has a rate through host memory does not say that it copies so.
    let text = "Device=0 CAN Access Peer Device=1\nDevice=1 CAN Access Peer Device=0\n\
        Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 900.10  12.50\n     1  12.40 900.00\n";
    let page = flowing(&run_with_input(&["diagnose", "-"], text).stdout);
    assert!(
        page.contains(
            "2 of 2 pairs copy through host memory at 12.4 to 12.5 GB/s; their direct copies were not measured"
        ),
        "{page}"
    );
    let topo = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n";
    let page = flowing(&run_with_input(&["diagnose", "-"], topo).stdout);
    assert!(page.contains("facts only, no figures in the input"), "{page}");
    assert!(!page.contains("PCIe paths"), "{page}");
}

/// `nvidia-smi -q` of one GPU whose link is narrow.
const NARROW: &str = "==============NVSMI LOG==============\n\nDriver Version : 580.65.06\nAttached GPUs : 1\nGPU 00000000:3B:00.0\n    \
    Product Name : NVIDIA A40\n    PCI\n        GPU Link Info\n            PCIe Generation\n                Max : 4\n                \
    Current : 4\n            Link Width\n                Max : 16x\n                Current : 4x\n";

const DMESG: &str = "[    0.000000] Linux version 6.8.0-45-generic (x) (gcc)\n";

/// A tar archive (POSIX, ustar) of these files.
fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (name, text) in files {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, name);
        put(100, "0000644");
        put(124, &format!("{:011o}", text.len()));
        // The checksum is that of a header with spaces in its place.
        put(148, "        ");
        put(156, "0");
        put(257, "ustar");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        all.extend(header);
        all.extend(text.as_bytes());
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1024, 0);
    all
}

#[test]
fn a_fleet_reads_a_folder_or_an_archive_of_output_for_each_machine() {
    let all = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = all.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    put("n1/q.txt", NARROW.as_bytes());
    put("n1/logs/dmesg.txt", DMESG.as_bytes());
    put("n1/logs/old.tar", &tar(&[("topo.txt", "\tGPU0\nGPU0\t X \n")]));
    put("rack/n2/dmesg", DMESG.as_bytes());
    // Not a report of peerscope, although its name ends as one.
    put("rack/n2/topo.json", b"\tGPU0\nGPU0\t X \n");
    put("n3.tar", &tar(&[("n3/q.txt", NARROW)]));
    put("n4/letter.txt", b"dear all");
    put("n5.tar", &tar(&[("letter.txt", "dear all")]));
    put("n6/report.json", b"{\"schema\": \"peerscope.report/1\"}");
    // Beside reports, other files stay what they were.
    let healthy = run(&["check", "--machine", "h200x2", "--profile", "quick", "--format", "json"]);
    put("n7/n7.json", healthy.stdout.as_bytes());
    put("n7/dmesg.txt", DMESG.as_bytes());
    put("n8.zip", b"PK\x03\x04rest");
    let path = all.path().to_string_lossy().into_owned();
    let fleet = run(&["fleet", &path, "--format", "json"]).json();
    let nodes: Vec<(&str, &str)> =
        list(&fleet["nodes"]).map(|node| (text(node, "node"), text(node, "verdict"))).collect();
    assert_eq!(
        nodes,
        [("h200x2", "healthy"), ("n1", "faulty"), ("n2", "inconclusive"), ("n3", "faulty")],
        "{fleet}"
    );
    let names = |value: &Value| {
        let names = list(value).map(|file| file.as_str().unwrap().replace(&path, ""));
        names.collect::<BTreeSet<_>>()
    };
    assert_eq!(
        names(&fleet["read"]["left_out_files"]),
        BTreeSet::from(["/n4/letter.txt", "/n5.tar", "/n7/dmesg.txt"].map(str::to_owned))
    );
    let broken: Vec<&str> = list(&fleet["read"]["broken"]).map(|one| text(one, "file")).collect();
    assert!(
        matches!(&broken[..], [one, other] if one.ends_with("n6/report.json") && other.ends_with("n8.zip")),
        "{broken:?}"
    );
    // A file that is named is a machine by itself.
    let file = all.path().join("n1/q.txt");
    let one = run(&["fleet", &file.to_string_lossy(), "--format", "json"]).json();
    assert_eq!(one["nodes"][0]["node"], "q");
}

#[test]
fn what_is_broken_beside_reports_is_not_passed_over() {
    let healthy = run(&["check", "--machine", "h200x2", "--profile", "quick", "--format", "json"]);
    for (name, bytes, why) in [
        ("node2.zip", &b"PK\x03\x04rest"[..], "unpack it first"),
        ("node2.log.gz", b"\x1f\x8bno", "cannot be unpacked"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("node1.json"), &healthy.stdout).unwrap();
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let path = folder.path().to_string_lossy().into_owned();
        let ran = run(&["fleet", &path, "--format", "json"]);
        assert_eq!(ran.code, Some(3), "{name}: {}", ran.stdout);
        let broken = ran.json()["read"]["broken"].clone();
        let broken: Vec<&Value> = list(&broken).collect();
        assert!(
            matches!(&broken[..], [one] if text(one, "file").ends_with(name) && text(one, "why").contains(why)),
            "{name}: {broken:?}"
        );
    }
    // An archive without any text is no loss.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.zip");
    std::fs::write(&path, tar(&[("a.png", "\0")])).unwrap();
    std::fs::write(folder.path().join("node1.json"), &healthy.stdout).unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    assert_eq!(run(&["fleet", &path]).code, Some(0));
}

/// A faulty machine stays faulty whatever tool says so.
#[test]
fn output_that_states_a_fault_is_not_healthy() {
    let whole = format!("{}/tests/data/pasted/h200x1", env!("CARGO_MANIFEST_DIR"));
    let base = run(&["diagnose", &whole]);
    assert_eq!(base.code, Some(0), "{}", base.stdout);
    for (name, line, code) in [
        (
            "smi",
            "Unable to determine the device handle for GPU0000:18:00.0: GPU is lost.  Reboot the system\n",
            1,
        ),
        ("log", "[99999.1] NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.\n", 1),
        ("log", "[99999.1] NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x24:0xffff:1220)\n", 1),
        ("log", "[99999.1] NVRM: GPU 0000:00:06.0: RmInitAdapter failed! (0x24:0xffff:1220)\n", 3),
        (
            "log",
            "[99999.1] nvidia 0000:18:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer\n",
            1,
        ),
        (
            "nccl",
            "# nThread 1 nGpus 1\n#  Rank  0 Group  0 Pid 1 on n device  0 [0000:00:06] NVIDIA H200\n# Out of bounds values : 9 FAILED\n",
            1,
        ),
        ("odd", "nvidia-smi: Unknown Error\n", 3),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(&whole).unwrap().flatten() {
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
        std::fs::write(folder.path().join(name), line).unwrap();
        let ran = run(&["diagnose", &folder.path().to_string_lossy()]);
        assert_eq!(ran.code, Some(code), "{line}: {}", ran.stdout);
    }
}

/// What a text says, and what it does not: the exit code, words that must be on the page and words that must not.
type Said = (&'static str, i32, &'static [&'static str], &'static [&'static str]);

const SAID: &[Said] = &[
    (
        concat!(
            "[1.0] NVRM: Xid (PCI:0000:9b:00): 45, pid=5, name=a, Ch 0000\n",
            "[1.1] NVRM: Xid (PCI:0000:9b:00): 120, pid=1, GSP task exception\n",
            "[3.0] NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n",
        ),
        1,
        &[
            "Xids 120, 154, 45 of GPU 0 (0000:9b:00.0) in the text: error of the GPU's system processor, driver asks for GPU Reset",
        ],
        &["since the last boot", "look for", "Look for"],
    ),
    (
        concat!(
            "$ nvidia-smi\n",
            "No devices were found\n",
            "$ lspci -d 10de:\n",
            "04:00.0 Bridge [0680]: NVIDIA Corporation Device [10de:22a3] (rev a1)\n",
            "17:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)\n",
            "3d:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)\n",
            "[ 1.0] nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt\n",
            "[ 1.0] nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 46 Minion Link DLREQ interrupt\n",
        ),
        1,
        &["has no GPU that works: the PCI bus has 2 GPUs"],
        &["lspci -d"],
    ),
    (
        "node1:12:34 [5] transport/nvls.cc:245 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'. This is usually caused by a system or configuration error\n",
        1,
        &["NCCL WARN Failed to bind", "CUDA error 401"],
        &[],
    ),
    (
        "node1: Test CUDA failure common.cu:1024 'peer mapping resources exhausted'\n",
        1,
        &[
            "no part is defective",
            "do Give a process at most 9 GPUs",
            "GPUs no list of GPUs in the text",
        ],
        &["dmesg | grep"],
    ),
    (
        concat!(
            "\tGPU0\tGPU1\tGPU2\tGPU3\n",
            "GPU0\t X \tSYS\tSYS\tNODE\n",
            "GPU1\tSYS\t X \tPHB\tSYS\n",
            "GPU2\tSYS\tPHB\t X \tSYS\n",
            "GPU3\tNODE\tSYS\tSYS\t X \n",
        ),
        3,
        &[
            "No NVLink between these GPUs; whether one is due depends on the model",
            "'nvidia-smi -L' and 'nvidia-smi nvlink -s'",
        ],
        &["nothing wrong"],
    ),
    (
        concat!(
            "Failed to initialize NVML: Driver/library version mismatch\n",
            "NVML library version: 550.144\n",
        ),
        1,
        &["software libraries 550.144"],
        &["driver 550.144"],
    ),
    (
        concat!(
            "Running device_to_device_memcpy_read_ce.\n",
            "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n",
            "           0         1         2         3\n",
            " 0       N/A     26.30     21.80     21.90\n",
            " 1     26.40       N/A     21.80     21.90\n",
            " 2     21.80     21.80       N/A     26.30\n",
            " 3     21.80     21.80     26.30       N/A\n",
        ),
        3,
        &[
            "Within GPU 0 and GPU 1 | GPU 2 and GPU 3: 26.4 GB/s, between them 21.9",
            "12 of 12 pairs copy directly (as reads) at 21.8 to 26.4 GB/s",
            "no fault is shown",
        ],
        &["show the cause"],
    ),
    (
        concat!(
            "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n",
            "   D\\D     0      1      2      3\n",
            "     0 2500.0 262.00  52.00  52.00\n",
            "     1 262.00 2500.0  52.00  52.00\n",
            "     2  52.00  52.00 2500.0 262.00\n",
            "     3  52.00  52.00 262.00 2500.0\n",
        ),
        3,
        &["between them 52.0"],
        &["connected alike"],
    ),
    (
        concat!(
            "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000000)\n",
            "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000001)\n",
            "GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000002)\n",
            "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000003)\n",
            "$ nvidia-smi topo -p2p r\n",
            " \tGPU0\tGPU1\tGPU2\tGPU3\n",
            " GPU0\tX\tOK\tOK\tNS\n",
            " GPU1\tOK\tX\tOK\tNS\n",
            " GPU2\tOK\tOK\tX\tNS\n",
            " GPU3\tNS\tNS\tNS\tX\n",
        ),
        1,
        &["No peer access between GPU 3 and 3 GPUs"],
        &["Nothing to repair"],
    ),
    (
        "[1.0] NVRM: Xid (PCI:0000:8b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n",
        1,
        &["driver asks for Node Reboot", "do Reboot"],
        &["reset (nvidia-smi"],
    ),
    (
        concat!(
            "00:01.2 PCI bridge: Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge (prog-if 00 [Normal decode])\n",
            "\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0\n",
            "\tCapabilities: [2a0 v1] Access Control Services\n",
            "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+\n",
            "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n",
            "01:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB] (rev a1)\n",
            "\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n",
            "\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16\n",
        ),
        3,
        &["ACS redirects requests at 0000:00:01.2: peer copies go through the root complex"],
        &[],
    ),
    (
        concat!(
            "[ 1.0] nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt\n",
            "[ 1.0] nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 46 Minion Link DLREQ interrupt\n",
            "[ 2.0] NVRM: GPU at 0000:9b:00.0 RmInitAdapter failed\n",
            "[ 2.0] pcieport 0000:00:01.2: AER: Uncorrected (Non-Fatal) error received: 0000:63:00.0\n",
            "[ 2.0] nvidia 0000:63:00.0: AER: can't recover (no error_detected callback)\n",
            "[ 2.0] pcieport 0000:00:01.2: AER: device recovery failed\n",
            "[ 3.0] NVRM: Xid (PCI:0000:63:00): 31, pid=5, name=a, MMU Fault\n",
        ),
        1,
        &[
            "was not recovered from PCIe errors",
            "SXid 22013 of the NVSwitch at 0000:04:00.0 in the text, non-fatal",
        ],
        &["had fatal", "AER messages"],
    ),
    (
        concat!(
            "GPU 0: NVIDIA RTX A6000 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000000)\n",
            "\t Link 0: 14.062 GB/s\n",
            "\t Link 1: 14.062 GB/s\n",
            "\t Link 2: 14.062 GB/s\n",
            "\t Link 3: 14.062 GB/s\n",
            "GPU 1: NVIDIA RTX A6000 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000001)\n",
            "\t Link 0: 14.062 GB/s\n",
            "\t Link 1: 14.062 GB/s\n",
            "\t Link 2: 14.062 GB/s\n",
            "\t Link 3: 14.062 GB/s\n",
            "GPU 2: NVIDIA RTX A6000 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000002)\n",
            "\t Link 0: <inactive>\n",
            "\t Link 1: <inactive>\n",
            "\t Link 2: <inactive>\n",
            "\t Link 3: <inactive>\n",
            "GPU 3: NVIDIA RTX A6000 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000003)\n",
            "\t Link 0: <inactive>\n",
            "\t Link 1: <inactive>\n",
            "\t Link 2: <inactive>\n",
            "\t Link 3: <inactive>\n",
        ),
        3,
        &["All NVLinks of GPU 2 and GPU 3 are down; other GPUs of their model are bridged"],
        &["FAULTY"],
    ),
    (
        concat!(
            "[1.0] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n",
            "[2.0] NVRM: Xid (PCI:0000:9b:00): 45, pid=5, name=a, Ch 0000\n",
            "$ nvidia-smi\n",
            "GPU is lost.  Reboot the system to recover this GPU\n",
        ),
        1,
        &["GPU 0 (0000:9b:00.0) does not answer"],
        &["2 errors"],
    ),
];

#[test]
fn what_a_text_says_is_told_with_its_cause_and_not_asked_for_again() {
    for (text, code, said, not_said) in SAID {
        let ran = run_with_input(&["diagnose", "-"], text);
        let page = flowing(&ran.stdout);
        assert_eq!(ran.code, Some(*code), "{text}{page}");
        for words in *said {
            assert!(page.contains(words), "lacks {words}: {page}");
        }
        for words in *not_said {
            assert!(!page.contains(words), "has {words}: {page}");
        }
    }
    // All links of one code are named.
    let (text, ..) = SAID[11];
    let page = flowing(&run_with_input(&["diagnose", "-", "--verbose"], text).stdout);
    assert!(page.contains("Link 46 Minion Link DLREQ interrupt, also link 44), 2 times"), "{page}");
}

#[test]
fn input_that_cannot_be_read_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let letter = write("letter.txt", b"dear all\n");
    let zip = write("a.zip", b"PK\x03\x04rest");
    let report = write("report.json", b"{\"schema\": \"peerscope.report/1\"}");
    for (code, args, why) in [
        (3, &["diagnose", &letter][..], "has no output of a tool that peerscope reads"),
        (3, &["diagnose", &zip, &letter], "cannot be unpacked"),
        (2, &["diagnose", &zip], "a.zip is compressed by zip: unpack it first"),
        (2, &["diagnose", &report, &letter], "is a report of peerscope"),
        (2, &["diagnose", &report], "is not a complete report"),
    ] {
        let ran = run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}");
        assert!(ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn what_identifies_a_machine_is_blanked_before_it_is_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let log = "echo '[0.0] Command line: BOOT_IMAGE=/vmlinuz root=UUID=DE305D54-75b4-431b-adb2-eb6b9e546014 \
               intel_iommu=on ip=10.11.12.13 nfsroot=10.1.1.1:/home iommu=pt passwd=hunter2 pci=realloc=on'\n\
               echo '[1.0] NVRM: GPU Board Serial Number: 1654922001234'\n\
               echo '[2.0] Linux version 6.8 (root@build.example) (gcc 12.2.0)'";
    let smi = "case $* in -q) echo '    GPU UUID : GPU-0A1B2C3D-aaaa-bbbb-cccc-0123456789AB'\n\
               echo '    ClusterUUID : 3d0b2f1c-1111-2222-3333-444455556666'\n\
               echo '    GPU Fabric GUID : 0x8f3c1e2d4b5a6978' ;; esac";
    stand_in(folder.path(), "dmesg", log);
    stand_in(folder.path(), "nvidia-smi", smi);
    let path = std::env::var("PATH").unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/collect");
    let collect = |args: &[&str]| {
        let mut command = std::process::Command::new(script);
        command.env("PATH", format!("{}:{path}", folder.path().display()));
        finish(command.args(args)).stdout
    };
    let (whole, blank) = (collect(&[]), collect(&["--blank"]));
    for secret in [
        "DE305D54",
        "431b",
        "10.11.12.13",
        "nfsroot",
        "hunter2",
        "BOOT_IMAGE",
        "1654922001234",
        "build.example",
        "0A1B2C3D",
        "3d0b2f1c",
        "3333",
        "8f3c1e2d",
    ] {
        assert!(whole.contains(secret), "{secret}: {whole}");
        assert!(!blank.contains(secret), "{secret}: {blank}");
    }
    // What tells GPUs and clusters apart, and what concerns the paths, stays.
    for kept in [
        "Command line: intel_iommu=on iommu=pt pci=realloc=on\n",
        "Linux version 6.8 (user@host) (gcc 12.2.0)",
        "GPU-00000000-0000-0000-0000-0000000089AB",
        "ClusterUUID : 00000000-0000-0000-0000-000000006666",
    ] {
        assert!(blank.contains(kept), "{kept}: {blank}");
    }
}

#[test]
fn a_folder_of_more_files_than_a_run_prints_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let line = "GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000001)\n";
    for file in 0..1001 {
        std::fs::write(folder.path().join(format!("{file}.txt")), line).unwrap();
    }
    let ran = run(&["fleet", &folder.path().to_string_lossy()]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.flowing().contains("has more than 1000 files of output"), "{ran:?}");
}
