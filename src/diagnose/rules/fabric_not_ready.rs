//! # What it means
//!
//! A GPU that is connected to others by NVSwitch is not registered with the fabric, or the fabric reports that it is
//! degraded.
//!
//! # How it is detected
//!
//! NVML reports the state of the registration (not started, in progress, completed), its status, and a health mask, in
//! NVIDIA's words. The rule reports a state other than completed, a status other than 0 and a health bit that means
//! degraded. It also reports if copies reach the full rate of the GPU's NVLinks nevertheless, and then judges them by
//! that rate. All GPUs in the same state share one finding. In progress is a warning, since it may still complete. CUDA
//! error 802 (system not yet initialised) is reported in the same way if NVML gives no state. A GPU is judged only if
//! it has NVLinks to a switch, or NVLinks none of which leads to another GPU. On a machine without NVSwitch no fabric
//! manager runs, which is correct. On trays of a larger NVLink domain (GB200, GB300) the fabric manager runs on the
//! switch trays. A tray that has no link up at all runs by itself, and that is information while CUDA starts. GPUs in
//! different cliques or clusters are a warning: the switches carry nothing between them.
//!
//! # Why it matters
//!
//! CUDA does not start at all (error 802), or copies go over PCIe or not at all.
//!
//! # What to do
//!
//! `systemctl status nvidia-fabricmanager` and its log (/var/log/fabricmanager.log). Its version must be exactly the
//! driver's. Restart it, then the programs. If it fails: look for NVSwitches that are missing (`nvidia-smi nvlink -s`,
//! `dmesg | grep -i -E 'nvswitch|sxid'`) and power-cycle the machine. In a virtual machine the fabric manager runs on
//! the host.
//!
//! # Sources
//!
//! NVML, `nvmlDeviceGetGpuFabricInfoV`; CUDA driver API, `CUDA_ERROR_SYSTEM_NOT_READY` (802); NVIDIA
//! fabric manager user guide.

use super::fabric_words;
use super::prelude::*;
use model::restore::CUDA_SYSTEM_NOT_READY;
use model::snapshot::{Fabric, NvLink, NvLinkRemote};

pub(crate) const RULE: Rule = Rule::new("fabric-not-ready", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let not_ready = cuda_is_not_ready(evidence);
    // CUDA's error comes from the fabric, even if links that are down do not show where they lead.
    let is_switched =
        |gpu: &&Gpu| has_nvswitch(evidence.snapshot, gpu) || (not_ready && leads_nowhere_else(gpu));
    let switched: Vec<_> = evidence.snapshot.gpus.iter().filter(is_switched).collect();
    let mut alike: BTreeMap<(Severity, String), Vec<u32>> = BTreeMap::new();
    for gpu in &switched {
        let trouble = gpu.fabric.known().and_then(trouble).or_else(|| {
            let unread = gpu
                .fabric
                .known()
                .is_none_or(|fabric| fabric.state == FabricState::NotSupported);
            (unread && not_ready).then(|| {
                (
                    Severity::Error,
                    "NVML gives no state of the NVSwitch fabric".to_owned(),
                )
            })
        });
        if let Some(trouble) = trouble {
            alike.entry(trouble).or_default().push(gpu.index);
        }
    }
    if is_tray_by_itself(evidence.snapshot) && !not_ready {
        let gpus: Vec<u32> = alike.into_values().flatten().collect();
        return if gpus.is_empty() {
            Vec::new()
        } else {
            vec![by_itself(&gpus)]
        };
    }
    let mut findings: Vec<_> = alike
        .into_iter()
        .map(|((severity, what), gpus)| finding(evidence, severity, &what, &gpus, switched.len()))
        .collect();
    findings.extend(cliques(&switched));
    findings
}

fn finding(
    evidence: &Evidence<'_>,
    severity: Severity,
    what: &str,
    gpus: &[u32],
    switched: usize,
) -> Finding {
    let who = match gpus.len() {
        number if number > 1 && number == switched => format!("All {switched} GPUs"),
        _ => words::named(evidence.snapshot, gpus),
    };
    let cuda = evidence.measured().driver.failure.clone();
    let cuda = cuda.filter(|_| cuda_is_not_ready(evidence));
    let said = cuda
        .as_ref()
        .map(|why| format!("; CUDA: {why}"))
        .unwrap_or_default();
    let carries = full_rate(evidence, gpus)
        .map(|rate| {
            format!(". Copies over their NVLinks reach their full rate nevertheless ({rate} GB/s)")
        })
        .unwrap_or_default();
    let runs_here = manager_runs_here(evidence, gpus);
    let log = Plan::now([
        Step::FabricManager,
        Step::RestartFabricManager,
        Step::CheckAgain,
    ]);
    let plan = if of_a_tray(evidence.snapshot) {
        let reset = Step::ResetGpu(all(gpus), Listed(gpus.to_vec()));
        Plan::now([Step::FabricTrays, reset, Step::CheckAgain])
    } else if !carries.is_empty() {
        let update = [Step::UpdateFabric, Step::FabricLog, Step::CheckAgain];
        Plan::now([Step::Nothing(Fine::NowFast)]).and(When::Afterwards, update)
    } else if runs_here == Some(false) {
        Plan::now([
            Step::AskHost(Ask::Fabric),
            Step::ReloadDriver,
            Step::CheckAgain,
        ])
    } else if runs_here.is_none() {
        Plan::now([
            Step::FabricManagerHere,
            Step::AskHost(Ask::Fabric),
            Step::CheckAgain,
        ])
    } else {
        log.if_it_stays([Step::SwitchLog, Step::PowerCycle])
    };
    let mut found = RULE
        .finding(
            Subject::of_gpus(gpus),
            format!("{who}: {what}{said}{carries}"),
            plan,
        )
        .gpus(gpus)
        .fact("gpus_with_nvswitch", switched)
        .fact("cuda", cuda);
    found.severity = severity;
    found.suspects = match runs_here {
        _ if of_a_tray(evidence.snapshot) => of_tray(),
        Some(false) => of_host(),
        _ if gpus.len() == switched => of_all(),
        _ => of_some(),
    };
    found
}

