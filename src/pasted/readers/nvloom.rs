//! `nvloom_cli`: rates between all GPUs of one host, from the tests that copy between one pair at a time.

use std::collections::BTreeSet;

use super::nvbandwidth::device;
use crate::matrix;
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes, Printed};
use model::flow::Setup;
use model::placement::{Direction, Engine, Side};
use model::reading::Reading;
use model::units::{Bytes, MIB};

pub(crate) const READER: Reader = Reader {
    kind: "nvloom",
    tool: "nvloom_cli",
    begins: |line| line.starts_with(TITLE) || process(line).is_some() || test_of(line).is_some(),
    read,
};

const TITLE: &str = "nvloom_cli ";

/// Size of a buffer, unless the output says otherwise.
const BUFFER: Bytes = Bytes(512 * MIB);

/// Largest buffer that is believed, MiB: the memory of a GPU.
const MOST_MIB: u64 = 1 << 19;

/// Most lines of other programs within its output.
const BETWEEN: usize = 10;

/// Returns the name of a test of nvloom. Other names are those of nvbandwidth.
fn test_of(line: &str) -> Option<&str> {
    let name = line.strip_prefix("Running ")?.trim_end();
    let is_word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let starts =
        ["bisect_", "gpu_to_rack_", "rack_to_rack_", "multicast_", "all_to_one_", "all_from_one_"];
    let parts = ["_unidir_", "_bidir_"];
    let is_nvloom = parts.iter().any(|part| name.contains(part))
        || (starts.iter().any(|start| name.starts_with(start))
            && (name.contains("_to_device_") || name.starts_with("multicast_")));
    (is_word && is_nvloom).then_some(name)
}

/// Takes number, host and the rest from `Process 3 (host): device 3: NVIDIA B200 (00000000:1a:00); rackGuid: 0`.
fn process(line: &str) -> Option<(u32, &str, &str)> {
    let (number, rest) = line.strip_prefix("Process ")?.split_once(" (")?;
    let (host, rest) = rest.split_once("): device ")?;
    Some((number.trim().parse().ok()?, host, rest))
}

/// Returns the setup of a test whose figures are rates of single pairs.
fn setup(name: &str, bytes: Bytes) -> Option<Setup> {
    let (direction, rest) = match name.strip_prefix("device_to_device_")?.split_once('_')? {
        ("unidir", rest) => (Direction::OneWay, rest),
        ("bidir", rest) => (Direction::BothWays, rest),
        _ => return None,
    };
    let (issuer, engine) = match rest {
        "write_ce" => (Side::Source, Engine::Copy),
        "write_sm" => (Side::Source, Engine::Kernel),
        "read_ce" => (Side::Destination, Engine::Copy),
        "read_sm" => (Side::Destination, Engine::Kernel),
        _ => return None,
    };
    Some(Setup { issuer, engine, direction, bytes, ..Setup::REFERENCE })
}

/// Returns true for lines between the tables that have nothing to read.
fn is_filler(line: &str) -> bool {
    let starts = [
        "git commit:",
        "Allocation strategy:",
        "CUDA ",
        "Driver ",
        "Min ",
        "Avg ",
        "Max ",
        "Total ",
        "ExecutionTime ",
        "Done ",
    ];
    starts.iter().any(|start| line.starts_with(start))
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let (mut used, mut bytes) = (0, BUFFER);
    let mut hosts: BTreeSet<&str> = BTreeSet::new();
    let mut figures: Vec<(u32, Note)> = Vec::new();
    let mut place = 0;
    while let Some(line) = ahead.lines.get(place).filter(|_| place <= used + BETWEEN) {
        let text = line.text.trim();
        place += 1;
        if let Some(version) = text.strip_prefix(TITLE) {
            notes.version = Some(version.trim().to_owned());
        } else if let Some(size) = text.strip_prefix("Buffer size: ") {
            let size = size.split(' ').next().and_then(|size| size.parse::<u64>().ok());
            if let Some(size) = size.filter(|size| (1..=MOST_MIB).contains(size)) {
                bytes = Bytes(size * MIB);
            }
        } else if let Some((number, host, rest)) = process(text) {
            hosts.insert(host);
            if let Some((_, name, address)) = device(rest) {
                let key = Key::Ordinal(number);
                notes.same(line.number, key.clone(), Key::Pci(address));
                notes.gpu(line.number, &key, |gpu| {
                    gpu.pci = Reading::Known(address);
                    gpu.name = Reading::Known(name.to_owned());
                });
            }
        } else if let Some(name) = test_of(text) {
            let table = setup(name, bytes).zip(matrix::numbered(&ahead.lines[place..], None));
            if let Some((setup, table)) = table {
                place += table.used;
                add(&mut figures, setup, &table.rows);
            }
        } else if !is_filler(text) {
            continue;
        }
        used = place;
    }
    if hosts.len() > 1 {
        // The same address is there on each host: nothing tells their GPUs apart.
        *notes = Notes { version: notes.version.take(), ..Notes::within(notes.left) };
        notes.add(
            ahead.lines.first()?.number,
            Note::Remark(format!(
                "nvloom ran on {} hosts: its figures are not of one machine, and were left out",
                hosts.len()
            )),
        );
    } else {
        for (line, what) in figures {
            notes.add(line, what);
        }
    }
    (used > 0).then_some(used)
}

/// Adds the figures of a table: the source is the column, the destination the row. Rates of both directions are sums.
fn add(figures: &mut Vec<(u32, Note)>, setup: Setup, rows: &[Vec<(Option<f64>, u32)>]) {
    let share = match setup.direction {
        Direction::OneWay => 1.0,
        Direction::BothWays => 0.5,
    };
    for (cells, destination) in rows.iter().zip(0_u32..) {
        for ((value, line), source) in cells.iter().zip(0_u32..) {
            let value = value.filter(|value| *value > 0.0 && source != destination);
            if let Some(value) = value {
                let ends = (Key::Ordinal(source), Key::Ordinal(destination));
                let figure = Printed::of(value, 1).times(share);
                figures.push((*line, Note::Peer(ends.0, ends.1, setup, figure)));
            }
        }
    }
}
