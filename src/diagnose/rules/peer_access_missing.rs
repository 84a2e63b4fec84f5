//! # What it means
//!
//! A GPU cannot reach the memory of another directly: copies use the host's memory. They are slower (35 to 38 instead
//! of 396 GB/s on H200), and hold up the thread that issues them.
//!
//! # What to do
//!
//! - GeForce and other workstation boards: nothing to repair, NVIDIA's driver does not allow it.
//! - Virtual machine: `CNS` is the emulated chipset; the host must pass the GPUs through with peer-to-peer on.
//! - One GPU or pair among several alike: compare switch or processor, ACS, IOMMU and the size of BAR1 with the
//!   others.
//! - Error of CUDA: a fault of the driver; look for its messages in dmesg. Error 205 over PCIe: BAR1 window or IOMMU.
//! - One direction only: programs that ask for one and assume the other fail. The GPU whose memory cannot be reached is
//!   the suspect: compare its BAR1 window (`nvidia-smi -q`), modes and driver options; reboot; swap it.
//!
//! # How it is detected
//!
//! CUDA's answer decides, without it NVML's. It is an error if CUDA returned an error or did not grant what it
//! promised, if active NVLinks join the two, or if a pair of the same models, as far apart or over the same NVSwitch,
//! has access, or the other direction of the same pair.
//!
//! Otherwise the machine is built that way: MIG mode, different models, NVML granting what CUDA refuses, a registry
//! key (DR), no NVLink between the two (TNS), the policy for GeForce boards since Turing, a virtual machine's host,
//! chipset (CNS), distance (TNS) or GPU (GNS).
//!
//! # Sources
//!
//! `nvidia-smi topo -p2p` (CNS chipset, GNS GPU, TNS topology not supported, DR disabled by registry key, NS not
//! supported); CUDA driver API, `cuCtxEnablePeerAccess`; measured on 8 x H200.

use super::peer_access;
use super::prelude::*;
use super::windows;
use crate::models::is_sxm;
use model::cuda::CUDA_MAP_FAILED;
use model::measurement::CudaPeerAccess;

/// Words of NCCL for a pair that NVLink connects.
const NCCL: &str = "P2P is disabled between NVLINK connected GPUs";

rule! {
    "peer-access-missing", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let missing = peer_access::missing(evidence);
    let groups = |routes: &[&PairRoute]| {
        let bad: Vec<_> = routes.iter().map(|route| route.pair).collect();
        evidence.groups(&bad, &missing.seen)
    };
    let mut findings: Vec<_> =
        groups(&missing.odd).iter().map(|group| fault(evidence, group)).collect();
    findings.extend(groups(&missing.errored).iter().map(|group| driver_trouble(evidence, group)));
    findings.extend(groups(&missing.one_way).iter().map(|group| one_way(evidence, group)));
    let usual = missing.usual.iter().copied();
    let causes = words::grouped(usual.map(|route| (Why::of(evidence, route), route)));
    let all = missing.seen.len();
    findings.extend(causes.iter().map(|(why, routes)| as_built(evidence, *why, routes, all)));
    findings
}

fn fault(evidence: &Evidence<'_>, group: &cluster::Group) -> Finding {
    let connected =
        group.pairs.iter().all(|pair| peer_access::connected_by_nvlink(evidence, *pair));
    let place = match (&group.common, group.pairs.as_slice()) {
        _ if connected => evidence.place(group) + ", although active NVLinks connect them",
        (Common::OnePair, [pair]) => format!(
            "from {} to {}, while similar pairs, or the other direction, have it",
            evidence.name(pair.source),
            evidence.name(pair.destination)
        ),
        (Common::OnePair, _) => evidence.place(group) + ", while similar pairs have it",
        _ => evidence.place(group) + ", while other GPUs of this machine have it",
    };
    let any: Vec<Pair> = evidence.topology.pairs.iter().map(|route| route.pair).collect();
    let patched = peer_access::patched(evidence, &any) && !connected;
    let small = windows::small(evidence, &group.pairs).filter(|_| patched);
    let window = small.as_ref().map(windows::Small::says).unwrap_or_default();
    let compare = [Step::PlaceOf(OneOf(group.gpus())), Step::Bar1, Step::FabricManager];
    let because = match (patched, small.is_some()) {
        (true, true) => {
            "; the driver is patched (NVIDIA's own refuses peer access over PCIe on these boards), and reaches a GPU \
             through its BAR1 window"
        }
        (true, false) => {
            "; the driver is patched (NVIDIA's own refuses peer access over PCIe on these boards)"
        }
        (false, _) => "",
    };
    let switched = !evidence.snapshot.nvswitches.is_empty();
    let compare = compare.into_iter().filter(|step| switched || *step != Step::FabricManager);
    let plan = match (patched, small) {
        (true, Some(small)) => Plan::now([small.step(), Step::CheckAgain]).if_it_stays(compare),
        (true, None) => Plan::now([Step::PatchedWindows, Step::DriverLog]).then(compare),
        _ if evidence.virtual_machine() => Plan::now([Step::AskHost(Ask::PassThrough)]),
        _ => Plan::now(compare),
    };
    peer_access::found(
        &RULE,
        evidence,
        group.subject(),
        format!("No peer access {place}{because}{window}"),
        &group.pairs,
        plan,
    )
}

