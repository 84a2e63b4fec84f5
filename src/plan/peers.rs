//! Bandwidth between GPUs: which copies, of how many bytes, and the verification in front of them.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Action, Group, Request, Task, is_direct};
use model::flow::Setup;
use model::placement::{Direction, Engine, Pair, Path, Placement, Side};
use model::units::{Bytes, GbPerSecond, MIB};

/// Time that one copy of a direct measurement should take, milliseconds. The longer, the less its fixed cost
/// and the events around a row weigh; on H200 with 1 GiB of memory a copy has 510 MiB, as many as
/// nvbandwidth's (512), within 0.1% (docs/measurement.md).
pub(super) const DIRECT_COPY_MS: f64 = 1.2;
/// Size of a staged copy: as fast as larger ones (37.3 of 37.5 GB/s on H200; docs/facts.md, "Copies through host
/// memory").
const STAGED_COPY: u64 = 64 * MIB;
/// Time that a staged copy should take at most, milliseconds.
const STAGED_COPY_MS: f64 = 4.0;
/// Size of the copies whose time tells what a copy costs beside its bytes.
pub const FIXED_COST_BYTES: u64 = MIB;
/// How many of them a row has.
pub const FIXED_COST_COPIES: u32 = 16;
/// Copies of a direct route whose rate is not known, MiB.
const UNKNOWN_ROUTE_MIB: u64 = 256;
/// No measured copy is smaller than this, MiB.
pub(super) const SMALLEST_COPY_MIB: u64 = 16;
/// Bytes that are verified, but for direct copies by copy engine one way, which are verified in full: enough
/// for every staging buffer to be used many times. The check after the timed rows is of all their bytes.
const PART_VERIFY: u64 = 64 * MIB;
/// Where a direct copy is so much faster than a staged one, in theory, nobody stages: some pairs show
/// what it would be.
const FAR_FASTER: f64 = 3.0;

/// Bandwidth between GPUs. The eight placements are always measured for the copy engine, issued by
/// the source, one way.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// Rows of a figure in the reference placement, which must agree.
    pub rows: u32,
    /// Copies in each of them.
    #[serde(default = "two")]
    pub copies: u32,
    /// The same by kernel, both ways and on the staged path, which are compared with each other rather than with
    /// figures of other programs; as many as `copies` where it is left out.
    #[serde(default)]
    pub other_copies: Option<u32>,
    /// Rows of a figure in another placement. One is enough where it agrees with the reference placement.
    #[serde(default = "one")]
    pub placement_rows: u32,
    /// Copies in each of them.
    #[serde(default = "two")]
    pub placement_copies: u32,
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
    EveryPlacement,
}

/// For which pairs the staged path is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Staged {
    /// Those that have no other.
    #[default]
    WithoutPeerAccess,
    /// All, or a ring and one of each class where nobody stages, since direct copies are far faster.
    Sample,
    All,
}

const fn one() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

impl Peers {
    /// The rows of copies of this setup.
    fn timed(&self, setup: Setup) -> Action {
        let (rows, copies) = match setup.placement {
            Placement::REFERENCE if setup.is_plain() => (self.rows, self.copies),
            Placement::REFERENCE => (self.rows, self.other_copies.unwrap_or(self.copies)),
            _ => (self.placement_rows, self.placement_copies),
        };
        Action::Bandwidth { rows, copies }
    }
}

/// The direct pairs whose staged path is measured too. Where it is far slower than the direct one on
/// every pair, these are a ring, in which every GPU sends and receives once, and one of each class of
/// route beside it.
pub(super) fn also_staged(request: &Request<'_>, pairs: &[Pair]) -> BTreeSet<Pair> {
    let direct: Vec<Pair> = pairs
        .iter()
        .copied()
        .filter(|pair| is_direct(request.driver, *pair))
        .collect();
    match request.profile.peers.staged {
        Staged::WithoutPeerAccess => return BTreeSet::new(),
        Staged::Sample if is_thinned_out(request, &direct) => {}
        Staged::Sample | Staged::All => return direct.into_iter().collect(),
    }
    let mut some: BTreeSet<Pair> = direct
        .iter()
        .copied()
        .filter(|pair| is_of_ring(*pair, request.gpus))
        .collect();
    let class = |pair: &Pair| request.topology.route(*pair).map(|route| route.class);
    let mut classes: BTreeSet<_> = some.iter().map(class).collect();
    some.extend(
        direct
            .iter()
            .copied()
            .filter(|pair| classes.insert(class(pair))),
    );
    some
}

/// Whether the staged path is measured for some of the direct pairs only.
pub(super) fn is_thinned_out(request: &Request<'_>, direct: &[Pair]) -> bool {
    let far_faster = |pair: &Pair| {
        let route = request.topology.route(*pair);
        let rates =
            route.and_then(|route| route.theoretical_gbps.zip(route.staged_theoretical_gbps));
        rates.is_some_and(|(direct, staged)| direct.0 >= FAR_FASTER * staged.0)
    };
    // Three GPUs have a ring of three of six pairs.
    direct.len() > 2 && direct.iter().all(far_faster)
}

fn is_of_ring(pair: Pair, gpus: &[u32]) -> bool {
    let place = gpus.iter().position(|gpu| *gpu == pair.source);
    place.is_some_and(|place| gpus[(place + 1) % gpus.len()] == pair.destination)
}

