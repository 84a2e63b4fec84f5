//! `--gpus`: selects the GPUs that a command looks at.

use diagnose::missing;
use model::report::MOST_GPUS;
use model::request::{LeftOutGpu, Request};
use model::snapshot::{Gpu, Snapshot};
use model::units::PciAddress;

/// Keeps the GPUs named by index, range of indices, UUID or PCI address, and the pairs between them. Records the GPUs
/// left out in the request. An empty list keeps all.
///
/// # Errors
///
/// No GPU has a given name; the sentence lists the GPUs that exist.
pub(super) fn select(
    mut snapshot: Snapshot,
    wanted: &[String],
) -> Result<(Snapshot, Request), String> {
    let gpus = wanted.iter().map(|name| name.trim().to_owned()).collect();
    let request = Request { gpus, ..Request::default() };
    if wanted.is_empty() || (snapshot.gpus.is_empty() && !snapshot.problems.is_empty()) {
        // Without any GPU, the reason for that helps more than the name that was not found.
        return Ok((at_most(MOST_GPUS, snapshot)?, request));
    }
    let mut kept = Vec::new();
    for name in wanted.iter().map(|name| name.trim()) {
        if let Some((first, last)) = range(name)? {
            let is_there = |index: u32| snapshot.gpus.iter().any(|gpu| gpu.index == index);
            // The search ends at the first missing GPU, however long the range is.
            if let Some(missing) = (first..=last).find(|&index| !is_there(index)) {
                return Err(no_such(&snapshot, &missing.to_string()));
            }
            kept.extend(first..=last);
            continue;
        }
        let gpu = snapshot.gpus.iter().find(|gpu| is_named(&snapshot, gpu, name));
        let gpu = gpu.ok_or_else(|| no_such(&snapshot, name))?;
        kept.push(gpu.index);
    }
    if snapshot.gpus.iter().all(|gpu| kept.contains(&gpu.index)) {
        // Every listed GPU was named: the user means the whole machine, and any missing GPU counts as missing.
        return Ok((at_most(MOST_GPUS, snapshot)?, request));
    }
    let request = without(request, &snapshot, &kept);
    snapshot.gpus.retain(|gpu| kept.contains(&gpu.index));
    snapshot.pairs.retain(|pair| kept.contains(&pair.source) && kept.contains(&pair.destination));
    // A GPU that NVML does not list was not requested.
    snapshot.unlisted_gpus.retain(|function| function.gpu.is_some_and(|gpu| kept.contains(&gpu)));
    Ok((at_most(MOST_GPUS, snapshot)?, request))
}

/// Returns the machine, or an error if it has more GPUs than a report can be read back with.
fn at_most(most: usize, snapshot: Snapshot) -> Result<Snapshot, String> {
    match snapshot.gpus.len() {
        gpus if gpus > most => Err(format!(
            "{gpus} GPUs are more than {most}: choose some with --gpus, for example 0-7"
        )),
        _ => Ok(snapshot),
    }
}

/// Adds to a request the GPUs of the whole machine that are not kept: those that NVML lists, and those that it should
/// list.
fn without(request: Request, whole: &Snapshot, kept: &[u32]) -> Request {
    let others: Vec<_> = whole.gpus.iter().filter(|gpu| !kept.contains(&gpu.index)).collect();
    let missing = missing(whole);
    let number = others.len() + missing.number();
    let listed = others.iter().map(|gpu| LeftOutGpu {
        index: Some(gpu.index),
        pci: whole.address_of(gpu.index),
        uuid: gpu.uuid.known().cloned(),
    });
    let unlisted = missing
        .functions()
        .map(|function| LeftOutGpu { pci: Some(function.address), ..Default::default() });
    Request {
        gpus_left_out: u32::try_from(number).unwrap_or(u32::MAX),
        left_out_gpus: listed.chain(unlisted).collect(),
        ..request
    }
}

/// Returns the ends of a range of indices such as `0-3`; `None` for the name of one GPU.
fn range(name: &str) -> Result<Option<(u32, u32)>, String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((first, last)) = name.split_once('-') else {
        return Ok(None);
    };
    match (is_number(first), is_number(last)) {
        (true, true) => {}
        (true, false) if last.is_empty() => {
            return Err(format!("--gpus: the range '{name}' has no end, as 0-3 has"));
        }
        (false, true) if first.is_empty() => {
            return Err(format!("--gpus: the range '{name}' has no start, as 0-3 has"));
        }
        _ => return Ok(None),
    }
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(Some((first, last))),
        (Ok::<u32, _>(from), Ok(to)) => {
            Err(format!("--gpus: the range '{name}' counts down; give {to}-{from}"))
        }
        _ => Err(format!("--gpus: no machine has as many GPUs as '{name}'")),
    }
}

fn is_named(snapshot: &Snapshot, gpu: &Gpu, name: &str) -> bool {
    name.parse() == Ok(gpu.index)
        || gpu.uuid.known().is_some_and(|uuid| uuid.eq_ignore_ascii_case(name))
        || name
            .parse::<PciAddress>()
            .is_ok_and(|address| snapshot.address_of(gpu.index) == Some(address))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_gpus_than_a_report_can_have_are_refused_however_they_are_named() {
        let mut machine = sample::healthy(2).snapshot;
        let gpu = machine.gpus[0].clone();
        machine.gpus = (0..33).map(|index| Gpu { index, ..gpu.clone() }).collect();
        for all in [&[][..], &["0-32".to_owned()]] {
            let why = select(machine.clone(), all).unwrap_err();
            assert_eq!(why, "33 GPUs are more than 32: choose some with --gpus, for example 0-7");
        }
        let (some, _) = select(machine, &["0-31".to_owned()]).unwrap();
        assert_eq!(some.gpus.len(), 32);
    }
}
