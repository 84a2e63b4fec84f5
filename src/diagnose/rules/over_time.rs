//! Facts that the rules on hours under load have in common.

use std::sync::LazyLock;

use super::prelude::*;
use model::soak::{MinuteOfGpu, mean};

/// Minutes at both ends that are compared.
pub(super) const AT_ENDS: usize = 5;
/// Minutes at the start that are left out of longer soaks: clocks and links settle.
const SETTLING: usize = 4;
/// Fewest minutes that show a trend.
const LEAST: usize = 8;
/// Number of standard errors by which a mean must differ. Chosen: one of some hundred paths exceeds it by chance in one
/// of a thousand soaks.
const ERRORS: f64 = 5.0;

/// Returns the hours under load; empty ones if there were none.
pub(super) fn soak<'a>(evidence: &Evidence<'a>) -> &'a Soak {
    static NONE: LazyLock<Soak> = LazyLock::new(Soak::default);
    evidence.measured().soak.as_deref().unwrap_or(&NONE)
}

/// Returns the minutes whose means stand for the start and for the end, by their places.
fn ends(minutes: usize) -> Option<[std::ops::Range<usize>; 2]> {
    if minutes < LEAST {
        return None;
    }
    let settled = SETTLING.min(minutes - LEAST);
    let some = AT_ENDS.min((minutes - settled) / 2);
    Some([settled..settled + some, minutes - some..minutes])
}

/// Means of a figure at the start and at the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ends {
    pub first: f64,
    pub last: f64,
}

impl Ends {
    /// Returns the ends of a figure over the minutes, if it has enough of them.
    fn of(values: &[f64]) -> Option<Self> {
        let [first, last] = ends(values.len())?;
        let of = |range: std::ops::Range<usize>| mean(values.get(range)?.iter().copied());
        Some(Self { first: of(first)?, last: of(last)? })
    }

    /// Returns the loss from the start to the end, per cent.
    pub(super) fn lost_percent(self) -> f64 {
        100.0 * (self.first - self.last) / self.first.max(f64::MIN_POSITIVE)
    }
}

/// The figure that a rate at the end is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// Its own rate in the first minutes.
    Start,
    /// The prediction from its copies alone in the check, and from the links that it shares.
    Check,
}

/// A path whose rate fell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fallen<'a> {
    pub path: &'a SoakPath,
    pub rate: Ends,
    pub since: Since,
}

impl Fallen<'_> {
    /// Returns the GPUs at its ends.
    pub(super) fn gpus(&self) -> Vec<u32> {
        let mut gpus: Vec<u32> = self.path.flow().gpus().collect();
        gpus.dedup();
        gpus
    }
}

/// Returns the paths whose rate fell by more than this, and by more than their minutes scatter. Minutes in which another
/// program used one of their GPUs do not count.
pub(super) fn fallen(soak: &Soak, percent: f64) -> Vec<Fallen<'_>> {
    let of = |(number, path)| {
        if competes(soak, path) {
            return None;
        }
        let rates = free_rates(soak, number, path);
        let rate = Ends::of(&rates)?;
        let enough = rate.lost_percent() > percent
            && rate.first - rate.last > ERRORS * standard_error(&rates);
        let since = Since::Start;
        enough.then_some(Fallen { path, rate, since })
    };
    soak.numbered().filter_map(of).collect()
}

/// Returns the rates of a path, without minutes in which another program used one of its GPUs.
pub(super) fn free_rates(soak: &Soak, number: u32, path: &SoakPath) -> Vec<f64> {
    let busy = busy(soak, &path.flow().gpus().collect::<Vec<_>>());
    let is_free = |until: f64| !busy.iter().any(|span| span.contains(&until));
    soak.of_path(number)
        .filter(|(until, _)| is_free(*until))
        .map(|(_, minute)| minute.gbps)
        .collect()
}

/// Returns true if another flow of its arrangement leaves the same GPU, or arrives there. What one of them loses the other
/// gains, and the engines of a GPU take turns: no trend of one alone says anything about its link.
pub(super) fn competes(soak: &Soak, path: &SoakPath) -> bool {
    let same = |one: &model::flow::Endpoint, other: &model::flow::Endpoint| {
        one.gpu().is_some() && one.gpu() == other.gpu()
    };
    soak.paths.iter().any(|other| {
        other.pattern == path.pattern
            && other.of == path.of
            && other.flow() != path.flow()
            && (same(&other.from, &path.from) || same(&other.to, &path.to))
    })
}

