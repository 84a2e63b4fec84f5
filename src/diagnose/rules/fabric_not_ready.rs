//! # What it means
//!
//! A GPU behind NVSwitch is not registered with the fabric, or the fabric is degraded. CUDA does not start, or copies
//! go over PCIe or not at all.
//!
//! # What to do
//!
//! `systemctl status nvidia-fabricmanager` and its log (/var/log/fabricmanager.log). Its version must be exactly the
//! driver's. Restart it, then the programs. If it fails, look for missing NVSwitches (`nvidia-smi nvlink -s`,
//! `dmesg | grep -i -E 'nvswitch|sxid'`) and power-cycle the machine. It runs on the host of a virtual machine, and
//! on the switch trays of GB200 and GB300.
//!
//! # How it is detected
//!
//! NVML reports a state other than completed, a status other than 0, or a health bit that means degraded; without a
//! state, CUDA error 802 counts. GPUs are judged that have NVLinks to a switch, or none that leads to another GPU.
//!
//! Where output of other tools has error 802 and no state of a GPU, the error alone counts.
//!
//! In progress is a warning with exit code 3 until 15 minutes after the start, later an error; a tray with no link up
//! is information; different cliques or clusters, between which switches carry nothing, are a warning. So is a fabric
//! that is up while the service of its manager is installed and does not run (the control group of
//! nvidia-fabricmanager.service).
//!
//! # Sources
//!
//! NVML, `nvmlDeviceGetGpuFabricInfoV`; CUDA driver API, `CUDA_ERROR_SYSTEM_NOT_READY` (802); NVIDIA fabric manager
//! user guide.

use super::fabric_words;
use super::prelude::*;
use model::cuda::CUDA_SYSTEM_NOT_READY;
use model::snapshot::Fabric;

rule! {
    "fabric-not-ready", Error, All(judge);
}

/// Time after the start of a machine until which its fabric may still be coming up. The fabric manager of 8 GPUs takes
/// a minute or two once the driver is loaded; chosen with a wide margin, as large machines start their services slowly.
const COMING_UP_SECONDS: u64 = 15 * 60;

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let not_ready = cuda_is_not_ready(evidence);
    // CUDA's error comes from the fabric, even if links that are down do not show where they lead.
    let is_switched = |gpu: &&Gpu| {
        has_nvswitch(evidence.snapshot, gpu)
            || (not_ready && leads_nowhere_else(gpu))
            || (evidence.read_from.is_some() && gpu.in_fabric())
    };
    let switched: Vec<_> = evidence.snapshot.gpus.iter().filter(is_switched).collect();
    let unread = "NVML gives no state of the NVSwitch fabric";
    let alike = words::grouped(switched.iter().filter_map(|gpu| {
        let is_unread = !gpu.in_fabric() && not_ready;
        let unread = || is_unread.then(|| (Severity::Error, unread.to_owned()));
        let known = gpu.fabric.known();
        let trouble = known.and_then(|fabric| trouble(evidence, fabric)).or_else(unread);
        Some((trouble?, gpu.index))
    }));
    if is_tray_by_itself(evidence.snapshot) && !not_ready {
        let gpus: Vec<u32> = alike.into_values().flatten().collect();
        let found = (!gpus.is_empty()).then(|| by_itself(&gpus));
        return found.into_iter().collect();
    }
    let mut findings: Vec<_> = alike
        .into_iter()
        .map(|((severity, what), gpus)| finding(evidence, severity, &what, &gpus, switched.len()))
        .collect();
    findings.extend(cliques(&switched));
    if findings.is_empty() {
        findings.extend(unmanaged(evidence));
    }
    if not_ready && findings.is_empty() && evidence.read_from.is_some() {
        let all = evidence.snapshot.gpus_with(|_| true);
        let what = "CUDA does not start, as where the NVSwitch fabric is not ready";
        findings.push(finding(evidence, Severity::Error, what, &all, all.len()));
    }
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
        0 => "No GPU can be used".to_owned(),
        _ => evidence.named(gpus),
    };
    let cuda = evidence.measured().driver.failure.clone().filter(|_| cuda_is_not_ready(evidence));
    let said = words::after("; CUDA: ", cuda.as_ref());
    let carries = full_rate(evidence, gpus).map_or(String::new(), |rate| {
        format!("; their copies over NVLink reach the full rate nevertheless ({rate} GB/s)")
    });
    let again = Step::CheckAgain;
    let stopped = is_stopped(evidence);
    let said = if stopped { said + "; the fabric manager does not run" } else { said };
    let (plan, suspects) = match manager_runs_here(evidence, gpus) {
        _ if of_a_tray(evidence.snapshot) => {
            let reset = Step::ResetGpu(all(gpus));
            (Plan::now([Step::FabricTrays, reset, again]), of_tray())
        }
        _ if stopped => {
            let plan = Plan::now([Step::StartFabricManager, again]).if_it_stays([
                Step::FabricManager,
                Step::NvLinkLog,
                Step::PowerCycle,
            ]);
            (plan, vec![suspect(Cause::FabricManagerDown, [Step::StartFabricManager])])
        }
        Some(false) => {
            let ask = [Step::AskHost(Ask::Fabric), Step::ReloadDriver, again];
            (Plan::now(ask), of_host())
        }
        here => {
            let plan = match here {
                None => Plan::now([Step::FabricManager, Step::AskHost(Ask::Fabric), again]),
                _ => Plan::now([Step::FabricManager, Step::RestartFabricManager, again])
                    .if_it_stays([Step::NvLinkLog, Step::PowerCycle]),
            };
            let is_of_all = gpus.len() == switched;
            (plan, if is_of_all { of_all() } else { of_some() })
        }
    };
    let plan = match carries.is_empty() || stopped || of_a_tray(evidence.snapshot) {
        true => plan,
        false => Plan::now([Step::Nothing(Fine::Always)])
            .and(When::Afterwards, [Step::UpdateFabric, Step::FabricManager, Step::CheckAgain]),
    };
    RULE.finding(Subject::of_gpus(gpus), format!("{who}: {what}{said}{carries}"), plan)
        .gpus(gpus)
        .fact("gpus_with_nvswitch", switched)
        .at(severity)
        .suspecting(suspects)
}

