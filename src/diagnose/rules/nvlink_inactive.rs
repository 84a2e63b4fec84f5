//! # What it means
//!
//! NVLinks of a GPU are down. With all down, copies go over PCIe.
//!
//! # What to do
//!
//! Look for link errors (`nvidia-smi nvlink -s`, `-e`) and Xid 74 (`dmesg | grep -i xid`). With NVSwitch: read the
//! fabric manager's log, then power-cycle. With bridges: reseat them. If the same links stay down, swap the GPU: does
//! the fault move?
//!
//! # How it is detected
//!
//! GPUs of one model are compared with each other.
//!
//! - Error: fewer active links than the best GPU of the model; none on a part for SXM sockets; all down on a machine
//!   with NVSwitches.
//! - NVSwitches connect all links of a module (V100 six, A100 twelve, A800 and H800 eight, H100, H20, H200, B200,
//!   B300, GB200 and GB300 eighteen): fewer is an error, in a virtual machine information.
//! - A bridge has a known number (2080 Ti two, 3090 and A40 four, H100 NVL twelve): fewer is a warning, as is no
//!   bridge where others have one.
//! - Down on all GPUs of a model: not wired, information.
//!
//! A tray without its rack's switches is `fabric-not-ready`.
//!
//! # Sources
//!
//! NVIDIA fabric manager user guide; NVIDIA's Xid errors page (74); DCGM issue 198, a check that passed with all
//! NVLinks down.

use super::nvlink_ends::{self, Links, common_end, inactive_by_gpu, link_numbers, numbers};
use super::nvlink_missing::is_board;
use super::nvlink_shared_loss::behind_switches;
use super::prelude::*;
use super::{bridges, fabric_not_ready, nvlink_missing, nvlink_shared_loss};

rule! {
    "nvlink-inactive", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let gpus = evidence.snapshot.gpus.iter();
    // DCGM lists links without a name of the GPU.
    let nameless = || evidence.read_from.map(|_| String::new());
    let name = |gpu: &Gpu| gpu.name.known().cloned().or_else(nameless);
    let models = words::grouped(gpus.filter_map(|gpu| Some((name(gpu)?, Links::of(gpu)?))));
    models.iter().flat_map(|(model, gpus)| judge_model(evidence, model, gpus)).collect()
}

fn judge_model(evidence: &Evidence<'_>, model: &str, gpus: &[Links<'_>]) -> Vec<Finding> {
    let most = gpus.iter().map(|links| links.active.len()).max().unwrap_or(0);
    let never = never_wired(gpus);
    let tray = fabric_not_ready::is_tray_by_itself(evidence.snapshot);
    // Where links lead is not in the output of other tools.
    let of_cards = evidence.read_from.is_some() && !nvlink_missing::is_sxm(model);
    let leads = of_cards || gpus.iter().any(Links::leads_to_gpu);
    let bridged = leads && !is_board(evidence, model);
    let mut found = Down::default();
    for links in gpus.iter().filter(|links| !links.inactive.is_empty()) {
        let all_down = links.active.is_empty();
        let expected = expected(evidence, links, tray).is_some();
        let kind = match (links.active.len() < most || (all_down && expected), all_down) {
            (false, _) => &mut found.alike,
            (true, true) if bridged && !expected => &mut found.without_bridge,
            (true, true) => &mut found.whole,
            (true, false) => &mut found.part,
        };
        kind.push(links);
    }
    let Down { without_bridge, whole, mut part, mut alike } = found;
    if ends_are_of(&whole, part.iter().chain(&alike), gpus) {
        (part, alike) = (Vec::new(), Vec::new());
    }
    // Links that may lead to a GPU that lists none are not left unwired either (`nvlink-missing`).
    if is_board(evidence, model) && gpus.iter().any(Links::lists_none) {
        alike.clear();
    }
    let mut findings = Vec::new();
    if part.len() == 1 && whole.is_empty() {
        // A link that is lost between two GPUs is down at both ends. A link that is down on this GPU only leads to none
        // of the others: their boards are wired so.
        if gpus.iter().all(Links::leads_to_gpu) {
            alike.extend(part.pop());
        }
    }
    match without_bridge.as_slice() {
        [] => {}
        [odd] if are_paired(evidence, model, gpus, odd.gpu) => {
            findings.push(without_partner(evidence, odd))
        }
        _ => findings.push(unbridged(evidence, model, &without_bridge)),
    }
    match whole.as_slice() {
        [] => {}
        [one] => findings.push(fault(evidence, one, most, &[])),
        many => findings.push(faults(evidence, Subject::Machine, many, most)),
    }
    match common_end(&part) {
        Some(subject) => findings.push(faults(evidence, subject, &part, most)),
        None => findings.extend(part.iter().map(|links| fault(evidence, links, most, &never))),
    }
    let (seated, alike) = bridges::half_seated(&RULE, evidence, model, &alike);
    findings.extend(seated);
    let short = nvlink_shared_loss::finding(&RULE, evidence, model, gpus);
    let is_short = short.is_some();
    findings.extend(short);
    match alike.as_slice() {
        [] => {}
        [_, _, ..] if most == 0 && evidence.virtual_machine() && is_sold_joined(model) => {
            findings.push(not_trained(evidence, model, &alike));
        }
        _ if is_short => {}
        _ => findings.push(as_wired(model, &alike)),
    }
    findings
}

