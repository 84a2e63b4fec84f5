use std::collections::BTreeSet;

use fastrand::Rng;
use model::measurement::SmallCopy;
use model::placement::{Pair, Path};
use model::units::Bytes;

use super::*;
use crate::outlook::causes;
use crate::testing::{Machine, Slot, check};

/// Makes a random change of a random machine; returns it and the machine that has it.
fn random_change(rng: &mut Rng, machine: &Machine) -> Option<(Change, Machine)> {
    let gpus = machine.cards.len();
    let gpu = rng.usize(0..gpus);
    let other = (gpu + rng.usize(1..gpus)) % gpus;
    let number = |gpu: usize| u32::try_from(gpu).unwrap();
    let mut then = machine.clone();
    let change = match rng.u32(0..4) {
        0 => {
            then.cards.swap(gpu, other);
            let slot = if rng.bool() {
                machine.address(machine.cards[other])
            } else {
                format!("S{}", machine.cards[other])
            };
            Change::Move { gpu: number(gpu), slot }
        }
        1 => {
            let lanes = [4, 8, 16][rng.usize(0..3)];
            let slot = &mut then.slots[machine.cards[gpu]];
            (slot.lanes, slot.trained) = (lanes, lanes);
            let hop = match rng.u32(0..3) {
                0 => format!("GPU {gpu}"),
                1 => gpu.to_string(),
                _ => machine.address(machine.cards[gpu]),
            };
            Change::Link { hop, to: format!("Gen4 x{lanes}").parse().unwrap() }
        }
        2 => {
            let pair = (gpu.min(other), gpu.max(other));
            let is_used =
                |gpu| machine.bridges.iter().any(|(one, other)| *one == gpu || *other == gpu);
            if machine.bridges.is_empty() || is_used(gpu) || is_used(other) {
                return None;
            }
            then.bridges.insert(pair);
            then.refused.remove(&pair);
            Change::Bridge(number(gpu), number(other))
        }
        _ => {
            let narrow: Vec<usize> = (0..gpus)
                .filter(|gpu| {
                    let slot = &machine.slots[machine.cards[*gpu]];
                    slot.trained < slot.lanes
                })
                .collect();
            if narrow.is_empty() {
                return None;
            }
            for gpu in narrow {
                let slot = &mut then.slots[machine.cards[gpu]];
                slot.trained = slot.lanes;
            }
            Change::Fix("pcie-narrow".into())
        }
    };
    Some((change, then))
}

/// A change that is predicted equals the check of the machine that has it: pairs, copies with the host, patterns.
#[test]
fn what_if_is_the_check_of_the_machine_with_that_change() {
    let mut rng = Rng::with_seed(5);
    let settings = Settings::default();
    let (mut changes, mut figures, mut off) = (0, 0, Vec::new());
    while changes < 100 {
        let gpus = rng.usize(3..=5);
        let machine = Machine::random(&mut rng, gpus);
        let report = machine.check();
        let causes = causes(&report, &settings);
        for _ in 0..4 {
            let Some((change, then)) = random_change(&mut rng, &machine) else {
                continue;
            };
            changes += 1;
            let mut changed = Changed::of(&report, &causes);
            changed.make(&change).unwrap_or_else(|why| panic!("{change:?}: {why}\n{machine:?}"));
            apply(&report, &causes, &mut changed, &settings).unwrap();
            let real = then.check();
            for (name, said, is) in compared(&changed.report, &real) {
                figures += 1;
                if (said / is - 1.0).abs() > 0.05 {
                    off.push(format!(
                        "{change:?}: {name}: {said:.2}, {is:.2} in fact; {machine:?}"
                    ));
                }
            }
        }
    }
    assert!(off.is_empty(), "{} of {figures}:\n{}", off.len(), off.join("\n"));
}