/// Returns a finding for an error of CUDA, which is neither a yes nor a no.
fn driver_trouble(evidence: &Evidence<'_>, group: &cluster::Group) -> Finding {
    let over_pcie = group.pairs.iter().all(|pair| evidence.over_pcie(*pair));
    let small = windows::small(evidence, &group.pairs).filter(|_| over_pcie);
    let said = group.pairs.iter().filter_map(|pair| evidence.measured().driver.said_of(*pair));
    let said: Vec<_> = said.collect();
    let is_linked = |pair: &Pair| peer_access::connected_by_nvlink(evidence, *pair);
    let by_nccl =
        |said: &&CudaPeerAccess| said.failure.as_ref().is_some_and(|why| why.contains(NCCL));
    let unmapped = |said: &&CudaPeerAccess| said.failure_code == Some(CUDA_MAP_FAILED);
    let (how, plan) = if said.iter().any(by_nccl) {
        let look = [Step::PeerToPeerWords, Step::LinkStates, Step::Xid, Step::FabricManager];
        ("is refused, although NVLink connects them (NCCL)", Plan::now(look))
    } else if said.iter().any(unmapped) && !group.pairs.iter().any(is_linked) {
        let look = [Step::Bar1, Step::LookAtIommu, Step::DriverLog];
        let how = "is granted and fails: its BAR1 window is too small, or the IOMMU is in the way";
        (how, Plan::now(look).if_it_stays([Step::Above4G, Step::CompareDriver]))
    } else {
        let plan = Plan::now([Step::DriverLog, Step::ReloadDriver, Step::CheckAgain])
            .if_it_stays([Step::CompareDriver]);
        ("fails with a driver error", plan)
    };
    let message = format!(
        "Peer access {} {how}{}",
        evidence.place(group),
        small.as_ref().map(windows::Small::says).unwrap_or_default()
    );
    let plan = match small {
        Some(small) => Plan::now([small.step(), Step::CheckAgain]).before(plan.into()),
        None => plan,
    };
    peer_access::found(&RULE, evidence, group.subject(), message, &group.pairs, plan)
}

/// Returns a finding for pairs that have access in the other direction.
fn one_way(evidence: &Evidence<'_>, group: &cluster::Group) -> Finding {
    let place = match (&group.common, group.pairs.as_slice()) {
        (cluster::Common::OnePair, [pair]) => {
            let [from, to] = pair.gpus().map(|gpu| evidence.name(gpu));
            format!("from {from} to {to}")
        }
        _ => evidence.place(group),
    };
    let over_pcie = evidence.any_over_pcie(&group.pairs);
    let look = match over_pcie {
        true => vec![Step::Bar1, Step::Modes],
        false => vec![Step::Xid, Step::LinkStates, Step::LinkErrors, Step::Modes],
    };
    let plan = Plan::now(look)
        .then([Step::Reboot, Step::CheckAgain])
        .if_it_stays([Step::Swap(Part::of(&group.gpus()))]);
    let mut found = peer_access::found(
        &RULE,
        evidence,
        group.subject(),
        format!("No peer access {place}, while the other direction has it"),
        &group.pairs,
        plan,
    );
    // Copies over NVLink pass no window of the PCI bus.
    let window = over_pcie.then(|| suspect(Cause::SmallWindow, [Step::Bar1, Step::Above4G]));
    let driver = suspect(Cause::PatchedOrOptions, [Step::DriverOptions, Step::StockDriver]);
    found.suspects = window.into_iter().chain([driver]).collect();
    found
}

