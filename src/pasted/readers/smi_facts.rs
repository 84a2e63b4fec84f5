//! The facts of `nvidia-smi -q`, by heading and key.

use crate::told::{Key, Note, Notes, is_uuid};
use model::pasted::PastedFaultKind;
use model::reading::Reading;
use model::snapshot::{ComputeMode, Fabric, FabricState, Gpu, GpuProcess, RemappedRows};
use model::units::{Bytes, MIB, PciAddress};

/// What was read so far of the output, for facts that several lines make up.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The GPU whose block this is, if it is one.
    gpu: Option<Key>,
    fabric: Option<Fabric>,
    rows: [Option<u32>; 2],
    pending: Option<bool>,
    failed: Option<bool>,
    reasons: Option<Vec<String>>,
    /// Generation of the PCIe link, and the highest that both ends can.
    generation: [Option<u8>; 2],
    /// Share of the time in which kernels ran, per cent.
    busy: Option<u32>,
    /// Uncorrected memory errors since the last reboot.
    uncorrected: Option<u64>,
    processes: Vec<GpuProcess>,
    last: u32,
}

/// Returns a heading or key in one form: `PCIe Generation` is `pcie_generation`.
pub(super) fn plain(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    name.replace([' ', '-', '/'], "_")
}

fn yes(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "enabled" | "yes" | "active" | "on" => Some(true),
        "disabled" | "no" | "not active" | "off" => Some(false),
        _ => None,
    }
}

/// Returns the number before a unit: `16x`, `34 C`, `143771 MiB`, `P0`.
fn count<T: std::str::FromStr>(value: &str) -> Option<T> {
    let value = value.trim_start_matches('P');
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    value[..end].parse().ok()
}

fn mebibytes(value: &str) -> Option<Bytes> {
    let rest = value.strip_suffix("MiB")?.trim();
    rest.parse::<u64>().ok()?.checked_mul(MIB).map(Bytes)
}

fn link<T: TryFrom<u8>>(value: &str) -> Option<T> {
    count::<u8>(value).and_then(|number| number.try_into().ok())
}

/// Retired pages from which NVIDIA replaces a GPU (Dynamic Page Retirement, 60 to 64).
const MOST_RETIRED: u32 = 60;

/// Share of the time from which a GPU that runs kernels has its link at full speed, per cent; chosen.
const BUSY: u32 = 50;

impl State {
    pub(super) fn of(gpu: Option<Key>) -> Self {
        Self { gpu, ..Self::default() }
    }

    /// Begins the block of a GPU.
    pub(super) fn begin(&mut self, address: PciAddress, line: u32, notes: &mut Notes) {
        self.end(notes);
        let key = Key::Pci(address);
        notes.gpu(line, &key, |gpu| gpu.pci = Reading::Known(address));
        self.gpu = Some(key);
        self.last = line;
    }

    /// Ends the block of a GPU.
    pub(super) fn end(&mut self, notes: &mut Notes) {
        let Self {
            gpu: Some(gpu),
            fabric,
            rows,
            pending,
            failed,
            reasons,
            generation,
            busy,
            uncorrected,
            processes,
            last,
        } = std::mem::take(self)
        else {
            return;
        };
        if let ([Some(now), Some(most)], Some(busy), Key::Pci(pci)) = (generation, busy, &gpu)
            && now < most
            && busy >= BUSY
        {
            let words = format!("Gen{now} of Gen{most}, {busy}% busy");
            notes.add(last, Note::Fault(PastedFaultKind::LinkSlow, Some(*pci), words));
        }
        notes.gpu(last, &gpu, |facts| {
            set(&mut facts.fabric, fabric);
            set(&mut facts.throttle_reasons, reasons);
            set(&mut facts.ecc_uncorrected, uncorrected);
            if let ([Some(corrected), Some(uncorrected)], Some(pending), Some(failed)) =
                (rows, pending, failed)
            {
                facts.remapped_rows =
                    Reading::Known(RemappedRows { corrected, uncorrected, pending, failed });
            }
            if !processes.is_empty() {
                facts.processes = Reading::Known(processes);
            }
        });
    }