fn compared(said: &Report, is: &Report) -> Vec<(String, f64, f64)> {
    let [said, is] = [said, is].map(|report| report.measurements.as_ref().unwrap());
    let mut all = Vec::new();
    for path in [Path::Direct, Path::Staged] {
        let predicted = said.reference(path);
        for (pair, cell) in is.reference(path) {
            let known = predicted.get(&pair).and_then(|cell| cell.achieved_gbps);
            let known = known.map_or(0.0, |rate| rate.0);
            all.push((format!("{pair} {path}"), known, cell.achieved_gbps.unwrap().0));
        }
    }
    for copy in is.host.iter().filter(|copy| copy.at_once == 1) {
        let same = |other: &&model::host::HostCopy| {
            (other.gpu, other.way(), other.numa_node, other.at_once)
                == (copy.gpu, copy.way(), copy.numa_node, 1)
        };
        if copy.memory == model::flow::HostMemory::Pinned
            && copy.allocation == model::host::Allocation::Reused
            && let (Some(said), Some(is)) = (said.host.iter().find(same), copy.achieved_gbps)
        {
            let name = format!("host {} {} {:?}", copy.gpu, copy.direction, copy.numa_node);
            all.push((name, said.achieved_gbps.unwrap().0, is.0));
        }
    }
    for load in &is.load {
        let flows = |load: &model::load::LoadPattern| {
            load.flows.iter().map(model::load::LoadFlow::flow).collect::<BTreeSet<_>>()
        };
        let same = said.load.iter().find(|other| flows(other) == flows(load));
        if let Some(same) = same
            && let (Some(said), Some(is)) = (same.achieved_gbps, load.achieved_gbps)
        {
            all.push((load.name(), said.0, is.0));
        }
    }
    all
}

#[test]
fn a_change_that_the_machine_has_no_place_for_is_refused_in_a_sentence() {
    let mut rng = Rng::with_seed(1);
    let mut machine = Machine::random(&mut rng, 3);
    machine.bridges.clear();
    let report = machine.check();
    let settings = Settings::default();
    let gen5 = "Gen5 x16".parse().unwrap();
    for (change, part) in [
        (Change::Without(7), "there is no GPU 7; the report has 0, 1, 2"),
        (Change::Bridge(0, 0), "two GPUs"),
        (Change::Bridge(0, 1), "lists no NVLinks"),
        (Change::Move { gpu: 0, slot: "nowhere".into() }, "free slot shows in no file"),
        (Change::Move { gpu: 9, slot: "S1".into() }, "no GPU 9"),
        (Change::Link { hop: "what".into(), to: gen5 }, "name the link"),
        (Change::Link { hop: "0000:77:00.0".into(), to: gen5 }, "no PCIe link there"),
        (Change::Fix("nonsense".into()), "no such finding"),
        (Change::Fix("pcie-narrow:x".into()), "behind the colon"),
    ] {
        let why = what_if(&report, &[], std::slice::from_ref(&change), &settings).unwrap_err();
        assert!(why.contains(part) && !why.contains('\n'), "{change:?}: {why}");
    }
}

#[test]
fn taking_a_gpu_out_takes_its_pairs_out() {
    let mut rng = Rng::with_seed(3);
    let mut report = Machine::random(&mut rng, 4).check();
    let settings = Settings::default();
    let measurements = report.measurements.as_mut().unwrap();
    for gpu in [1, 2] {
        let ends = (Some(0), Some(gpu));
        let way = model::small::BlockWay::Loop;
        let blocks = SmallCopy::blank(ends.0, ends.1, None, way, Bytes(4096));
        measurements.small.push(blocks);
    }
    let causes_of = causes(&report, &settings);
    let mut changed = Changed::of(&report, &causes_of);
    changed.make(&Change::Without(2)).unwrap();
    apply(&report, &causes_of, &mut changed, &settings).unwrap();
    let left = changed.report.measurements.unwrap();
    assert_eq!(left.small.len(), 1);
    assert!(left.cells().all(|cell| !cell.uses(2)));
    let found =
        what_if(&report, &causes(&report, &settings), &[Change::Without(2)], &settings).unwrap();
    assert_eq!(found.effects.gpus, [4, 3]);
    let lost: BTreeSet<Pair> = found.effects.pairs.iter().map(|moved| moved.of).collect();
    assert_eq!(lost.len(), 6, "{found:?}");
    assert!(lost.iter().all(|pair| pair.touches(2)), "{found:?}");
}

#[test]
fn a_finding_of_a_narrow_link_tells_what_its_repair_brings() {
    let demo = sim::builtin::description("demo").unwrap();
    let mut report = check(demo);
    fill(&mut report, &Settings::default());
    let line = |code: &str| {
        let finding = report.findings.iter().find(|finding| *finding.code == *code);
        finding.and_then(|finding| finding.would_bring.clone()).unwrap_or_default()
    };
    let narrow = line("pcie-narrow");
    assert!(narrow.starts_with("GPU 5 with 7 GPUs 5.7 to "), "{narrow}");
    assert!(narrow.contains("; with the host 6.8 to "), "{narrow}");
    assert!(narrow.contains("all-reduce of 8 GPUs"), "{narrow}");
    let missing = line("peer-access-missing");
    assert!(missing.starts_with("GPU 1 with GPU 6 12.6 to "), "{missing}");
}

