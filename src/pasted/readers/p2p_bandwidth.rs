//! `p2pBandwidthLatencyTest` of the CUDA samples: devices, access, and matrices of rates and latencies.

use crate::matrix::{self, Numbered};
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes, Printed};
use model::flow::Setup;
use model::placement::{Direction, Path, Side};
use model::reading::Reading;
use model::units::{Bytes, PciAddress};

pub(crate) const READER: Reader = Reader {
    kind: "p2p-bandwidth",
    tool: "p2pBandwidthLatencyTest",
    begins: |line| {
        line.starts_with("[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]")
            || line.starts_with("Device: ")
            || line.starts_with("Device=")
            || title(line).is_some()
            || line.starts_with("D\\D ")
            || row(line).is_some()
    },
    read,
};

/// Size of a copy: 40 million numbers of 4 bytes, unless `--numElems` was given.
const BYTES: Bytes = Bytes(160_000_000);

/// Copies of a rate.
const REPEATS: u32 = 5;

/// A matrix by its title.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Matrix {
    Rates { setup: Setup, sum: bool },
    Latencies(Path, bool),
    Access,
}

/// Returns the matrix that a title announces. Versions that do not name writes or reads copy with the row's GPU as
/// destination.
fn title(line: &str) -> Option<Matrix> {
    let both = line.contains("Bidirectional");
    if line.starts_with("P2P Connectivity Matrix") {
        return Some(Matrix::Access);
    }
    let path = if line.contains("P2P=Enabled") {
        Path::Direct
    } else if line.contains("P2P=Disabled") {
        Path::Staged
    } else {
        return None;
    };
    // The unidirectional matrix without access is always one of writes.
    let reads = line.contains("(P2P Reads)");
    if line.starts_with("P2P=") && line.contains("Latency") {
        return Some(Matrix::Latencies(path, reads));
    }
    let direction = match () {
        () if both => Direction::BothWays,
        () if line.contains("Unidirectional") => Direction::OneWay,
        () => return None,
    };
    let issuer = if reads { Side::Destination } else { Side::Source };
    let setup = Setup { issuer, direction, bytes: BYTES, ..Setup::REFERENCE.with_path(path) };
    Some(Matrix::Rates { setup, sum: both })
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let head = ahead.lines.first()?;
    let text = head.text.trim();
    if text.starts_with("[P2P (Peer") {
        return Some(1);
    }
    if text.starts_with("Device: ") {
        return device(text, head.number, notes).map(|()| 1);
    }
    if text.starts_with("Device=") {
        return access(text, head.number, notes).map(|()| 1);
    }
    let Some(kind) = title(text) else {
        return untitled(ahead, notes);
    };
    let start = ahead.lines.iter().skip(1).position(|line| !line.text.trim().is_empty())? + 1;
    let label = match kind {
        Matrix::Latencies(..) => "GPU",
        _ => "D\\D",
    };
    let rest = &ahead.lines[start..];
    let matrix = matrix::numbered(rest, Some(label)).or_else(|| matrix::numbered(rest, None))?;
    match kind {
        Matrix::Rates { setup, sum } => rates(&matrix, setup, sum, notes),
        Matrix::Latencies(path, reads) => each(&matrix, |row, column, value, line| {
            let (from, to) = if reads { (column, row) } else { (row, column) };
            if from != to && value > 0.0 {
                notes.add(line, Note::Latency(from, to, path, Printed::of(value, 1)));
            }
        }),
        Matrix::Access => each(&matrix, |row, column, value, line| {
            if row != column {
                notes.add(line, Note::Access(row, column, value > 0.0));
            }
        }),
    }
    let used = start + matrix.used;
    // The times that the processor took to enqueue a copy say nothing of links.
    let mut behind = ahead.lines.iter().skip(used);
    let more = behind.position(|line| !line.text.trim().is_empty());
    let of_processor = more.filter(|_| matches!(kind, Matrix::Latencies(..)));
    let of_processor = of_processor.and_then(|blank| {
        let matrix = matrix::numbered(&ahead.lines[used + blank..], Some("CPU"))?;
        Some(blank + matrix.used)
    });
    Some(used + of_processor.unwrap_or(0))
}

/// The order in which the program prints rates. Latencies without access follow.
const ORDER: [(Direction, Path); 4] = [
    (Direction::OneWay, Path::Staged),
    (Direction::OneWay, Path::Direct),
    (Direction::BothWays, Path::Staged),
    (Direction::BothWays, Path::Direct),
];

/// Returns number and rates of a row.
fn row(line: &str) -> Option<(usize, Vec<f64>)> {
    let mut words = line.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let rate = |word: &str| word.parse::<f64>().ok().filter(|_| word.contains('.'));
    let rates: Vec<f64> = words.map(rate).collect::<Option<_>>()?;
    (number < rates.len() && rates.len() > 1).then_some((number, rates))
}

