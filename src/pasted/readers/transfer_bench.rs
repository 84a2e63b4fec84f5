//! `TransferBench p2p`: rates between GPUs. The source's kernel, or its copy engine, writes to the destination.

use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes, Printed, number};
use model::flow::Setup;
use model::placement::{Engine, Side};

pub(crate) const READER: Reader = Reader {
    kind: "transfer-bench",
    tool: "TransferBench p2p",
    begins: |line| line.starts_with(TITLE) || line.starts_with("TransferBench v"),
    read,
};

const TITLE: &str = "Unidirectional copy peak bandwidth GB/s";

/// Most lines of the table.
const LONGEST: usize = 400;

/// Returns the GPUs of a header: `None` for each processor.
fn columns(header: &str) -> Option<Vec<Option<u32>>> {
    let words: Vec<&str> = header.split_whitespace().collect();
    let (first, rest) = words.split_first()?;
    if !first.ends_with("DST") {
        return None;
    }
    let column = |pair: &[&str]| match pair {
        ["GPU", number] => Some(number.parse::<u32>().ok()),
        ["CPU", _] => Some(None),
        _ => None,
    };
    rest.chunks(2).map(column).collect()
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let head = ahead.lines.first()?.text.trim();
    if let Some(version) = head.strip_prefix("TransferBench v") {
        notes.version = version.split(' ').next().map(str::to_owned);
        return Some(1);
    }
    // The direction of other forms is not written here: reads by the destination.
    if !head.contains("Remote write") {
        return None;
    }
    let engine = if head.contains("DMA") { Engine::Copy } else { Engine::Kernel };
    let setup = Setup { issuer: Side::Source, engine, ..Setup::REFERENCE };
    let columns = columns(ahead.lines.get(1)?.text.trim())?;
    let mut used = 2;
    for (place, line) in ahead.lines.iter().enumerate().skip(2).take(LONGEST) {
        let text = line.text.trim();
        if text.is_empty() {
            continue;
        }
        if !text.starts_with("GPU ") && !text.starts_with("CPU ") {
            break;
        }
        used = place + 1;
        // Rows of extremes and scatter have a word in place of the arrow.
        let Some((source, cells)) = text.split_once("->") else {
            continue;
        };
        let Some(source) =
            source.trim().strip_prefix("GPU ").and_then(|gpu| gpu.parse::<u32>().ok())
        else {
            continue;
        };
        for (cell, column) in cells.split_whitespace().zip(&columns) {
            let rate = number(cell).filter(|rate| *rate > 0.0);
            if let (Some(destination), Some(rate)) = (column.filter(|gpu| *gpu != source), rate) {
                let ends = (Key::Ordinal(source), Key::Ordinal(destination));
                notes.add(line.number, Note::Peer(ends.0, ends.1, setup, Printed::of(rate, 1)));
            }
        }
    }
    (!notes.told.is_empty()).then_some(used)
}
