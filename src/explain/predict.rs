//! What a figure would be if some changes were true, and how badly a figure fits that.

use topology::shares::Together;

use super::calibrate::shares;
use super::hypothesis::{Effect, Hypothesis, meet};
use super::item::{Item, Mode, Observation};

/// Most bits of a figure that is lower than predicted: whatever the rest, it is not explained.
const MOST_LOW: f64 = 24.0;
/// Most bits of a figure that is higher than predicted. Each per cent counts for more than of one that is lower: few
/// things make a figure better than the machine allows.
const MOST_HIGH: f64 = 20.0;
const HIGH_FACTOR: f64 = 1.5;

/// Least part of the payload rate that copies have over PCIe. Chosen: through processors 62% are known.
const DETOUR: f64 = 0.55;

/// Tolerance of a figure whose whole group lies below the range of healthy machines: scatter is no excuse for that.
const BELOW_RANGE: f64 = 0.01;

/// Part of a limit that flows get which share it under load. Chosen: sharing costs a little.
const SHARING: f64 = 0.92;

/// The figures that are compatible with a prediction, GB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub low: f64,
    /// Infinite if no change limits the figure: no healthy figure is too fast.
    pub high: f64,
}

/// Returns the interval of every figure of an observation if these changes are true.
pub(crate) fn predict(observation: &Observation, changes: &[&Hypothesis]) -> Vec<Interval> {
    let mut intervals = Vec::with_capacity(observation.items.len());
    for_each(observation, changes, |_, interval| intervals.push(interval));
    intervals
}

fn for_each(
    observation: &Observation,
    changes: &[&Hypothesis],
    mut take: impl FnMut(&Item, Interval),
) {
    let items = observation.items.iter();
    if observation.load.is_some() {
        let intervals = several(observation, changes);
        items.zip(intervals).for_each(|(item, interval)| take(item, interval));
    } else {
        items.for_each(|item| take(item, alone(item, changes)));
    }
}

/// Returns the bits by which a figure does not fit.
pub(crate) fn misfit(item: &Item, interval: Interval) -> f64 {
    let bits = if item.achieved < interval.low {
        ((interval.low / item.achieved).ln() / item.healthy.log_per_bit).min(MOST_LOW)
    } else if item.achieved > interval.high {
        ((item.achieved / interval.high).ln() / item.healthy.log_per_bit * HIGH_FACTOR)
            .min(MOST_HIGH)
    } else {
        0.0
    };
    bits * weight(item)
}

/// Returns the bits by which an observation does not fit.
pub(crate) fn misfits(observation: &Observation, changes: &[&Hypothesis]) -> f64 {
    let mut bits = 0.0;
    for_each(observation, changes, |item, interval| {
        bits += misfit(item, interval);
    });
    bits
}