/// GPUs of a model with links that are down, by the meaning of that.
#[derive(Default)]
struct Down<'a> {
    /// All links are down, on cards without a sign that there should be some.
    without_bridge: Vec<&'a Links<'a>>,
    whole: Vec<&'a Links<'a>>,
    /// Some links are down, and others of the model have more that are up.
    part: Vec<&'a Links<'a>>,
    /// Some links are down, and no other has more that are up.
    alike: Vec<&'a Links<'a>>,
}

/// Returns true if GPUs of this model are sold joined by NVLink: modules, and cards that come with their bridges (H100 NVL).
fn is_sold_joined(model: &str) -> bool {
    nvlink_missing::is_sxm(model) || model.split_whitespace().any(|word| word == "NVL")
}

/// Returns the evidence that a GPU should have NVLinks that are up, whatever others of its model show.
fn expected(evidence: &Evidence<'_>, links: &Links<'_>, tray: bool) -> Option<&'static str> {
    let is_module = links.gpu.name.known().is_some_and(|name| nvlink_missing::is_sxm(name));
    let switches = !evidence.snapshot.nvswitches.is_empty() && links.gpu.mig.get() != Some(true);
    match () {
        () if switches => Some("the machine has NVSwitches"),
        () if links.in_fabric() && !tray => Some("NVML says that an NVSwitch fabric is there"),
        () if said_to_reach_others(evidence, links.gpu.index) => {
            Some("NVML says that NVLink reaches other GPUs")
        }
        () if evidence.read_from.is_some() && is_module => {
            Some("its board joins all such modules by NVLink")
        }
        () => None,
    }
}

