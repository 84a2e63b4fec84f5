//! # What it means
//!
//! Access control (ACS) sends peer writes below one switch through the root complex. They get a fraction of the rate,
//! and a translating IOMMU may drop them.
//!
//! # What to do
//!
//! Switch ACS off in BIOS, or at every boot with `setpci -s ADDRESS ECAP_ACS+0x6.w=0000` for the bridges named,
//! including the root ports above them. Linux switches ACS on if an IOMMU is in use: see `iommu-translating`. Virtual
//! machines that share a switch need ACS: leave it on there.
//!
//! # How it is detected
//!
//! Request redirect is on in the ACS control register (only root may read it) of a downstream switch port between two
//! GPUs that meet in a switch, or between a GPU and an RDMA adapter if nvidia_peermem is loaded. It is an error if
//! their copies are slow, information over NVLink, else a warning. Virtual machines are not judged. Bridges in the
//! output of lspci alone are information.
//!
//! # Sources
//!
//! PCIe Base Specification, Access Control Services (P2P Request Redirect); NCCL user guide, troubleshooting.

use super::prelude::*;

rule! {
    "acs-redirect", Warning, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let guest = evidence.snapshot.host.virtual_machine.get();
    if guest.unwrap_or(evidence.read_from.is_none()) {
        return None;
    }
    let mut ports = BTreeSet::new();
    let (mut over_pcie, mut over_nvlink): (Vec<Pair>, Vec<Pair>) = (Vec::new(), Vec::new());
    for route in &evidence.topology.pairs {
        let redirecting = redirecting(evidence, route.pair);
        match evidence.over_nvlink(route.pair) {
            _ if redirecting.is_empty() => continue,
            true => over_nvlink.push(route.pair),
            false => over_pcie.push(route.pair),
        }
        ports.extend(redirecting);
    }
    let module = evidence.snapshot.host.peer_memory_module.get() == Some(true);
    let beside = if module { beside_adapters(evidence) } else { Vec::new() };
    ports.extend(beside.iter().flat_map(|beside| &beside.ports));
    if ports.is_empty() {
        return in_text(evidence);
    }
    let mut cells = evidence.reference(Path::Direct);
    cells.retain(|pair, _| over_pcie.contains(pair));
    let slow = links::slow(evidence, &cells.into_values().collect::<Vec<_>>());
    let ports: Vec<_> = ports.into_iter().collect();
    // Root ports are cleared too: requests redirected below go up to them.
    let mut gpus = suspects::gpus_of(over_pcie.iter().chain(&over_nvlink));
    gpus.extend(beside.iter().map(|beside| beside.gpu));
    let redirecting = suspects::redirecting_ports(evidence, &gpus).into_iter();
    let all = words::unique(redirecting.chain(ports.iter().copied()));
    let (bridges, subject) = match ports[..] {
        [address] => (format!("the bridge {address}"), Subject::PcieLink { address }),
        _ => (words::count(ports.len(), "bridge"), Subject::Machine),
    };
    let effect = match (over_pcie.is_empty(), slow.is_empty()) {
        (true, _) if !beside.is_empty() => {
            format!(": GPUDirect RDMA loses rate or bytes; of {}", named(&beside))
        }
        (true, _) => "; the GPUs below copy over NVLink, so their copies do not change".into(),
        (false, true) => format!(": copies pass the root complex; of {}", words::pairs(&over_pcie)),
        (false, false) => {
            format!(": copies pass the root complex, {} slow", words::count(slow.len(), "pair"))
        }
    };
    let harmless = over_pcie.is_empty() && beside.is_empty();
    let plan = match harmless {
        true => vec![Step::Nothing(Fine::ForCopies)],
        false => vec![Step::ClearAcs(AcsOf(all.clone())), Step::CheckAgain],
    };
    let message = format!("ACS redirects peer requests at {bridges}{effect}");
    let found = RULE
        .finding(subject, message, plan)
        .fact("bridges", all)
        .pairs(&links::pairs(&slow))
        .at_if(!slow.is_empty(), Severity::Error)
        .at_if(harmless, Severity::Info);
    Some(links::with_rates(found, &slow))
}