/// The least that is measured of a pair: verification and the reference placement.
pub(super) fn reference(request: &Request<'_>, pair: Pair, buffer: u64, path: Path) -> Vec<Task> {
    if !request.groups.contains(&Group::Peers) {
        return Vec::new();
    }
    let setup = Setup::REFERENCE.with_path(path);
    let route = request.topology.route(pair);
    let bytes = match path {
        Path::Direct => direct_bytes(route.and_then(|route| route.theoretical_gbps), buffer),
        Path::Staged => staged_bytes(
            route.and_then(|route| route.staged_theoretical_gbps),
            buffer,
        ),
    };
    let action = request.profile.peers.timed(setup);
    vec![
        verification(setup, buffer),
        Task {
            setup: setup.with_bytes(bytes),
            action,
        },
    ]
}

/// The verification of copies of this setup.
fn verification(setup: Setup, buffer: u64) -> Task {
    let setup = setup.with_placement(Placement::REFERENCE);
    let bytes = if setup.is_plain() {
        buffer
    } else {
        PART_VERIFY.min(buffer)
    };
    Task {
        setup: setup.with_bytes(Bytes(bytes)),
        action: Action::Verify,
    }
}

/// Bytes of a direct copy.
fn direct_bytes(rate: Option<GbPerSecond>, buffer: u64) -> Bytes {
    Bytes(rate.map_or((UNKNOWN_ROUTE_MIB * MIB).min(buffer), |rate| {
        copy_bytes(rate.0, DIRECT_COPY_MS, buffer)
    }))
}

/// Bytes of a staged copy.
fn staged_bytes(rate: Option<GbPerSecond>, buffer: u64) -> Bytes {
    let most = STAGED_COPY.min(buffer);
    Bytes(rate.map_or(most, |rate| copy_bytes(rate.0, STAGED_COPY_MS, most)))
}

/// Rows of direct copies, each combination behind its verification.
pub(super) fn direct(request: &Request<'_>, pair: Pair, buffer: u64) -> Vec<Task> {
    if !request.groups.contains(&Group::Peers) {
        return Vec::new();
    }
    let mut tasks = Vec::new();
    let peers = &request.profile.peers;
    let rate = request
        .topology
        .route(pair)
        .and_then(|route| route.theoretical_gbps);
    let issuers = [
        (Side::Source, Extent::EveryPlacement),
        (Side::Destination, peers.issued_by_destination),
    ];
    let engines = [
        (Engine::Copy, Extent::EveryPlacement),
        (Engine::Kernel, peers.kernel),
    ];
    let directions = [
        (Direction::OneWay, Extent::EveryPlacement),
        (Direction::BothWays, peers.both_ways),
    ];
    for (engine, by_engine) in engines {
        for (issuer, by_issuer) in issuers {
            for (direction, by_direction) in directions {
                let bytes = direct_bytes(rate, buffer);
                let setup = Setup {
                    issuer,
                    engine,
                    direction,
                    bytes,
                    ..Setup::REFERENCE
                };
                let placements = in_common([by_engine, by_issuer, by_direction]);
                if !placements.is_empty() {
                    tasks.push(verification(setup, buffer));
                }
                tasks.extend(
                    placements
                        .into_iter()
                        .map(|placement| setup.with_placement(placement))
                        .map(|setup| Task {
                            setup,
                            action: peers.timed(setup),
                        }),
                );
            }
        }
    }
    tasks
}

/// The placements in which a combination is measured, where each of its axes says how far it goes.
/// The reference placement measures each axis by itself, and kernels from either side, which write or read;
/// other products of axes belong to `full`.
fn in_common(extents: [Extent; 3]) -> Vec<Placement> {
    let [engine, issuer, direction] = extents;
    if extents.contains(&Extent::None) {
        return Vec::new();
    }
    match extents
        .iter()
        .filter(|&&extent| extent == Extent::Reference)
        .count()
    {
        // The reference placement first: the others are compared with it.
        0 => {
            let others = Placement::all().filter(|placement| *placement != Placement::REFERENCE);
            std::iter::once(Placement::REFERENCE)
                .chain(others)
                .collect()
        }
        1 => vec![Placement::REFERENCE],
        2 if direction == Extent::EveryPlacement && engine == issuer => vec![Placement::REFERENCE],
        _ => Vec::new(),
    }
}

/// Rows of staged copies behind their verification. Without a direct path the staged one is what the pair
/// has: all placements, then.
pub(super) fn staged(request: &Request<'_>, pair: Pair, buffer: u64) -> Vec<Task> {
    let mut tasks = reference(request, pair, buffer, Path::Staged);
    if let (Some(&timed), false) = (tasks.last(), is_direct(request.driver, pair)) {
        let others = Placement::all().filter(|placement| *placement != Placement::REFERENCE);
        let others = others.map(|placement| timed.setup.with_placement(placement));
        tasks.extend(others.map(|setup| Task {
            setup,
            action: request.profile.peers.timed(setup),
        }));
    }
    tasks
}

/// Bytes that take about `milliseconds` at this rate, whole MiB, within the buffer.
pub(super) fn copy_bytes(gbps: f64, milliseconds: f64, buffer: u64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a clamped, positive size"
    )]
    let mib = (gbps * milliseconds * 1e6 / MIB as f64)
        .clamp(0.0, 1e6)
        .ceil() as u64;
    (mib.max(SMALLEST_COPY_MIB) * MIB).min(buffer)
}
