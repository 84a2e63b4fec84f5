//! `nvbandwidth` as text, versions 0.2 to 0.10: devices, and a matrix for each test.

use crate::matrix::{self, Numbered};
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes, Printed};
use model::flow::{HostMemory, Setup};
use model::host::{Allocation, HostDirection, HostWay};
use model::measurement::Verified;
use model::placement::{Direction, Engine, Side};
use model::reading::Reading;
use model::units::{Bytes, MIB, PciAddress};

pub(crate) const READER: Reader = Reader {
    kind: "nvbandwidth",
    tool: "nvbandwidth",
    begins: |line| {
        line.starts_with("nvbandwidth Version:")
            || line.starts_with("CUDA Driver Version:")
            || test_of(line).is_some()
            || is_description(line)
            || device(line).is_some()
    },
    read,
};

/// Size of a buffer, unless `--bufferSize` was given; versions before 0.2 had 64 MiB.
const BUFFER: Bytes = Bytes(512 * MIB);

/// Figures of a test of nvbandwidth, by its meaning: what rows and columns are, and how a figure becomes one of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Test {
    Host(HostWay),
    Local,
    /// Copies between GPUs. The arrow that nvbandwidth prints differs between versions: the name of the test counts. The
    /// row is the GPU whose context issues the copy: the source of a write, the destination of a read.
    Peer(Setup),
}

/// Returns the meaning of a test by its name; `None` for tests whose figures are sums of several copies at once.
pub(super) fn test(name: &str) -> Option<Test> {
    let engine = match name {
        _ if name.ends_with("_sm") => Engine::Kernel,
        _ if name.ends_with("_ce") => Engine::Copy,
        "device_local_copy" => return Some(Test::Local),
        _ => return None,
    };
    let stem = &name[..name.len() - 3];
    let host = |direction| {
        Test::Host(HostWay {
            memory: HostMemory::Pinned,
            direction,
            engine,
            allocation: Allocation::Reused,
        })
    };
    let peer = |issuer, direction| {
        Test::Peer(Setup { issuer, engine, direction, bytes: BUFFER, ..Setup::REFERENCE })
    };
    Some(match stem {
        "host_to_device_memcpy" => host(HostDirection::ToDevice),
        "device_to_host_memcpy" => host(HostDirection::ToHost),
        "device_to_device_memcpy_read" => peer(Side::Destination, Direction::OneWay),
        "device_to_device_memcpy_write" => peer(Side::Source, Direction::OneWay),
        "device_to_device_bidirectional_memcpy_read" => {
            peer(Side::Destination, Direction::BothWays)
        }
        "device_to_device_bidirectional_memcpy_write" => peer(Side::Source, Direction::BothWays),
        _ => return None,
    })
}

/// Adds the figure of one row and column. `description` is the sentence above the matrix.
pub(super) fn add(
    notes: &mut Notes,
    line: u32,
    test: Test,
    description: &str,
    (row, column): (usize, usize),
    value: f64,
) {
    let ordinal = |number: usize| Key::Ordinal(u32::try_from(number).unwrap_or(u32::MAX));
    // nvbandwidth compares the bytes after each test, unless --skipVerification was given.
    let figure = Printed { verified: Verified::Ok, ..Printed::of(value, 3) };
    match test {
        Test::Host(way) => {
            notes.add(line, Note::HostCopy(ordinal(column), way, BUFFER, figure));
        }
        Test::Local => notes.add(line, Note::Local(ordinal(column), BUFFER, figure)),
        Test::Peer(setup) => {
            if row == column {
                return;
            }
            let figure = match share(setup, description) {
                Some(share) => figure.times(share),
                None => return,
            };
            let (source, destination) = match setup.issuer {
                Side::Source => (ordinal(row), ordinal(column)),
                Side::Destination => (ordinal(column), ordinal(row)),
            };
            notes.add(line, Note::Peer(source, destination, setup, figure));
        }
    }
}

/// Returns the share of a figure that is the rate of one direction: half of a sum of both. Each direction by itself has a
/// matrix too; which one is which depends on the version, so these are left out.
fn share(setup: Setup, description: &str) -> Option<f64> {
    let both = setup.direction == Direction::BothWays;
    let single = ["ead1", "ead2", "rite1", "rite2"];
    if both && single.iter().any(|word| description.contains(word)) {
        return None;
    }
    let is_sum = description.contains("Total") || setup.engine == Engine::Kernel;
    Some(if both && is_sum { 0.5 } else { 1.0 })
}

/// Returns the name of the test that a line announces: `Running device_to_device_memcpy_read_ce.`
fn test_of(line: &str) -> Option<&str> {
    let name = line.strip_prefix("Running ")?.trim_end().trim_end_matches('.');
    let is_test = ["_memcpy_", "device_local_copy", "_write_", "_read_", "_latency_"]
        .iter()
        .any(|part| name.contains(part));
    (is_test && !name.contains(' ')).then_some(name)
}