/// Returns how much a figure is trusted, from 0 to 1. Figures of kernels and of both directions depend on more than
/// links. All flows of a load together count as five figures at most.
fn weight(item: &Item) -> f64 {
    match (item.mode, item.group.load) {
        (Mode::Load, Some((_, flows))) => 0.8 * (5.0 / number(flows)).min(1.0),
        (Mode::Copy | Mode::Host | Mode::Local, _) => 1.0,
        (Mode::Staged | Mode::Load | Mode::HostAtOnce, _) => 0.8,
        (Mode::BothWays, _) => 0.7,
        (Mode::Read, _) => 0.6,
        (Mode::HostBothWays, _) => 0.5,
        (Mode::KernelWrite | Mode::KernelRead, _) => 0.4,
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of flows")]
fn number(flows: usize) -> f64 {
    flows.max(1) as f64
}

fn alone(item: &Item, changes: &[&Hypothesis]) -> Interval {
    let healthy = &item.healthy;
    let (mut low, mut high) = (healthy.rate, healthy.rate);
    let (mut touched, mut is_open, mut is_leveled) = (false, false, healthy.level >= 1.0);
    // The slower of two slow parts in series decides, or each takes its part.
    let mut slowest: f64 = 1.0;
    for change in changes.iter().filter(|change| change.is_on(item)) {
        let sets = change.passed_by(item);
        if sets == 0 || change.under_load {
            continue;
        }
        is_open |= change.is_inside(item);
        match change.effect {
            Effect::Capacity(gbps) => {
                let limits = gbps < healthy.carries;
                touched |= limits;
                low *= (gbps / healthy.carries).min(1.0);
                if limits {
                    low *= healthy.efficiency;
                }
                high = high.min(gbps);
                // Both legs of a staged copy, and both directions of a copy, may share the limit.
                if limits && matches!(item.mode, Mode::Staged | Mode::HostBothWays) {
                    low *= if sets < 2 { 0.6 } else { 0.5 };
                }
            }
            Effect::Factor(factor) => {
                touched = true;
                low *= factor;
                high = high * slowest.min(factor) / slowest;
                slowest = slowest.min(factor);
            }
            Effect::Level => {
                touched |= healthy.level < 1.0;
                is_leveled = true;
                (low, high) = (low * healthy.level, high * healthy.level);
            }
            Effect::Detour => {
                if let Some(gbps) = item.detour {
                    touched = true;
                    (low, high) = (low.min(gbps * DETOUR), high.min(gbps));
                }
            }
        }
    }
    let tolerance = if is_leveled || touched {
        healthy.tolerance
    } else {
        healthy.tolerance.min(BELOW_RANGE.max(healthy.excused))
    };
    Interval {
        low: low * (1.0 - tolerance),
        high: if touched && !is_open { high * (1.0 + healthy.tolerance) } else { f64::INFINITY },
    }
}

/// Predicts the flows of a load: max-min fair shares with the limits of the changes beside those of the links.
fn several(observation: &Observation, changes: &[&Hypothesis]) -> Vec<Interval> {
    let items = &observation.items;
    let Some(load) = &observation.load else {
        return Vec::new();
    };
    let mut is_any_changed = false;
    let mut demands = Vec::with_capacity(items.len());
    for item in items {
        let (mut rate, mut slowest) = (item.healthy.alone, 1.0_f64);
        let on = |change: &&&Hypothesis| change.is_on(item) && change.passed_by(item) > 0;
        for change in changes.iter().filter(on) {
            is_any_changed = true;
            rate = match change.effect {
                Effect::Factor(factor) => {
                    slowest = slowest.min(factor);
                    rate
                }
                Effect::Level => rate * item.healthy.level,
                Effect::Capacity(gbps) if !change.under_load => rate.min(gbps),
                Effect::Detour => item.detour.map_or(rate, |gbps| rate.min(gbps * DETOUR)),
                Effect::Capacity(_) => rate,
            };
        }
        demands.push(rate.min(item.healthy.alone * slowest));
    }
    let shares = if is_any_changed {
        shares(items, load, &demands, &limits(items, changes))
    } else {
        items.iter().map(|item| item.healthy.rate).collect()
    };
    let interval = |(item, share): (&Item, f64)| {
        let healthy = &item.healthy;
        let touched = share < healthy.rate * 0.97;
        let is_open = changes.iter().any(|change| change.is_inside(item));
        // A fitted limit is a measured rate already.
        let sharing = if touched { SHARING } else { 1.0 };
        Interval {
            low: share * healthy.reached.min(1.0) * (1.0 - healthy.tolerance) * sharing,
            high: if touched && !is_open {
                share * healthy.reached.max(1.0) * (1.0 + healthy.tolerance)
            } else {
                f64::INFINITY
            },
        }
    };
    items.iter().zip(shares).map(interval).collect()
}

/// Returns the joint limits that changes put on the flows of a load.
fn limits(items: &[Item], changes: &[&Hypothesis]) -> Vec<Together> {
    let mut limits = Vec::new();
    for change in changes {
        let Effect::Capacity(gbps) = change.effect else {
            continue;
        };
        for set in change.on.iter() {
            let passes = |item: &Item| change.is_on(item) && meet(set, &item.passes);
            let flows: Vec<usize> =
                (0..items.len()).filter(|at| items.get(*at).is_some_and(passes)).collect();
            if flows.len() > usize::from(change.under_load) {
                limits.push(Together { flows, gbps });
            }
        }
    }
    limits
}
