//! Plans of bandwidth between GPUs: the copies, their sizes, and the verification before them.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::{Group, Request, Task};
use model::flow::Setup;
use model::placement::{Direction, Engine, Pair, Path, Placement, Side};
use model::units::{Bytes, GbPerSecond, MIB};

/// Time that one copy of a direct measurement should take, milliseconds. The longer it is, the less its fixed cost
/// and the events around a row matter. On H200 with 1 GiB of memory, a copy has 510 MiB, about as many as
/// nvbandwidth's (512), and agrees within 0.1% (docs/dev/method.md).
pub(crate) const DIRECT_COPY_MS: f64 = 1.2;
/// Size of a staged copy. It is as fast as larger ones: 37.3 of 37.5 GB/s on H200 (docs/dev/facts.md, "Copies through
/// host memory").
const STAGED_COPY: u64 = 64 * MIB;
/// Longest time that a staged copy should take, milliseconds.
const STAGED_COPY_MS: f64 = 4.0;
/// Size of the copies that show the cost of a copy beside its bytes.
pub(crate) const FIXED_COST_BYTES: u64 = MIB;
/// Number of these copies in a row.
pub(crate) const FIXED_COST_COPIES: u32 = 16;
/// Size of copies on a direct route whose rate is not known, MiB.
const UNKNOWN_ROUTE_MIB: u64 = 256;
/// Size of the smallest measured copy, MiB.
pub(crate) const SMALLEST_COPY_MIB: u64 = 16;
/// Longest time that the verification of direct one-way copies by copy engine should take at the theoretical rate, milliseconds,
/// unless it is that of [`PART_VERIFY`]. Chosen: ten GPUs have 90 ordered pairs, and behind risers 510 MiB each would take minutes.
const VERIFY_MS: f64 = 50.0;
/// Bytes of all other verifications, and the fewest of these. They are
/// enough to use every staging buffer many times. The check after the timed rows covers all their bytes.
const PART_VERIFY: u64 = 64 * MIB;
/// Ratio of direct to staged theoretical rate from which nobody stages. Only some pairs then show the staged rate.
const FAR_FASTER: f64 = 3.0;

/// Bandwidth between GPUs. The eight placements are always measured for the copy engine, issued by the source, one
/// way.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Rows of a figure in the reference placement, which must agree with each other.
    pub rows: u32,
    /// Copies in each of these rows.
    #[serde(default = "two")]
    pub copies: u32,
    /// Copies in each row by kernel, both ways and on the staged path. These figures are compared with each other
    /// rather than with figures of other programs. Defaults to `copies`.
    #[serde(default)]
    pub other_copies: Option<u32>,
    /// Rows of a figure in another placement. One is enough if it agrees with the reference placement.
    #[serde(default = "one")]
    pub placement_rows: u32,
    /// Copies in each of these rows.
    #[serde(default = "two")]
    pub placement_copies: u32,
    /// True for plain copies on every kind of stream, on a ring of pairs.
    #[serde(default)]
    pub every_stream: bool,
    /// Extent of copies issued by the destination.
    #[serde(default)]
    pub issued_by_destination: Extent,
    /// Extent of copies by kernel.
    #[serde(default)]
    pub kernel: Extent,
    /// Extent of copies with both directions busy.
    #[serde(default)]
    pub both_ways: Extent,
    /// Pairs on which the staged path is measured.
    #[serde(default)]
    pub staged: Staged,
}

/// The extent to which an axis is measured.
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

/// The pairs on which the staged path is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Staged {
    /// Pairs that have no direct path.
    #[default]
    WithoutPeerAccess,
    /// All pairs. If nobody stages because direct copies are far faster, a ring and one pair of each class.
    Sample,
    All,
}

const fn one() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

