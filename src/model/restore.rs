//! What is typed in memory and not in so many words in a saved report: put back once, when a report is
//! read, and nowhere else.
//!
//! The scope of a finding is never written: subject and facts have it.

use std::collections::BTreeSet;

use super::fact::Fact;
use super::finding::{Finding, Scope};
use super::measurement::CudaPeerAccess;
use super::placement::Pair;
use super::report::{MOST_GPUS, MOST_GPUS_IN_FULL, Report};
use super::snapshot::GpuPair;

/// NVML's return code for a kernel module and a library of different versions.
pub const NVML_VERSION_MISMATCH: u32 = 18;

/// The driver's code for a fabric that is not ready (`CUDA_ERROR_SYSTEM_NOT_READY`).
pub const CUDA_SYSTEM_NOT_READY: u32 = 802;

/// The driver's code for more peers than a GPU may have at a time (`CUDA_ERROR_TOO_MANY_PEERS`).
pub const CUDA_TOO_MANY_PEERS: u32 = 711;

/// Puts it back into a report that was read.
pub fn restore(report: &mut Report) {
    for finding in &mut report.findings {
        finding.scope = scope(finding);
    }
    if report.snapshot.gpus.len() > MOST_GPUS_IN_FULL {
        rows(report);
    }
}

/// Puts the rows of pairs back that say the same as the row before them, and what follows from a figure.
pub fn rows(report: &mut Report) {
    let of = |said: &GpuPair| Pair {
        source: said.source,
        destination: said.destination,
    };
    let with = |said: &GpuPair, destination| GpuPair {
        destination,
        ..said.clone()
    };
    repeat(&mut report.snapshot.pairs, of, with);
    if let Some(measurements) = &mut report.measurements {
        for cell in &mut measurements.peer {
            cell.asymptotic_gbps = cell.asymptotic_gbps.or_else(|| cell.without_fixed_cost());
        }
        let with = |said: &CudaPeerAccess, destination| {
            let pair = Pair {
                destination,
                ..said.pair
            };
            CudaPeerAccess {
                pair,
                ..said.clone()
            }
        };
        repeat(&mut measurements.driver.peer_access, |said| said.pair, with);
    }
}

fn repeat<T>(rows: &mut Vec<T>, pair_of: impl Fn(&T) -> Pair, with: impl Fn(&T, u32) -> T) {
    // Of a GPU that has any row, the first one is there.
    let gpus: BTreeSet<u32> = rows.iter().map(|row| pair_of(row).source).collect();
    if gpus.len() > MOST_GPUS || !rows.is_sorted_by_key(&pair_of) {
        return;
    }
    let gpus: Vec<u32> = gpus.into_iter().collect();
    let mut written = std::mem::take(rows).into_iter().peekable();
    for pair in Pair::ordered(&gpus) {
        while let Some(other) = written.next_if(|row| pair_of(row) < pair) {
            rows.push(other);
        }
        match written.next_if(|row| pair_of(row) == pair) {
            Some(row) => rows.push(row),
            None => {
                let before = rows.last().filter(|row| pair_of(row).source == pair.source);
                rows.extend(before.map(|row| with(row, pair.destination)));
            }
        }
    }
    rows.extend(written);
}

/// The scope of a finding as far as its subject and facts tell.
fn scope(finding: &Finding) -> Scope {
    let mut scope = Scope::from(&finding.subject);
    for (key, fact) in &finding.evidence {
        match (key.as_str(), fact) {
            ("pairs", Fact::Pairs(pairs)) => scope.pairs.clone_from(pairs),
            ("gpus" | "gpus_behind", Fact::Gpus(gpus)) => scope.gpus.clone_from(gpus),
            _ => {}
        }
    }
    scope
}
