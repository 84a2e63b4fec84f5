//! # What it means
//!
//! Another program used the GPUs or their links during the run. Beside a PyTorch process, copies of a sound 4 x H200
//! reached 170 to 200 of 396 GB/s.
//!
//! # What to do
//!
//! End the program or wait for its end, and check again. `--gpus` checks only GPUs that share nothing with it.
//!
//! # How it is detected
//!
//! While peerscope moves nothing (before the first copy, during the driver's start, after the last copy), what NVML
//! counts belongs to another program: NVLink data from 0.1 GB/s, PCIe bytes from 0.2 GB/s, and, if another process has
//! a context, a utilisation from 10%. So do NVLink bytes 5% or more beyond peerscope's while several flows are
//! measured. Figures of these GPUs, and those over PCIe links that the traffic passes, are marked `disturbed` and judge
//! nothing. Wrong bytes and hangs are still reported.
//!
//! # Sources
//!
//! NVML, fields 138, 139, 197 and 198, `nvmlDeviceGetUtilizationRates`. An idle H200 shows up to 0.1 GB/s over PCIe.

use super::prelude::*;
use super::{peers, unread_traffic};
use crate::coverage;
use model::background::{self, Background};

rule! {
    "gpu-busy", Warning, All(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let found = [moved(evidence), unread(evidence)];
    found.into_iter().flatten().collect()
}

/// Returns a finding for the traffic of other programs that was seen.
fn moved(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let others: Vec<_> =
        background::of_others(&measurements.background, evidence.snapshot).collect();
    let gpus = gpus(&others);
    if gpus.is_empty() {
        return None;
    }
    let disturbed = || coverage::cells(measurements).filter(|cell| cell.disturbed);
    let set_aside: BTreeSet<Pair> = disturbed().filter_map(|cell| cell.flow.pair()).collect();
    let unjudged = match set_aside.len() {
        0 => words::count(disturbed().count(), "measurement"),
        pairs => words::count(pairs, "pair"),
    };
    let processes = evidence.processes(&gpus);
    let who = match processes.len() {
        0 if others.iter().any(|seen| seen.has_processes) => "Another program".to_owned(),
        0 => "A program that NVML does not list (one in another container, for example)".to_owned(),
        1 => format!("Another program ({})", processes.join(", ")),
        _ => format!("Other programs (one or more of {})", words::first(&processes, 2)),
    };
    let others_gpus = evidence.snapshot.gpus_with(|gpu| !gpus.contains(&gpu.index));
    let alone = undisturbed(others_gpus, &set_aside);
    let plan = Plan::now([Step::EndProgramOn(all(&gpus)), Step::CheckAgain]);
    let (rest, plan) = match alone.len() {
        0 | 1 => ("", plan),
        _ => ("; the other pairs were judged", plan.otherwise([Step::CheckOthers(All(alone))])),
    };
    let message = format!(
        "{who} {} during the run; nothing can be judged by the figures of {unjudged}{rest}",
        did(&others),
    );
    let found = RULE.finding(Subject::of_gpus(&gpus), message, plan).fact("processes", processes);
    Some(found.about_pairs(set_aside.into_iter().collect()))
}

/// Returns the GPUs that remain once no disturbed pair is left among them. Removes the GPU with the most disturbed
/// pairs first.
fn undisturbed(mut gpus: Vec<u32>, set_aside: &BTreeSet<Pair>) -> Vec<u32> {
    loop {
        let among = |pair: &&Pair| gpus.contains(&pair.source) && gpus.contains(&pair.destination);
        let left: Vec<&Pair> = set_aside.iter().filter(among).collect();
        let disturbed = |gpu: u32| left.iter().filter(|pair| pair.touches(gpu)).count();
        let most = gpus.iter().map(|&gpu| (disturbed(gpu), gpu)).max();
        let Some((_, worst)) = most.filter(|(count, _)| *count > 0) else {
            return gpus;
        };
        gpus.retain(|gpu| *gpu != worst);
    }
}

/// Returns a finding for slow copies of GPUs whose traffic could not be read, if a known program may be the cause.
fn unread(evidence: &Evidence<'_>) -> Option<Finding> {
    let pairs = unread_pairs(evidence);
    let gpus = unread_traffic::shared(evidence, &pairs);
    if gpus.is_empty() {
        return None;
    }
    let processes = evidence.processes(&gpus);
    let message = format!(
        "Another program ({}) may have used {} during the run; its traffic could not be read, so the slow copies of {} \
         say nothing of the machine",
        words::first(&processes, 2),
        words::gpus(&gpus),
        words::count(pairs.len(), "pair"),
    );
    let steps = [Step::EndProgramOn(all(&gpus)), Step::DriverLog, Step::CheckAgain];
    let found = RULE.finding(Subject::of_gpus(&gpus), message, steps).fact("processes", processes);
    Some(unread_traffic::with_reason(found, evidence, &pairs).about_pairs(pairs))
}

/// Returns the pairs that are too slow and whose GPUs another program may have used unseen.
fn unread_pairs(evidence: &Evidence<'_>) -> Vec<Pair> {
    if !unread_traffic::is_possible(evidence) {
        return Vec::new();
    }
    let low = peers::low_pairs(evidence).into_iter();
    words::unique(low.filter(|pair| unread_traffic::may_explain(evidence, *pair)))
}

/// Returns the GPUs that other programs used, or may have used.
pub(crate) fn used_by_others(evidence: &Evidence<'_>) -> Vec<u32> {
    let seen = background::of_others(&evidence.measured().background, evidence.snapshot);
    let mut used = gpus(&seen.collect::<Vec<_>>());
    used.extend(unread_traffic::shared(evidence, &unread_pairs(evidence)));
    used
}

fn gpus(others: &[&Background]) -> Vec<u32> {
    words::unique(others.iter().map(|seen| seen.gpu))
}

/// Describes what the programs did, and with which GPUs.
fn did(others: &[&Background]) -> String {
    let of = |does: fn(&Background) -> bool| {
        let doing = others.iter().filter(|seen| does(seen));
        words::unique(doing.map(|seen| seen.gpu))
    };
    let (nvlink, pcie) = (of(Background::uses_nvlink), of(Background::uses_pcie));
    let only_computed: Vec<u32> = gpus(others)
        .into_iter()
        .filter(|gpu| !nvlink.contains(gpu) && !pcie.contains(gpu))
        .collect();
    let parts = [
        ("moved data over NVLinks of", nvlink),
        ("moved data over the PCIe link of", pcie),
        ("computed on", only_computed),
    ];
    let parts = parts
        .into_iter()
        .filter(|(_, gpus)| !gpus.is_empty())
        .map(|(what, gpus)| format!("{what} {}", words::gpus(&gpus)));
    parts.collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gpus_without_disturbed_pairs_among_them_are_offered() {
        let both_ways = |pairs: &[(u32, u32)]| -> BTreeSet<Pair> {
            let pair = |&(source, destination): &(u32, u32)| Pair { source, destination };
            pairs.iter().map(pair).flat_map(|pair| [pair, pair.reversed()]).collect()
        };
        let offered = |gpus: &[u32], pairs| undisturbed(gpus.to_vec(), &both_ways(pairs));
        assert_eq!(offered(&[0, 1, 3], &[(2, 0), (2, 1), (2, 3), (0, 3), (1, 3)]), [0, 1]);
        assert_eq!(offered(&[0, 1, 3], &[(0, 1), (0, 3)]), [1, 3]);
        assert_eq!(offered(&[0, 1], &[(0, 1)]), [0]);
        assert_eq!(offered(&[0, 1, 3], &[(2, 0), (2, 3)]), [0, 1, 3]);
    }
}
