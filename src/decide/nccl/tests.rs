use diagnose::Settings;
use fastrand::Rng;
use model::against::AgainstKind;

use super::xml::{Element, parse};
use super::*;
use crate::outlook::causes;
use crate::testing::{Machine, check};

fn demo() -> model::report::Report {
    check(sim::builtin::description("demo").unwrap())
}

fn differences(file: &str, report: &model::report::Report) -> Vec<model::against::Difference> {
    let file = read(file).unwrap();
    let found = compare("file", &file, report, &Settings::default());
    assert!(found.compared > 0, "{found:?}");
    found.differences
}

#[test]
fn what_is_exported_reads_back_and_differs_in_nothing() {
    let mut rng = Rng::with_seed(21);
    let mut reports = vec![demo()];
    for name in ["h200x2", "nvlink12", "two-sockets"] {
        reports.push(check(sim::builtin::description(name).unwrap()));
    }
    reports.extend((2..5).map(|gpus| Machine::random(&mut rng, gpus).check()));
    for report in reports {
        let text = export(&report, &[]).unwrap();
        let found = differences(&text, &report);
        assert!(found.is_empty(), "{found:?}\n{text}");
        let root = parse(&text).unwrap();
        let mut written = String::new();
        root.write(0, &mut written);
        assert_eq!(written, text, "read and written again");
    }
}

#[test]
fn the_tree_is_that_of_nccl() {
    let report = demo();
    let text = export(&report, &causes(&report, &Settings::default())).unwrap();
    let root = parse(&text).unwrap();
    assert_eq!((root.name.as_str(), root.get("version")), ("system", Some("1")));
    let cpus: Vec<&Element> = root.all("cpu").collect();
    assert_eq!(cpus.len(), 2);
    assert_eq!(cpus[0].get("numaid"), Some("0"));
    assert_eq!(cpus[0].get("affinity"), Some("ffffffff"));
    assert_eq!(cpus[1].get("affinity"), Some("ffffffff,00000000"));
    // A switch, its GPUs and its adapter; neither root ports nor downstream ports.
    let switch = cpus[0].all("pci").next().unwrap();
    assert_eq!(switch.get("busid"), Some("0000:01:00.0"));
    let below: Vec<_> = switch.all("pci").filter_map(|pci| pci.get("busid")).collect();
    assert_eq!(below, ["0000:03:00.0", "0000:04:00.0", "0000:05:00.0"]);
    let nic = switch.all("pci").nth(2).unwrap();
    assert_eq!(
        nic.all("nic").next().unwrap().all("net").next().unwrap().get("name"),
        Some("mlx5_0")
    );
    // The narrow link is written as it trained, where NCCL would read what both ends could do.
    assert!(text.contains("busid=\"0000:44:00.0\""), "{text}");
    let narrow = text.lines().find(|line| line.contains("0000:44:00.0")).unwrap();
    assert!(narrow.contains("link_width=\"4\"") && narrow.contains("16.0 GT/s PCIe"), "{narrow}");
}

#[test]
fn nvlinks_lead_to_switches_and_to_gpus() {
    let switched = export(&check(sim::builtin::description("h200x2").unwrap()), &[]).unwrap();
    assert_eq!(switched.matches("<nvlink count=\"18\"").count(), 2, "{switched}");
    assert_eq!(switched.matches("tclass=\"0x068000\"").count(), 2, "{switched}");
}

#[test]
fn a_file_that_lies_is_shown_to_with_what_it_costs() {
    let report = demo();
    let text = export(&report, &[]).unwrap();
    // What NCCL itself reads: both ends of the narrow link could do sixteen lanes.
    let narrow = text.lines().find(|line| line.contains("0000:44:00.0")).unwrap();
    let wide = text.replace(narrow, &narrow.replace("link_width=\"4\"", "link_width=\"16\""));
    let found = differences(&wide, &report);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].file.as_str(), found[0].machine.as_str()), ("Gen4 x16", "Gen4 x4"));
    let costs = found[0].costs.clone().unwrap();
    assert!(
        costs.starts_with("NCCL plans with 31.5 GB/s where the link carries 7.9, of which"),
        "{costs}"
    );
    let gone = text.replace("0000:44:00.0", "0000:4f:00.0");
    let found = differences(&gone, &report);
    assert_eq!(found.len(), 2, "{found:?}");
    let other_node = text.replace("numaid=\"1\"", "numaid=\"7\"");
    assert_eq!(differences(&other_node, &report).len(), 4, "four GPUs");
}

#[test]
fn a_ring_that_is_slower_than_another_one_is_shown() {
    let report = check(sim::builtin::description("two-sockets").unwrap());
    let graph = |order: &[u32], speed: u32, kind: &str| {
        let gpus: String = order.iter().map(|gpu| format!("<gpu dev=\"{gpu}\"/>")).collect();
        format!(
            "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" nchannels=\"1\" speedintra=\"{speed}\" \
             typeintra=\"{kind}\"><channel>{gpus}</channel></graph></graphs>"
        )
    };
    let good = [0, 1, 2, 3, 4, 5, 6, 7];
    let fast = differences(&graph(&good, 20, "SYS"), &report);
    assert!(fast.is_empty(), "{fast:?}");
    let crossing = differences(&graph(&[0, 4, 1, 5, 2, 6, 3, 7], 20, "SYS"), &report);
    assert!(crossing[0].machine.contains("is faster"), "{crossing:?}");
    assert!(crossing[0].costs.as_ref().unwrap().contains("instead of"), "{crossing:?}");
    let planned = differences(&graph(&good, 200, "PHB"), &report);
    assert_eq!(planned.len(), 2, "{planned:?}");
    let strangers = differences(&graph(&[0, 9], 20, "SYS"), &report);
    assert_eq!(strangers.len(), 1, "{strangers:?}");
}

#[test]
fn what_is_no_file_of_nccl_is_refused_in_a_sentence() {
    let deep = "<a>".repeat(100_000);
    let many = format!("<system version=\"1\">{}</system>", "<cpu/>".repeat(200_000));
    for (text, part) in [
        ("", "ends before"),
        ("no xml", "ends before"),
        ("<system version=\"1\">", "ends before"),
        ("<system version=\"2\"/>", "version is 2"),
        ("<system/>", "no version"),
        ("<html/>", "'html'"),
        ("<system version=1/>", "cannot be read"),
        ("<system></cpu>", "no XML"),
        (deep.as_str(), "levels"),
        (many.as_str(), "elements"),
    ] {
        let why = read(text).unwrap_err();
        assert!(why.contains(part) && !why.contains('\n'), "{part}: {why}");
    }
    assert_eq!(
        read("<!-- by hand --><system version=\"1\"/>").unwrap().kind(),
        AgainstKind::Topology
    );
}