/// Returns true if the service of the fabric manager is known not to run.
fn is_stopped(evidence: &Evidence<'_>) -> bool {
    evidence.snapshot.host.fabric_manager_running.get() == Some(false)
        && !of_a_tray(evidence.snapshot)
}

/// Returns a finding if NVSwitches are on the bus, all is well with the fabric, and its manager does not run: what is up
/// stays up until a GPU is reset or a link fails.
fn unmanaged(evidence: &Evidence<'_>) -> Option<Finding> {
    let switches = evidence.snapshot.nvswitches.len();
    if switches == 0 || !is_stopped(evidence) || is_just_started(evidence.snapshot) {
        return None;
    }
    let message = "The fabric manager does not run; the NVSwitch fabric is still up, but GPUs that are reset do not come \
                   back to it, and nobody handles links that fail";
    let plan = [Step::StartFabricManager, Step::FabricManager, Step::CheckAgain];
    Some(RULE.on_machine(message, plan).fact("nvswitches", switches).at(Severity::Warning))
}

/// Returns true if the fabric manager of these GPUs runs on this machine. In a virtual machine it runs where the
/// NVSwitches are. Those of Blackwell are on no PCI bus, so with them it is not known.
fn manager_runs_here(evidence: &Evidence<'_>, gpus: &[u32]) -> Option<bool> {
    if !evidence.virtual_machine() || !evidence.snapshot.nvswitches.is_empty() {
        return Some(true);
    }
    let older = |gpu: &u32| {
        let gpu = evidence.snapshot.gpu(*gpu);
        let architecture = gpu.and_then(|gpu| gpu.architecture.known());
        let mut older = ["Volta", "Ampere", "Hopper"].iter();
        architecture.is_some_and(|name| older.any(|older| name.contains(older)))
    };
    gpus.iter().all(older).then_some(false)
}

