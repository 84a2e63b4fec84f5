//! # What it means
//!
//! GPUs list no NVLink, or fewer than their siblings, and none as down. Copies go over PCIe or the host's memory at a
//! tenth of the rate, or lose the share of each missing link.
//!
//! # What to do
//!
//! Compare `nvidia-smi nvlink -s` with another GPU. Check if NVLink is disabled (`NVreg_NvLinkDisable` in
//! /etc/modprobe.d). With NVSwitches: `dmesg | grep -iE 'nvswitch|sxid'` and the fabric manager's log; power-cycle the
//! machine. With bridges: check if one is missing or half seated. Swap the GPU to see if the fault moves with it. In a
//! virtual machine ask whoever runs its host.
//!
//! # How it is detected
//!
//! No GPU of a model lists an NVLink, although NVSwitches of these GPUs are on the PCI bus, or the model is for SXM
//! sockets by its name (`NVIDIA H200`, not `NVIDIA H200 NVL`). In a virtual machine it is a warning, and only with a
//! visible NVSwitch.
//!
//! Or a GPU has fewer active links than another of its model, or than lead to it: a warning if links lead to GPUs, since
//! a bridge may never have been fitted, but not for an SXM part without any link. Not reported: a card without links
//! beside bridged ones, MIG mode. Links listed as down are `nvlink-inactive`.
//!
//! In the matrix of another tool (`nvidia-smi topo -m`): a pair with fewer links than its model has, or than the others,
//! which have more together than a GPU has links, so that NVSwitches connect them; no link on parts for SXM sockets. Without a
//! model, no link at all is information: the model decides whether one is due.
//!
//! # Sources
//!
//! NVIDIA fabric manager user guide; NVIDIA driver README (NvLinkDisable); DCGM issue 198. Some H100 parts have 12 links
//! by design.

use super::bonds;
use super::nvlink_ends::Links;
use super::prelude::*;
pub(crate) use crate::models::is_sxm;

rule! {
    "nvlink-missing", Error, All(judge);
}

/// Returns true if GPUs of this model are connected by their board and not by bridges. In a virtual machine the host
/// decides which links it shows.
pub(super) fn is_board(evidence: &Evidence<'_>, model: &str) -> bool {
    is_sxm(model) && !evidence.virtual_machine()
}

/// Returns true if a bridge may connect this GPU: neither an SXM board nor an NVSwitch does.
pub(super) fn may_have_bridge(evidence: &Evidence<'_>, gpu: u32) -> bool {
    let Some(gpu) = evidence.snapshot.gpu(gpu) else {
        return true;
    };
    let mut links = gpu.nvlinks.known().into_iter().flatten();
    !is_part_of_board(gpu) && !links.any(|link| link.remote.get() == Some(NvLinkRemote::Switch))
}

/// Returns what to reseat if links of a GPU have errors, and what may cause them.
pub(super) fn of_errors(evidence: &Evidence<'_>, index: u32) -> (Step, Vec<Suspect>) {
    let (reseated, other_end) = match may_have_bridge(evidence, index) {
        true => (Part::GpuAndBridge(steps::gpu(index)), Cause::BridgeOrBoard),
        false => (Part::of(&[index]), Cause::BoardOrSwitch),
    };
    let swap = || [Step::SwapTest(Part::of(&[index]))];
    let suspects = vec![
        suspect_if(Cause::GpuItself, swap(), Sign::FaultMoves),
        suspect_if(other_end, swap(), Sign::FaultStays),
    ];
    (Step::Reseat(reseated), suspects)
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    [without_any(evidence), fewer_than_siblings(evidence), bonds::judge(&RULE, evidence)].concat()
}

/// Returns a finding for each model none of whose GPUs lists a link that it should have.
fn without_any(evidence: &Evidence<'_>) -> Vec<Finding> {
    let snapshot = evidence.snapshot;
    let gpus = snapshot.gpus.iter().filter(|gpu| gpu.mig.get() != Some(true));
    let models = words::grouped(gpus.filter_map(|gpu| Some((name(evidence, gpu)?, gpu))));
    let none = |gpu: &&Gpu| gpu.nvlinks.known().is_some_and(Vec::is_empty);
    let lacks = |(model, gpus): (&&str, &Vec<&Gpu>)| {
        let sxm = is_sxm(model);
        let switches =
            if others_may_have_them(evidence, model) { 0 } else { snapshot.nvswitches.len() };
        let expected = switches > 0 || (sxm && gpus.len() > 1);
        let none = gpus.iter().all(none) || bonds::none(evidence, gpus);
        match expected {
            true => none.then(|| finding(evidence, model, gpus, sxm, switches)),
            false => (none && *model == UNNAMED && gpus.len() > 1).then(of_matrix),
        }
    };
    models.iter().filter_map(lacks).collect()
}