/// Returns true if the fabric manager of these GPUs runs on this machine. In a virtual machine it runs where the
/// NVSwitches are. Those of Blackwell are on no PCI bus, so with them it is not known.
fn manager_runs_here(evidence: &Evidence<'_>, gpus: &[u32]) -> Option<bool> {
    if !evidence.virtual_machine() || !evidence.snapshot.nvswitches.is_empty() {
        return Some(true);
    }
    let older = |gpu: &u32| {
        let architecture = evidence
            .snapshot
            .gpu(*gpu)
            .and_then(|gpu| gpu.architecture.known());
        architecture.is_some_and(|name| {
            ["Volta", "Ampere", "Hopper"]
                .iter()
                .any(|older| name.contains(older))
        })
    };
    gpus.iter().all(older).then_some(false)
}

/// Returns the lowest rate of sound copies over NVLinks of these GPUs. Returns it only if state and status of their
/// registration are the only faults: every pair is as fast as its links.
fn full_rate(evidence: &Evidence<'_>, gpus: &[u32]) -> Option<GbPerSecond> {
    let refused = |gpu: &u32| {
        let gpu = evidence.snapshot.gpu(*gpu)?;
        gpu.fabric
            .known()
            .map(|fabric| fabric.state != FabricState::Completed || fabric.status != 0)
    };
    let cells: Vec<_> = evidence.reference_with(Path::Direct, gpus);
    let is_fast = |cell: &&PeerBandwidth| {
        evidence.over_nvlink(cell.pair) && links::is_slow(evidence, cell) == Some(false)
    };
    let all = gpus.iter().all(|gpu| refused(gpu) == Some(true))
        && !cells.is_empty()
        && cells.iter().all(is_fast);
    links::range(cells.iter().filter_map(|cell| cell.achieved_gbps))
        .0
        .filter(|_| all)
}

/// Returns true if the GPUs are those of a tray of a larger NVLink domain.
pub(crate) fn of_a_tray(snapshot: &Snapshot) -> bool {
    snapshot
        .gpus
        .iter()
        .filter_map(|gpu| gpu.name.known())
        .any(|name| is_tray_part(name))
}

/// Returns true if this NVML name is that of a part for such trays.
fn is_tray_part(name: &str) -> bool {
    name.split_whitespace()
        .any(|word| ["GB200", "GB300"].contains(&word))
}

/// Returns true if the GPUs are those of one tray of a larger NVLink domain, with no link up to the switches of its
/// rack. Their fabric manager runs on the switch trays, so there is none to start on this machine.
pub(crate) fn is_tray_by_itself(snapshot: &Snapshot) -> bool {
    let by_itself = |gpu: &&Gpu| {
        gpu.name.known().is_some_and(|name| is_tray_part(name)) && gpu.active_nvlinks() == Some(0)
    };
    // A GPU that does not answer gives no evidence either way.
    let mut answering = snapshot
        .gpus
        .iter()
        .filter(|gpu| gpu.name.known().is_some())
        .peekable();
    answering.peek().is_some() && answering.all(|gpu| by_itself(&gpu))
}

/// Returns one line for such a tray.
fn by_itself(gpus: &[u32]) -> Finding {
    RULE.finding(
        Subject::of_gpus(gpus),
        format!(
            "{}: no NVLink is up and no fabric is registered, as on a tray that runs without the switches of its rack",
            words::gpus(gpus)
        ),
        Plan::now([Step::Nothing(Fine::IfTrayAlone)]).otherwise([Step::FabricTrays]),
    )
    .at(Severity::Info)
    // No scope: this is how the tray is built, and no cause of anything.
    .fact("gpus", Fact::Gpus(gpus.to_vec()))
}