/// Returns true if the inactive links of `others` may all be the other ends of links of the GPUs in `whole`, which lost
/// every link, on boards that connect GPU to GPU.
fn ends_are_of<'a>(
    whole: &[&Links<'_>],
    others: impl Iterator<Item = &'a &'a Links<'a>>,
    gpus: &[Links<'_>],
) -> bool {
    let down = |links: &Links<'_>| links.inactive.len();
    let lost: usize = whole.iter().map(|links| down(links)).sum();
    gpus.iter().any(Links::leads_to_gpu) && others.map(|links| down(links)).sum::<usize>() <= lost
}

/// Returns true if bridges connect all other GPUs of a model in pairs, so that none is left for this one. One of them
/// may be silent, if its partner shows it.
fn are_paired(evidence: &Evidence<'_>, model: &str, gpus: &[Links<'_>], odd: &Gpu) -> bool {
    let snapshot = evidence.snapshot;
    let others: Vec<_> = gpus.iter().filter(|links| links.gpu.index != odd.index).collect();
    let unread = |gpu: &&Gpu| {
        gpu.name.known().is_none_or(|name| name == model)
            && gpus.iter().all(|links| links.gpu.index != gpu.index)
    };
    let silent: Vec<_> =
        snapshot.gpus.iter().filter(unread).map(|gpu| snapshot.address_of(gpu.index)).collect();
    let leads_to =
        |links: &Links<'_>, to: Option<PciAddress>| links.remotes().all(|remote| remote == to);
    let partner = |links: &&Links<'_>| {
        let remotes: BTreeSet<_> = links.remotes().collect();
        let mut partners = others
            .iter()
            .filter(|other| other.gpu.pci.get().is_some_and(|at| remotes.contains(&Some(at))));
        match (remotes.len(), partners.next()) {
            (1, Some(partner)) => leads_to(partner, links.gpu.pci.get()),
            // If NVML does not report the partner, the number of GPUs must show it.
            (1, None) => {
                remotes.contains(&None) || remotes.iter().any(|remote| silent.contains(remote))
            }
            _ => false,
        }
    };
    (gpus.len() + silent.len()) % 2 == 1
        && silent.iter().all(|at| at.is_some() && others.iter().any(|links| leads_to(links, *at)))
        && others.iter().all(|links| links.leads_to_gpu() && partner(links))
}

/// Returns a finding on cards without a bridge, while others of their model have one.
fn unbridged(evidence: &Evidence<'_>, model: &str, gpus: &[&Links<'_>]) -> Finding {
    let indices = nvlink_ends::indices(gpus);
    let (others, plan) = if nvlink_missing::is_sxm(model) {
        ("the model have theirs", vec![Step::AskHost(Ask::NvLink)])
    } else {
        let bridges = [Step::BridgesFitted(all(&indices)), Step::Reseat(Part::Bridge)];
        ("their model are bridged", bridges.to_vec())
    };
    let named = evidence.named(&indices);
    let what = format!("All NVLinks of {named} are down; other GPUs of {others}");
    RULE.on_gpus(&indices, what, plan)
        .at(Severity::Warning)
        .fact("inactive_links", inactive_by_gpu(gpus))
}

/// Returns one finding on links of several GPUs that are down for one reason: all links of each, or the two ends of the
/// same links.
fn faults(evidence: &Evidence<'_>, subject: Subject, gpus: &[&Links<'_>], most: usize) -> Finding {
    let indices = nvlink_ends::indices(gpus);
    let names = words::gpus(&indices);
    let (what, plan) = match &subject {
        Subject::Machine => (
            format!("All NVLinks of {names} are down; {}", because(evidence, gpus, most)),
            what_to_do(evidence, gpus),
        ),
        place => {
            let text = match left(place, gpus) {
                Some(left) => format!("{} are down; {left}", ends(evidence, place, gpus)),
                None => format!(
                    "{} are down, as both ends show; {} active, other GPUs of the model have {most}",
                    ends(evidence, place, gpus),
                    gpus.iter().map(|links| links.active.len()).min().unwrap_or(0)
                ),
            };
            let board = gpus.iter().any(|links| nvlink_missing::is_part_of_board(links.gpu));
            let plan = if board {
                Plan::now([Step::XidOf("74"), Step::LinkErrors, Step::PowerCycle])
                    .if_it_stays([Step::Service(Served::ModulesAndBoard)])
            } else {
                between_gpus(&indices)
            };
            (text, plan)
        }
    };
    RULE.finding(subject, what, plan).fact("inactive_links", inactive_by_gpu(gpus)).gpus(&indices)
}