/// The model of GPUs whose model a text does not have.
const UNNAMED: &str = "unknown";

fn name<'a>(evidence: &Evidence<'a>, gpu: &'a Gpu) -> Option<&'a str> {
    gpu.name.known().map(String::as_str).or(evidence.read_from.map(|_| UNNAMED))
}

/// Returns the finding on GPUs of no known model that no NVLink connects.
fn of_matrix() -> Finding {
    let message = "No NVLink between these GPUs; whether one is due depends on the model";
    let step = Step::GiveOutput("'nvidia-smi -L' and 'nvidia-smi nvlink -s'".into());
    RULE.finding(Subject::Machine, message, [step]).at(Severity::Info)
}

/// Returns true if the NVSwitches may belong to GPUs of another model. A GPU in MIG mode, one that does not answer, and
/// one that NVML does not list cannot show that it has none. One for an SXM socket should have them.
fn others_may_have_them(evidence: &Evidence<'_>, model: &str) -> bool {
    let snapshot = evidence.snapshot;
    let is_same = |gpu: &&Gpu| name(evidence, gpu) == Some(model);
    let shows_none = |gpu: &Gpu| {
        !is_part_of_board(gpu)
            && gpu.mig.get() != Some(true)
            && gpu.nvlinks.known().is_some_and(Vec::is_empty)
    };
    let id = |address: PciAddress| snapshot.function(address)?.device_id.get();
    let ids: BTreeSet<_> =
        snapshot.gpus.iter().filter(is_same).filter_map(|gpu| id(gpu.pci.get()?)).collect();
    let mut others = snapshot.gpus.iter().filter(|gpu| !is_same(gpu));
    let mut unlisted = snapshot.unlisted_gpus.iter();
    others.any(|gpu| !shows_none(gpu))
        || unlisted.any(|function| id(function.address).is_none_or(|id| !ids.contains(&id)))
}

fn finding(
    evidence: &Evidence<'_>,
    model: &str,
    gpus: &[&Gpu],
    sxm: bool,
    switches: usize,
) -> Finding {
    let indices: Vec<_> = gpus.iter().map(|gpu| gpu.index).collect();
    let why = match (switches, sxm) {
        (0, _) => "it is a part for an SXM socket, whose board connects GPUs by NVLink".to_owned(),
        (switches, _) => format!(
            "{} on the PCI bus",
            words::count(switches, "NVSwitch") + if switches == 1 { " is" } else { " are" }
        ),
    };
    // The picture of a guest, which hides the tree and has the NVLinks that its host gives it.
    let mut pairs = evidence.snapshot.pairs.iter();
    let flat = bonds::none(evidence, gpus)
        && pairs.all(|pair| pair.common_ancestor.get() == Some(CommonAncestor::HostBridge));
    let guest =
        if flat { ", all PHB as in a virtual machine that hides the real tree" } else { "" };
    let plan = if flat || evidence.virtual_machine() {
        Plan::now([Step::AskHost(Ask::NvLink), Step::NvLinkDisabled])
    } else {
        // Boards of four GPUs connect them without switches, and run no fabric manager.
        let fabric = (switches > 0 || gpus.len() > 4).then_some(Step::FabricManager);
        Plan::now([Step::NvLinkDisabled, Step::NvLinkLog])
            .then(fabric)
            .then([Step::PowerCycle])
            .if_it_stays([Step::Service(Served::Board)])
    };
    let mut found = RULE
        .on_gpus(
            &indices,
            format!(
                "No NVLink is listed for {}{guest}; the model is {model}, and {why}",
                evidence.named(&indices)
            ),
            plan,
        )
        .fact("model", model);
    if evidence.virtual_machine() {
        found.severity = Severity::Warning;
    }
    found
}

