//! Vetoes of reports with pairs that fail, and of sound ones.

use diagnose::{Evidence, Settings};
use model::finding::{Finding, Scope};
use model::measurement::{Measurements, Rung, Sharing, Verified, View};
use model::placement::{Pair, Path};
use model::reading::Reading;
use model::report::Report;
use model::topology::LinkClass;
use model::units::Bytes;
use model::veto::Veto;

use super::veto;

const H200X2: &str = include_str!("../../../tests/data/h200x2-standard.json");

fn h200x2() -> Report {
    serde_json::from_str(H200X2).unwrap()
}

/// Returns the report as the rules judge it now.
fn judged(mut report: Report) -> Report {
    report.findings = diagnose::judge(&Evidence::of(&report, &Settings::default()));
    report
}

fn settings(veto: &Veto) -> Vec<String> {
    let all = veto.environment.iter();
    all.map(|setting| format!("{}={}", setting.name, setting.value)).collect()
}

fn lose_bytes(measurements: &mut Measurements, pair: Pair, path: Path) {
    for cell in &mut measurements.peer {
        if cell.pair == pair && cell.setup.path == path {
            cell.verified = Verified::Dropped;
        }
    }
}

const THERE: Pair = Pair { source: 0, destination: 1 };

#[test]
fn nothing_is_taken_away_where_everything_works() {
    assert_eq!(veto(&judged(h200x2())), None);
}

#[test]
fn lost_bytes_take_peer_access_from_all_programs() {
    let mut report = h200x2();
    lose_bytes(report.measurements.as_mut().unwrap(), THERE, Path::Direct);
    let found = veto(&judged(report)).unwrap();
    assert_eq!(found.failed.len(), 1, "{found:?}");
    assert!(found.failed[0].access);
    assert_eq!(settings(&found), ["NCCL_P2P_DISABLE=1", "ENABLE_INTRA_NODE_COMM=0"]);
    let file = found.pairs_file.unwrap();
    assert_eq!(file.devices, "0,1");
    let works: Vec<_> = file.works.iter().map(|(pair, works)| (pair.as_str(), *works)).collect();
    assert_eq!(works, [("0->0", true), ("0->1", false), ("1->0", false), ("1->1", true)]);
    assert_eq!(found.by_hand.len(), 1);
}

/// Returns a report of 4 GPUs whose pairs have these classes, and in which a finding with this code is about one pair.
fn four(class: impl Fn(u32, u32) -> LinkClass, code: &str, bad: (u32, u32)) -> Report {
    let mut report = h200x2();
    let gpu = report.snapshot.gpus[0].clone();
    let all = report.measurements.as_mut().unwrap();
    let (device, access) = (all.driver.devices[0].clone(), all.driver.peer_access[0].clone());
    let direct = |cell: &&model::measurement::PeerBandwidth| {
        cell.setup.path == Path::Direct && cell.verified == Verified::Ok
    };
    let cell = all.peer.iter().find(direct).unwrap().clone();
    let route = report.topology.pairs[0].clone();
    report.snapshot.gpus.clear();
    (all.driver.devices, all.driver.peer_access, all.peer) = Default::default();
    report.topology.pairs.clear();
    for source in 0..4 {
        let mut gpu = gpu.clone();
        gpu.index = source;
        report.snapshot.gpus.push(gpu);
        let mut device = device.clone();
        (device.index, device.ordinal) = (source, Some(source));
        all.driver.devices.push(device);
        for destination in (0..4).filter(|destination| *destination != source) {
            let pair = Pair { source, destination };
            let mut route = route.clone();
            route.pair = pair;
            route.class = class(source.min(destination), source.max(destination));
            report.topology.pairs.push(route);
            let mut access = access.clone();
            access.pair = pair;
            all.driver.peer_access.push(access);
            let mut cell = cell.clone();
            cell.pair = pair;
            if pair.unordered() == bad && code == "peer-data-wrong" {
                cell.verified = Verified::Corrupt;
            }
            all.peer.push(cell);
        }
    }
    report.findings = vec![finding(code, bad)];
    report
}

fn finding(code: &str, (source, destination): (u32, u32)) -> Finding {
    let written = serde_json::json!({
        "code": code, "severity": "error", "subject": {"kind": "machine"}, "message": "",
        "evidence": {}, "next_step": "", "steps": [],
    });
    let mut finding: Finding = serde_json::from_value(written).unwrap();
    finding.scope = Scope { pairs: vec![Pair { source, destination }], ..Scope::default() };
    finding
}

