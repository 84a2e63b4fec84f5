//! Tests for GPUs on the bus that NVML does not list, and those that it does not list on purpose.

use super::*;
use crate::testing::prelude::*;
use model::reading::Unknown;

fn display(address: &str, driver: BoundDriver) -> DisplayFunction {
    let unread = DisplayFunction::unread(pci(address), None, &Unknown::Unsupported);
    DisplayFunction { driver: Reading::Known(driver), ..unread }
}

fn ours(address: &str) -> DisplayFunction {
    DisplayFunction {
        minor: Reading::Known(9),
        excluded: Reading::Known(false),
        device_file: Reading::Known(DeviceFile::Usable),
        ..display(address, BoundDriver::Nvidia)
    }
}

/// Returns two sockets with four GPUs of which NVML lists the first `listed`.
fn machine(listed: usize, unlisted: Vec<DisplayFunction>) -> Snapshot {
    let mut machine = two_sockets();
    machine.gpus.truncate(listed);
    machine
        .pairs
        .retain(|pair| (pair.source as usize) < listed && (pair.destination as usize) < listed);
    machine.unlisted_gpus = unlisted;
    machine
}

#[test]
fn a_gpu_that_the_driver_has_and_does_not_list_is_an_error_with_its_place() {
    let found = only(
        &findings(&machine(3, vec![ours("0000:84:00.0")]), None),
        "gpu-not-listed",
        Severity::Error,
    );
    assert_eq!(found.subject, Subject::PciFunction { address: pci("0000:84:00.0") });
    assert!(found.location.contains("slot 4, below 0000:82:01.0"), "{}", found.location);
    assert!(advises(&found, "xid") && found.suspects.len() == 3);
    for (driver, step) in [
        (BoundDriver::Nouveau, "bind-driver"),
        (BoundDriver::None, "bind-driver"),
        (BoundDriver::Other("x".into()), "bound-driver"),
    ] {
        let found = findings(&machine(3, vec![display("0000:84:00.0", driver)]), None);
        let found = only(&found, "gpu-not-listed", Severity::Error);
        assert!(advises(&found, step), "{}", found.next_step);
    }
}

fn masked() -> DisplayFunction {
    let masked = display("0000:84:00.0", BoundDriver::Nvidia);
    DisplayFunction { in_driver_list: Reading::Known(false), ..masked }
}

#[test]
fn what_is_so_on_purpose_is_one_line() {
    let mut excluded = ours("0000:84:00.0");
    excluded.excluded = Reading::Known(true);
    let variant = BoundDriver::Other("nvgrace-gpu-vfio-pci".into());
    let given = [BoundDriver::VfioPci, variant].map(|driver| display("0000:84:00.0", driver));
    for unlisted in given.into_iter().chain([masked(), excluded]) {
        only(&findings(&machine(3, vec![unlisted]), None), "gpu-not-listed", Severity::Info);
    }
    for file in [DeviceFile::Missing, DeviceFile::Refused] {
        let mut hidden = ours("0000:84:00.0");
        hidden.device_file = Reading::Known(file);
        let mut machine = machine(2, vec![hidden, masked()]);
        machine.host.container = Reading::Known(true);
        let found = only(&findings(&machine, None), "gpu-not-listed", Severity::Info);
        assert!(found.message.starts_with("2 NVIDIA GPUs"), "{}", found.message);
    }
}

#[test]
fn what_is_missing_hides_a_gpu_in_a_container_only_and_a_failed_reading_nowhere() {
    let with =
        |device_file: Reading<DeviceFile>| DisplayFunction { device_file, ..ours("0000:84:00.0") };
    let (missing, failed) =
        (with(Reading::Known(DeviceFile::Missing)), with(Reading::failed("I/O error")));
    let (refused, no_list) =
        (with(Reading::Known(DeviceFile::Refused)), with(Reading::unsupported()));
    let unknown = Reading::failed("no answer");
    for (display, container, wanted) in [
        (&missing, Reading::Known(true), Why::Hidden),
        (&missing, Reading::Known(false), Why::Open),
        (&missing, unknown.clone(), Why::Open),
        (&no_list, Reading::Known(true), Why::Hidden),
        (&no_list, Reading::Known(false), Why::Open),
        (&failed, Reading::Known(true), Why::Open),
        (&failed, Reading::Known(false), Why::Open),
        (&refused, Reading::Known(false), Why::Hidden),
        (&refused, unknown.clone(), Why::Hidden),
        (&masked(), Reading::Known(false), Why::Hidden),
        (&ours("0000:84:00.0"), Reading::Known(true), Why::Missing),
    ] {
        let mut machine = machine(3, vec![display.clone()]);
        machine.host.container = container.clone();
        assert_eq!(why(&machine, display), wanted, "{display:?} {container:?}");
    }
}