/// Returns a finding for each GPU with fewer links than another of its model, or than lead to it.
fn fewer_than_siblings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let all: Vec<Links<'_>> =
        evidence.snapshot.gpus.iter().filter_map(Links::of).filter(Links::are_known).collect();
    let mut most: BTreeMap<&str, (usize, u32)> = BTreeMap::new();
    for links in &all {
        if let Some(name) = links.gpu.name.known() {
            let own = (links.active.len(), links.gpu.index);
            let entry = most.entry(name).or_insert(own);
            if entry.0 < own.0 {
                *entry = own;
            }
        }
    }
    let bridged = all.iter().any(Links::leads_to_gpu);
    let short = |links: &Links<'_>| {
        let (gpu, active) = (links.gpu, links.active.len());
        let of_like = most.get(gpu.name.known()?.as_str()).copied();
        let of_remotes = claimed_by_others(&all, gpu);
        let (should, sibling) = match (of_like, of_remotes) {
            (Some((like, index)), claimed) if like >= claimed => (like, Some(index)),
            (_, claimed) => (claimed, None),
        };
        // Bridges connect some cards of a machine and leave others without any link.
        let without_bridge = active == 0 && of_remotes == 0 && bridged && !is_part_of_board(gpu);
        let mig = active == 0 && gpu.mig.get() == Some(true);
        (active < should && links.inactive.is_empty() && !without_bridge && !mig)
            .then(|| of_fewer(evidence, links, should, sibling, bridged))
    };
    all.iter().filter_map(short).collect()
}

fn of_fewer(
    evidence: &Evidence<'_>,
    links: &Links<'_>,
    should: usize,
    sibling: Option<u32>,
    bridged: bool,
) -> Finding {
    let (gpu, active) = (links.gpu, links.active.len());
    let compared = match sibling {
        Some(index) => format!("GPU {index}, of the same model, has {should}"),
        None => format!("other GPUs have {should} that lead to it"),
    };
    let look = match may_have_bridge(evidence, gpu.index) {
        true => Step::BridgesFitted(all(&[gpu.index])),
        false => Step::FabricManager,
    };
    let mut found = RULE
        .finding(
            Subject::Gpu { index: gpu.index },
            format!(
                "{} has {} and no inactive one; {compared}",
                evidence.name(gpu.index),
                words::count(active, "active NVLink"),
            ),
            Plan::now([Step::LinkStates, look, Step::PowerCycle])
                .if_it_stays([Step::Swap(Part::of(&[gpu.index]))]),
        )
        .fact("active_count", active);
    let on_board = active == 0 && is_part_of_board(gpu);
    if bridged && (!on_board || evidence.virtual_machine()) {
        found.severity = Severity::Warning;
    }
    if bridged && !on_board {
        found.suspects.push(suspect(Cause::BridgeMissing, [Step::BridgeMissing]));
    }
    let swap = Step::SwapTest(Part::of(&[gpu.index]));
    found.suspects.extend([
        suspect(Cause::LinksDisabled, [Step::FabricManager, Step::XidOf("74")]),
        suspect_if(Cause::GpuItself, [swap], Sign::FaultMoves),
    ]);
    found
}

/// Returns true if its board connects it, and not a bridge.
pub(super) fn is_part_of_board(gpu: &Gpu) -> bool {
    gpu.name.known().is_some_and(|name| is_sxm(name))
}

