//! Properties that hold for every picture.

use super::layout::{self, Layout};
use super::*;
use model::report::Report;
use model::topology::NodeKind;

fn reports() -> Vec<Report> {
    vec![
        sample::healthy(1),
        sample::healthy(2),
        sample::healthy(8),
        sample::healthy(16),
        sample::pcie_box(),
        sample::unknown(0),
        sample::unknown(3),
        sample::hostile(),
    ]
}

fn svg(report: &Report) -> String {
    render(&Digest::of(report), &Style::PLAIN)
}

fn apart(one: [i32; 4], other: [i32; 4]) -> bool {
    one[0] + one[2] <= other[0]
        || other[0] + other[2] <= one[0]
        || one[1] + one[3] <= other[1]
        || other[1] + other[3] <= one[1]
}

#[test]
fn no_two_parts_overlap_and_all_lie_within() {
    for report in reports() {
        let Layout { width, height, boxes, .. } = layout::of(&report);
        for (number, one) in boxes.iter().enumerate() {
            let [x, y, wide, high] = one.at;
            assert!(
                x >= 0 && y >= 0 && x + wide <= width && y + high <= height,
                "{:?} in {width} x {height}",
                one.at
            );
            for other in &boxes[number + 1..] {
                assert!(
                    apart(one.at, other.at),
                    "{} {:?}, {} {:?}",
                    one.part.name,
                    one.at,
                    other.part.name,
                    other.at
                );
            }
        }
    }
}

#[test]
fn every_gpu_is_there_once_and_the_same_report_gives_the_same_picture() {
    for report in reports() {
        let layout = layout::of(&report);
        let mut gpus: Vec<u32> = layout
            .boxes
            .iter()
            .filter(|boxed| boxed.part.kind == NodeKind::Gpu)
            .flat_map(|boxed| boxed.part.gpus.clone())
            .collect();
        gpus.sort_unstable();
        let mut all: Vec<u32> = report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        all.sort_unstable();
        assert_eq!(gpus, all);
        assert_eq!(svg(&report), svg(&report));
    }
}

#[test]
fn a_narrow_slot_is_marked_and_says_of_what() {
    let text = svg(&sample::pcie_box());
    assert!(text.contains("of x16 ✖") && text.contains("part link bad"), "{text}");
    assert!(text.contains("no P2P") || text.contains("No peer access"), "{text}");
}

#[test]
fn links_to_nvswitches_are_one_edge_with_a_number() {
    let text = svg(&sample::healthy(8));
    assert_eq!(text.matches(">NV18<").count(), 8, "{text}");
    assert_eq!(text.matches(">NVSwitch<").count(), 1);
}

#[test]
fn many_gpus_fold_and_one_with_a_finding_stands_out() {
    let mut report = sample::healthy(32);
    let folded = layout::of(&report);
    assert!(folded.boxes.len() < 8 && folded.width < 600, "{} boxes", folded.boxes.len());
    let finding = sample::pcie_box()
        .findings
        .into_iter()
        .find(|finding| finding.code == "pcie-narrow")
        .unwrap();
    report.findings.push(finding);
    let marked = layout::of(&report);
    assert_eq!(marked.boxes.len(), folded.boxes.len() + 1);
}

#[test]
fn it_is_well_formed() {
    for report in reports() {
        let text = svg(&report);
        let page = format!("<!DOCTYPE html><title>x</title>{text}");
        let errors = scraper::Html::parse_document(&page).errors;
        assert!(errors.is_empty(), "{errors:?}");
        assert!(!text.contains('\u{1b}') && !text.contains("<script"), "{text}");
    }
}
