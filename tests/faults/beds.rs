//! Machines on which faults are injected, with the result of a run without further faults.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use fake_machine::calls;
use model::units::{Bytes, MIB};
use serde_json::Value;
use sim::Simulated;
use sim::spec::{LateGate, MachineSpec};

use crate::common::finish;
use crate::fake::{CUDA, Fake, NVML, library, unexpected};
use crate::shared;

/// A machine with one kind of run on it.
pub(crate) struct Bed {
    pub name: &'static str,
    fake: Fake,
    /// Faults that belong to the bed.
    faults: &'static str,
    /// The command, and arguments that choose the measurements.
    probes: &'static [&'static str],
    /// The calls at which faults are injected.
    pub calls: Calls,
    /// The report without further faults.
    pub report: Value,
    pub code: Option<i32>,
    pub cuda: Counts,
    pub nvml: Counts,
    /// Functions that were called and that the fake does not know.
    pub unexpected: Vec<String>,
    _description: tempfile::TempDir,
}

/// The calls of a bed at which faults are injected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Those of functions that no bed before it calls.
    New,
    /// These, and every function while several flows are copied at once.
    OfFlows,
    /// These, and every function while probes run that need one GPU and the host: copies with it and page-locking; pipelines
    /// and calls.
    OfOneGpu,
}

/// Number of calls of each function in the calling process: before the first copy, and in all.
#[derive(Default)]
pub(crate) struct Counts {
    pub start: Vec<u64>,
    pub all: Vec<u64>,
}

/// A bed whose NVLinks have the counters of NVLink 5.
pub(crate) const NVLINK_5: &str = "nvlink-5";
/// Arguments of the measurements on most beds.
const QUICK: &[&str] = &["check", "--profile", "quick"];
/// Deadline of a copy, seconds. A fault that hangs costs as much; without one, a busy machine must not look like a
/// hanging one.
const DEADLINE: &str = "20";
const HANG_DEADLINE: &str = "2";

/// Returns all beds; call it once.
pub(crate) fn all() -> Vec<Bed> {
    vec![
        Bed::new("nvlink", three_h200(), "", &[], &[]),
        // There are more peers than may be enabled at a time, so that access is revoked.
        Bed::new("crowded", three_l40s(), "", &[], &[]),
        Bed::new("older", three_h200(), "cuModuleLoadData@1+=code:209", &OLDER_CUDA, &OLDER_NVML),
        Bed::new("no-kernels", three_h200(), "cuModuleLoadData@1+=code:223", &[], &[]),
        Bed::new(
            "erring",
            three_h200(),
            "cuMemAlloc_v2@6=code:2;cuMemcpyPeerAsync@5=code:1",
            &[],
            &["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"],
        ),
        // The driver is asked about a stream whose device has not reached its gate.
        Bed::new("late", late(three_h200()), "", &[], &[]),
        Bed::with(
            "load",
            sparing(three_h200()),
            "",
            (&[], &[]),
            &["check", "--profile", "full", "--only", "load"],
            Calls::OfFlows,
        ),
        Bed::with("at-once", sparing(four_h200()), "", (&[], &[]), QUICK, Calls::OfFlows),
        Bed::with(
            "host",
            one_h200(),
            "",
            (&[], &[]),
            &["check", "--profile", "full", "--only", "host"],
            Calls::OfOneGpu,
        ),
        Bed::with(
            "one-gpu",
            two_h200(),
            "",
            (&[], &[]),
            &["check", "--profile", "full", "--only", "pipeline,async,overlap"],
            Calls::OfOneGpu,
        ),
        // NVLink 5 has other counters of errors.
        Bed::with(NVLINK_5, two_gb200(), "", (&[], &[]), QUICK, Calls::New),
        // The errors that the driver reports are asked for in hours under load alone.
        Bed::with(
            "hours",
            two_h200(),
            "",
            (&[], &[]),
            &["soak", "--for", "1s", "--profile", "quick", "--only", "peers"],
            Calls::New,
        ),
        // Kernels that talk: what the driver says about a pair is asked for them.
        Bed::with(
            "live",
            two_h200(),
            "",
            (&[], &[]),
            &["check", "--profile", "full", "--only", "live"],
            Calls::New,
        ),
        // NVML is asked by the process of the copies.
        Bed::with(
            "links",
            two_h200(),
            "",
            (&[], &[]),
            &["check", "--profile", "full", "--only", "links"],
            Calls::New,
        ),
        Bed::with(
            shared::BED,
            two_h200(),
            "",
            (&[], &[]),
            &["check", "--profile", "full", "--only", "share"],
            Calls::New,
        ),
    ]
}

