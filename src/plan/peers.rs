//! Bandwidth between GPUs: which copies, of how many bytes, and the verification in front of them.

use serde::Deserialize;

use super::{Action, Group, Request, Task, is_direct};
use crate::model::flow::Setup;
use crate::model::placement::{Direction, Engine, Pair, Path, Placement, Side};
use crate::model::units::{Bytes, GbPerSecond, MIB};

/// Time that one copy of a direct measurement should take, milliseconds. Each copy of a row costs
/// some 5 µs beside its bytes on H200, which are measured and taken out; from 256 MiB on (0.65 ms)
/// what is left does not depend on the size any more (docs/measurement.md).
pub(super) const DIRECT_COPY_MS: f64 = 0.7;
/// The same for staged copies, whose fixed costs are larger and which are not gated.
const STAGED_COPY_MS: f64 = 4.0;
/// Size of the copies whose time tells the fixed cost of a row's copies.
pub const FIXED_COST_BYTES: u64 = MIB;
/// How many of them follow a row; the first is not counted, and the fastest of the others counts.
pub const FIXED_COST_COPIES: usize = 8;
/// Copies of a direct route whose rate is not known, MiB.
const UNKNOWN_ROUTE_MIB: u64 = 256;
/// No measured copy is smaller than this, MiB.
pub(super) const SMALLEST_COPY_MIB: u64 = 16;
/// Bytes verified on the staged path: enough for every staging buffer to be used many times.
const STAGED_VERIFY: u64 = 64 * MIB;
/// Bandwidth between GPUs. The eight placements are always measured for the copy engine, issued by
/// the source, one way.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// Timed copies per cell, after one that is not.
    pub samples: u32,
    /// How much of it also issued by the destination.
    #[serde(default)]
    pub issued_by_destination: Extent,
    /// How much of it also by kernel.
    #[serde(default)]
    pub kernel: Extent,
    /// How much of it also with both directions busy.
    #[serde(default)]
    pub both_ways: Extent,
    /// For which pairs the staged path is measured.
    #[serde(default)]
    pub staged: Staged,
}

/// How much of an axis is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// Nothing.
    #[default]
    None,
    /// In the reference placement.
    Reference,
    /// In every placement.
    EveryPlacement,
}

/// For which pairs the staged path is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Staged {
    /// Those that have no other.
    #[default]
    WithoutPeerAccess,
    /// All.
    All,
}

/// All that is measured of a pair on one path.
pub(super) fn tasks(request: &Request<'_>, pair: Pair, buffer: u64, path: Path) -> Vec<Task> {
    match path {
        _ if !request.groups.contains(&Group::Peers) => Vec::new(),
        Path::Direct => direct(request, pair, buffer),
        Path::Staged => staged(request, pair, buffer),
    }
}

/// The least that is measured of a pair: verification and the reference placement.
pub(super) fn reference(request: &Request<'_>, pair: Pair, buffer: u64, path: Path) -> Vec<Task> {
    if !request.groups.contains(&Group::Peers) {
        return Vec::new();
    }
    let setup = Setup::REFERENCE.with_path(path);
    let route = request.topology.route(pair);
    let (verify, bytes) = match path {
        Path::Direct => (buffer, direct_bytes(route.and_then(|route| route.theoretical_gbps), setup.issuer, buffer)),
        Path::Staged => {
            (STAGED_VERIFY.min(buffer), staged_bytes(route.and_then(|route| route.staged_theoretical_gbps), buffer))
        }
    };
    let action = Action::Bandwidth { samples: request.profile.peers.samples };
    vec![
        Task { setup: setup.with_bytes(Bytes(verify)), action: Action::Verify },
        Task { setup: setup.with_bytes(bytes), action },
    ]
}

