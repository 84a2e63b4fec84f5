//! `--gpus`: the GPUs that a command looks at.

use crate::model::snapshot::{Gpu, Snapshot};
use crate::model::units::PciAddress;

/// Keeps the GPUs named by index, UUID or PCI address, and the pairs between them. An empty list
/// keeps all.
///
/// # Errors
///
/// No GPU has a name that was given; lists the GPUs that exist.
pub fn select(mut snapshot: Snapshot, wanted: &[String]) -> Result<Snapshot, String> {
    if wanted.is_empty() || (snapshot.gpus.is_empty() && !snapshot.problems.is_empty()) {
        // Without any GPU, the reason for that says more than the name that was not found.
        return Ok(snapshot);
    }
    let mut kept = Vec::new();
    for name in wanted.iter().map(|name| name.trim()) {
        let is_named = |gpu: &&Gpu| is_named(gpu, name) || name.parse().ok() == snapshot.address_of(gpu.index);
        let gpu = snapshot.gpus.iter().find(is_named).ok_or_else(|| no_such(&snapshot, name))?;
        kept.push(gpu.index);
    }
    snapshot.gpus.retain(|gpu| kept.contains(&gpu.index));
    snapshot.pairs.retain(|pair| kept.contains(&pair.source) && kept.contains(&pair.destination));
    // What NVML does not list was not asked for.
    snapshot.unlisted_gpus.retain(|function| function.gpu.is_some_and(|gpu| kept.contains(&gpu)));
    Ok(snapshot)
}

fn is_named(gpu: &Gpu, name: &str) -> bool {
    name.parse() == Ok(gpu.index)
        || gpu.uuid.known().is_some_and(|uuid| uuid.eq_ignore_ascii_case(name))
        || name.parse::<PciAddress>().is_ok_and(|address| gpu.pci.get() == Some(address))
}

fn no_such(snapshot: &Snapshot, name: &str) -> String {
    let there: Vec<String> = snapshot
        .gpus
        .iter()
        .map(|gpu| match gpu.pci.known() {
            Some(pci) => format!("{} ({pci})", gpu.index),
            None => gpu.index.to_string(),
        })
        .collect();
    if there.is_empty() {
        return format!("--gpus: there is no GPU '{name}': this machine has none");
    }
    format!("--gpus: there is no GPU '{name}': this machine has {}", there.join(", "))
}