/// Newer CUDA functions. If they are missing, the older functions that they replaced are called.
const OLDER_CUDA: [&str; 3] =
    ["cuDeviceGetUuid_v2", "cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2"];
/// The same of NVML. The functions are those that R470 lacks, and newer ones.
const OLDER_NVML: [&str; 5] = [
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetCurrentClocksEventReasons",
];

fn three_h200() -> MachineSpec {
    keep(Simulated::find("h200x8").unwrap().spec, 3)
}

/// Returns a machine on which two disjoint pairs are copied at once.
fn four_h200() -> MachineSpec {
    keep(Simulated::find("h200x8").unwrap().spec, 4)
}

/// Returns a machine with a GPU that works, and one to wait for.
fn two_h200() -> MachineSpec {
    sparing(keep(Simulated::find("h200x8").unwrap().spec, 2))
}

fn two_gb200() -> MachineSpec {
    keep(
        Simulated::find(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/cases/bases/gb200x4-one-socket.toml"
        ))
        .unwrap()
        .spec,
        2,
    )
}

/// Makes a GPU late at its first gate.
fn late(mut spec: MachineSpec) -> MachineSpec {
    spec.faults.late_gates.push(LateGate {
        gpu: 1,
        us: 5000.0.try_into().unwrap(),
        times: Some(1),
    });
    spec
}

fn one_h200() -> MachineSpec {
    sparing(keep(Simulated::find("h200x8").unwrap().spec, 1))
}

/// Gives the host little available memory, so that copies with it are small.
fn sparing(mut spec: MachineSpec) -> MachineSpec {
    spec.host.memory_available = Some(Bytes(200 * MIB));
    spec
}

fn three_l40s() -> MachineSpec {
    let mut spec = keep(Simulated::find("demo").unwrap().spec, 3);
    spec.peers.exceptions.clear();
    spec.peers.limit = Some(1);
    spec
}

/// Keeps only the first GPUs of the machine.
fn keep(mut spec: MachineSpec, gpus: usize) -> MachineSpec {
    let gone: Vec<_> = spec.gpus.drain(gpus..).map(|gpu| gpu.pci).collect();
    spec.pci.retain(|function| !gone.contains(&function.address));
    spec
}

impl Bed {
    fn new(
        name: &'static str,
        spec: MachineSpec,
        faults: &'static str,
        without_cuda: &[&str],
        without_nvml: &[&str],
    ) -> Self {
        let libraries = (without_cuda, without_nvml);
        Self::with(name, spec, faults, libraries, QUICK, Calls::New)
    }

