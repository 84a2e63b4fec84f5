//! Tests of the readings around a job, on simulated machines that change between them.

use super::*;
use hardware::Machine;
use model::measurement::NvLinkErrorsAdded;
use sim::Simulated;
use sim::spec::{LogLine, MachineSpec};

fn spec(name: &str) -> MachineSpec {
    Simulated::find(name).unwrap().spec
}

fn taken(spec: &MachineSpec) -> Taken {
    let machine = Simulated { spec: spec.clone(), ..Simulated::find("h200x2").unwrap() };
    let telemetry = machine.telemetry();
    let snapshot = discover::around_a_job(Arc::clone(&telemetry), Duration::from_secs(60));
    take(&telemetry, snapshot)
}

fn between(before: &MachineSpec, after: &MachineSpec) -> Added {
    added(&taken(before), &taken(after), &Meanwhile::default())
}

#[test]
fn nothing_is_added_between_two_readings_of_a_machine_at_rest() {
    let machine = spec("h200x2");
    let added = between(&machine, &machine);
    assert_eq!((added.gpus.len(), added.links.len()), (2, 2));
    for link in &added.links {
        assert_eq!(link.nvlink_errors, Some(Vec::new()));
        assert_eq!((link.replays_added, link.ecc_uncorrected_added), (Some(0), Some(0)));
        assert_eq!(link.throttle_reasons, [""; 0]);
    }
    assert_eq!((added.aer.len(), added.xids), (0, Some(Vec::new())));
    assert_eq!((added.not_read, added.began_again), (Vec::new(), None));
}

#[test]
fn errors_of_links_memory_and_functions_are_those_of_the_time_between() {
    let mut before = spec("two-sockets");
    before.gpus[1].state.ecc_uncorrected = 4;
    let mut after = before.clone();
    after.gpus[1].state.ecc_uncorrected = 7;
    after.gpus[1].state.throttle_under_load = vec!["hw-thermal".into()];
    let function = after.gpus[1].pci;
    let place = after.pci.iter().position(|one| one.address == function).unwrap();
    after.pci[place].errors.fatal += 2;
    let found = between(&before, &after);
    assert_eq!(found.links[1].ecc_uncorrected_added, Some(3));
    assert_eq!(found.links[1].throttle_reasons, ["hw-thermal"]);
    assert_eq!(found.links[0].ecc_uncorrected_added, Some(0));
    let aer: Vec<_> = found.aer.iter().map(|aer| (aer.address, aer.added.fatal)).collect();
    assert_eq!(aer, [(function, 2)]);
    // A GPU that was too hot before the job is not the job's.
    assert_eq!(between(&after, &after).links[1].throttle_reasons, [""; 0]);

    let mut before = spec("h200x2");
    before.gpus[0].nvlinks[0].errors.crc = 5;
    let mut after = before.clone();
    after.gpus[0].nvlinks[0].errors.crc = 6;
    after.gpus[0].nvlinks[0].errors.recovery = 1;
    let found = between(&before, &after);
    let counted = found.links[0].nvlink_errors.clone().unwrap();
    let first = NvLinkErrorsAdded { crc: 1, recovery: 1, ..NvLinkErrorsAdded::default() };
    assert_eq!(counted[0], first);
    assert_eq!(found.links[1].nvlink_errors, Some(Vec::new()));
    assert_eq!(found.links[0].nvlink_corrected, None, "NVLink 4 counts none");

    let mut before = spec("nvl72");
    before.gpus[0].nvlinks[0].errors.corrected = vec![7, 1];
    let mut after = before.clone();
    after.gpus[0].nvlinks[0].errors.corrected = vec![9, 1, 0, 4];
    let found = between(&before, &after);
    let corrected = found.links[0].nvlink_corrected.clone().unwrap();
    assert_eq!(corrected[0].codewords, [0, 2, 0, 0, 4]);
    assert_eq!(found.links[1].nvlink_corrected, Some(Vec::new()));
}