/// Takes number, name and address from `Device 0: NVIDIA H200 (00000000:06:00)`.
pub(super) fn device(line: &str) -> Option<(u32, &str, PciAddress)> {
    let line = line.trim().strip_prefix("Device ").unwrap_or(line);
    let (number, rest) = line.split_once(": ")?;
    let (name, rest) = rest.split_once(" (")?;
    let address = rest.split(')').next()?;
    if address.bytes().filter(|byte| *byte == b':').count() != 2 {
        return None;
    }
    let address = format!("{address}.0").parse().ok()?;
    Some((number.trim().parse().ok()?, name, address))
}

/// Adds a device.
pub(super) fn add_device(
    notes: &mut Notes,
    line: u32,
    (number, name, address): (u32, &str, PciAddress),
) {
    notes.at(line, &Key::Ordinal(number), address, |gpu| {
        gpu.name = Reading::Known(name.to_owned());
    });
}

/// Adds the driver's CUDA version, `12080` for 12.8.
fn add_cuda(notes: &mut Notes, line: u32, version: &str) -> Option<usize> {
    let version: u32 = version.trim().parse().ok().filter(|version| *version < 100_000)?;
    let version = format!("{}.{}", version / 1000, version % 1000 / 10);
    notes.host(line, |host| host.cuda_version = Reading::Known(version));
    Some(1)
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let head = ahead.lines.first()?;
    let text = head.text.trim();
    if let Some(version) = text.strip_prefix("nvbandwidth Version:") {
        notes.version = Some(version.trim().trim_start_matches('v').to_owned());
        return Some(1);
    }
    if let Some(version) = text.strip_prefix("CUDA Driver Version:") {
        return add_cuda(notes, head.number, version);
    }
    if let Some(device) = device(text) {
        add_device(notes, head.number, device);
        return Some(1);
    }
    let Some(name) = test_of(text) else {
        return without_name(ahead, notes);
    };
    let mut used = 1;
    if let Some((place, line)) = wrong_values(ahead) {
        notes.add(
            line,
            Note::Remark(format!(
                "nvbandwidth found wrong values after {name}, and ended: the output does not show between which GPUs"
            )),
        );
        return Some(place + 1);
    }
    // Versions of bidirectional tests print up to three matrices.
    for _ in 0..3 {
        let Some((description, place)) = next(ahead, used) else {
            break;
        };
        let Some(matrix) = matrix::numbered(&ahead.lines[place..], None) else {
            break;
        };
        used = place + matrix.used;
        if let Some(test) = test(name) {
            add_all(notes, test, description, &matrix);
        }
    }
    Some(used)
}

/// Returns true for the sentence above a matrix.
fn is_description(line: &str) -> bool {
    line.starts_with("memcpy ") && line.contains("(row)") && line.contains("bandwidth (GB/s)")
}

/// Reads a matrix whose first line is missing. The name of its test comes again in the line with the sum.
fn without_name(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let description = ahead.lines.first()?.text.trim();
    let matrix = matrix::numbered(ahead.lines.get(1..)?, None)?;
    let used = matrix.used + 1;
    let mut below = ahead.lines.iter().skip(used).take(3);
    let name = below.find_map(|line| line.text.trim().strip_prefix("SUM ")?.split(' ').next());
    match name.and_then(test) {
        Some(test) => add_all(notes, test, description, &matrix),
        None => notes.add(
            ahead.lines.first()?.number,
            Note::Remark(
                "a matrix of nvbandwidth without the name of its test was left out".to_owned(),
            ),
        ),
    }
    Some(used)
}

/// Returns place and number of the line in which a test says that bytes did not arrive as they were sent.
fn wrong_values(ahead: Ahead<'_>) -> Option<(usize, u32)> {
    let mut below = ahead.lines.iter().enumerate().skip(1).take(4);
    let (place, line) =
        below.find(|(_, line)| line.text.contains("Invalid value when checking the pattern"))?;
    Some((place, line.number))
}

/// Finds the description of a matrix within the next lines, and the place of its header.
fn next<'a>(ahead: Ahead<'a>, from: usize) -> Option<(&'a str, usize)> {
    let mut filled = ahead.lines.iter().enumerate().skip(from).take(10);
    let mut filled = filled.by_ref().filter(|(_, line)| {
        let text = line.text.trim();
        !text.is_empty() && !text.starts_with("SUM ") && !text.starts_with("NOTE")
    });
    let (_, description) = filled.next()?;
    let (place, _) = filled.next()?;
    let is_description =
        description.text.contains("bandwidth") || description.text.contains("GB/s");
    is_description.then_some((description.text.as_ref(), place))
}

fn add_all(notes: &mut Notes, test: Test, description: &str, matrix: &Numbered) {
    for (place, value, line) in matrix.figures() {
        if value <= 0.0 {
            if matches!(test, Test::Peer(_)) && place.0 != place.1 {
                notes.nothing(line, place.0, place.1);
            }
            continue;
        }
        add(notes, line, test, description, place, value);
    }
}