impl Parameters {
    /// Returns the timing action for copies of this setup.
    fn timed(&self, setup: Setup) -> super::Bandwidth {
        let (rows, copies) = match setup.placement {
            Placement::REFERENCE if setup.is_plain() => (self.rows, self.copies),
            Placement::REFERENCE => (self.rows, self.other_copies.unwrap_or(self.copies)),
            _ => (self.placement_rows, self.placement_copies),
        };
        super::Bandwidth { rows, copies }
    }
}

/// Returns the direct pairs whose staged path is measured too. If it is far slower than the direct one on every pair,
/// these are a ring and one pair of each other class of route. In the ring, every GPU sends and receives once.
pub(crate) fn also_staged(request: &Request<'_>, pairs: &[Pair]) -> BTreeSet<Pair> {
    let direct: Vec<Pair> =
        pairs.iter().copied().filter(|pair| request.driver.is_direct(*pair)).collect();
    match request.profile.peers.staged {
        Staged::WithoutPeerAccess => return BTreeSet::new(),
        Staged::Sample if is_thinned_out(request, &direct) => {}
        Staged::Sample | Staged::All => return direct.into_iter().collect(),
    }
    let mut some: BTreeSet<Pair> =
        direct.iter().copied().filter(|pair| request.is_of_ring(*pair)).collect();
    let class = |pair: &Pair| request.topology.route(*pair).map(|route| route.class);
    let mut classes: BTreeSet<_> = some.iter().map(class).collect();
    some.extend(direct.iter().copied().filter(|pair| classes.insert(class(pair))));
    some
}

/// Returns true if the staged path is measured for only some of the direct pairs.
pub(crate) fn is_thinned_out(request: &Request<'_>, direct: &[Pair]) -> bool {
    let far_faster = |pair: &Pair| {
        let route = request.topology.route(*pair);
        let rates =
            route.and_then(|route| route.theoretical_gbps.zip(route.staged_theoretical_gbps));
        rates.is_some_and(|(direct, staged)| direct.0 >= FAR_FASTER * staged.0)
    };
    // Three GPUs have a ring of three of six pairs.
    direct.len() > 2 && direct.iter().all(far_faster)
}

/// Returns the minimum for a pair: verification and the reference placement.
pub(crate) fn reference(request: &Request<'_>, pair: Pair, buffer: u64, path: Path) -> Vec<Task> {
    if !request.groups.contains(&Group::Peers) {
        return Vec::new();
    }
    let setup = Setup::REFERENCE.with_path(path);
    let route = request.topology.route(pair);
    let bytes = match path {
        Path::Direct => direct_bytes(route.and_then(|route| route.theoretical_gbps), buffer),
        Path::Staged => staged_bytes(route.and_then(|route| route.staged_theoretical_gbps), buffer),
    };
    let action = request.profile.peers.timed(setup);
    vec![
        verification(setup, route.and_then(|route| route.theoretical_gbps), buffer),
        Task::new(setup.with_bytes(bytes), action),
    ]
}

/// Returns the verification of copies of this setup on a direct route of this rate: of the whole buffer if the copies are plain, unless the
/// link is slow.
fn verification(setup: Setup, direct: Option<GbPerSecond>, buffer: u64) -> Task {
    let setup = setup.with_placement(Placement::REFERENCE);
    let part = PART_VERIFY.min(buffer);
    let bytes = match direct {
        _ if !setup.is_plain() => part,
        Some(rate) => copy_bytes(rate.0, VERIFY_MS, buffer).max(part),
        None => buffer,
    };
    Task::new(setup.with_bytes(Bytes(bytes)), super::Verify {})
}

/// Returns the bytes of a direct copy.
fn direct_bytes(rate: Option<GbPerSecond>, buffer: u64) -> Bytes {
    Bytes(rate.map_or((UNKNOWN_ROUTE_MIB * MIB).min(buffer), |rate| {
        copy_bytes(rate.0, DIRECT_COPY_MS, buffer)
    }))
}

/// Returns the bytes of a staged copy.
fn staged_bytes(rate: Option<GbPerSecond>, buffer: u64) -> Bytes {
    let most = STAGED_COPY.min(buffer);
    Bytes(rate.map_or(most, |rate| copy_bytes(rate.0, STAGED_COPY_MS, most)))
}