    fn with(
        name: &'static str,
        spec: MachineSpec,
        faults: &'static str,
        (without_cuda, without_nvml): (&[&str], &[&str]),
        probes: &'static [&'static str],
        calls: Calls,
    ) -> Self {
        let description = tempfile::tempdir().unwrap();
        let path = description.path().join(format!("{name}.toml"));
        std::fs::write(&path, toml::to_string(&spec).unwrap()).unwrap();
        let fake = Fake::new(path.to_str().unwrap());
        for (names, library, without) in
            [(CUDA, "cuda", without_cuda), (NVML, "nvml", without_nvml)]
        {
            let patched = description.path().join(library);
            write_without(library, without, &patched);
            names.iter().for_each(|name| fake.install(name, &patched));
        }
        let mut bed = Self {
            name,
            fake,
            faults,
            probes,
            calls,
            report: Value::Null,
            code: None,
            cuda: Counts::default(),
            nvml: Counts::default(),
            unexpected: Vec::new(),
            _description: description,
        };
        let state = tempfile::tempdir().unwrap();
        let ran = finish(&mut bed.command(state.path(), "", None, false));
        bed.report = ran.json();
        bed.code = ran.code;
        let most = |library: &str, kind: &str, functions: &[&str]| {
            let runs = calls::read(state.path(), library, kind, functions).unwrap();
            if name == shared::BED {
                // Several processes measure, each with calls of its own.
                let most = |most: Vec<u64>, counts: Vec<u64>| match most.is_empty() {
                    true => counts,
                    false => {
                        most.iter().zip(counts).map(|(one, other)| (*one).max(other)).collect()
                    }
                };
                return runs.into_iter().fold(Vec::new(), most);
            }
            runs.into_iter().max_by_key(|counts| counts.iter().sum::<u64>()).unwrap_or_default()
        };
        bed.cuda.start = most("cuda", "start", fake_cuda::FUNCTIONS);
        bed.cuda.all = most("cuda", "calls", fake_cuda::FUNCTIONS);
        bed.nvml.all = most("nvml", "calls", fake_nvml::FUNCTIONS);
        bed.unexpected = unexpected(state.path());
        bed
    }

    /// Returns the command of a run with a fault, its state in this folder, and with libraries of its own if given.
    pub(crate) fn command(
        &self,
        state: &Path,
        faults: &str,
        libraries: Option<&Path>,
        hangs: bool,
    ) -> Command {
        let mut command = self.fake.command(self.probes);
        command.args(["--format", "json"]).arg("--deadline").arg(if hangs {
            HANG_DEADLINE
        } else {
            DEADLINE
        });
        if hangs {
            command.args(["--driver-deadline", HANG_DEADLINE]);
        }
        command.env(fake_machine::STATE, state);
        // The runs of a bed share its machine but not the lock.
        command.env("PEERSCOPE_LOCK", state);
        command.env(fake_machine::FAULTS, [faults, self.faults].join(";"));
        if let Some(libraries) = libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// Creates a folder of libraries of which one lacks a function.
    pub(crate) fn libraries_without(&self, function: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (names, library, prefix) in [(CUDA, "cuda", "cu"), (NVML, "nvml", "nvml")] {
            let lacks = function.starts_with(prefix);
            let path = folder.path().join(library);
            write_without(
                library,
                if lacks { std::slice::from_ref(&function) } else { &[] },
                &path,
            );
            for name in names {
                std::os::unix::fs::symlink(&path, folder.path().join(name)).unwrap();
            }
        }
        folder
    }
}

/// The libraries without debug information, which is nine tenths of them.
static STRIPPED: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cuda", "nvml"] {
        let (from, to) = (library(name), folder.path().join(name));
        let stripped =
            Command::new("strip").arg("--strip-debug").arg("-o").args([&to, &from]).status();
        if !stripped.is_ok_and(|status| status.success()) {
            std::fs::copy(from, to).unwrap();
        }
    }
    folder
});

/// Writes a library in which some functions have another name.
fn write_without(library: &str, functions: &[&str], to: &PathBuf) {
    let from = STRIPPED.path().join(library);
    if functions.is_empty() {
        std::os::unix::fs::symlink(from, to).unwrap();
        return;
    }
    let mut bytes = std::fs::read(from).unwrap();
    for function in functions {
        let name = [b"\0", function.as_bytes(), b"\0"].concat();
        let mut found = 0;
        for at in 0..bytes.len() - name.len() {
            if bytes[at..].starts_with(&name) {
                bytes[at + name.len() - 2] = b'~';
                found += 1;
            }
        }
        assert!(found > 0, "{function} is not in the library");
    }
    std::fs::write(to, bytes).unwrap();
}