/// Returns how many active links of other GPUs lead to this one by their addresses.
fn claimed_by_others(all: &[Links<'_>], gpu: &Gpu) -> usize {
    let others = all.iter().filter(|other| other.gpu.index != gpu.index);
    let leads_here = |link: &&NvLink| {
        let address = link.remote_pci.get();
        link.remote.get() == Some(NvLinkRemote::Gpu)
            && address.is_some()
            && address == gpu.pci.get()
    };
    others.flat_map(Links::up).filter(leads_here).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::reading::Unknown;
    use model::snapshot::{BoundDriver, DisplayFunction, NvSwitch};

    fn without_links(name: &str, gpus: usize) -> Snapshot {
        let mut machine = two_sockets();
        machine.gpus.truncate(gpus);
        machine
            .pairs
            .retain(|pair| (pair.source as usize) < gpus && (pair.destination as usize) < gpus);
        for gpu in &mut machine.gpus {
            (gpu.name, gpu.nvlinks) = (Reading::Known(name.into()), Reading::Known(Vec::new()));
        }
        machine
    }

    #[test]
    fn sxm_parts_are_known_by_their_whole_names() {
        for name in [
            "NVIDIA A100-SXM4-80GB",
            "Tesla V100-SXM2-16GB",
            "NVIDIA H200",
            "NVIDIA B300 SXM6 AC",
            "NVIDIA H100 80GB HBM3",
        ] {
            assert!(is_sxm(name), "{name}");
        }
        for name in [
            "NVIDIA GH200 480GB",
            "NVIDIA H200 NVL",
            "NVIDIA H100 PCIe",
            "NVIDIA A100-PCIE-40GB",
            "NVIDIA L40S",
            "NVIDIA GB200",
        ] {
            assert!(!is_sxm(name), "{name}");
        }
    }

    #[test]
    fn parts_for_sxm_sockets_without_links_are_an_error_and_cards_are_none() {
        only(&findings(&without_links("NVIDIA H200", 4), None), "nvlink-missing", Severity::Error);
        assert_eq!(findings(&without_links("NVIDIA H200 NVL", 4), None), []);
        assert_eq!(
            findings(&without_links("NVIDIA H200", 1), None),
            [],
            "nothing to be connected to"
        );
        let mut guest = without_links("NVIDIA A100-SXM4-40GB", 2);
        guest.host.virtual_machine = Reading::Known(true);
        only(&findings(&guest, None), "nvlink-missing", Severity::Warning);
        let mut mig = without_links("NVIDIA A100-SXM4-40GB", 2);
        mig.gpus.iter_mut().for_each(|gpu| gpu.mig = Reading::Known(true));
        assert!(findings(&mig, None).iter().all(|finding| finding.code != RULE.id));
        let mut unread = without_links("NVIDIA H200", 4);
        unread.gpus[2].nvlinks = Reading::Unknown(Unknown::Failed("no answer".into()));
        assert!(findings(&unread, None).iter().all(|finding| finding.code != RULE.id));
    }

    #[test]
    fn switches_on_the_bus_want_links_whatever_the_name() {
        let mut machine = without_links("Graphics Device", 4);
        assert_eq!(findings(&machine, None), []);
        machine.nvswitches = vec![NvSwitch::unread(pci("0000:c0:00.0"), &Unknown::Unsupported)];
        let found = only(&findings(&machine, None), "nvlink-missing", Severity::Error);
        assert!(found.message.contains("1 NVSwitch is on the PCI bus"), "{}", found.message);
        machine.nvswitches = vec![machine.nvswitches[0].clone(); 6];
        let found = only(&findings(&machine, None), "nvlink-missing", Severity::Error);
        assert!(found.message.contains("6 NVSwitches are on the PCI bus"), "{}", found.message);
    }

    #[test]
    fn switches_that_may_be_those_of_other_gpus_are_held_against_none() {
        let is_found = |machine: &Snapshot| {
            findings(machine, None)
                .iter()
                .any(|found| found.code == RULE.id && found.severity == Severity::Error)
        };
        let mut machine = without_links("Graphics Device", 3);
        machine.nvswitches = vec![NvSwitch::unread(pci("0000:c0:00.0"), &Unknown::Unsupported)];
        let like = machine.clone();
        // A GPU of the same model in MIG mode shows no links either, and is not another owner.
        machine.gpus[2].mig = Reading::Known(true);
        assert!(is_found(&machine));
        machine.gpus[2].name = Reading::Known("NVIDIA A100-SXM4-80GB".into());
        assert!(!is_found(&machine), "in MIG mode");
        machine.gpus[2].mig = Reading::Known(false);
        assert!(is_found(&machine), "it shows that it has none");
        machine.gpus[2].nvlinks = Reading::failed("no answer");
        assert!(!is_found(&machine), "no answer");
        let (mut machine, model) = (like, 0x20b2);
        let unlisted = DisplayFunction::unread(pci("0000:84:00.0"), None, &Unknown::Unsupported);
        machine.unlisted_gpus =
            vec![DisplayFunction { driver: Reading::Known(BoundDriver::VfioPci), ..unlisted }];
        assert!(!is_found(&machine), "given to a guest");
        for address in ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0", "0000:84:00.0"] {
            model::testing::function_mut(&mut machine, address).device_id = Reading::Known(model);
        }
        assert!(is_found(&machine), "of the same model");
    }
}