#[test]
fn gpus_are_matched_although_one_has_fallen_off() {
    let before = taken(&spec("h200x8"));
    let mut after = before.clone();
    after.snapshot.gpus.remove(3);
    for (index, gpu) in (0..).zip(&mut after.snapshot.gpus) {
        gpu.index = index;
    }
    after.gpus.retain(|taken| taken.gpu < 7);
    after.gpus[4].counts.nvlink = Some([900, 50]);
    let found = added(&before, &after, &Meanwhile::default());
    let gpus: Vec<u32> = found.gpus.iter().map(|gpu| gpu.index).collect();
    assert_eq!(gpus, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(found.gpus[4].nvlink_sent_bytes, Some(Bytes(900)));
    assert_eq!(found.gpus[3].nvlink_sent_bytes, Some(Bytes(0)));
}

#[test]
fn counters_that_began_again_are_not_compared() {
    let mut before = taken(&spec("h200x2"));
    let after = before.clone();
    before.gpus[1].counts.nvlink = Some([7, 0]);
    let found = added(&before, &after, &Meanwhile::default());
    assert_eq!((found.gpus.len(), found.links.len()), (1, 1));
    assert!(
        found.not_read[0].contains("GPU 1") && found.not_read[0].contains("from 7 to 0"),
        "{:?}",
        found.not_read
    );
    assert_eq!(found.began_again, None, "GPU 0 is comparable");
    before.gpus[0].sample.replays = Some(3);
    let found = added(&before, &after, &Meanwhile::default());
    assert!(found.began_again.unwrap().contains("all GPUs"));
}

#[test]
fn a_narrow_counter_of_pcie_bytes_gives_the_least() {
    let mut before = taken(&spec("h200x2"));
    let mut after = before.clone();
    before.gpus[0].counts.pcie = Some([PCIE_COUNTER_RANGE - 100, 10]);
    after.gpus[0].counts.pcie = Some([50, 30]);
    before.gpus[1].counts.pcie = Some([PCIE_COUNTER_RANGE * 9, 10]);
    after.gpus[1].counts.pcie = Some([PCIE_COUNTER_RANGE * 10, 30]);
    let found = added(&before, &after, &Meanwhile::default());
    let of = |gpu: &GpuBracket| {
        (gpu.pcie_sent_bytes.unwrap().0, gpu.pcie_received_bytes.unwrap().0, gpu.pcie_is_least)
    };
    assert_eq!(of(&found.gpus[0]), (150, 20, true));
    assert_eq!(of(&found.gpus[1]), (PCIE_COUNTER_RANGE, 20, false));
}

#[test]
fn xids_are_those_of_the_time_between() {
    let line = |seconds, code| LogLine {
        seconds,
        text: format!("NVRM: Xid (PCI:0000:00:06): {code}, pid=7, name=x, said"),
    };
    let mut before = spec("h200x2");
    before.host.kernel_log = vec![line(10, 13), line(20, 31)];
    let mut after = before.clone();
    after.host.kernel_log.extend([line(30, 31), line(31, 31), line(40, 79)]);
    let found = between(&before, &after).xids.unwrap();
    let found: Vec<_> = found.iter().map(|xid| (xid.code, xid.times)).collect();
    assert_eq!(found, [(31, 2), (79, 1)]);
    after.host.kernel_log_denied = true;
    let found = between(&before, &after);
    assert_eq!(found.xids, None);
    assert!(found.not_read[0].contains("needs root"), "{:?}", found.not_read);
}

#[test]
fn of_readings_alike_one_is_kept() {
    let mut meanwhile = Meanwhile::default();
    let hot = LinkSample { throttle_reasons: vec!["hw-thermal".into()], ..LinkSample::default() };
    for _ in 0..1000 {
        meanwhile.add(0, LinkSample::default());
    }
    meanwhile.add(0, hot.clone());
    meanwhile.add(0, LinkSample::default());
    assert_eq!(meanwhile.0[&0].len(), 3);
    let taken = taken(&spec("h200x2"));
    let found = added(&taken, &taken, &meanwhile);
    assert_eq!(found.links[0].throttle_reasons, ["hw-thermal"]);
    for _ in 0..1000 {
        meanwhile.add(0, hot.clone());
        meanwhile.add(0, LinkSample::default());
    }
    assert_eq!(meanwhile.0[&0].len(), LinkUnderLoad::MOST_STATES);
}