/// Returns the spans of time in which other programs used one of these GPUs, seconds.
fn busy(soak: &Soak, gpus: &[u32]) -> Vec<std::ops::Range<f64>> {
    let of_gpu = |event: &&SoakEvent| event.gpu.is_some_and(|gpu| gpus.contains(&gpu));
    let of_gpus = || soak.events.iter().filter(of_gpu);
    let began = of_gpus().filter(|event| event.kind == EventKind::ProgramBegan);
    began
        .map(|began| {
            let ended = of_gpus().find(|event| {
                event.kind == EventKind::ProgramEnded
                    && event.gpu == began.gpu
                    && event.at_s > began.at_s
            });
            // Programs are read once a second; each minute that one touches is left out, and one around it.
            let to = ended.map_or(f64::INFINITY, |ended| ended.at_s + 60.0);
            began.at_s - 60.0..to
        })
        .collect()
}

/// Returns the standard error of the difference of the two means, from the differences of successive minutes: a trend does
/// not widen it.
fn standard_error(values: &[f64]) -> f64 {
    let steps = values.windows(2).map(|two| (two[1] - two[0]).abs());
    let middle = scatter::middle(steps).unwrap_or(0.0);
    // 1.4826 times the median of absolute values is the standard deviation of a normal distribution; a difference has
    // twice the variance of its parts.
    let deviation = 1.4826 * middle / f64::sqrt(2.0);
    let some = AT_ENDS as f64;
    deviation * f64::sqrt(2.0 / some)
}

/// Returns the ends of a figure of a GPU.
pub(super) fn of_gpu(
    soak: &Soak,
    gpu: u32,
    figure: fn(&MinuteOfGpu) -> Option<f64>,
) -> Option<Ends> {
    let values = soak.of_gpu(gpu).filter_map(|(_, minute)| figure(minute));
    Ends::of(&values.collect::<Vec<_>>())
}

/// Returns the GPU of a path whose clocks lost most, with its clock: that of its multiprocessors or of its memory. The
/// clock is compared with what the path's rate is compared with: the first minutes, or, for a rate of the check, the
/// highest that this GPU and others of its model had.
fn clock_loss(evidence: &Evidence<'_>, soak: &Soak, fallen: &Fallen<'_>) -> Option<(u32, Ends)> {
    let model = |gpu| evidence.snapshot.gpu(gpu).map(|gpu| &gpu.name);
    let of = |gpu: u32, figure: fn(&MinuteOfGpu) -> Option<f64>| match fallen.since {
        Since::Start => of_gpu(soak, gpu, figure),
        Since::Check => {
            let clocks = |gpu| soak.of_gpu(gpu).filter_map(move |(_, own)| figure(own));
            let own: Vec<f64> = clocks(gpu).collect();
            let last = mean(own[own.len().saturating_sub(AT_ENDS)..].iter().copied())?;
            let alike = soak.gpus().into_iter().filter(|other| model(*other) == model(gpu));
            let first = alike.flat_map(clocks).fold(last, f64::max);
            Some(Ends { first, last })
        }
    };
    let clocks = fallen.gpus().into_iter().flat_map(|gpu| {
        let figures: [fn(&MinuteOfGpu) -> Option<f64>; 2] =
            [|own| own.sm_clock_mhz, |own| own.memory_clock_mhz];
        figures.into_iter().filter_map(move |figure| Some((gpu, of(gpu, figure)?)))
    });
    words::largest(clocks, |(_, clock)| clock.lost_percent())
}

/// Part of a rate's loss that a loss of clocks must reach to account for it. Chosen: rates follow clocks at most in
/// proportion.
const PART: f64 = 0.5;

/// Returns the GPU whose falling clocks account for the loss of this path, with its clock.
pub(super) fn held_back(
    evidence: &Evidence<'_>,
    soak: &Soak,
    fallen: &Fallen<'_>,
) -> Option<(u32, Ends)> {
    clock_loss(evidence, soak, fallen)
        .filter(|(_, clock)| clock.lost_percent() >= PART * fallen.rate.lost_percent())
}

/// Returns the whole minutes that have passed, in words.
pub(super) fn after(seconds: f64) -> String {
    let minutes = seconds / 60.0;
    if minutes < 100.0 {
        format!("{:.0} min", minutes.floor())
    } else {
        format!("{:.1} h", minutes / 60.0)
    }
}

/// Paths of what may be one part of the machine.
pub(super) struct OfPlace<'a, T> {
    pub subject: Subject,
    /// The pairs; none if they are with the host or within a GPU.
    pub pairs: Vec<Pair>,
    /// The GPU that all of them have, or all of theirs.
    pub gpus: Vec<u32>,
    pub of: Vec<&'a T>,
}

