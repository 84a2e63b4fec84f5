//! What is worth a second look, and what is not.

use model::flow::{Flow, HostMemory};

use super::*;

fn down(node: Option<u32>, gpu: u32) -> Flow {
    Flow::from_host(node, HostMemory::Pinned, gpu)
}

#[test]
fn a_card_that_is_slow_with_its_node_is_worth_a_look_with_the_other_one() {
    let machine = two_sockets();
    let slow = |gpu, _| card(gpu) * if gpu == 2 { 0.5 } else { 1.0 };
    let near = |copy: HostCopy| HostCopy { numa_node: Some(copy.gpu / 2), ..copy };
    let host: Vec<HostCopy> = hosts(&machine, false, slow).into_iter().map(near).collect();
    let explanation = explained(&machine, &with_host(host.clone()));
    let far = down(Some(0), 2);
    assert_eq!(explanation.looks, [far, far.reversed()]);

    // Once it is measured, it is not worth another look.
    let measured = [HostDirection::ToDevice, HostDirection::ToHost].map(|direction| HostCopy {
        numa_node: Some(0),
        direction,
        ..host_copy(2, 12.9)
    });
    let all = host.into_iter().chain(measured).collect();
    assert_eq!(explained(&machine, &with_host(all)).looks, []);

    let healthy = hosts(&machine, false, |gpu, _| card(gpu));
    let healthy: Vec<HostCopy> = healthy.into_iter().map(near).collect();
    assert_eq!(explained(&machine, &with_host(healthy)).looks, []);
}
