//! Tests for NVLinks that are down or not listed: on cards, which bridges connect, and on boards.

use super::testing::{advises, findings, only};
use super::tests::with_links_down;
use model::finding::{Finding, Severity, Subject};
use model::reading::{Reading, Unknown};
use model::snapshot::{Gpu, NvLinkRemote, NvSwitch, P2pStatus, Snapshot};
use model::testing::{all_pairs, nvlinks, pci, two_sockets};

const CARD: &str = "NVIDIA A40";
const BOARD: &str = "NVIDIA A100-SXM4-40GB";
const AT: [&str; 4] = ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0", "0000:84:00.0"];

/// Returns GPUs of this name, each with four links to each of its partners. Links without a partner are down.
fn joined(name: &str, pairs: &[(usize, usize)], gpus: usize) -> Snapshot {
    let mut machine = two_sockets();
    machine.gpus.truncate(gpus);
    machine
        .pairs
        .retain(|pair| (pair.source as usize) < gpus && (pair.destination as usize) < gpus);
    for (index, gpu) in machine.gpus.iter_mut().enumerate() {
        let mine = pairs.iter().filter(|(one, other)| [*one, *other].contains(&index));
        let partners = mine.map(|(one, other)| AT[one + other - index]);
        let mut links: Vec<_> = partners
            .flat_map(|at| nvlinks(4, "3.1", 14_062, NvLinkRemote::Gpu, Some(at)))
            .collect();
        if links.is_empty() {
            links = nvlinks(4, "3.1", 14_062, NvLinkRemote::Gpu, None);
            links.iter_mut().for_each(|link| link.active = Reading::Known(false));
        }
        links.iter_mut().zip(0..).for_each(|(link, number)| link.link = number);
        (gpu.name, gpu.nvlinks) = (Reading::Known(name.into()), Reading::Known(links));
    }
    machine
}

const MESH: [(usize, usize); 6] = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];

/// Returns the mesh of a board, with all links of GPU 0 down at both ends.
fn board_without_gpu_0() -> Snapshot {
    let mut machine = joined(BOARD, &MESH, 4);
    with_links_down(&mut machine, &[0], 0..12);
    // The links to GPU 0 come first.
    with_links_down(&mut machine, &[1, 2, 3], 0..4);
    machine
}

fn inactive(machine: &Snapshot, severity: Severity) -> Finding {
    only(&findings(machine, None), "nvlink-inactive", severity)
}

#[test]
fn a_card_is_odd_only_where_all_others_are_bridged_in_pairs() {
    let odd = joined(CARD, &[(0, 1)], 3);
    assert_eq!(inactive(&odd, Severity::Info).subject, Subject::Gpu { index: 2 });
    // NVML does not always report where a link leads.
    let mut untold = odd.clone();
    for gpu in &mut untold.gpus {
        if let Reading::Known(links) = &mut gpu.nvlinks {
            links.iter_mut().for_each(|link| link.remote_pci = Reading::unsupported());
        }
    }
    inactive(&untold, Severity::Info);
    // One bridge for three cards, and the fourth not connected to any.
    let of_three = joined(CARD, &[(0, 1), (1, 2), (0, 2)], 4);
    assert_eq!(inactive(&of_three, Severity::Warning).subject, Subject::Gpu { index: 3 });
    // Two are left, and one of them lists no link.
    let mut two_left = joined(CARD, &[(0, 1)], 4);
    two_left.gpus[3].nvlinks = Reading::Known(Vec::new());
    assert_eq!(inactive(&two_left, Severity::Warning).subject, Subject::Gpu { index: 2 });
    // Its partner is the one that does not answer.
    let mut lost = joined(CARD, &[(0, 1)], 4);
    lost.gpus[3] = Gpu::unread(3, &Unknown::Failed("lost".into()));
    let found = findings(&lost, None);
    let found = found.iter().find(|found| found.code == "nvlink-inactive").unwrap();
    assert_eq!((found.severity, &found.subject), (Severity::Warning, &Subject::Gpu { index: 2 }));
    let both = joined(CARD, &[(0, 1)], 4);
    assert_eq!(inactive(&both, Severity::Warning).subject, Subject::Machine);
}

#[test]
fn a_gpu_without_links_on_a_board_hides_no_other_link_and_a_guest_asks_its_host() {
    let machine = board_without_gpu_0();
    // A link between two others has failed by itself.
    let mut more = machine.clone();
    with_links_down(&mut more, &[2, 3], 8..9);
    assert!(findings(&more, None).len() > 1);
    // The host of a virtual machine may keep NVLink to itself.
    let mut guest = machine;
    guest.host.virtual_machine = Reading::Known(true);
    let found = findings(&guest, None);
    let found = found.iter().find(|found| found.code == "nvlink-inactive").unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(advises(found, "ask-host"), "{}", found.next_step);
}

#[test]
fn a_gpu_that_lists_no_link_on_a_board_is_an_error_and_a_card_or_one_in_mig_mode_is_none() {
    let mut machine = board_without_gpu_0();
    machine.gpus[0].nvlinks = Reading::Known(Vec::new());
    let found = only(&findings(&machine, None), "nvlink-missing", Severity::Error);
    assert_eq!(found.subject, Subject::Gpu { index: 0 });
    machine.gpus[0].mig = Reading::Known(true);
    assert!(findings(&machine, None).iter().all(|found| found.severity == Severity::Info));
    let mut cards = joined(CARD, &[(0, 1)], 3);
    cards.gpus[2].nvlinks = Reading::Known(Vec::new());
    assert_eq!(findings(&cards, None), []);
}

#[test]
fn what_says_that_there_are_links_is_said() {
    let mut machine = joined(BOARD, &[], 4);
    machine.pairs = all_pairs(4, None, P2pStatus::Ok);
    let message = inactive(&machine, Severity::Error).message;
    assert!(
        message.contains("NVML says that NVLink reaches other GPUs")
            && !message.contains("NVSwitch"),
        "{message}"
    );
    machine.nvswitches = vec![NvSwitch::unread(pci("0000:c0:00.0"), &Unknown::Unsupported)];
    let found = inactive(&machine, Severity::Error);
    assert!(found.message.contains("the machine has NVSwitches"), "{}", found.message);
    assert!(advises(&found, "fabric-manager"), "{}", found.next_step);
}
