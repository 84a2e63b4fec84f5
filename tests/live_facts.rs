//! Facts of a real machine: run by hand on a GPU server with
//! `cargo test --test live_facts -- --ignored`. With `PEERSCOPE_OUT` set to a directory, leaves the
//! snapshot and the times there.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use peerscope::discover;
use peerscope::hardware::{ErrorKind, GpuGroup, Machine};
use peerscope::model::reading::Unknown;
use peerscope::model::snapshot::Gpu;

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn a_machine_without_nvml_says_how_to_get_it() {
    // With a driver there is nothing to say, and the other test looks at the facts.
    if let Err(error) = discover::open(&Machine::Live, LIMIT) {
        assert_eq!(error.kind, ErrorKind::NoDriver);
        assert!(error.message.len() > 20, "{error}");
    }
}

#[test]
#[ignore = "needs an NVIDIA driver and GPUs"]
fn every_gpu_answers_in_time() {
    let start = Instant::now();
    let telemetry = discover::open(&Machine::Live, LIMIT).unwrap();
    let opened = start.elapsed();
    let snapshot = discover::discover(telemetry.clone(), LIMIT);
    let discovered = start.elapsed() - opened;
    let start = Instant::now();
    let samples = 100;
    for _ in 1..samples {
        telemetry.sample(0);
    }
    let last = telemetry.sample(0);
    let sample = start.elapsed() / samples;

    let mut times = format!("open {opened:?}\ndiscover {discovered:?}\nsample {sample:?} {last:?}\n");
    let mut part = |name: &str, work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        times += &format!("{name} {:?}\n", start.elapsed());
    };
    part("host", &mut || drop(telemetry.host()));
    part("pci", &mut || drop(telemetry.pci_tree()));
    let mut gpu = Gpu::unread(0, &Unknown::Unsupported);
    for group in GpuGroup::ALL {
        part(&format!("{group:?}"), &mut || telemetry.read_gpu(group, &mut gpu));
    }
    if snapshot.gpus.len() > 1 {
        part("pair", &mut || drop(telemetry.read_pair(0, 1)));
    }
    if let Some(out) = std::env::var_os("PEERSCOPE_OUT").map(PathBuf::from) {
        fs::write(out.join("snapshot.json"), serde_json::to_string_pretty(&snapshot).unwrap()).unwrap();
        fs::write(out.join("times.txt"), &times).unwrap();
    }

    assert!(!snapshot.gpus.is_empty());
    assert_eq!(snapshot.problems, [""; 0]);
    for gpu in &snapshot.gpus {
        let pci = *gpu.pci.known().unwrap();
        assert!(gpu.uuid.known().unwrap().starts_with("GPU-"));
        assert!(gpu.memory_total_bytes.get().unwrap() >= gpu.memory_free_bytes.get().unwrap());
        assert!(gpu.pcie_link().is_some());
        assert!(snapshot.function(pci).is_some(), "{pci} is not in the PCI tree");
    }
    assert!(opened + discovered < Duration::from_secs(1), "{times}");
    assert!(sample < Duration::from_millis(2), "{times}");
}
