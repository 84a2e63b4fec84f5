//! The machine in a few lines.

use super::figures::{by_key, count, ranges};
use super::gaps;
use super::highlight::Highlights;
use super::matrix::{Cell, Table, or_dash};
use super::page::{Page, Paint};
use super::paths;
use model::measurement::LinkUnderLoad;
use model::pcie::Connection;
use model::reading::{Reading, Unknown};
use model::report::Report;
use model::snapshot::Gpu;
use model::units::{MIB, PcieLink};
use topology::belief::{Belief, Beliefs, Known};

/// Most columns of labels; wider ones run into their text rather than push all texts to the right.
const LABELS: usize = 16;

/// Writes host, driver and GPUs.
pub(super) fn write(page: &mut Page, report: &Report) {
    page.heading("Machine");
    let highlights = Highlights::of(&report.findings);
    let groups = gpu_groups(report);
    let label = |gpus: &[u32]| format!("GPU {}", ranges(gpus));
    let widest = groups.iter().map(|(gpus, _)| label(gpus).len()).max().unwrap_or(0);
    let hang = widest.clamp("software".len(), LABELS) + 4;
    page.item(2, hang, "host", Paint::Faint, &host_text(report));
    page.item(2, hang, "software", Paint::Faint, &software(report));
    if groups.is_empty() {
        let none =
            if report.read_from.is_some() { "no list of GPUs in the text" } else { "none found" };
        page.item(2, hang, "GPUs", Paint::Faint, none);
    }
    for (gpus, text) in &groups {
        let worst = gpus.iter().map(|&index| highlights.gpu(index)).max().unwrap_or_default();
        let number = if gpus.len() > 1 { format!("{} x ", gpus.len()) } else { String::new() };
        page.item(2, hang, &label(gpus), worst.max(Paint::Faint), &format!("{number}{text}"));
    }
    if page.verbose() {
        identities(page, report);
    }
}