    /// Takes a line of facts: the headings above it, the nearest last, its key and its value.
    pub(super) fn take(
        &mut self,
        headings: &[String],
        key: &str,
        value: &str,
        line: u32,
        notes: &mut Notes,
    ) {
        let near = headings.last().map_or("", String::as_str);
        if matches!(value, "N/A" | "[N/A]" | "Not Supported" | "") || is_failure(value) {
            return;
        }
        let Some(gpu) = self.gpu.clone() else {
            of_host(key, value, line, notes);
            return;
        };
        self.last = line;
        // Single and double bits are headings of their own in older versions.
        let volatile = headings.iter().any(|heading| heading == "volatile");
        let total = key == "total" && near == "double_bit";
        if volatile && (total || key.contains("uncorrectable")) {
            if let Some(errors) = count::<u64>(value) {
                let known = self.uncorrected.unwrap_or(0);
                self.uncorrected = Some(known.saturating_add(errors));
            }
            return;
        }
        if self.in_parts(near, key, value) {
            return;
        }
        if let (Key::Pci(pci), "retired_pages", "double_bit_ecc") = (&gpu, near, key)
            && count(value).is_some_and(|pages: u32| pages >= MOST_RETIRED)
        {
            let kind = PastedFaultKind::HardwareError;
            let words = format!("{value} retired pages of double bit errors");
            notes.add(line, Note::Fault(kind, Some(*pci), words));
        }
        let text = || Reading::Known(value.to_owned());
        let mut facts = Gpu::unread(0, &crate::told::NOT_THERE);
        let before = facts.clone();
        match (near, key) {
            (_, "product_name") => facts.name = text(),
            (_, "product_architecture") => facts.architecture = text(),
            (_, "gpu_uuid") if is_uuid(value) => {
                facts.uuid = text();
                notes.same(line, gpu.clone(), Key::Uuid(value.to_owned()));
            }
            (_, "serial_number" | "serial") => facts.serial = text(),
            (_, "vbios_version") => facts.vbios = text(),
            (_, "persistence_mode") => set(&mut facts.persistence, yes(value)),
            ("mig_mode", "current") => set(&mut facts.mig, yes(value)),
            ("pcie_generation", "max") | (_, "max_link_gen") => {
                self.generation[1] = count(value);
                set(&mut facts.pcie_generation_max, link(value));
            }
            ("pcie_generation", "current") | (_, "current_link_gen") => {
                self.generation[0] = count(value);
                set(&mut facts.pcie_generation, link(value));
            }
            ("pcie_generation", "device_max") | (_, "max_device_link_gen") => {
                set(&mut facts.pcie_generation_device_max, link(value));
            }
            ("link_width", "max") | (_, "max_link_width") => {
                set(&mut facts.pcie_width_max, link(value));
            }
            ("link_width", "current") | (_, "current_link_width") => {
                set(&mut facts.pcie_width, link(value));
            }
            (_, "replays_since_reset") => {
                set(&mut facts.pcie_replays, count(value));
            }
            ("utilization", "gpu") => self.busy = count(value),
            (_, "performance_state") => set(&mut facts.power_state, count(value)),
            (_, "compute_mode") => set(&mut facts.compute_mode, compute_mode(value)),
            ("fb_memory_usage", "total") => set(&mut facts.memory_total_bytes, mebibytes(value)),
            ("bar1_memory_usage", "total") => set(&mut facts.bar1_total_bytes, mebibytes(value)),
            ("ecc_mode", "current") => set(&mut facts.ecc, yes(value)),
            ("temperature", "gpu_current_temp" | "gpu_temp") => {
                set(&mut facts.temperature_c, count(value));
            }
            ("clocks", "sm") => set(&mut facts.sm_clock_mhz, count(value)),
            ("clocks", "memory") => set(&mut facts.memory_clock_mhz, count(value)),
            (_, "virtualization_mode") => {
                let guest = matches!(value, "Pass-Through" | "VGPU");
                if guest || value == "None" {
                    notes.host(line, |host| host.virtual_machine = Reading::Known(guest));
                }
            }
            _ => {}
        }
        if facts != before {
            notes.add(line, Note::Gpu(gpu, Box::new(facts)));
        }
    }

