//! # What it means
//!
//! On bare metal, the IOMMU translates the addresses that GPUs use. Peer copies over PCIe, not supported by CUDA
//! then, may be lost, corrupted, hang or slow.
//!
//! # What to do
//!
//! Boot with `iommu=pt` (Intel: `intel_iommu=on iommu=pt`, or `intel_iommu=off`; AMD: `amd_iommu=on iommu=pt`), or
//! switch VT-d or AMD-Vi off in BIOS if nothing needs it. Then the GPUs' groups are `identity`
//! (`cat /sys/kernel/iommu_groups/*/type`). If the command line already sets this, the firmware or a changed type of
//! the group overrides it.
//!
//! # How it is detected
//!
//! The kernel reports the kind of every IOMMU group: `DMA` and `DMA-FQ` translate, `identity` does not. The GPUs'
//! groups count, without them the machine's. It is a warning if GPUs copy directly over PCIe, else (and in `topo`)
//! information. Virtual machines are not judged.
//!
//! # Sources
//!
//! CUDA Programming Guide, 3.4.2.5 (IOMMU on Linux); pytorch issue 84803 and FIDESlib issue 28.

use super::prelude::*;

rule! {
    "iommu-translating", Warning, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let bare_metal = evidence.snapshot.host.virtual_machine.get() == Some(false);
    let gpus = translated(evidence).filter(|_| bare_metal && evidence.snapshot.gpus.len() > 1)?;
    let pairs = pcie_peers(evidence);
    let broken = broken(evidence, &pairs);
    let told = told_otherwise(evidence.snapshot);
    let tried = evidence.measurements.is_some();
    let effect = match (pairs.is_empty(), broken.is_empty()) {
        (true, _) => "; no direct copies over PCIe are made here, so this has no effect now".into(),
        (false, true) => format!(
            "; direct copies over PCIe may be dropped, corrupted or slow{}",
            if tried { ", and arrived intact here" } else { "" }
        ),
        (false, false) => format!(
            ", and direct copies of {} over PCIe fail; change this first; {}",
            words::count(broken.len(), "pair"),
            words::pairs(&broken)
        ),
    };
    let plan = match told {
        _ if pairs.is_empty() => {
            vec![Step::Nothing(Fine::Always), Step::PassThrough]
        }
        Some(told) => {
            let log = Step::IommuLog(told.to_owned());
            vec![log, Step::IommuInFirmware, Step::CheckAgain]
        }
        None => vec![Step::PassThrough, Step::CheckAgain],
    };
    let message = format!(
        "The IOMMU translates addresses of {}{effect}{}",
        evidence.named(&gpus),
        match (told, misspelt(evidence.snapshot)) {
            (Some(told), _) => format!("; although the kernel was started with {told}"),
            (None, Some(wrong)) => format!(
                "; {wrong} on the kernel's command line changes nothing: the kernel has no such option, iommu=pt is the one"
            ),
            (None, None) => String::new(),
        },
    );
    let found = RULE.on_machine(message, plan).gpus(&gpus).fact("broken_pairs", broken);
    Some(found.at_if(pairs.is_empty() || !tried, Severity::Info))
}

/// Returns the parameter of the kernel's command line that switches translation off.
fn told_otherwise(snapshot: &Snapshot) -> Option<&str> {
    const PASS_THROUGH: [&str; 6] = [
        "iommu=pt",
        "iommu=off",
        "iommu.passthrough=1",
        "intel_iommu=off",
        "amd_iommu=off",
        "iommu=nopt",
    ];
    let parameters = snapshot.host.iommu_parameters.known()?;
    // The last of several parameters counts.
    let last =
        parameters.iter().rev().find(|parameter| PASS_THROUGH.contains(&parameter.as_str()))?;
    (last != "iommu=nopt").then_some(last.as_str())
}

/// Returns an attempt at `iommu=pt` that the kernel ignores. Source: Linux, kernel-parameters.txt, which has `pt` for
/// `iommu=` alone.
fn misspelt(snapshot: &Snapshot) -> Option<&str> {
    let parameters = snapshot.host.iommu_parameters.known()?.iter();
    let wrong = |parameter: &&str| {
        let (name, values) = parameter.split_once('=').unwrap_or_default();
        ["amd_iommu", "intel_iommu"].contains(&name) && values.split(',').any(|value| value == "pt")
    };
    parameters.map(String::as_str).find(wrong)
}

/// Returns the GPUs whose addresses are translated; all GPUs if it is known only for the whole machine.
fn translated(evidence: &Evidence<'_>) -> Option<Vec<u32>> {
    let snapshot = evidence.snapshot;
    let mut known = false;
    let mut found = Vec::new();
    for gpu in &snapshot.gpus {
        let function = gpu.pci.get().and_then(|address| snapshot.function(address));
        if let Some(kind) = function.and_then(|function| function.iommu_type.known()) {
            known = true;
            if kind.starts_with("DMA") {
                found.push(gpu.index);
            }
        }
    }
    if !known && snapshot.host.iommu_translating.get() == Some(true) {
        found = snapshot.gpus_with(|_| true);
    }
    (!found.is_empty()).then_some(found)
}