#[test]
fn a_level_keeps_the_pairs_that_are_nearer_than_those_that_fail() {
    let sockets = |one: u32, other: u32| match one / 2 == other / 2 {
        true => LinkClass::Pix,
        false => LinkClass::Sys,
    };
    let level = |report: &Report| settings(&veto(report).unwrap())[0].clone();
    let mut far = four(sockets, "peer-data-wrong", (1, 2));
    assert_eq!(level(&far), "NCCL_P2P_LEVEL=PXB");
    far.snapshot.host.nccl_variables = Reading::Known(vec!["NCCL_P2P_LEVEL=PIX".into()]);
    assert_eq!(level(&far), "NCCL_P2P_LEVEL=PIX", "a level that is set is not raised");
    far.snapshot.host.nccl_variables = Reading::Known(vec!["NCCL_P2P_DISABLE=1".into()]);
    assert_eq!(level(&far), "NCCL_P2P_DISABLE=1");
    let near = four(sockets, "peer-copy-hung", (0, 1));
    assert!(veto(&near).is_none(), "its bytes were seen to arrive");
    let near = four(sockets, "live-talk-failed", (0, 1));
    assert_eq!(level(&near), "NCCL_P2P_DISABLE=1");
    let bridged = |one: u32, other: u32| match one / 2 == other / 2 {
        true => LinkClass::NvLink(4),
        false => LinkClass::Pix,
    };
    assert_eq!(level(&four(bridged, "peer-access-broken", (0, 3))), "NCCL_P2P_LEVEL=NVL");
}

#[test]
fn every_rank_of_a_job_with_a_failed_pair_sees_a_failed_one() {
    let report = four(|_, _| LinkClass::Pix, "peer-data-wrong", (1, 2));
    let works = veto(&report).unwrap().pairs_file.unwrap().works;
    assert_eq!(works.len(), 16, "the format has every pair");
    let fits = |source: u32, destination: u32| works[&format!("{source}->{destination}")];
    for size in 2..=4 {
        let sees = |rank: u32| (0..size).all(|other| other == rank || fits(rank, other));
        let all: Vec<bool> = (0..size).map(sees).collect();
        let expected = size < 3;
        assert!(all.iter().all(|sees| *sees == expected), "{size}: {all:?}");
    }
    let mut report = report;
    for cell in &mut report.measurements.as_mut().unwrap().peer {
        if cell.pair.touches(0) {
            cell.verified = Verified::Skipped;
        }
    }
    let works = veto(&report).unwrap().pairs_file.unwrap().works;
    assert!(!works["0->1"], "what was not seen to work is not granted");
}

/// Returns a report of four GPUs whose processes could not share memory in these ways.
fn refusing(rungs: &[Rung]) -> Report {
    let all = |_: u32, _: u32| LinkClass::NvLink(18);
    let mut report = four(all, "pageable-slower", (0, 1));
    let cells = rungs.iter().map(|rung| {
        let mut cell = Sharing::blank(0, 1, View::All, *rung, Bytes(1 << 22));
        cell.works = Some(false);
        cell
    });
    let measurements = report.measurements.as_mut().unwrap();
    measurements.sharing = cells.collect();
    report
}

#[test]
fn sharing_that_is_refused_takes_away_that_way_alone() {
    let found = veto(&refusing(&[Rung::Descriptor])).unwrap();
    assert_eq!(
        settings(&found),
        ["NCCL_CUMEM_ENABLE=0", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"]
    );
    assert_eq!(found.pairs_file, None, "vLLM shares by handle");
    assert!(!found.failed[0].access);
    assert_eq!(found.failed.len(), 6, "processes are refused, not pairs");
    let found = veto(&refusing(&[Rung::LegacyMemory])).unwrap();
    assert_eq!(settings(&found), Vec::<String>::new(), "NCCL does not need handles");
    assert!(!found.pairs_file.unwrap().works["0->1"]);
    let both = refusing(&[Rung::LegacyMemory, Rung::Descriptor]);
    assert_eq!(settings(&veto(&both).unwrap())[0], "NCCL_P2P_DISABLE=1");
    assert_eq!(veto(&refusing(&[Rung::Fabric, Rung::Pidfd])), None);
}

#[test]
fn access_that_was_never_granted_needs_no_veto() {
    let all = |_: u32, _: u32| LinkClass::Pix;
    let mut report = four(all, "peer-access-missing", (0, 1));
    assert_eq!(veto(&report), None, "programs ask CUDA themselves");
    for said in &mut report.measurements.as_mut().unwrap().driver.peer_access {
        if said.pair == THERE {
            said.failure = Some("cuCtxEnablePeerAccess: unknown error (999)".into());
        }
    }
    assert_eq!(settings(&veto(&report).unwrap())[0], "NCCL_P2P_DISABLE=1");
}

#[test]
fn staged_copies_that_lose_bytes_take_no_peer_access_away() {
    let mut report = h200x2();
    lose_bytes(report.measurements.as_mut().unwrap(), THERE, Path::Staged);
    assert_eq!(veto(&judged(report)), None);
}