#[test]
fn a_display_card_of_another_model_is_no_fault_and_one_like_the_others_is() {
    let mut machine = machine(3, vec![display("0000:84:00.0", BoundDriver::Nouveau)]);
    let console = |machine: &mut Snapshot, class, model| {
        let function = function_mut(machine, "0000:84:00.0");
        (function.class, function.device_id) = (Reading::Known(class), model);
    };
    for address in ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0"] {
        let function = function_mut(&mut machine, address);
        (function.class, function.device_id) = (Reading::Known(0x03_0000), Reading::Known(0x2230));
    }
    console(&mut machine, 0x03_0000, Reading::Known(0x128b));
    only(&findings(&machine, None), "gpu-not-listed", Severity::Info);
    machine.unlisted_gpus[0].driver = Reading::Known(BoundDriver::None);
    only(&findings(&machine, None), "gpu-not-listed", Severity::Info);
    for (class, model) in [
        (0x03_0000, Reading::Known(0x2230)),
        (0x03_0000, Reading::unsupported()),
        // A compute card drives no display.
        (0x03_0200, Reading::Known(0x128b)),
    ] {
        console(&mut machine, class, model);
        only(&findings(&machine, None), "gpu-not-listed", Severity::Error);
    }
    console(&mut machine, 0x03_0000, Reading::Known(0x128b));
    function_mut(&mut machine, "0000:83:00.0").device_id = Reading::unsupported();
    only(&findings(&machine, None), "gpu-not-listed", Severity::Error);
}

#[test]
fn functions_of_gpus_whose_place_is_open_are_not_missing() {
    let mut machine = machine(4, vec![ours("0000:83:00.0"), ours("0000:84:00.0")]);
    machine.gpus[2] = Gpu::unread(2, &Unknown::Failed("lost".into()));
    machine.gpus[3] = Gpu::unread(3, &Unknown::Failed("lost".into()));
    assert!(findings(&machine, None).iter().all(|finding| finding.code != RULE.id));
    machine.gpus.truncate(3);
    machine.pairs.retain(|pair| pair.source < 3 && pair.destination < 3);
    let found = findings(&machine, None);
    let found = found.iter().find(|finding| finding.code == RULE.id).unwrap();
    assert_eq!((found.severity, &found.subject), (Severity::Error, &Subject::Machine));
    // By elimination one of them is GPU 2, and the other is missing by itself.
    machine.unlisted_gpus[0].gpu = Some(2);
    let found = findings(&machine, None);
    assert!(
        found
            .iter()
            .any(|one| one.subject == Subject::PciFunction { address: pci("0000:84:00.0") }),
        "{found:#?}"
    );
    let lost = found.iter().find(|finding| finding.code == "gpu-unreachable").unwrap();
    assert_eq!(fact(lost, "address"), "0000:83:00.0");
}

#[test]
fn words_of_the_drivers_log_are_the_reason() {
    use model::pasted::{Pasted, PastedFault, PastedLine};
    let address = "0000:84:00.0";
    let machine = machine(3, vec![ours(address)]);
    let judged = |kind, text: &str| {
        let text = format!("[ 1.5] NVRM: {text}");
        let said = PastedLine { text, pci: Some(pci(address)), input: "in.txt".into(), line: 3 };
        let fault = PastedFault { kind, said };
        let pasted = Pasted { faults: vec![fault], ..Pasted::default() };
        let (topology, settings) =
            (topology::build(&machine), crate::settings::Settings::default());
        RULE.judge(&Evidence {
            read_from: Some(&pasted),
            ..crate::testing::without_request(&machine, &topology, None, &settings)
        })
    };
    let found = judged(PastedFaultKind::NoWindow, "BAR1 is 0M @ 0x0 (PCI:0000:84:00.0)");
    let one = only(&found, "gpu-not-listed", Severity::Error);
    assert!(one.message.contains("no address space for its memory window"), "{}", one.message);
    assert_advice(&RULE, &found, &["resizable-bar", "check-again"], &[]);
    let found = judged(PastedFaultKind::NotStarted, "FSP command timed out");
    let one = only(&found, "gpu-not-listed", Severity::Error);
    assert!(one.message.contains("(slot 4): FSP command timed out; "), "{}", one.message);
    assert!(advises(&one, "power-cycle"));
}