    /// Takes facts that several lines make up.
    fn in_parts(&mut self, near: &str, key: &str, value: &str) -> bool {
        match (near, key) {
            ("remapped_rows", "correctable_error" | "correctable") => {
                self.rows[0] = count(value);
            }
            ("remapped_rows", "uncorrectable_error" | "uncorrectable") => {
                self.rows[1] = count(value);
            }
            ("remapped_rows", "pending") => self.pending = yes(value),
            ("remapped_rows", "remapping_failure_occurred" | "failure") => {
                self.failed = yes(value);
            }
            ("fabric", "state") => {
                let state = match value {
                    "Completed" => FabricState::Completed,
                    "In Progress" => FabricState::InProgress,
                    "Not Started" => FabricState::NotStarted,
                    _ => return true,
                };
                self.fabric = Some(Fabric {
                    state,
                    status: 0,
                    health_mask: None,
                    clique_id: 0,
                    cluster_uuid: String::new(),
                });
            }
            ("fabric", "status") => {
                if let Some(fabric) = self.fabric.as_mut().filter(|_| value != "Success") {
                    // The text names the failure and not its code; 999 is NVML's "unknown error".
                    fabric.status = 999;
                }
            }
            ("fabric", "cliqueid") => {
                if let (Some(fabric), Some(clique)) = (&mut self.fabric, count(value)) {
                    fabric.clique_id = clique;
                }
            }
            ("fabric", "clusteruuid") => {
                if let Some(fabric) = &mut self.fabric {
                    fabric.cluster_uuid = value.to_owned();
                }
            }
            (near, key) if is_reasons(near) => {
                let reasons = self.reasons.get_or_insert_default();
                let name = key
                    .trim_start_matches("clocks_event_reason_")
                    .trim_start_matches("clocks_throttle_reason_");
                if yes(value) == Some(true) && !matches!(name, "idle" | "gpu_idle") {
                    let known = model::snapshot::throttle_reason(name);
                    reasons.push(known.map_or_else(|| name.to_owned(), str::to_owned));
                }
            }
            (_, "process_id") => {
                if let Some(pid) = count(value) {
                    self.processes.push(GpuProcess { pid, name: None, memory_bytes: None });
                }
            }
            _ => return false,
        }
        true
    }
}

/// Returns true for the words that stand where a reading failed.
fn is_failure(value: &str) -> bool {
    let words = value.trim_matches(['[', ']']);
    matches!(words, "ERR!" | "GPU is lost" | "Unknown Error" | "GPU requires reset")
}

fn is_reasons(near: &str) -> bool {
    matches!(near, "clocks_event_reasons" | "clocks_throttle_reasons")
}

pub(super) fn set<T>(to: &mut Reading<T>, value: Option<T>) {
    if let Some(value) = value {
        *to = Reading::Known(value);
    }
}

fn compute_mode(value: &str) -> Option<ComputeMode> {
    Some(match value {
        "Default" => ComputeMode::Default,
        "Exclusive_Process" | "E. Process" => ComputeMode::ExclusiveProcess,
        "Exclusive_Thread" | "E. Thread" => ComputeMode::ExclusiveThread,
        "Prohibited" => ComputeMode::Prohibited,
        _ => return None,
    })
}

/// Takes a fact of the whole machine.
pub(super) fn of_host(key: &str, value: &str, line: u32, notes: &mut Notes) {
    let text = || Reading::Known(value.to_owned());
    match key {
        "driver_version" => {
            notes.version = Some(value.to_owned());
            notes.host(line, |host| host.driver_version = text());
        }
        "cuda_version" => notes.host(line, |host| host.cuda_version = text()),
        "attached_gpus" => {
            if let Some(number) = count(value) {
                notes.add(line, Note::Listed(number));
            }
        }
        _ => {}
    }
}