fn host_text(report: &Report) -> String {
    let host = &report.snapshot.host;
    let numa_nodes = report.snapshot.numa_nodes.len();
    let counted = count(numa_nodes, "NUMA node");
    let parts = [
        Some(host.hostname.known().map_or("name unknown", String::as_str)),
        host.cpu.known().map(String::as_str),
        (numa_nodes > 0).then_some(counted.as_str()),
        Some(match host.virtual_machine {
            Reading::Known(true) => "virtual machine",
            Reading::Known(false) => "bare metal",
            Reading::Unknown(_) => "bare metal or virtual machine: unknown",
        }),
        (host.container.get() == Some(true)).then_some("in a container"),
        (host.iommu_translating.get() == Some(true)).then_some("IOMMU translates device addresses"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the known versions, then the unknown ones, with each reason once, and none that a finding gives.
fn software(report: &Report) -> String {
    let host = &report.snapshot.host;
    // The refusal of NVML has the version of the libraries.
    let refused = report.read_from.is_some() && report.snapshot.nvml_failure_code.is_some();
    let module = &host.kernel_module_version;
    let of_module = host.driver_version.known().is_none() && module.known().is_some();
    let readings = [
        (
            if refused { "libraries" } else { "driver" },
            if of_module { module } else { &host.driver_version },
        ),
        ("CUDA", &host.cuda_version),
        ("NVML", &host.nvml_version),
        ("kernel", &host.kernel_version),
    ];
    let known =
        readings.iter().filter_map(|(name, reading)| Some(format!("{name} {}", reading.known()?)));
    let unknown =
        by_key(readings.iter().filter_map(|(name, reading)| Some((reading.unknown()?, *name))));
    let unknown = unknown.into_iter().map(|(why, names)| match why {
        Unknown::Failed(cause) if gaps::is_said(report, cause) => {
            format!("{} unknown", names.join("/"))
        }
        why => format!("{} unknown ({why})", names.join("/")),
    });
    known.chain(unknown).collect::<Vec<_>>().join(", ")
}

/// Groups GPUs with the same facts, each group with its text, in order of their first index.
pub(super) fn gpu_groups(report: &Report) -> Vec<(Vec<u32>, String)> {
    let measurements = report.measurements.as_ref();
    let beliefs = Beliefs::of(&report.snapshot, &report.topology, measurements, |_| false);
    let loads = measurements.map_or(&[][..], |measurements| &measurements.links);
    let text = |gpu: &Gpu| {
        let link = report.topology.pcie_link_of(gpu.index);
        let load = loads.iter().find(|load| load.index == gpu.index);
        let parts = [model(gpu), pcie(link, beliefs.on_gpu(gpu.index), load)];
        let speed = nvlink_speed(gpu).filter(|_| report.read_from.is_some());
        let nvlinks = nvlinks(gpu).map(|text| text + &speed.unwrap_or_default());
        parts.into_iter().chain(nvlinks).collect::<Vec<_>>().join(", ")
    };
    let groups = by_key(report.snapshot.gpus.iter().map(|gpu| (text(gpu), gpu.index)));
    groups.into_iter().map(|(text, gpus)| (gpus, text)).collect()
}

fn model(gpu: &Gpu) -> String {
    let name = match &gpu.name {
        Reading::Known(name) => name.clone(),
        Reading::Unknown(why) => format!("model unknown ({why})"),
    };
    match gpu.memory_total_bytes.get() {
        // Whole GiB: boards of the same model differ by some reserved MiB.
        Some(bytes) => format!("{name}, {} GiB", (bytes.0 / MIB + 512) / 1024),
        None => name,
    }
}

/// Returns the PCIe link under load, with the fewest lanes that it had, if it is known from there; otherwise at rest.
fn pcie(link: Option<&Connection>, belief: Option<Belief>, load: Option<&LinkUnderLoad>) -> String {
    let belief = belief.filter(|belief| belief.known == Known::UnderLoad);
    let loaded = belief.zip(load).and_then(|(belief, load)| {
        let width = load.width?[0].try_into().ok()?;
        Some(PcieLink { generation: belief.shape.generation?, width })
    });
    let possible = link.map(|link| link.possible).unwrap_or_default();
    let text = match loaded {
        Some(loaded) => {
            let below = possible.generation.filter(|&possible| loaded.generation < possible);
            let below = below.map(|of| format!(" (can do Gen{of})")).unwrap_or_default();
            Some(format!("{} under load{below}", paths::lanes_text(loaded, possible.width)))
        }
        None => link.and_then(paths::link_text),
    };
    format!("PCIe {}", text.as_deref().unwrap_or("link unknown"))
}

/// Returns `NVLink 18 of 18 active`, or `None` for a GPU without NVLink.
fn nvlinks(gpu: &Gpu) -> Option<String> {
    let links = gpu.nvlinks.known().filter(|links| !links.is_empty())?;
    let known: Vec<bool> = links.iter().filter_map(|link| link.active.get()).collect();
    let active = known.iter().filter(|active| **active).count();
    Some(match known.is_empty() {
        true => format!("NVLink {} listed", links.len()),
        false => format!("NVLink {active} of {} active", links.len()),
    })
}

/// Returns the rate that the driver states of each active link, if it is one.
fn nvlink_speed(gpu: &Gpu) -> Option<String> {
    let active = gpu.nvlinks.known()?.iter().filter(|link| link.active.get() == Some(true));
    let mut speeds = active.map(|link| link.speed_mbps.get());
    let first = speeds.next()??;
    let is_one = speeds.all(|speed| speed == Some(first));
    is_one.then(|| format!(" at {:.1} GB/s each", f64::from(first) / 1000.0))
}

/// Writes what identifies each board.
fn identities(page: &mut Page, report: &Report) {
    let mut table = Table::of_words(4);
    for gpu in &report.snapshot.gpus {
        let address = gpu.pci.get().map(|pci| pci.to_string());
        let serial = gpu.serial.known().cloned();
        let known = [address, serial, gpu.uuid.known().cloned()].map(or_dash);
        table.row([Cell::new(gpu.label(), Paint::Faint)].into_iter().chain(known));
    }
    page.table(table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_under_load_only_if_its_readings_then_are_believed() {
        let mut report = sample::pcie_box();
        for (readings, generation, width, text) in [
            (40, [1, 4], [16, 16], "PCIe Gen4 x16 under load"),
            (40, [4, 4], [8, 16], "PCIe Gen4 x8 of x16 ✗ narrow under load"),
            // Too few, and then faster copies refute them.
            (2, [1, 1], [16, 16], "PCIe Gen1 (idle? can do Gen4) x16"),
            (40, [1, 1], [16, 16], "PCIe Gen1 (idle? can do Gen4) x16"),
        ] {
            report.measurements.as_mut().unwrap().links = vec![LinkUnderLoad {
                index: 1,
                readings,
                generation: Some(generation),
                width: Some(width),
                ..LinkUnderLoad::default()
            }];
            let groups = gpu_groups(&report);
            let (_, found) = groups.iter().find(|(gpus, _)| gpus.contains(&1)).unwrap();
            assert!(found.ends_with(text), "{readings} {generation:?}: {found}");
        }
    }
}
