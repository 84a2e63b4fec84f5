//! # What it means
//!
//! A port of a network adapter is down or slow where its siblings are up. Traffic with other machines lacks its share:
//! collective operations wait for the slowest port.
//!
//! # What to do
//!
//! Polling: no signal arrives. Reseat cable and transceivers at both ends, try others (`mlxlink -d mlx5_0 -m`), look at
//! the switch's port. Disabled: switch it on. Initializing: no subnet manager answers. A lower rate: the same cable or a
//! setting of the switch.
//!
//! # How it is detected
//!
//! RDMA ports are compared with those of the same board (`board_id`, else PCI ids), link layer, number on the card, and
//! nearness to GPUs (PIX, PXB). At least three quarters must be up at one rate of 100 Gb/s or more: ports that were never
//! cabled, such as all second ports, are not reported.
//!
//! # Sources
//!
//! Linux, Documentation/ABI/stable/sysfs-class-infiniband; InfiniBand specification, port states.

use super::prelude::*;

rule! {
    "adapter-port-degraded", Warning, All(judge);

    /// Lowest usual rate of ports that are judged, GB/s: slower ones are for management (100 Gb/s, EDR, is the least for
    /// training; chosen).
    LOWEST: lowest_gbps = 12.5;
}

/// A port with its adapter.
type Port<'a> = (&'a Adapter, &'a AdapterPort);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let near = links::near_adapters(evidence);
    let near: BTreeSet<PciAddress> = near.values().flatten().map(|adapter| adapter.pci).collect();
    let adapters = evidence.snapshot.adapters.iter();
    let rdma = adapters.filter(|adapter| adapter.kind == AdapterKind::Rdma);
    let alike = words::grouped(rdma.flat_map(|adapter| {
        let kind = (board(evidence, adapter), adapter.pci.function, near.contains(&adapter.pci));
        let ports = adapter.ports.known().into_iter().flatten();
        ports.map(move |port| ((kind.clone(), port.link_layer.known(), port.port), (adapter, port)))
    }));
    alike.values().flat_map(|ports| judge_alike(evidence, ports)).collect()
}

/// Returns the board of an adapter, or its PCI ids.
fn board(evidence: &Evidence<'_>, adapter: &Adapter) -> Option<String> {
    adapter.board.known().cloned().or_else(|| {
        let function = evidence.snapshot.function(adapter.pci)?;
        Some(format!("{:04x}:{:04x}", function.vendor.get()?, function.device_id.get()?))
    })
}

/// Judges ports that are alike by what most of them do.
fn judge_alike(evidence: &Evidence<'_>, ports: &[Port<'_>]) -> Vec<Finding> {
    let rate = |port: &&AdapterPort| port.rate_mbit.get().filter(|_| port.is_up() == Some(true));
    let rates = words::grouped(ports.iter().filter_map(|(_, port)| Some((rate(port)?, ()))));
    let Some((&usual, _)) = rates.iter().max_by_key(|(rate, ports)| (ports.len(), **rate)) else {
        return Vec::new();
    };
    let is_bad = |port: &&AdapterPort| {
        port.is_up() == Some(false) || rate(port).is_some_and(|rate| rate < usual)
    };
    let bad: Vec<_> = ports.iter().filter(|(_, port)| is_bad(port)).collect();
    let sound =
        ports.iter().filter(|(_, port)| rate(port).is_some_and(|rate| rate >= usual)).count();
    if gbit(usual) < 8.0 * LOWEST.of(evidence) || sound < 3 * bad.len() {
        return Vec::new();
    }
    bad.into_iter().map(|port| finding(*port, usual, sound)).collect()
}