/// Returns the lowest rate of sound copies over NVLinks of these GPUs. Returns it only if state and status of their
/// registration are the only faults: every pair is as fast as its links.
fn full_rate(evidence: &Evidence<'_>, gpus: &[u32]) -> Option<GbPerSecond> {
    let refused = |gpu: &u32| {
        let fabric = evidence.snapshot.gpu(*gpu)?.fabric.known()?;
        Some(fabric.state != FabricState::Completed || fabric.status != 0)
    };
    let cells: Vec<_> = evidence.reference_with(Path::Direct, gpus);
    let is_fast = |cell: &&PeerBandwidth| {
        evidence.over_nvlink(cell.pair) && links::is_slow(evidence, cell) == Some(false)
    };
    let all = gpus.iter().all(|gpu| refused(gpu) == Some(true))
        && !cells.is_empty()
        && cells.iter().all(is_fast);
    let (lowest, _) = links::range(cells.iter().filter_map(|cell| cell.achieved_gbps));
    lowest.filter(|_| all)
}

/// Returns true if the GPUs are those of a tray of a larger NVLink domain.
pub(crate) fn of_a_tray(snapshot: &Snapshot) -> bool {
    let mut names = snapshot.gpus.iter().filter_map(|gpu| gpu.name.known());
    names.any(|name| is_tray_part(name))
}

/// Returns true if this NVML name is that of a part for such trays.
fn is_tray_part(name: &str) -> bool {
    let mut words = name.split_whitespace();
    words.any(|word| ["GB200", "GB300"].contains(&word))
}

/// Returns true if the GPUs are those of one tray of a larger NVLink domain, with no link up to the switches of its
/// rack. Their fabric manager runs on the switch trays, so there is none to start on this machine.
pub(crate) fn is_tray_by_itself(snapshot: &Snapshot) -> bool {
    // A GPU that does not answer gives no evidence either way.
    let mut answering = snapshot
        .gpus
        .iter()
        .filter_map(|gpu| Some((gpu.name.known()?, gpu.active_nvlinks())))
        .peekable();
    answering.peek().is_some() && answering.all(|(name, up)| is_tray_part(name) && up == Some(0))
}

/// Returns one line for such a tray.
fn by_itself(gpus: &[u32]) -> Finding {
    let message = format!(
        "{}: no NVLink up, no fabric registered; as on a tray that runs without the switches of its rack",
        words::gpus(gpus)
    );
    let plan = Plan::now([Step::Nothing(Fine::IfMeant)]).otherwise([Step::FabricTrays]);
    RULE.finding(Subject::of_gpus(gpus), message, plan)
        .at(Severity::Info)
        // No scope: this is how the tray is built, and no cause of anything.
        .fact("gpus", Fact::Gpus(gpus.to_vec()))
}

/// Returns a finding if the switches do not connect all GPUs to each other, although all of them are registered.
fn cliques(switched: &[&Gpu]) -> Option<Finding> {
    let cliques = words::grouped(switched.iter().filter_map(|gpu| {
        let fabric = gpu.fabric.known()?;
        let is_complete = fabric.state == FabricState::Completed;
        is_complete.then(|| ((fabric.cluster_uuid.clone(), fabric.clique_id), gpu.index))
    }));
    if cliques.len() < 2 {
        return None;
    }
    let parts = cliques
        .iter()
        .map(|((_, clique), gpus)| format!("{} in clique {clique}", words::gpus(gpus)));
    let parts: Vec<_> = parts.collect();
    // The affected pairs are those with a GPU outside the largest clique.
    let largest = cliques.values().max_by_key(|gpus| gpus.len())?;
    let apart: Vec<_> =
        cliques.values().filter(|gpus| *gpus != largest).flatten().copied().collect();
    let mut clusters: Vec<_> = cliques.keys().map(|(cluster, _)| cluster.clone()).collect();
    clusters.dedup();
    let message = format!(
        "The NVSwitch fabric is split into {} parts{}; {}; nothing passes between the parts",
        cliques.len(),
        if clusters.len() > 1 { " of different clusters" } else { "" },
        parts.join("; ")
    );
    let plan = Plan::now([Step::Nothing(Fine::IfMeant)]).otherwise([Step::Partitions]);
    let found = RULE.on_machine(message, plan).gpus(&apart);
    Some(found.at(Severity::Warning))
}