/// Returns the links that are down, with both ends.
fn ends(evidence: &Evidence<'_>, place: &Subject, gpus: &[&Links<'_>]) -> String {
    let named =
        |links: &&Links<'_>| nvlink_ends::named(&links.inactive, &evidence.name(links.gpu.index));
    match place {
        // The end that all links have in common comes first.
        Subject::Gpu { index } => {
            let (own, others): (Vec<&Links<'_>>, Vec<_>) =
                gpus.iter().copied().partition(|links| links.gpu.index == *index);
            let others: Vec<u32> = others.iter().map(|links| links.gpu.index).collect();
            let own: String = own.iter().map(named).collect();
            format!("{own} to {}", words::gpus(&others))
        }
        _ => gpus.iter().map(named).collect::<Vec<_>>().join(" and "),
    }
}

/// Describes what a pair has left if links between its GPUs are down.
fn left(place: &Subject, gpus: &[&Links<'_>]) -> Option<String> {
    let (Subject::Pair(_), [one, other]) = (place, gpus) else {
        return None;
    };
    Some(match nvlink_ends::left_between(one, other)? {
        0 => "no NVLink left between them, so they copy over PCIe".into(),
        links => format!("{} left between them", words::count(links, "NVLink")),
    })
}

/// Returns why the links of these GPUs should not all be down.
fn because(evidence: &Evidence<'_>, gpus: &[&Links<'_>], most: usize) -> String {
    let tray = fabric_not_ready::is_tray_by_itself(evidence.snapshot);
    let reasons = words::distinct(gpus.iter().filter_map(|links| expected(evidence, links, tray)));
    if reasons.is_empty() { format!("other GPUs of the model have {most} active") } else { reasons }
}

/// Returns the steps on a tray of a larger NVLink domain, which runs no fabric manager.
fn on_a_tray() -> Plan {
    Plan::now([Step::FabricTrays, Step::XidOf("74")]).if_it_stays([Step::Service(Served::Tray)])
}

/// Returns the steps if links of cards are down, or of GPUs that a board connects without switches.
fn between_gpus(indices: &[u32]) -> Plan {
    let reseat = Step::Reseat(Part::GpuAndBridge(one_of(indices)));
    Plan::now([Step::XidOf("74"), Step::LinkErrors, reseat])
        .if_it_stays([Step::Swap(Part::of(indices))])
}

/// Returns the steps if all links of a GPU are down.
fn what_to_do(evidence: &Evidence<'_>, gpus: &[&Links<'_>]) -> Plan {
    if evidence.virtual_machine() {
        return Plan::now([Step::ReloadDriver, Step::LinkStates])
            .if_it_stays([Step::FabricManager, Step::AskHost(Ask::Fabric)]);
    }
    if fabric_not_ready::of_a_tray(evidence.snapshot) {
        return on_a_tray();
    }
    let switched =
        !evidence.snapshot.nvswitches.is_empty() || gpus.iter().any(|links| links.in_fabric());
    if switched {
        return behind_switches(Step::Service(Served::Board));
    }
    let gpus = || OneOf(nvlink_ends::indices(gpus));
    Plan::now([Step::XidOf("74"), Step::LinkErrors, Step::PowerCycle]).if_it_stays([
        Step::Reseat(Part::GpuAndBridge(gpus())),
        Step::Swap(Part::Gpu(gpus())),
        Step::Service(Served::Board),
    ])
}

/// Returns links that are down on every GPU of a model with several GPUs: the board has no wires for them.
fn never_wired(gpus: &[Links<'_>]) -> Vec<u8> {
    let Some((first, rest)) = gpus.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Vec::new();
    };
    let everywhere = |link: &&u8| rest.iter().all(|links| links.inactive.contains(link));
    first.inactive.iter().filter(everywhere).copied().collect()
}

/// Returns a finding on the one GPU of a model that no bridge connects, while bridges connect others: no partner is
/// left for it.
fn without_partner(evidence: &Evidence<'_>, links: &Links<'_>) -> Finding {
    let index = links.gpu.index;
    RULE.finding(
        Subject::Gpu { index },
        format!(
            "{} has no active NVLink; bridges connect the other GPUs of its model in pairs, and none is left for it",
            evidence.name(index)
        ),
        [Step::Nothing(Fine::Always)],
    )
    .at(Severity::Info)
    .fact("inactive_links", link_numbers(&links.inactive))
}

