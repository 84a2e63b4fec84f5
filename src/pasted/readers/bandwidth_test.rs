//! `bandwidthTest` of the CUDA samples: copies between the host and one GPU, and within it.

use crate::reader::{Ahead, Reader};
use crate::told::{Note, Notes, Printed, number};
use model::flow::HostMemory;
use model::host::{HostDirection, HostWay};
use model::reading::Reading;
use model::units::Bytes;

pub(crate) const READER: Reader = Reader {
    kind: "bandwidth-test",
    tool: "bandwidthTest",
    begins: |line| line.starts_with(TITLE) || copies(line).is_some(),
    read,
};

const TITLE: &str = "[CUDA Bandwidth Test]";

/// Beginnings of lines that say nothing of the machine.
const BESIDE: &[&str] = &[
    TITLE,
    "Running on",
    "Quick Mode",
    "Range Mode",
    "Shmoo Mode",
    "PINNED",
    "...",
    "NOTE:",
    "Result =",
];

/// Returns the direction of the copies below `Host to Device Bandwidth, 1 Device(s)`; the inner `None` within the GPU.
fn copies(line: &str) -> Option<Option<HostDirection>> {
    match line.split_once(" Bandwidth, ")?.0 {
        "Host to Device" => Some(Some(HostDirection::ToDevice)),
        "Device to Host" => Some(Some(HostDirection::ToHost)),
        "Device to Device" => Some(None),
        _ => None,
    }
}

/// Older versions print MB/s of 2^20 bytes.
const MEBIBYTE_PER_SECOND: f64 = 1_048_576.0 / 1e9;

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let mut gpu = ahead.visible(0);
    let mut way: Option<(Option<HostDirection>, HostMemory)> = None;
    let mut unit = 1.0;
    let mut used = 0;
    for (place, line) in ahead.lines.iter().enumerate() {
        let text = line.text.trim();
        if text.is_empty() {
            continue;
        }
        if place > 0 && text.starts_with(TITLE) {
            break;
        }
        let device = text.strip_prefix("Device ").and_then(|rest| rest.split_once(": "));
        let mut words = text.split_whitespace();
        let bytes = words.next().and_then(|bytes| bytes.parse::<u64>().ok());
        let rate = words.next().and_then(number).filter(|rate| *rate > 0.0);
        if let Some((number, name)) = device {
            gpu = ahead.visible(number.trim().parse().ok()?);
            notes.gpu(line.number, &gpu, |gpu| gpu.name = Reading::Known(name.trim().to_owned()));
        } else if let Some(direction) = copies(text) {
            way = Some((direction, HostMemory::Pinned));
        } else if text.starts_with("PAGEABLE Memory") {
            way = way.map(|(direction, _)| (direction, HostMemory::Pageable));
        } else if text.contains("Bandwidth(") {
            unit = if text.contains("MB/s") { MEBIBYTE_PER_SECOND } else { 1.0 };
        } else if let (Some((direction, memory)), Some(bytes), Some(rate)) = (way, bytes, rate) {
            let figure = Printed::of(rate * unit, 1);
            let what = match direction {
                Some(direction) => Note::HostCopy(
                    gpu.clone(),
                    HostWay::PINNED.with_direction(direction).with_memory(memory),
                    Bytes(bytes),
                    figure,
                ),
                // Bytes read and written were counted.
                None => Note::Local(gpu.clone(), Bytes(bytes), figure.times(0.5)),
            };
            notes.add(line.number, what);
        } else if !BESIDE.iter().any(|start| text.starts_with(start)) {
            break;
        }
        used = place + 1;
        if text.starts_with("Result =") {
            break;
        }
    }
    Some(used)
}