#[test]
fn a_slot_that_limits_its_card_and_a_bridge_that_is_gone_tell_what_their_repair_brings() {
    let mut report = check(sim::builtin::description("rtx3090x4").unwrap());
    fill(&mut report, &Settings::default());
    let line = |code: &str| {
        let mut findings = report.findings.iter();
        let finding = findings.find(|finding| *finding.code == *code).unwrap();
        finding.would_bring.clone().unwrap_or_default()
    };
    let slot = line("pcie-narrow-by-design");
    assert!(slot.contains("with the host 6.8 to 27"), "{slot}");
    let bridge = line("nvlink-inactive");
    assert!(bridge.starts_with("GPU 2 with GPU 3 "), "{bridge}");
}

/// A machine with two GPUs behind a switch, whose port to the processor has this many lanes, and one beside it.
fn behind_a_switch(lanes: u32) -> Machine {
    let slot = |switch| Slot { switch, node: 0, lanes: 16, trained: 16 };
    Machine {
        nodes: 1,
        switches: vec![(0, lanes)],
        slots: vec![slot(Some(0)), slot(Some(0)), slot(None)],
        cards: vec![0, 1, 2],
        bridges: BTreeSet::new(),
        refused: BTreeSet::new(),
    }
}

#[test]
fn a_narrow_link_above_gpus_tells_what_one_as_wide_as_theirs_brings() {
    let settings = Settings::default();
    let judged = |lanes| {
        let mut report = behind_a_switch(lanes).check();
        report.findings = diagnose::judge(&Evidence::of(&report, &settings));
        report
    };
    let fix = [Change::Fix("pcie-upstream-bottleneck".into())];
    let (mut narrow, wide) = (judged(8), judged(16));
    let causes_of = causes(&narrow, &settings);
    let found = what_if(&narrow, &causes_of, &fix, &settings).unwrap();
    let answered = found.answers.iter().map(|finding| &*finding.code);
    assert!(answered.clone().any(|code| code == "pcie-upstream-bottleneck"), "{found:?}");
    assert!(found.raises.is_empty(), "{found:?}");

    let mut changed = Changed::of(&narrow, &causes_of);
    changed.make(&fix[0]).unwrap();
    apply(&narrow, &causes_of, &mut changed, &settings).unwrap();
    for (name, said, is) in compared(&changed.report, &wide) {
        assert!((said / is - 1.0).abs() < 0.05, "{name}: {said:.2}, {is:.2} in fact");
    }

    fill(&mut narrow, &settings);
    let mut lines =
        narrow.findings.iter().filter(|finding| *finding.code == *"pcie-upstream-bottleneck");
    let line = lines.next().unwrap().would_bring.clone().unwrap_or_default();
    assert!(line.starts_with("GPU 2 with 2 GPUs "), "{line}");
    assert!(line.contains("; 2 GPUs with the host "), "{line}");

    let why = what_if(&wide, &causes(&wide, &settings), &fix, &settings).unwrap_err();
    assert!(why.contains("no such finding"), "its healthy twin: {why}");
}

#[test]
fn a_chipset_whose_uplink_no_file_shows_has_no_repair_that_could_be_computed() {
    let report = check(sim::builtin::description("desktop").unwrap());
    let settings = Settings::default();
    let fix = [Change::Fix("pcie-upstream-bottleneck".into())];
    let why = what_if(&report, &causes(&report, &settings), &fix, &settings).unwrap_err();
    assert!(why.contains("takes no rate that could be computed"), "{why}");
}

#[test]
fn a_link_beyond_its_ends_is_an_assumption() {
    let report = check(sim::builtin::description("demo").unwrap());
    let settings = Settings::default();
    let assumed = |to: &str| {
        let change = Change::Link { hop: "GPU5".into(), to: to.parse().unwrap() };
        what_if(&report, &causes(&report, &settings), &[change], &settings).unwrap().assumed
    };
    assert_eq!(assumed("Gen4 x16"), [""; 0]);
    let beyond = assumed("Gen5 x16");
    let sentence = "both ends of that link can do Gen5 x16; those that are there can do Gen4 x16";
    assert_eq!(beyond, [sentence]);
}