fn fault(evidence: &Evidence<'_>, links: &Links<'_>, most: usize, never: &[u8]) -> Finding {
    let index = links.gpu.index;
    let gpu = evidence.name(index);
    let lost: Vec<u8> =
        links.inactive.iter().filter(|link| !never.contains(link)).copied().collect();
    let lost = if lost.is_empty() { links.inactive.clone() } else { lost };
    let (subject, which) = match lost.as_slice() {
        // Other tools do not say how many there are.
        _ if links.active.is_empty() && evidence.read_from.is_some() => {
            (Subject::Gpu { index }, format!("All NVLinks of {gpu} are down"))
        }
        [link] => (Subject::Link { index, link: *link }, format!("NVLink {link} of {gpu} is down")),
        many => (Subject::Gpu { index }, format!("NVLinks {} of {gpu} are down", numbers(many))),
    };
    let compared = if most > links.active.len() {
        format!(", {} of {most} up; other GPUs of its model have all", links.active.len())
    } else {
        format!("; none is up, although {}", because(evidence, &[links], most))
    };
    let plan = if links.active.is_empty() && !links.in_fabric() {
        what_to_do(evidence, &[links])
    } else if fabric_not_ready::of_a_tray(evidence.snapshot) {
        on_a_tray()
    } else if links.in_fabric() && evidence.virtual_machine() {
        // The fabric manager runs where the NVSwitches are.
        Plan::now([Step::XidOf("74"), Step::FabricManager])
            .if_it_stays([Step::AskHost(Ask::Fabric)])
    } else if links.in_fabric() {
        behind_switches(Step::Swap(Part::of(&[index])))
    } else {
        between_gpus(&[index])
    };
    RULE.finding(subject, which + &compared, plan).fact("inactive_links", link_numbers(&lost))
}

/// Returns a finding on GPUs of a board in a virtual machine, none of whose links came up.
fn not_trained(evidence: &Evidence<'_>, model: &str, gpus: &[&Links<'_>]) -> Finding {
    let indices = nvlink_ends::indices(gpus);
    RULE.on_gpus(
        &indices,
        format!(
            "No NVLink of {} is up in this virtual machine; {} ({model})",
            evidence.named(&indices),
            match nvlink_missing::is_sxm(model) {
                true => "their board connects them",
                false => "this model comes with bridges",
            }
        ),
        Plan::now([Step::ReloadDriver, Step::LinkStates])
            .if_it_stays([Step::AskHost(Ask::NvLink), Step::AskHost(Ask::Fabric)]),
    )
    .at(Severity::Warning)
    .fact("inactive_links", inactive_by_gpu(gpus))
}

/// Returns one line for GPUs of a model if none has more active links than the others.
fn as_wired(model: &str, gpus: &[&Links<'_>]) -> Finding {
    let indices = nvlink_ends::indices(gpus);
    let active = gpus.iter().map(|links| links.active.len()).max().unwrap_or(0);
    let model = words::in_brackets(Some(model).filter(|model| !model.is_empty()));
    RULE
        .on_machine(format!(
                "NVLinks {} of {} are not active; no GPU of this model{model} here has more than {active} active, \
             so this is probably how the machine is wired",
                words::unique(gpus.iter().map(|links| numbers(&links.inactive))).join(" or "),
                words::gpus(&indices),
            ),
            [Step::CompareOrdered, Step::Nothing(Fine::IfWired)],
        )
        .fact("inactive_links", inactive_by_gpu(gpus))
        .at(Severity::Info)
}

/// Returns true if NVML reports that this GPU reaches another over NVLink.
fn said_to_reach_others(evidence: &Evidence<'_>, index: u32) -> bool {
    let mut pairs = evidence
        .snapshot
        .pairs
        .iter()
        .filter(|pair| pair.source == index || pair.destination == index);
    pairs.any(|pair| pair.p2p_nvlink.get() == Some(P2pStatus::Ok))
}
