//! # What it means
//!
//! Packets of a GPU carry a smaller MaxPayload than its siblings' packets. Its copies over PCIe are slower: 128 bytes
//! leave 84% of a link's rate, 256 bytes 91%, 512 bytes 96%. A larger loss has another cause.
//!
//! # What to do
//!
//! Look for "Max Payload Size" in BIOS (auto, or the largest), or start the kernel with `pci=pcie_bus_perf`. If a
//! port does not support more, put the GPU into another slot.
//!
//! # How it is detected
//!
//! The smallest MaxPayload in the device control registers (only root may read them) from the GPU to its root lies
//! below that of most GPUs of the same model, if there are two others. Virtual machines are not judged.
//!
//! # Sources
//!
//! PCIe Base Specification, Device Control Register; 24 bytes beside the payload of each packet.

use super::prelude::*;

rule! {
    "payload-below-siblings", Info, All(judge);
}

/// Fewest other GPUs of a model that give a credible usual figure.
const LEAST_OTHERS: usize = 2;

/// Bytes of a packet beside its payload: framing, header with a long address, checksum.
const OVERHEAD: u16 = 24;

/// The smallest payload on a GPU's route.
#[derive(Clone, Copy)]
struct Way<'a> {
    gpu: u32,
    model: &'a str,
    bytes: u16,
    /// The hop nearest to the root with this payload.
    hop: &'a PciFunction,
    /// The largest payload that all hops support.
    possible: Option<u16>,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    if evidence.virtual_machine() {
        return Vec::new();
    }
    let ways: Vec<_> =
        evidence.snapshot.gpus.iter().filter_map(|gpu| way(evidence.snapshot, gpu)).collect();
    let mut below: BTreeMap<PciAddress, Vec<(Way<'_>, u16)>> = BTreeMap::new();
    for way in &ways {
        if let Some(usual) = usual(&ways, way).filter(|usual| way.bytes < *usual) {
            below.entry(way.hop.address).or_default().push((*way, usual));
        }
    }
    below.into_values().filter_map(|ways| finding(evidence, &ways)).collect()
}

fn way<'a>(snapshot: &'a Snapshot, gpu: &'a Gpu) -> Option<Way<'a>> {
    let hops = pcie::chain(snapshot, gpu.pci.get()?);
    let payload = |hop: &&PciFunction| hop.max_payload_bytes.get();
    // `None` if any hop is unknown: it could carry less.
    let bytes = hops.iter().map(payload).collect::<Option<Vec<_>>>()?.into_iter().min()?;
    let hop = hops.iter().rev().find(|hop| payload(hop) == Some(bytes))?;
    let possible = hops.iter().filter_map(|hop| hop.max_payload_possible_bytes.get()).min();
    Some(Way { gpu: gpu.index, model: gpu.name.known()?, bytes, hop, possible })
}

/// Returns the payload that most others of the model have.
fn usual(ways: &[Way<'_>], of: &Way<'_>) -> Option<u16> {
    let others: Vec<_> =
        ways.iter().filter(|way| way.model == of.model && way.gpu != of.gpu).collect();
    if others.len() < LEAST_OTHERS {
        return None;
    }
    let number = |bytes: u16| others.iter().filter(|way| way.bytes == bytes).count();
    others.iter().map(|way| way.bytes).find(|bytes| 2 * number(*bytes) > others.len())
}

fn finding(evidence: &Evidence<'_>, ways: &[(Way<'_>, u16)]) -> Option<Finding> {
    let (first, usual) = ways.first()?;
    let gpus: Vec<u32> = ways.iter().map(|(way, _)| way.gpu).collect();
    let share = |bytes: u16| 100.0 * f64::from(bytes) / f64::from(bytes + OVERHEAD);
    let size = |bytes: u16| Bytes(bytes.into());
    let address = first.hop.address;
    let plan = match first.possible {
        Some(possible) if possible < *usual => {
            vec![Step::LargerPayloadSlot(all(&gpus), possible.into())]
        }
        _ => vec![Step::MaxPayload, Step::CheckAgain],
    };
    let message = format!(
        "PCIe packets of {} carry {} bytes, {usual} on most others of the model; MaxPayload at {address} leaves at most \
         {:.0}% instead of {:.0}% of a link's rate for data",
        evidence.named(&gpus),
        first.bytes,
        share(first.bytes),
        share(*usual),
    );
    Some(
        RULE.finding(Subject::PcieLink { address }, message, plan)
            .gpus(&gpus)
            .fact("possible_payload", first.possible.map(size)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    fn with_payloads(of_last: u16, possible: u16) -> Snapshot {
        let mut machine = two_sockets();
        for function in &mut machine.pci {
            function.max_payload_bytes = Reading::Known(256);
            function.max_payload_possible_bytes = Reading::Known(512);
        }
        for address in ["0000:82:01.0", "0000:84:00.0"] {
            let function = function_mut(&mut machine, address);
            function.max_payload_bytes = Reading::Known(of_last);
            function.max_payload_possible_bytes = Reading::Known(possible);
        }
        machine
    }

    #[test]
    fn the_hop_nearest_to_the_root_is_named_with_what_it_costs() {
        let machine = with_payloads(128, 512);
        let found = findings(&machine, Some(&measured(&machine, 0.84)));
        let found = only(&found, "payload-below-siblings", Severity::Info);
        assert_eq!(found.subject, Subject::PcieLink { address: pci("0000:82:01.0") });
        assert!(found.message.contains("84% instead of 91%"), "{}", found.message);
        assert!(advises(&found, "firmware-setting"), "{}", found.next_step);
        let machine = with_payloads(128, 128);
        let found = findings(&machine, Some(&measured(&machine, 0.84)));
        let found = only(&found, "payload-below-siblings", Severity::Info);
        assert!(advises(&found, "other-slot"), "{}", found.next_step);
    }

    #[test]
    fn ways_alike_unknown_ones_guests_and_other_models_are_left_alone() {
        let clean =
            |machine: &Snapshot| assert_eq!(findings(machine, Some(&measured(machine, 0.84))), []);
        clean(&with_payloads(256, 512));
        clean(&with_payloads(512, 512));
        let mut machine = with_payloads(128, 512);
        function_mut(&mut machine, "0000:84:00.0").max_payload_bytes =
            Reading::failed("needs root");
        clean(&machine);
        let mut machine = with_payloads(128, 512);
        machine.host.virtual_machine = Reading::Known(true);
        let found = findings(&machine, Some(&measured(&machine, 0.84)));
        assert!(found.iter().all(|found| found.code != RULE.id), "{found:#?}");
    }
}