/// Returns the rows of direct copies, each combination after its verification.
pub(crate) fn direct(request: &Request<'_>, pair: Pair, buffer: u64) -> Vec<Task> {
    if !request.groups.contains(&Group::Peers) {
        return Vec::new();
    }
    let mut tasks = Vec::new();
    let peers = &request.profile.peers;
    let rate = request.topology.route(pair).and_then(|route| route.theoretical_gbps);
    let issuers =
        [(Side::Source, Extent::EveryPlacement), (Side::Destination, peers.issued_by_destination)];
    let engines = [(Engine::Copy, Extent::EveryPlacement), (Engine::Kernel, peers.kernel)];
    let directions =
        [(Direction::OneWay, Extent::EveryPlacement), (Direction::BothWays, peers.both_ways)];
    for (engine, by_engine) in engines {
        for (issuer, by_issuer) in issuers {
            for (direction, by_direction) in directions {
                let bytes = direct_bytes(rate, buffer);
                let setup = Setup { issuer, engine, direction, bytes, ..Setup::REFERENCE };
                let placements = in_common([by_engine, by_issuer, by_direction]);
                if !placements.is_empty() {
                    tasks.push(verification(setup, rate, buffer));
                }
                let others = Placement::every().filter(|one| !one.is_of_experiment());
                let is_wanted = peers.every_stream
                    && setup.is_plain()
                    && issuer == Side::Source
                    && request.has_every_stream(pair);
                tasks.extend(
                    placements
                        .into_iter()
                        .chain(others.filter(|_| is_wanted))
                        .map(|placement| setup.with_placement(placement))
                        .map(|setup| Task::new(setup, peers.timed(setup))),
                );
            }
        }
    }
    tasks
}

/// Returns the placements in which a combination is measured, given the extent of each axis. The reference placement
/// measures each axis alone, kernels on either side, which write or read, and reads both ways. Other products of axes belong
/// to `full`.
fn in_common(extents: [Extent; 3]) -> Vec<Placement> {
    let [engine, issuer, direction] = extents;
    if extents.contains(&Extent::None) {
        return Vec::new();
    }
    match extents.iter().filter(|&&extent| extent == Extent::Reference).count() {
        // The reference placement comes first, because the others are compared with it.
        0 => {
            let others = Placement::all().filter(|placement| *placement != Placement::REFERENCE);
            std::iter::once(Placement::REFERENCE).chain(others).collect()
        }
        1 => vec![Placement::REFERENCE],
        2 if engine == Extent::EveryPlacement
            || direction == Extent::EveryPlacement && engine == issuer =>
        {
            vec![Placement::REFERENCE]
        }
        _ => Vec::new(),
    }
}

/// Returns the rows of staged copies after their verification. Without a direct path, the pair has only the staged
/// one, which is then measured in all placements.
pub(crate) fn staged(request: &Request<'_>, pair: Pair, buffer: u64) -> Vec<Task> {
    let mut tasks = reference(request, pair, buffer, Path::Staged);
    if let (Some(&timed), false) = (tasks.last(), request.driver.is_direct(pair)) {
        let others = Placement::all().filter(|placement| *placement != Placement::REFERENCE);
        let others = others.map(|placement| timed.setup.with_placement(placement));
        tasks.extend(others.map(|setup| Task::new(setup, request.profile.peers.timed(setup))));
    }
    tasks
}

/// Returns the bytes that take about `milliseconds` at this rate, in whole MiB, within the buffer.
pub(crate) fn copy_bytes(gbps: f64, milliseconds: f64, buffer: u64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a clamped, positive size"
    )]
    let mib = (gbps * milliseconds * 1e6 / MIB as f64).clamp(0.0, 1e6).ceil() as u64;
    (mib.max(SMALLEST_COPY_MIB) * MIB).min(buffer)
}