/// Groups bad paths: those between GPUs by what they have in common, the others by their GPUs.
pub(super) fn by_place<'a, T>(
    evidence: &Evidence<'_>,
    soak: &Soak,
    bad: &'a [T],
    path: impl Fn(&T) -> &SoakPath,
) -> Vec<OfPlace<'a, T>> {
    let pair = |one: &T| path(one).flow().pair();
    let all: Vec<&T> = bad.iter().collect();
    let groups = evidence.places(&all, &pairs(soak.paths.iter()), |one| pair(one)).into_iter();
    let of_group = |(group, of): (cluster::Group, Vec<&'a T>)| OfPlace {
        subject: group.subject(),
        gpus: group.gpus(),
        of,
        pairs: group.pairs,
    };
    let others = bad.iter().filter(|one| pair(one).is_none());
    let others = words::grouped(others.map(|one| (words::unique(path(one).flow().gpus()), one)));
    let of_gpus = others.into_iter().map(|(gpus, of)| OfPlace {
        subject: Subject::of_gpus(&gpus),
        pairs: Vec::new(),
        gpus,
        of,
    });
    groups.map(of_group).chain(of_gpus).collect()
}

impl<T> OfPlace<'_, T> {
    /// Returns the finding with the pairs or the GPUs of its paths.
    pub(super) fn mark(&self, found: Finding) -> Finding {
        match self.pairs.as_slice() {
            [] => found.gpus(&self.gpus),
            pairs => found.pairs(pairs),
        }
    }
}

/// Returns the pairs of paths between GPUs.
pub(super) fn pairs<'a>(paths: impl Iterator<Item = &'a SoakPath>) -> Vec<Pair> {
    words::unique(paths.filter_map(|path| path.flow().pair()))
}

/// Hours under load for tests of rules.
#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use model::flow::Flow;
    use model::load::Pattern;
    use model::soak::{Minute, MinuteOfPath};

    /// Returns an hour of a ring over these GPUs, as healthy ones have it; `change` alters a path's rate or a GPU's readings
    /// by minute.
    pub(in super::super) fn hour(
        gpus: u32,
        rate: impl Fn(Pair, f64) -> f64,
        change: impl Fn(u32, f64, &mut MinuteOfGpu),
    ) -> Soak {
        let ring = (0..gpus).map(|gpu| Pair { source: gpu, destination: (gpu + 1) % gpus });
        let ring: Vec<Pair> = ring.collect();
        let minute = |number: u32| {
            let minute = f64::from(number);
            // A scatter of 0.1%, as H200 has it from minute to minute.
            let scatter = 1.0 + 0.001 * f64::from(number * 7 % 5) / 5.0;
            let paths = ring.iter().zip(0..).map(|(pair, path)| {
                let gbps = rate(*pair, minute) * scatter;
                MinuteOfPath {
                    path,
                    lowest_gbps: gbps,
                    gbps,
                    bytes: 6_000_000_000_000,
                    verified_bytes: 1_000_000_000,
                    wrong: 0,
                    slowed_percent: None,
                }
            });
            let gpus = (0..gpus).map(|gpu| {
                let mut own = MinuteOfGpu {
                    gpu,
                    temperature_c: Some(60.0),
                    temperature_max_c: Some(61),
                    sm_clock_mhz: Some(1980.0),
                    memory_clock_mhz: Some(3201.0),
                    link: Some([5, 16]),
                    replays_added: Some(0),
                    ecc_uncorrected_added: Some(0),
                    nvlink_errors: Some(Vec::new()),
                    ..MinuteOfGpu::default()
                };
                change(gpu, minute, &mut own);
                own
            });
            Minute { until_s: 60.0 * minute, gpus: gpus.collect(), paths: paths.collect() }
        };
        let paths = ring.iter().map(|pair| {
            let Flow { from, to } = Flow::from(*pair);
            SoakPath { pattern: Some(Pattern::Ring), of: String::new(), from, to }
        });
        let mut soak = Soak {
            requested_seconds: 3600.0,
            seconds: 3600.0,
            rounds: 360,
            paths: paths.collect(),
            minutes: (1..=60).map(minute).collect(),
            ..Soak::default()
        };
        soak.find_equilibrium();
        soak
    }

    /// Returns the findings on eight H200 after these hours.
    pub(in super::super) fn after(soak: Soak) -> Vec<Finding> {
        let mut machine = crate::testing::prelude::h200_vm(8);
        machine.host.virtual_machine = model::reading::Reading::Known(false);
        let measurements = Measurements {
            soak: Some(Box::new(soak)),
            ..crate::testing::prelude::measured(&machine, 0.88)
        };
        crate::testing::prelude::findings(&machine, Some(&measurements))
    }

    #[test]
    fn a_healthy_hour_has_no_finding() {
        assert_eq!(after(hour(8, |_, _| 395.0, |_, _, _| ())), []);
    }
}