/// Returns a finding if the switches do not connect all GPUs to each other, although all of them are registered.
fn cliques(switched: &[&Gpu]) -> Option<Finding> {
    let mut cliques: BTreeMap<(String, u32), Vec<u32>> = BTreeMap::new();
    for gpu in switched {
        let Some(fabric) = gpu
            .fabric
            .known()
            .filter(|fabric| fabric.state == FabricState::Completed)
        else {
            continue;
        };
        cliques
            .entry((fabric.cluster_uuid.clone(), fabric.clique_id))
            .or_default()
            .push(gpu.index);
    }
    if cliques.len() < 2 {
        return None;
    }
    let parts: Vec<_> = cliques
        .iter()
        .map(|((_, clique), gpus)| format!("{} in clique {clique}", words::gpus(gpus)))
        .collect();
    // The affected pairs are those with a GPU outside the largest clique.
    let largest = cliques.values().max_by_key(|gpus| gpus.len())?;
    let apart: Vec<_> = cliques
        .values()
        .filter(|gpus| *gpus != largest)
        .flatten()
        .copied()
        .collect();
    let mut clusters: Vec<_> = cliques.keys().map(|(cluster, _)| cluster.clone()).collect();
    clusters.dedup();
    let mut found = RULE
        .finding(
            Subject::Machine,
            format!(
                "The NVSwitches connect the GPUs in {} separate parts{}: {}. They carry nothing between the parts",
                cliques.len(),
                if clusters.len() > 1 { " of different clusters" } else { "" },
                parts.join("; ")
            ),
            Plan::now([Step::Nothing(Fine::IfPartitioned)]).otherwise([Step::Partitions]),
        )
        .fact("parts", parts)
        .fact("clusters", clusters)
        .gpus(&apart);
    found.severity = Severity::Warning;
    Some(found)
}

/// Returns the fault that a fabric state shows; `None` if there is none.
fn trouble(fabric: &Fabric) -> Option<(Severity, String)> {
    match fabric.state {
        FabricState::NotSupported => None,
        FabricState::NotStarted => Some((
            Severity::Error,
            "the registration with the NVSwitch fabric has not started".into(),
        )),
        FabricState::InProgress => Some((
            Severity::Warning,
            "the registration with the NVSwitch fabric is still in progress".into(),
        )),
        FabricState::Completed if fabric.status != 0 => Some((
            Severity::Error,
            format!(
                "the registration with the NVSwitch fabric ended with NVML status {}",
                fabric_words::status(fabric.status)
            ),
        )),
        FabricState::Completed => {
            let mask = fabric.health_mask.filter(|mask| *mask != 0)?;
            Some((
                Severity::Error,
                format!(
                    "the NVSwitch fabric reports in its health mask: {}",
                    fabric_words::health(mask)
                ),
            ))
        }
    }
}

/// Returns true if CUDA does not start because the fabric is not ready.
pub(crate) fn cuda_is_not_ready(evidence: &Evidence<'_>) -> bool {
    evidence.measured().driver.failure_code == Some(CUDA_SYSTEM_NOT_READY)
}

/// Returns true if this GPU is connected to NVSwitches. Either a link leads to one, or the links do not show where they
/// lead (they may be down). In the second case a fabric or NVSwitches on the PCI bus must be present, and no link may
/// lead to a GPU or a processor.
fn has_nvswitch(snapshot: &Snapshot, gpu: &Gpu) -> bool {
    let mut links = gpu.nvlinks.known().into_iter().flatten();
    let in_fabric = gpu
        .fabric
        .known()
        .is_some_and(|fabric| fabric.state != FabricState::NotSupported);
    links.any(|link| link.remote.get() == Some(NvLinkRemote::Switch))
        || ((in_fabric || !snapshot.nvswitches.is_empty()) && leads_nowhere_else(gpu))
}

/// Returns true if a GPU has NVLinks and none of them is known to lead to a GPU or a processor.
fn leads_nowhere_else(gpu: &Gpu) -> bool {
    let elsewhere = |link: &NvLink| {
        matches!(
            link.remote.get(),
            Some(NvLinkRemote::Gpu | NvLinkRemote::Npu)
        )
    };
    gpu.nvlinks
        .known()
        .is_some_and(|links| !links.is_empty() && !links.iter().any(elsewhere))
}

fn of_all() -> Vec<Suspect> {
    vec![
        suspect(Cause::FabricManagerDown, [Step::FabricManager]),
        suspect(Cause::FabricVersion, [Step::FabricVersions]),
        suspect(Cause::NvSwitchMissing, [Step::SwitchLog]),
    ]
}

/// Returns the suspects of a tray, which has neither fabric manager nor NVSwitches.
fn of_tray() -> Vec<Suspect> {
    vec![
        suspect(Cause::FabricOfTray, [Step::FabricTrays]),
        suspect(Cause::TrayCable, [Step::OtherTrays]),
    ]
}

fn of_host() -> Vec<Suspect> {
    vec![
        suspect(Cause::FabricOfHost, [Step::AskHost(Ask::FabricLog)]),
        suspect(Cause::FabricVersionThere, [Step::FabricVersionThere]),
    ]
}

fn of_some() -> Vec<Suspect> {
    let restart = [Step::RestartFabricManager, Step::CheckAgain];
    vec![
        suspect(Cause::LinksDown, [Step::LinkStates, Step::FabricLog]),
        suspect(Cause::FabricStartedBefore, restart),
    ]
}
