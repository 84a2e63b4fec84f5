//! # What it means
//!
//! A network adapter's PCIe link has fewer lanes or a lower generation than possible. Traffic with other machines
//! passes it.
//!
//! # What to do
//!
//! Fewer lanes: reseat the adapter and its riser or cable, and check if BIOS splits the slot (bifurcation). Lower
//! generation: read it again while the adapter is busy (lspci -vvv, LnkSta). If it stays low, check the BIOS setting
//! for the speed of the slot.
//!
//! # How it is detected
//!
//! Every link between an adapter and its root (`topology.links`) is compared with what both its ends support. Fewer
//! lanes are a warning; a lower generation is information, since ports lower it at rest. Links that GPUs share are
//! `pcie-narrow`.
//!
//! # Sources
//!
//! PCIe Base Specification, link training.

use super::prelude::*;

rule! {
    "adapter-link-narrow", Warning, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    if evidence.virtual_machine() {
        return Vec::new();
    }
    let behind = words::grouped(evidence.snapshot.adapters.iter().flat_map(|adapter| {
        let way = evidence.topology.way_up(NodeId::Pci(adapter.pci));
        way.into_iter().map(|node| (node, adapter.name.as_str()))
    }));
    let narrow = |link: &Link| {
        let pcie = link.pcie.as_ref();
        let pcie = pcie.filter(|pcie| pcie.gpus.is_empty() && !pcie.narrow.is_empty());
        finding(pcie?, words::unique(behind.get(&link.lower)?))
    };
    evidence.topology.links.iter().filter_map(narrow).collect()
}

fn finding(link: &Connection, adapters: Vec<&&str>) -> Option<Finding> {
    let names: Vec<String> = adapters.iter().map(ToString::to_string).collect();
    let fewer_lanes = link.fewer_lanes();
    let plan = match fewer_lanes {
        true => Plan::now([Step::Reseat(Part::AdapterAndRiser), Step::Bifurcation])
            .if_it_stays([Step::Swap(Part::Adapter)]),
        false => Plan::now([Step::CheckAdapterBusy]).if_it_stays([Step::SlotSpeed]),
    };
    let message = format!(
        "{}: PCIe link runs at {} instead of {}, which both its ends can do",
        words::first(&names, 3),
        link.now,
        link.possible
    );
    let address = link.below?;
    Some(
        RULE.finding(Subject::PcieLink { address }, message, plan)
            .at_if(!fewer_lanes, Severity::Info)
            .fact("adapters", names),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    /// Returns [`two_sockets`] with an adapter below its own root port, given the current link and its maximum.
    fn with_adapter(now: (u8, u8)) -> Snapshot {
        let mut machine = two_sockets();
        machine.pci.push(function("0000:60:01.0", None, PciKind::RootPort, now, (5, 16)));
        machine.pci.push(function(
            "0000:61:00.0",
            Some("0000:60:01.0"),
            PciKind::Endpoint,
            now,
            (5, 16),
        ));
        let (name, at) = ("mlx5_0".into(), pci("0000:61:00.0"));
        machine.adapters.push(Adapter::unread(name, AdapterKind::Rdma, at, &Unknown::Unsupported));
        machine
    }

    #[test]
    fn fewer_lanes_are_a_warning_and_a_lower_generation_is_information() {
        let of = |now| {
            let machine = with_adapter(now);
            findings(&machine, Some(&measured(&machine, 0.84)))
        };
        assert_eq!(of((5, 16)), []);
        let lanes = of((5, 8));
        let lanes = only(&lanes, "adapter-link-narrow", Severity::Warning);
        assert_eq!(lanes.subject, Subject::PcieLink { address: pci("0000:61:00.0") });
        assert!(
            lanes.message.contains("mlx5_0: PCIe link runs at Gen5 x8 instead of Gen5 x16"),
            "{}",
            lanes.message
        );
        only(&of((1, 16)), "adapter-link-narrow", Severity::Info);
    }

    #[test]
    fn nothing_is_said_of_made_up_ports() {
        let mut machine = with_adapter((5, 8));
        machine.host.virtual_machine = Reading::Known(true);
        let found = findings(&machine, Some(&measured(&machine, 0.84)));
        assert!(found.iter().all(|found| found.code != RULE.id), "{found:#?}");
    }
}