fn finding((adapter, port): Port<'_>, usual: u32, sound: usize) -> Finding {
    let name = || adapter.name.clone();
    let cable = [Step::NetworkCable(name()), Step::CheckAgain];
    let state = port.state.known().map_or("", String::as_str);
    let signal = port.physical_state.known().map(String::as_str);
    let (is, plan) = match (port.is_up(), signal) {
        (Some(true), _) => {
            let rate = gbit(port.rate_mbit.get().unwrap_or_default());
            (format!("runs at {rate} Gb/s"), Plan::now(cable))
        }
        (_, Some("Disabled")) => {
            let plan = Plan::now([Step::PortOn(name()), Step::CheckAgain]);
            (format!("is {state} (Disabled)"), plan.if_it_stays(cable))
        }
        // The link is trained: what lacks is on the network.
        (_, Some("LinkUp")) => {
            (format!("is {state}"), Plan::now([Step::SubnetManager, Step::CheckAgain]))
        }
        _ => (format!("is {state}{}", words::in_brackets(signal)), Plan::now(cable)),
    };
    let errors = words::counted(&port.errors());
    let message = format!(
        "{}: port {} {is}, where {sound} like it are up at {} Gb/s{}",
        adapter.name,
        port.port,
        gbit(usual),
        words::after("; it counted ", Some(errors))
    );
    RULE.finding(Subject::PciFunction { address: adapter.pci }, message, plan)
        .fact("firmware", adapter.firmware.known().cloned())
        .fact("like_it", sound)
}

fn gbit(megabits: u32) -> f64 {
    f64::from(megabits) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    /// Returns a machine with ports of these states and rates, Gb/s, each on a card of its own.
    fn with_ports(ports: &[(&str, u32)]) -> Snapshot {
        let mut machine = two_sockets();
        for (number, (state, rate)) in ports.iter().enumerate() {
            let at = pci(&format!("0000:{:02x}:00.0", 0x50 + number));
            let name = format!("mlx5_{number}");
            let mut adapter = Adapter::unread(name, AdapterKind::Rdma, at, &Unknown::Unsupported);
            adapter.ports = Reading::Known(vec![AdapterPort {
                state: Reading::Known((*state).into()),
                rate_mbit: Reading::Known(rate * 1000),
                physical_state: Reading::Known(
                    if *state == "down" { "Polling" } else { "LinkUp" }.into(),
                ),
                ..AdapterPort::unread(1, &Unknown::Unsupported)
            }]);
            machine.adapters.push(adapter);
        }
        machine
    }

    fn found(machine: &Snapshot) -> Vec<String> {
        let all = findings(machine, None);
        all.into_iter().filter(|found| found.code == RULE.id).map(|found| found.message).collect()
    }

    #[test]
    fn a_port_is_compared_with_three_that_are_alike() {
        let up = ("active", 400);
        assert_eq!(found(&with_ports(&[up, up, ("down", 10)])), [""; 0], "two alike are few");
        let messages = found(&with_ports(&[up, ("down", 10), up, up]));
        let expected = "mlx5_1: port 1 is down (Polling), where 3 like it are up at 400 Gb/s";
        assert_eq!(messages, [expected]);
        let messages = found(&with_ports(&[up, ("init", 400), up, up]));
        assert!(messages[0].contains("port 1 is init,"), "{messages:?}");
        let messages = found(&with_ports(&[up, ("active", 200), up, up]));
        assert!(messages[0].contains("runs at 200 Gb/s"), "{messages:?}");
        let half = [up, ("down", 10), up, ("down", 10)];
        assert_eq!(found(&with_ports(&half)), [""; 0], "half of them may lack a cable");
        let faster = [("active", 200), ("active", 200), ("active", 200), up];
        assert_eq!(found(&with_ports(&faster)), [""; 0]);
    }

    #[test]
    fn slow_ports_other_boards_and_second_ports_are_no_siblings() {
        let slow = ("active", 25);
        assert_eq!(found(&with_ports(&[slow, slow, slow, ("down", 10)])), [""; 0]);
        let up = ("active", 400);
        let mut machine = with_ports(&[up, up, up, up, ("down", 10)]);
        machine.adapters[4].board = Reading::Known("MT_0000000223".into());
        assert_eq!(found(&machine), [""; 0]);
        machine.adapters[4].board = Reading::unsupported();
        assert_eq!(found(&machine).len(), 1);
        machine.adapters[4].pci = pci("0000:50:00.1");
        assert_eq!(found(&machine), [""; 0], "the second port of a card");
    }
}