/// Returns the GPUs whose registration may still complete, because the machine was just started. CUDA does not start
/// before.
pub(super) fn coming_up(evidence: &Evidence<'_>) -> Vec<u32> {
    let snapshot = evidence.snapshot;
    if !is_just_started(snapshot) || is_tray_by_itself(snapshot) {
        return Vec::new();
    }
    snapshot.gpus_with(|gpu| {
        let fabric = gpu.fabric.known();
        fabric.is_some_and(|fabric| fabric.state == FabricState::InProgress)
            && has_nvswitch(snapshot, gpu)
    })
}

fn is_just_started(snapshot: &Snapshot) -> bool {
    let up = snapshot.host.up_seconds.get();
    up.is_some_and(|up| up < COMING_UP_SECONDS)
}

/// Returns the fault that a fabric state shows; `None` if there is none.
fn trouble(evidence: &Evidence<'_>, fabric: &Fabric) -> Option<(Severity, String)> {
    let registration = "NVSwitch fabric registration";
    let (severity, what) = match fabric.state {
        FabricState::NotSupported => return None,
        FabricState::NotStarted => {
            (Severity::Error, format!("{registration} not started (state 1)"))
        }
        FabricState::InProgress => {
            let what = format!("{registration} still in progress (state 2)");
            match evidence.snapshot.host.up_seconds.get() {
                _ if is_just_started(evidence.snapshot) => (Severity::Warning, what),
                Some(up) => {
                    let minutes = words::count(up / 60, "minute");
                    let what = format!("{what}, {minutes} after the machine was started");
                    (Severity::Error, what)
                }
                None => (Severity::Error, what),
            }
        }
        FabricState::Completed if fabric.status != 0 => {
            let status = fabric_words::status(fabric.status);
            (Severity::Error, format!("{registration} ended with NVML status {status}"))
        }
        FabricState::Completed => {
            let health = fabric_words::health(fabric.health_mask.filter(|mask| *mask != 0)?);
            (Severity::Error, format!("unhealthy NVSwitch fabric: {health}"))
        }
    };
    Some((severity, what))
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
    links.any(|link| link.remote.get() == Some(NvLinkRemote::Switch))
        || ((gpu.in_fabric() || !snapshot.nvswitches.is_empty()) && leads_nowhere_else(gpu))
}

/// Returns true if a GPU has NVLinks and none of them is known to lead to a GPU or a processor.
fn leads_nowhere_else(gpu: &Gpu) -> bool {
    let elsewhere = [NvLinkRemote::Gpu, NvLinkRemote::Npu].map(Some);
    let leads_elsewhere = |link: &NvLink| elsewhere.contains(&link.remote.get());
    let links = gpu.nvlinks.known();
    links.is_some_and(|links| !links.is_empty() && !links.iter().any(leads_elsewhere))
}

fn of_all() -> Vec<Suspect> {
    vec![
        suspect(Cause::FabricManagerDown, [Step::FabricManager]),
        suspect(Cause::FabricVersion, [Step::FabricManager]),
        suspect(Cause::NvSwitchMissing, [Step::NvLinkLog]),
    ]
}

/// Returns the suspects of a tray, which has neither fabric manager nor NVSwitches.
fn of_tray() -> Vec<Suspect> {
    vec![
        suspect(Cause::FabricOfTray, [Step::FabricTrays]),
        suspect(Cause::TrayCable, [Step::FabricTrays]),
    ]
}

fn of_host() -> Vec<Suspect> {
    vec![
        suspect(Cause::FabricOfHost, [Step::AskHost(Ask::Fabric)]),
        suspect(Cause::FabricVersion, [Step::FabricManager]),
    ]
}

fn of_some() -> Vec<Suspect> {
    let restart = [Step::RestartFabricManager, Step::CheckAgain];
    vec![
        suspect(Cause::LinksDown, [Step::LinkStates, Step::FabricManager]),
        suspect(Cause::FabricStartedBefore, restart),
    ]
}
