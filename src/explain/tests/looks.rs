//! What is worth a second look, and what is not.

use model::flow::{Endpoint, Flow, HostMemory};

use super::*;

fn down(node: Option<u32>, gpu: u32) -> Flow {
    Flow::from_host(node, HostMemory::Pinned, gpu)
}

fn flows(explanation: &Explanation) -> Vec<Vec<Flow>> {
    let looks = explanation.looks.iter();
    looks.map(|look| look.flows.clone()).collect()
}

#[test]
fn a_card_that_is_slow_with_its_node_is_worth_a_look_with_the_other_one() {
    let machine = two_sockets();
    let slow = |gpu, _| card(gpu) * if gpu == 2 { 0.5 } else { 1.0 };
    let near = |copy: HostCopy| HostCopy { numa_node: Some(copy.gpu / 2), ..copy };
    let host: Vec<HostCopy> = hosts(&machine, false, slow).into_iter().map(near).collect();
    let explanation = explained(&machine, &with_host(host.clone()));
    let far = down(Some(0), 2);
    assert_eq!(flows(&explanation), [vec![far], vec![far.reversed()]]);
    let [_, other] = &explanation.looks[0].between;
    assert!(other.contains("NUMA node 1") && other.contains("GPU 2"), "{other}");

    // Once it is measured, it is not worth another look.
    let measured = [HostDirection::ToDevice, HostDirection::ToHost].map(|direction| HostCopy {
        numa_node: Some(0),
        direction,
        ..host_copy(2, 12.9)
    });
    let all = host.into_iter().chain(measured).collect();
    assert_eq!(flows(&explained(&machine, &with_host(all))), Vec::<Vec<Flow>>::new());

    let healthy = hosts(&machine, false, |gpu, _| card(gpu));
    let healthy: Vec<HostCopy> = healthy.into_iter().map(near).collect();
    assert_eq!(explained(&machine, &with_host(healthy)).looks, []);
}

#[test]
fn cards_that_are_slow_together_are_copied_to_at_once() {
    let machine = h200_vm(4);
    let slow = |gpu: u32, _| if gpu < 2 { 30.0 } else { 55.3 };
    let explanation = explained(&machine, &with_host(hosts(&machine, false, slow)));
    assert_eq!(accused(&explanation), [[Part::Exit(0), Part::Exit(1)]]);
    let both = explanation.looks.iter().find(|look| look.flows.len() == 2);
    let both = both.unwrap_or_else(|| panic!("{explanation:#?}"));
    let gpus = both.flows.iter().map(|flow| flow.to);
    assert_eq!(gpus.collect::<Vec<_>>(), [0, 1].map(Endpoint::Gpu));
    assert!(both.between[1].contains("equally slow"), "{both:?}");

    // What they share by design is no fault.
    let mut by_design = with_host(hosts(&machine, false, |_, _| 55.3));
    let together = |gpu: u32, _| if gpu < 2 { 27.6 } else { 55.2 };
    by_design.host.extend(hosts(&machine, true, together));
    let explanation = explained(&machine, &by_design);
    assert!(explanation.causes[0].by_design && explanation.looks.is_empty());
}