/// Reads the matrix of rates, or its last rows, whose title is not in the input. The title of the next one tells which
/// it is, since the program prints all in one order.
fn untitled(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let is_head = |text: &str| text.starts_with("D\\D ");
    let mut rows: Vec<Vec<(Option<f64>, u32)>> = Vec::new();
    let mut filled =
        ahead.lines.iter().enumerate().filter(|(_, line)| !line.text.trim().is_empty());
    let (used, next) = loop {
        let (place, line) = filled.next()?;
        notes.in_vain = place;
        match row(&line.text) {
            Some((number, rates)) if rows.is_empty() || number == rows.len() => {
                rows.resize(number, Vec::new());
                rows.push(rates.into_iter().map(|rate| (Some(rate), line.number)).collect());
            }
            None if rows.is_empty() && is_head(line.text.trim()) => {}
            _ => break (place, line.text.trim()),
        }
    };
    let behind = match title(next)? {
        Matrix::Rates { setup, .. } => {
            ORDER.iter().position(|one| *one == (setup.direction, setup.path))?
        }
        Matrix::Latencies(Path::Staged, _) => ORDER.len(),
        _ => return None,
    };
    let (direction, path) = *ORDER.get(behind.checked_sub(1)?)?;
    let ways = if direction == Direction::BothWays { "both ways" } else { "one way" };
    let access = if path == Path::Direct { "with" } else { "without" };
    notes.add(
        ahead.lines.first()?.number,
        Note::Remark(format!(
            "the rates without a title were taken for those {ways} {access} peer access (inferred)"
        )),
    );
    let setup = Setup { direction, bytes: BYTES, ..Setup::REFERENCE.with_path(path) };
    let matrix = Numbered { columns: rows.last()?.len(), rows, used };
    rates(&matrix, setup, direction == Direction::BothWays, notes);
    Some(used)
}

/// `Device: 0, NVIDIA H200, pciBusID: 0, pciDeviceID: 6, pciDomainID:0`, in hexadecimal.
fn device(text: &str, line: u32, notes: &mut Notes) -> Option<()> {
    let (head, place) = text.split_once(", pciBusID:")?;
    let (number, name) = head.strip_prefix("Device: ")?.split_once(", ")?;
    let key = Key::Ordinal(number.trim().parse().ok()?);
    let part = |label: &str| {
        let (_, rest) = place.split_once(label)?;
        u32::from_str_radix(rest.split(',').next()?.trim(), 16).ok()
    };
    let bus = u32::from_str_radix(place.split(',').next()?.trim(), 16).ok()?;
    let address = PciAddress {
        domain: part("pciDomainID:").unwrap_or(0),
        bus: bus.try_into().ok()?,
        device: part("pciDeviceID:")?.try_into().ok().filter(|device| *device < 32)?,
        function: 0,
    };
    notes.at(line, &key, address, |gpu| gpu.name = Reading::Known(name.trim().to_owned()));
    Some(())
}

/// `Device=0 CAN Access Peer Device=1`, or `CANNOT`.
fn access(text: &str, line: u32, notes: &mut Notes) -> Option<()> {
    let (from, to) = text.strip_prefix("Device=")?.split_once(" Access Peer Device=")?;
    let (from, word) = from.split_once(' ')?;
    let ordinal = |text: &str| text.trim().parse().ok().map(Key::Ordinal);
    notes.add(line, Note::Access(ordinal(from)?, ordinal(to)?, word.trim() == "CAN"));
    Some(())
}

/// Calls `with` for each cell with a figure.
fn each(matrix: &Numbered, mut with: impl FnMut(Key, Key, f64, u32)) {
    let ordinal = |number: usize| Key::Ordinal(u32::try_from(number).unwrap_or(u32::MAX));
    for ((row, column), value, line) in matrix.figures() {
        with(ordinal(row), ordinal(column), value, line);
    }
}

fn rates(matrix: &Numbered, setup: Setup, sum: bool, notes: &mut Notes) {
    let share = if sum { 0.5 } else { 1.0 };
    for ((row, column), value, line) in matrix.figures() {
        if value <= 0.0 && row != column {
            notes.nothing(line, row, column);
        }
    }
    each(matrix, |row, column, value, line| {
        let figure = Printed::of(value * share, REPEATS);
        if value <= 0.0 {
            return;
        }
        if row == column {
            // Bytes read and written were counted.
            if setup.direction == Direction::OneWay && setup.path == Path::Direct {
                notes.add(line, Note::Local(row, setup.bytes, figure.times(0.5)));
            }
        } else {
            let (from, to) = match setup.issuer {
                Side::Source => (row, column),
                Side::Destination => (column, row),
            };
            notes.add(line, Note::Peer(from, to, setup, figure));
        }
    });
}