/// Most pairs that are listed by themselves; with more, the islands between which they lie are listed. Chosen.
const FEW_PAIRS: usize = 2;

/// Returns a set as `{0,3,4}`.
fn set(gpus: &[u32]) -> String {
    format!("{{{}}}", gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// Returns one finding for all pairs with this cause, if no similar pair has access.
fn as_built(evidence: &Evidence<'_>, why: Why, routes: &[&PairRoute], all: usize) -> Finding {
    let pairs: Vec<_> = routes.iter().map(|route| route.pair).collect();
    let which = match peer_access::islands(evidence, &pairs) {
        _ if pairs.len() == all => "for any pair of GPUs".to_owned(),
        Some(islands) if pairs.len() > FEW_PAIRS => {
            let islands: Vec<_> = islands.iter().map(|island| set(island)).collect();
            format!("between the islands {}, only within them", islands.join(" "))
        }
        _ => format!("for {}", words::pairs(&pairs)),
    };
    let mut names = evidence.snapshot.gpus.iter().map(|gpu| gpu.name.known());
    if evidence.read_from.is_some()
        && pairs.len() == all
        && why > Why::Mesh
        && names.all(|name| name.is_some_and(|name| is_sxm(name)))
    {
        let message = "No peer access for any pair of GPUs, whose board joins them by NVLink: neither NVLinks nor fabric are in use";
        let look = [Step::LinkStates, Step::FabricManager, Step::AskHost(Ask::Fabric)];
        let plan = Plan::now(look);
        return peer_access::found(&RULE, evidence, Subject::Machine, message.into(), &pairs, plan);
    }
    let message = format!("No peer access {which}; {}", why.text());
    let mut found =
        peer_access::found(&RULE, evidence, Subject::Machine, message, &pairs, why.plan(evidence));
    let built_so = match why {
        Why::Policy | Why::Models | Why::Mesh => true,
        // Nearer pairs have access: the driver allows it on this machine, but not at this distance.
        Why::Distance | Why::Chipset => peer_access::nearer_pairs_have_it(evidence, routes),
        _ => false,
    };
    found.severity = match why {
        _ if built_so => Severity::Info,
        _ => Severity::Warning,
    };
    found.suspects = why.suspects(evidence, &pairs);
    found
}

/// The reason why pairs lack access that no similar pair has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Mig,
    /// NVML grants what CUDA refuses.
    WordsDiffer,
    /// The driver refuses boards of this family.
    Policy,
    /// A registry key of the driver.
    Registry,
    /// The two GPUs are of different models, and GPUs of one model have it.
    Models,
    /// The same, but NVML grants what CUDA refuses.
    ModelsByCuda,
    /// No NVLink of a mesh leads from one GPU to the other.
    Mesh,
    /// The host of a virtual machine decides.
    Host,
    /// The driver does not allow it on this chipset or processor.
    Chipset,
    /// The two GPUs are too far apart.
    Distance,
    /// The GPUs do not support it.
    Gpu,
    /// Refused without a closer reason.
    Unclear,
}

impl Why {
    fn of(evidence: &Evidence<'_>, route: &PairRoute) -> Self {
        let said = &route.peer_access;
        let refusal = peer_access::refusal(said);
        let words_differ =
            said.cuda == Some(false) && said.nvml_read == Some(P2pStatus::Ok) && refusal.is_none();
        let of_models =
            (refusal.is_some() || words_differ) && peer_access::models_differ(evidence, route.pair);
        if peer_access::in_mig(evidence, route.pair) {
            return Self::Mig;
        }
        if of_models && words_differ {
            return Self::ModelsByCuda;
        }
        if words_differ {
            return Self::WordsDiffer;
        }
        if refusal == Some(P2pStatus::DisabledByRegkey) {
            return Self::Registry;
        }
        // In a virtual machine NVML's answer for the chipset is about the emulated one, whatever the models.
        let by_place = matches!(
            refusal,
            Some(P2pStatus::ChipsetNotSupported | P2pStatus::TopologyNotSupported)
        );
        if of_models && !(by_place && evidence.virtual_machine()) {
            return Self::Models;
        }
        if refusal == Some(P2pStatus::TopologyNotSupported)
            && is_apart_in_a_mesh(evidence, route.pair)
        {
            return Self::Mesh;
        }
        let ends = [route.pair.source, route.pair.destination];
        let refused = |gpu: &Gpu| {
            peer_access::refused_by_policy(gpu) && !peer_access::generation_has_it(evidence, gpu)
        };
        if ends.iter().any(|index| evidence.snapshot.gpu(*index).is_some_and(refused)) {
            return Self::Policy;
        }
        if evidence.virtual_machine() {
            return Self::Host;
        }
        match refusal {
            Some(P2pStatus::ChipsetNotSupported) => Self::Chipset,
            Some(P2pStatus::TopologyNotSupported) => Self::Distance,
            Some(P2pStatus::GpuNotSupported) => Self::Gpu,
            _ => Self::Unclear,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Mig => "MIG mode is on, which excludes it",
            Self::WordsDiffer => {
                "NVML grants it and CUDA refuses it, as with a partly patched driver"
            }
            Self::Policy => {
                "the driver does not allow it on GeForce boards of this generation over PCIe"
            }
            Self::Registry => "a registry key of the driver disables it",
            Self::Models => {
                "the GPUs are of different models, among which the driver does not allow it"
            }
            Self::ModelsByCuda => {
                "the GPUs are of different models, among which CUDA refuses it although NVML grants it"
            }
            Self::Mesh => {
                "no NVLink leads from one to the other, although others are connected by NVLinks"
            }
            Self::Host => {
                "this is a virtual machine, whose host decides on it (CNS is the chipset that it emulates)"
            }
            Self::Chipset => "the driver does not allow it on this chipset or processor",
            Self::Distance => {
                "the two GPUs are too far apart: the driver does not allow it on this path"
            }
            Self::Gpu => "the GPUs do not support it with each other",
            Self::Unclear => {
                "no similar pair has it, so driver policy or the way this machine is built is the likely reason"
            }
        }
    }

    fn plan(self, evidence: &Evidence<'_>) -> Plan {
        let fine = |why, step| Plan::now([Step::Nothing(why), step]);
        match self {
            Self::Mig => {
                let gpus = evidence.snapshot.gpus.iter();
                let on: Vec<u32> =
                    gpus.filter(|gpu| gpu.mig.get() == Some(true)).map(|gpu| gpu.index).collect();
                fine(Fine::Always, Step::MigOff(all(&on)))
            }
            Self::WordsDiffer => Plan::now([Step::OneDriver, Step::Reboot, Step::CheckAgain]),
            Self::Policy => Plan::now([Step::Nothing(Fine::BoardsRefuse)]),
            Self::Registry => Plan::now([Step::RegistryKey, Step::ReloadDriver, Step::CheckAgain]),
            Self::Models | Self::ModelsByCuda => fine(Fine::Always, Step::OneModel),
            Self::Mesh => fine(Fine::Always, Step::ConnectedOnly),
            Self::Host => Plan::now([Step::AskHost(Ask::PassThrough)]),
            Self::Chipset | Self::Distance => fine(Fine::Always, Step::NearSlots),
            Self::Gpu => Plan::now([Step::Nothing(Fine::GpusDiffer)]),
            Self::Unclear => {
                Plan::now([Step::Nothing(Fine::IfRefused)]).otherwise([Step::PeerToPeerWords])
            }
        }
    }

    fn suspects(self, evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<Suspect> {
        let mut suspects = match self {
            Self::WordsDiffer => vec![
                suspect(Cause::PartlyPatched, [Step::StockDriver]),
                suspect(Cause::HiddenFromCuda, [Step::CheckOnHost]),
            ],
            Self::Unclear => vec![suspect(Cause::Policy, [Step::CompareAlike])],
            Self::Host => vec![suspect(Cause::NoClique, [Step::GuestClique])],
            _ => Vec::new(),
        };
        if matches!(self, Self::Unclear | Self::Chipset) {
            suspects.extend(suspects::of_pcie_settings(evidence, pairs));
        }
        suspects
    }
}

/// Returns true if two GPUs have NVLinks to other GPUs and none to each other.
fn is_apart_in_a_mesh(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let leads_to_gpu = |index: u32| {
        let links = evidence.snapshot.gpu(index).and_then(|gpu| gpu.nvlinks.known());
        let is_up = |link: &NvLink| {
            link.active.get() == Some(true) && link.remote.get() == Some(NvLinkRemote::Gpu)
        };
        links.is_some_and(|links| links.iter().any(is_up))
    };
    leads_to_gpu(pair.source)
        && leads_to_gpu(pair.destination)
        && !peer_access::connected_by_nvlink(evidence, pair)
}
