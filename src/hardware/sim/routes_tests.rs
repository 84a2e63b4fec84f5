use super::rates::pcie_gbps;
use super::*;
use crate::builtin;
use crate::spec::NvLinkSpec;

/// Returns the hops as `up`/`down` with the bus below the link.
fn pcie_hops(route: &Route) -> Vec<String> {
    let text = |hop: &Hop| match hop {
        Hop::Pcie { lower, up } => {
            format!("{}{:02x}", if *up { "up " } else { "down " }, lower.bus)
        }
        Hop::HostMemory { node, written } => {
            format!("{} node {node}", if *written { "write" } else { "read" })
        }
        other => format!("{other:?}"),
    };
    route.hops.iter().map(text).collect()
}

#[test]
fn rates_are_those_of_the_specifications() {
    for (generation, gbps) in [(1, 4.0), (2, 8.0), (3, 15.75), (4, 31.5), (5, 63.0), (6, 118.0)] {
        let rate = pcie_gbps(model::testing::pcie_link(generation, 16));
        assert!((rate - gbps).abs() < 0.05, "Gen{generation}: {rate}");
    }
}

#[test]
fn a_switch_keeps_traffic_below_it_unless_access_control_sends_it_up() {
    let mut spec = builtin::get("demo").unwrap();
    assert_eq!(pcie_hops(&spec.direct_route(0, 1)), ["up 03", "down 04"]);
    let port = spec.function(spec.gpus[0].pci).unwrap().parent;
    spec.pci
        .iter_mut()
        .filter(|function| Some(function.address) == port)
        .for_each(|port| port.acs_redirect = true);
    assert_eq!(pcie_hops(&spec.direct_route(0, 1)), ["up 03", "up 01", "down 01", "down 04"]);
    assert_eq!(pcie_hops(&spec.direct_route(1, 0)), ["up 04", "down 03"]);
}

#[test]
fn between_sockets_every_link_up_and_down_is_passed() {
    let spec = builtin::get("demo").unwrap();
    let route = spec.direct_route(0, 5);
    assert_eq!(route.class, PathClass::CrossSocket);
    assert_eq!(
        pcie_hops(&route),
        ["up 03", "up 01", "Interconnect { from: 0, to: 1 }", "down 41", "down 44"]
    );
    assert!((spec.bottleneck_gbps(&route) - 7.88).abs() < 0.01);
    // Staged data passes the memory near the source.
    let staged = ["up 03", "up 01", "write node 0", "read node 0", "down 01", "down 04"];
    assert_eq!(pcie_hops(&spec.staged_route(0, 1)), staged);
    let staged = ["up 43", "up 41", "write node 1", "read node 1", "down 01", "down 03"];
    assert_eq!(pcie_hops(&spec.staged_route(4, 0)), staged);
}

#[test]
fn links_between_two_gpus_serve_these_two_only() {
    let mut spec = builtin::get("pair-hangs").unwrap();
    for (gpu, peer) in [(0, 1), (1, 0)] {
        let bridge = |count, active| NvLinkSpec {
            count,
            active,
            version: "3.0".into(),
            remote: NvLinkTarget::Gpu(peer),
            link_gbps: None,
            errors: crate::spec::NvLinkErrors::default(),
        };
        spec.gpus[gpu].nvlinks = vec![bridge(4, true), bridge(8, false)];
    }
    let route = spec.direct_route(0, 1);
    assert_eq!(route.class, PathClass::NvLink);
    assert!((spec.bottleneck_gbps(&route) - 100.0).abs() < 1e-9);
    assert_eq!(spec.direct_route(0, 2).class, PathClass::Pcie);
}