/// Bytes of a direct copy.
///
/// Issued by the destination, a copy's fixed cost differs from copy to copy (8 to 27 µs on H200)
/// and cannot all be taken out: the larger the copy, the less that matters.
fn direct_bytes(rate: Option<GbPerSecond>, issuer: Side, buffer: u64) -> Bytes {
    Bytes(match (issuer, rate) {
        (Side::Source, Some(rate)) => copy_bytes(rate.0, DIRECT_COPY_MS, buffer),
        (Side::Destination, Some(rate)) => copy_bytes(rate.0, 2.0 * DIRECT_COPY_MS, buffer),
        (_, None) => (UNKNOWN_ROUTE_MIB * MIB).min(buffer),
    })
}

/// Bytes of a staged copy.
fn staged_bytes(rate: Option<GbPerSecond>, buffer: u64) -> Bytes {
    Bytes(copy_bytes(rate.map_or(32.0, |rate| rate.0), STAGED_COPY_MS, buffer))
}

fn direct(request: &Request<'_>, pair: Pair, buffer: u64) -> Vec<Task> {
    let mut tasks = Vec::new();
    let peers = &request.profile.peers;
    let rate = request.topology.route(pair).and_then(|route| route.theoretical_gbps);
    let issuers = [(Side::Source, Extent::EveryPlacement), (Side::Destination, peers.issued_by_destination)];
    let engines = [(Engine::Copy, Extent::EveryPlacement), (Engine::Kernel, peers.kernel)];
    let directions = [(Direction::OneWay, Extent::EveryPlacement), (Direction::BothWays, peers.both_ways)];

    let setup = Setup::REFERENCE;
    let verify = Task { setup: setup.with_bytes(Bytes(buffer)), action: Action::Verify };
    for (engine, by_engine) in engines {
        if by_engine == Extent::None {
            continue;
        }
        let verify = Task { setup: verify.setup.with_engine(engine), ..verify };
        tasks.push(verify);
        if engine == Engine::Kernel && peers.issued_by_destination != Extent::None {
            // A kernel that pulls takes another way through the chip than one that pushes.
            tasks.push(Task { setup: verify.setup.with_issuer(Side::Destination), ..verify });
        }
        for (issuer, by_issuer) in issuers {
            for (direction, by_direction) in directions {
                let setup = Setup { issuer, engine, direction, bytes: direct_bytes(rate, issuer, buffer), ..setup };
                let action = Action::Bandwidth { samples: peers.samples };
                let placements = in_common([by_engine, by_issuer, by_direction]).into_iter();
                tasks.extend(placements.map(|placement| Task { setup: setup.with_placement(placement), action }));
            }
        }
    }
    tasks
}

/// The placements in which a combination is measured, where each of its axes says how far it goes.
/// The reference placement measures each axis by itself; products of axes belong to `full`.
fn in_common(extents: [Extent; 3]) -> Vec<Placement> {
    if extents.contains(&Extent::None) {
        return Vec::new();
    }
    match extents.iter().filter(|&&extent| extent == Extent::Reference).count() {
        0 => Placement::all().collect(),
        1 => vec![Placement::REFERENCE],
        _ => Vec::new(),
    }
}

fn staged(request: &Request<'_>, pair: Pair, buffer: u64) -> Vec<Task> {
    let mut tasks = reference(request, pair, buffer, Path::Staged);
    // Without a direct path the staged one is what the pair has: all placements, then.
    if let (Some(&timed), false) = (tasks.last(), is_direct(request.driver, pair)) {
        tasks.pop();
        tasks.extend(Placement::all().map(|placement| Task { setup: timed.setup.with_placement(placement), ..timed }));
    }
    tasks
}

/// Bytes that take about `milliseconds` at this rate, whole MiB, within the buffer.
pub(super) fn copy_bytes(gbps: f64, milliseconds: f64, buffer: u64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a clamped, positive size")]
    let mib = (gbps * milliseconds * 1e6 / MIB as f64).clamp(0.0, 1e6).ceil() as u64;
    (mib.max(SMALLEST_COPY_MIB) * MIB).min(buffer)
}
