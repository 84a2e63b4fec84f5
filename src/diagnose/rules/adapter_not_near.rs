//! # What it means
//!
//! A GPU has no RDMA adapter below its PCIe switch, where others have. Its traffic with other machines crosses a host
//! bridge, or goes over NVLink to another GPU's adapter.
//!
//! # What to do
//!
//! If an adapter belongs there, look for it on the bus (`lspci`), compare with a machine of the same kind, and reseat it.
//! Many machines are built with an adapter for every second GPU.
//!
//! # How it is detected
//!
//! PIX and PXB of `topology.adapter_paths` are near. At least half of the GPUs must have an adapter of their own near: then
//! it is information. It is a warning if three quarters have one, which two GPUs may share, but in containers. Virtual
//! machines are not judged: their tree is made up.
//!
//! # Sources
//!
//! nvidia-smi topo -m; NCCL user guide, `NCCL_NET_GDR_LEVEL`.

use super::prelude::*;

rule! {
    "adapter-not-near", Warning, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let near = links::near_adapters(evidence);
    let mut nearest: BTreeMap<u32, LinkClass> = BTreeMap::new();
    for to in links::rdma_paths(evidence).flat_map(|(_, path)| &path.gpus) {
        let best = nearest.entry(to.gpu).or_insert(to.class);
        *best = to.class.min(*best);
    }
    nearest.retain(|gpu, class| !near.contains_key(gpu) && *class != LinkClass::Unknown);
    let far: Vec<u32> = nearest.keys().copied().collect();
    let (all, have) = (evidence.snapshot.gpus.len(), near.len());
    let cards = words::unique(near.values().flatten().map(|adapter| adapter.pci)).len();
    let most = 4 * have >= 3 * all;
    let own = if most { 2 * cards } else { cards };
    if far.is_empty() || 2 * have < all || own < have {
        return None;
    }
    // A container may hide adapters of its host.
    let most = most && evidence.snapshot.host.container.get() != Some(true);
    let look = [Step::AdapterBus, Step::CompareAlike];
    let plan = match most {
        true => Plan::now(look).if_it_stays([Step::Reseat(Part::AdapterAndRiser)]),
        false => Plan::now([Step::Nothing(Fine::IfMeant)]).otherwise(look),
    };
    let classes = words::distinct(nearest.values().map(ToString::to_string));
    let message = format!(
        "{}: no RDMA adapter nearer than {classes}, where {have} of {all} GPUs have one below their own switch",
        evidence.named(&far)
    );
    let found = RULE.finding(Subject::of_gpus(&far), message, plan);
    // No scope: copies between GPUs do not pass an adapter.
    Some(found.fact("gpus", Fact::Gpus(far)).at_if(!most, Severity::Info))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    /// Returns [`two_sockets`], whose two switches have two GPUs each, with adapters at these switches.
    fn with_adapters(switches: &[u32]) -> Snapshot {
        let mut machine = two_sockets();
        for (number, switch) in (2..).zip(switches) {
            let (bus, bridge) = (switch * 0x80, format!("pci0000:{:02x}", switch * 0x80));
            let at = |offset: u32, device: u32| format!("0000:{:02x}:{device:02x}.0", bus + offset);
            let (port, card) = (at(2, number), at(5, number));
            for (address, above, kind) in [
                (&port, at(1, 0), PciKind::SwitchDownstream),
                (&card, port.clone(), PciKind::Endpoint),
            ] {
                let mut one = function(address, Some(&above), kind, (4, 16), (4, 16));
                one.host_bridge.clone_from(&bridge);
                machine.pci.push(one);
            }
            let name = format!("mlx5_{number}");
            let unread = &Unknown::Unsupported;
            machine.adapters.push(Adapter::unread(name, AdapterKind::Rdma, pci(&card), unread));
        }
        machine
    }

    #[test]
    fn gpus_of_another_switch_are_reported_if_half_have_an_adapter() {
        assert_eq!(findings(&with_adapters(&[]), None), []);
        assert_eq!(findings(&with_adapters(&[0, 1]), None), []);
        assert_eq!(findings(&with_adapters(&[0]), None), [], "one for two GPUs");
        let mut machine = with_adapters(&[0, 0]);
        let found = findings(&machine, None);
        let found = only(&found, "adapter-not-near", Severity::Info);
        assert!(
            found.message.starts_with("GPU 2 and GPU 3: no RDMA adapter nearer"),
            "{}",
            found.message
        );
        machine.host.virtual_machine = Reading::Known(true);
        assert_eq!(findings(&machine, None), []);
    }
}
