//! `bandwidthTest` of the CUDA samples: copies between the host and one GPU, and within it.

use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes, Printed, number};
use model::flow::HostMemory;
use model::host::{HostDirection, HostWay};
use model::reading::Reading;
use model::units::Bytes;

pub(crate) const READER: Reader = Reader {
    kind: "bandwidth-test",
    tool: "bandwidthTest",
    begins: |line| line.starts_with("[CUDA Bandwidth Test]"),
    read,
};

/// Most lines of it.
const LONGEST: usize = 200;

/// Older versions print MB/s of 2^20 bytes.
const MEBIBYTE_PER_SECOND: f64 = 1_048_576.0 / 1e9;

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let mut gpu: Option<Key> = None;
    let mut way: Option<(Option<HostDirection>, HostMemory)> = None;
    let mut unit = 1.0;
    let mut used = 1;
    for (place, line) in ahead.lines.iter().enumerate().skip(1).take(LONGEST) {
        let text = line.text.trim();
        if text.starts_with("Result =") || text.starts_with("[CUDA") {
            used = place + usize::from(text.starts_with("Result"));
            break;
        }
        let device = text.strip_prefix("Device ").and_then(|rest| rest.split_once(": "));
        if let Some((number, name)) = device.filter(|_| gpu.is_none()) {
            let key = Key::Ordinal(number.trim().parse().ok()?);
            notes.gpu(line.number, &key, |gpu| gpu.name = Reading::Known(name.trim().to_owned()));
            gpu = Some(key);
        } else if let Some((kind, _)) = text.split_once(" Bandwidth, ") {
            let direction = match kind {
                "Host to Device" => Some(HostDirection::ToDevice),
                "Device to Host" => Some(HostDirection::ToHost),
                _ => None,
            };
            way = Some((direction, HostMemory::Pinned));
        } else if text.starts_with("PAGEABLE Memory") {
            way = way.map(|(direction, _)| (direction, HostMemory::Pageable));
        } else if text.contains("Bandwidth(") {
            unit = if text.contains("MB/s") { MEBIBYTE_PER_SECOND } else { 1.0 };
        } else if let (Some(gpu), Some((direction, memory))) = (&gpu, way) {
            let mut words = text.split_whitespace();
            let bytes = words.next().and_then(|bytes| bytes.parse::<u64>().ok());
            let rate = words.next().and_then(number).filter(|rate| *rate > 0.0);
            let (Some(bytes), Some(rate)) = (bytes, rate) else {
                continue;
            };
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
        }
        used = place + 1;
    }
    (!notes.told.is_empty()).then_some(used)
}