/// Returns the pairs whose direct copies go over PCIe: those that were tried, or, if nothing was tried, those that NVML
/// allows.
fn pcie_peers(evidence: &Evidence<'_>) -> Vec<Pair> {
    let tried = evidence
        .peer()
        .iter()
        .filter(|cell| cell.setup.path == Path::Direct && cell.ending.status != Status::Skipped);
    let routes = evidence.topology.pairs.iter();
    let allowed = routes.filter(|route| route.peer_access.nvml_write == Some(P2pStatus::Ok));
    let pairs: Vec<Pair> = match evidence.measurements {
        Some(_) => tried.map(|cell| cell.pair).collect(),
        None => allowed.map(|route| route.pair).collect(),
    };
    words::unique(pairs.into_iter().filter(|pair| !evidence.over_nvlink(*pair)))
}

/// Returns those of these pairs whose bytes did not arrive, or whose copies failed or hung.
fn broken(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<Pair> {
    let broken = evidence
        .peer()
        .iter()
        .filter(|cell| {
            cell.setup.path == Path::Direct
                && (cell.verified.is_wrong() || cell.ending.status.broke_off())
        })
        .map(|cell| cell.pair);
    words::unique(broken.filter(|pair| pairs.contains(pair)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn an_option_that_the_kernel_does_not_have_is_named() {
        let mut machine = two_sockets();
        for (given, wrong) in [
            ("amd_iommu=pt", Some("amd_iommu=pt")),
            ("intel_iommu=on,pt", Some("intel_iommu=on,pt")),
            ("amd_iommu=on", None),
            ("iommu=pt", None),
        ] {
            machine.host.iommu_parameters = Reading::Known(vec![given.into()]);
            assert_eq!(misspelt(&machine), wrong, "{given}");
        }
    }

    #[test]
    fn it_is_a_warning_where_copies_go_over_pcie() {
        let mut machine = two_sockets();
        machine.host.iommu_translating = Reading::Known(true);
        machine.pairs = model::testing::all_pairs(4, None, P2pStatus::NotSupported);
        let found = only(&findings(&machine, None), "iommu-translating", Severity::Info);
        assert!(!found.message.contains("arrived"), "{}", found.message);
        let mut measurements = measured(&machine, 0.84);
        let found =
            only(&findings(&machine, Some(&measurements)), "iommu-translating", Severity::Warning);
        assert!(found.message.contains("arrived intact"), "{}", found.message);
        for cell in measurements.peer.iter_mut().filter(|cell| is(cell, 2, 3)) {
            cell.verified = Verified::Dropped;
        }
        let found = findings(&machine, Some(&measurements));
        let wrong = only(&found, "data-wrong", Severity::Error);
        let effect = &wrong.evidence.effects()[0];
        assert!(effect.rule == RULE.id && effect.message.contains("GPU 2 → GPU 3"), "{effect}");
        // Without peer access nothing goes wrong.
        measurements
            .peer
            .iter_mut()
            .for_each(|cell| (cell.setup.path, cell.verified) = (Path::Staged, Verified::Ok));
        only(&findings(&machine, Some(&measurements)), "iommu-translating", Severity::Info);
    }

    #[test]
    fn advice_does_not_ask_for_what_the_command_line_has() {
        let mut machine = two_sockets();
        machine.host.iommu_translating = Reading::Known(true);
        for (parameters, told) in [
            (vec!["intel_iommu=on"], None),
            (vec!["intel_iommu=on", "iommu=pt"], Some("iommu=pt")),
            (vec!["iommu=pt", "iommu=nopt"], None),
            (vec!["amd_iommu=off"], Some("amd_iommu=off")),
        ] {
            machine.host.iommu_parameters =
                Reading::Known(parameters.iter().map(ToString::to_string).collect());
            let found = findings(&machine, Some(&measured(&machine, 0.84)));
            let found = only(&found, "iommu-translating", Severity::Warning);
            let said = found.message.contains("although the kernel was started with");
            assert_eq!(said, told.is_some(), "{parameters:?}: {}", found.message);
            let first = match told {
                None => "pass-through",
                Some(_) => "iommu-log",
            };
            assert_eq!(found.steps[0].id, first, "{}", found.next_step);
        }
    }

    #[test]
    fn the_groups_of_the_gpus_outrank_the_machine_and_guests_are_left_alone() {
        let mut machine = two_sockets();
        machine.host.iommu_translating = Reading::Known(true);
        for address in ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0", "0000:84:00.0"] {
            function_mut(&mut machine, address).iommu_type = Reading::Known("identity".into());
        }
        assert_eq!(
            findings(&machine, Some(&measured(&machine, 0.84))),
            [],
            "another device is translated"
        );
        function_mut(&mut machine, "0000:84:00.0").iommu_type = Reading::Known("DMA-FQ".into());
        let found = only(
            &findings(&machine, Some(&measured(&machine, 0.84))),
            "iommu-translating",
            Severity::Warning,
        );
        assert!(found.message.contains("of GPU 3 (slot 4); direct copies"), "{}", found.message);

        let mut guest = h200_vm(4);
        guest.host.iommu_translating = Reading::Known(true);
        assert_eq!(findings(&guest, Some(&measured(&guest, 0.88))), []);
        let mut bare = h200_vm(4);
        bare.host.virtual_machine = Reading::Known(false);
        bare.host.iommu_translating = Reading::Known(true);
        only(&findings(&bare, Some(&measured(&bare, 0.88))), "iommu-translating", Severity::Info);
        let mut unknown = nvlink_bridge();
        unknown.host.virtual_machine = Reading::unsupported();
        unknown.host.iommu_translating = Reading::Known(true);
        assert_eq!(findings(&unknown, None), []);
    }
}