/// Returns the finding on bridges of a text, which need not show what is below them.
fn in_text(evidence: &Evidence<'_>) -> Option<Finding> {
    evidence.read_from?;
    let mut functions = evidence.snapshot.pci.clone();
    functions.retain(|one| one.acs_redirect.get() == Some(true));
    let at: Vec<_> = functions.iter().map(|one| one.address).collect();
    let bridges = Some(words::addresses(&at)).filter(|_| !at.is_empty())?;
    let message =
        format!("ACS redirects requests at {bridges}: peer copies go through the root complex");
    let found = RULE.finding(Subject::Machine, message, [Step::LookAtIommu]);
    Some(found.fact("bridges", at).at(Severity::Info))
}

/// Returns the downstream ports that redirect between two GPUs that meet in a switch.
pub(crate) fn redirecting(evidence: &Evidence<'_>, pair: Pair) -> Vec<PciAddress> {
    let [up, down] = pair.gpus().map(|gpu| links::functions_above(evidence, gpu));
    redirecting_between(&up, &down)
}

/// Returns the downstream ports that redirect between the ends of these two ways, root first, that meet in a switch.
fn redirecting_between(up: &[&PciFunction], down: &[&PciFunction]) -> Vec<PciAddress> {
    // The ends meet at the last function that both lists share.
    let shared =
        up.iter().zip(down).take_while(|(one, other)| one.address == other.address).count();
    let meets =
        up.iter().take(shared).rposition(|function| function.kind == PciKind::SwitchUpstream);
    let Some(meeting) = meets else {
        return Vec::new();
    };
    let below = up.iter().skip(meeting + 1).chain(down.iter().skip(meeting + 1));
    below
        .filter(|function| {
            function.kind == PciKind::SwitchDownstream && function.acs_redirect.get() == Some(true)
        })
        .map(|function| function.address)
        .collect()
}

/// A GPU and an adapter that is meant to write into it, with the ports that redirect between them.
pub(super) struct Beside<'a> {
    gpu: u32,
    adapter: &'a str,
    pub(super) ports: Vec<PciAddress>,
}

/// Returns the RDMA adapters below the same switch as a GPU, where ports redirect.
pub(super) fn beside_adapters<'a>(evidence: &Evidence<'a>) -> Vec<Beside<'a>> {
    let snapshot = evidence.snapshot;
    let mut found = Vec::new();
    let adapters = snapshot.adapters.iter();
    for adapter in adapters.filter(|adapter| adapter.kind == AdapterKind::Rdma) {
        let mut way = pcie::chain(snapshot, adapter.pci);
        way.reverse();
        for gpu in &snapshot.gpus {
            let ports = redirecting_between(&links::functions_above(evidence, gpu.index), &way);
            if !ports.is_empty() {
                found.push(Beside { gpu: gpu.index, adapter: &adapter.name, ports });
            }
        }
    }
    found
}

fn named(beside: &[Beside<'_>]) -> String {
    let pair = |beside: &Beside<'_>| format!("{} and GPU {}", beside.adapter, beside.gpu);
    words::first(&beside.iter().map(pair).collect::<Vec<_>>(), 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    #[test]
    fn root_ports_guests_and_what_root_alone_may_read_are_left_alone() {
        let mut machine = two_sockets();
        function_mut(&mut machine, "0000:80:01.0").acs_redirect = Reading::Known(true);
        function_mut(&mut machine, "0000:82:01.0").acs_redirect = Reading::failed("needs root");
        assert_eq!(findings(&machine, None), []);
        function_mut(&mut machine, "0000:82:01.0").acs_redirect = Reading::Known(true);
        machine.host.virtual_machine = Reading::Known(true);
        assert_eq!(findings(&machine, None), []);

        machine.host.virtual_machine = Reading::failed("not given");
        let (pasted, settings) = (Default::default(), Default::default());
        let topology = Default::default();
        let found = RULE.judge(&Evidence {
            read_from: Some(&pasted),
            ..crate::testing::without_request(&machine, &topology, None, &settings)
        });
        let found = only(&found, "acs-redirect", Severity::Info);
        assert!(found.message.contains("at 0000:80:01.0, 0000:82:01.0:"), "{}", found.message);

        let mut bridged = nvlink_bridge();
        function_mut(&mut bridged, "0000:02:00.0").acs_redirect = Reading::Known(true);
        let measurements = measured(&bridged, 0.9);
        only(&findings(&bridged, Some(&measurements)), "acs-redirect", Severity::Info);
    }
}
