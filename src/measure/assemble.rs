//! From rounds and their outcomes to measurements, with theory and verification beside each figure.

use std::collections::HashMap;

use super::statistics::{median, spread_percent};
use super::{Outcome, Row, Span};
use crate::hardware::ErrorKind;
use crate::model::flow::{Flow, Setup};
use crate::model::measurement::{Latency, Overlap, PeerBandwidth, Status, Verified};
use crate::model::placement::{Direction, Pair, Path, Placement, Side};
use crate::model::topology::Topology;
use crate::model::units::{Bytes, GbPerSecond};
use crate::plan::{Action, FIXED_COST_BYTES, LATENCY_COPIES, Round};

/// The three kinds of measurement that rounds give.
#[derive(Debug, Default)]
pub struct Assembled {
    /// Bandwidth between GPUs.
    pub peer: Vec<PeerBandwidth>,
    /// Overlap of copies with kernels.
    pub overlap: Vec<Overlap>,
    /// Small-copy latency.
    pub latency: Vec<Latency>,
}

/// What a verification found, and what became of its round.
#[derive(Clone)]
struct Verification {
    verified: Verified,
    detail: Option<String>,
    lost: Option<(Status, String)>,
}

/// What a verification vouches for.
type Guard = (Flow, Setup);

/// Measurements of all rounds; a round without outcome was not reached.
pub fn assemble(rounds: &[Round], outcomes: &HashMap<u32, Outcome>, topology: &Topology) -> Assembled {
    let mut assembled = Assembled::default();
    let mut guards: HashMap<Guard, Verification> = HashMap::new();
    let not_reached = Outcome::Lost { status: Status::Skipped, reason: "not reached".into() };
    for round in rounds {
        let outcome = outcomes.get(&round.id).unwrap_or(&not_reached);
        for (at, (&flow, pair)) in round.flows.iter().filter_map(|flow| Some((flow, flow.pair()?))).enumerate() {
            match round.task.action {
                Action::Verify => {
                    guards.insert((flow, round.task.setup.of_any_size()), verification(outcome));
                }
                Action::Bandwidth { .. } => {
                    let guard = guard_of(flow, round.task.setup, &guards);
                    assembled.peer.push(peer(pair, round.task.setup, rates(outcome, at), guard, topology));
                }
                Action::Overlap { compute_on, .. } => {
                    assembled.overlap.push(overlap(pair, round.task.setup, compute_on, outcome));
                }
                Action::Latency { .. } => assembled.latency.push(latency(pair, round.task.setup, outcome)),
            }
        }
    }
    assembled
}

/// The verification that vouches for copies of this setup.
fn guard_of(flow: Flow, setup: Setup, guards: &HashMap<Guard, Verification>) -> Option<&Verification> {
    let as_verified = Setup { placement: Placement::REFERENCE, direction: Direction::OneWay, ..setup.of_any_size() };
    // A copy engine moves the bytes alike whoever enqueues; a kernel pushes or pulls.
    guards.get(&(flow, as_verified)).or_else(|| guards.get(&(flow, as_verified.with_issuer(Side::Source))))
}

/// Status and reason of an outcome without figures.
fn without_figures(outcome: &Outcome) -> (Status, Option<String>) {
    match outcome {
        // What this driver cannot do is no fault of the path.
        Outcome::Failed { error } if error.kind == ErrorKind::Unsupported => {
            (Status::Skipped, Some(error.message.clone()))
        }
        Outcome::Failed { error } => (Status::Failed, Some(error.message.clone())),
        Outcome::Lost { status, reason } => (*status, Some(reason.clone())),
        Outcome::Rows { .. } | Outcome::Overlap { .. } | Outcome::Verified { .. } => {
            (Status::Failed, Some("the worker gave an answer to another question".into()))
        }
    }
}

fn verification(outcome: &Outcome) -> Verification {
    match outcome {
        Outcome::Verified { verified, detail } => {
            Verification { verified: *verified, detail: detail.clone(), lost: None }
        }
        outcome => {
            let (status, reason) = without_figures(outcome);
            let reason = reason.unwrap_or_default();
            let verified = if status == Status::Skipped { Verified::Skipped } else { Verified::Inconclusive };
            Verification { verified, detail: Some(reason.clone()), lost: Some((status, reason)) }
        }
    }
}

/// Times of one flow's copies.
pub(super) struct Rates {
    pub(super) copy_ns: Vec<f64>,
    small_ns: Vec<f64>,
    host_ns: Vec<f64>,
}

/// The times of the flow at this place of a round, or why there are none.
pub(super) fn rates(outcome: &Outcome, at: usize) -> Result<Rates, (Status, Option<String>)> {
    let Outcome::Rows { rows } = outcome else { return Err(without_figures(outcome)) };
    let Some(row) = rows.get(at) else { return Err((Status::Failed, Some("the worker gave no samples".into()))) };
    let counted = |row: &Row| row.copies.get(1..).unwrap_or_default().to_vec();
    let reverse = rows.iter().enumerate().find(|(other, _)| *other != at).map(|(_, row)| row);
    let copy_ns = reverse.map_or_else(|| row.copy_ns(), |reverse| while_both(&counted(row), &counted(reverse)));
    Ok(Rates { copy_ns, small_ns: row.small_ns(), host_ns: row.host_ns.clone() })
}

/// How far a copy may stick out of the time of both directions, as a share of its length.
const SLACK_SHARE: f64 = 0.1;

/// Nanoseconds per copy of one direction while the other was busy too.
///
/// Where the directions run at the same time, the copies that lie within the time of both count as
/// they are: one direction may start a copy later than the other. Where they do not, they take
/// turns, as placements on default streams do: then every copy takes as long as its own turn and
/// the other's.
fn while_both(one: &[Span], other: &[Span]) -> Vec<f64> {
    let all: Vec<f64> = one.iter().map(|span| span.length_ns()).collect();
    let whole = |spans: &[Span]| Some(Span { start_ns: spans.first()?.start_ns, end_ns: spans.last()?.end_ns });
    let (Some(own), Some(others)) = (whole(one), whole(other)) else { return all };
    // Two devices' clocks agree to some microseconds, and neither direction starts exactly when the
    // other does.
    let slack = SLACK_SHARE * median(&all).unwrap_or(0.0);
    let (from, to) = (own.start_ns.max(others.start_ns) - slack, own.end_ns.min(others.end_ns) + slack);
    let within = one.iter().filter(|span| span.start_ns >= from && span.end_ns <= to);
    let within: Vec<f64> = within.map(|span| span.length_ns()).collect();
    if 2 * within.len() >= all.len() {
        return within;
    }
    let together = if to < from {
        own.length_ns() + others.length_ns()
    } else {
        own.end_ns.max(others.end_ns) - own.start_ns.min(others.start_ns)
    };
    all.iter().map(|ns| ns * together / own.length_ns()).collect()
}

fn peer(
    pair: Pair,
    setup: Setup,
    rates: Result<Rates, (Status, Option<String>)>,
    guard: Option<&Verification>,
    topology: &Topology,
) -> PeerBandwidth {
    let route = topology.route(pair);
    let theoretical = route.and_then(|route| match setup.path {
        Path::Direct => route.theoretical_gbps,
        Path::Staged => route.staged_theoretical_gbps,
    });
    let (mut status, mut reason) = (Status::Measured, None);
    let (mut gbps, mut host_ns, mut fixed) = (Vec::new(), Vec::new(), None);
    match rates {
        Ok(rates) => {
            fixed = fixed_cost_ns(setup.bytes, &rates.copy_ns, &rates.small_ns);
            let rate = |ns: &f64| GbPerSecond::of(setup.bytes.0, ns - fixed.unwrap_or(0.0)).0;
            gbps = rates.copy_ns.iter().map(rate).collect();
            host_ns = rates.host_ns;
        }
        Err(why) => {
            (status, reason) = why;
            // When the verification is what hung or crashed, the path itself did, not this cell alone.
            if let (Status::Skipped, Some(Verification { lost: Some((lost, why)), .. })) = (status, guard) {
                (status, reason) = (*lost, Some(why.clone()));
            }
        }
    }
    let achieved = median(&gbps).map(GbPerSecond);
    if status == Status::Measured && achieved.is_none() {
        (status, reason) = (Status::Failed, Some("the worker gave no samples".into()));
    }
    PeerBandwidth {
        pair,
        setup,
        achieved_gbps: achieved,
        theoretical_gbps: theoretical,
        percent: achieved.zip(theoretical).map(|(achieved, theoretical)| achieved.percent_of(theoretical)),
        expected_gbps: None,
        expected_percent: None,
        samples: count(&gbps),
        spread_percent: spread_percent(&gbps),
        fixed_cost_us: fixed.map(|ns| ns / 1e3),
        host_blocked_us: median(&host_ns).map(|ns| ns / 1e3),
        verified: guard.map_or(Verified::Skipped, |guard| guard.verified),
        verification_detail: guard.and_then(|guard| guard.detail.clone()),
        status,
        reason,
    }
}

/// What every copy of a row costs beside its bytes, nanoseconds: two sizes give a line, whose value
/// at no bytes it is. The fastest small copy counts: what varies from copy to copy is not fixed, and
/// taking it out would give figures that no copy has reached. None where there are no small copies,
/// or where the line makes no sense.
#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn fixed_cost_ns(bytes: Bytes, copy_ns: &[f64], small_ns: &[f64]) -> Option<f64> {
    let (large, small) = (median(copy_ns)?, small_ns.iter().copied().reduce(f64::min)?);
    if bytes.0 <= FIXED_COST_BYTES || small >= large {
        return None;
    }
    let per_byte = (large - small) / (bytes.0 - FIXED_COST_BYTES) as f64;
    let fixed = small - per_byte * FIXED_COST_BYTES as f64;
    (0.0..large).contains(&fixed).then_some(fixed)
}

fn overlap(pair: Pair, setup: Setup, compute_on: Side, outcome: &Outcome) -> Overlap {
    let mut cell = Overlap {
        pair,
        placement: setup.placement,
        compute_on,
        bytes: setup.bytes,
        overlap_percent: None,
        host_blocked_us: None,
        copy_us: None,
        kernel_us: None,
        samples: 0,
        status: Status::Measured,
        reason: None,
    };
    if let Outcome::Overlap { samples } = outcome {
        let over =
            |figure: &dyn Fn(&super::OverlapSample) -> f64| median(&samples.iter().map(figure).collect::<Vec<_>>());
        cell.overlap_percent =
            over(&|sample| 100.0 * sample.copy.together_ns(sample.kernel) / sample.kernel.length_ns());
        cell.host_blocked_us = over(&|sample| sample.host_ns / 1e3);
        cell.copy_us = over(&|sample| sample.copy.length_ns() / 1e3);
        cell.kernel_us = over(&|sample| sample.kernel.length_ns() / 1e3);
        cell.samples = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    } else {
        (cell.status, cell.reason) = without_figures(outcome);
    }
    cell
}

fn latency(pair: Pair, setup: Setup, outcome: &Outcome) -> Latency {
    let mut cell = Latency {
        pair,
        path: setup.path,
        bytes: setup.bytes,
        latency_us: None,
        samples: 0,
        spread_percent: None,
        status: Status::Measured,
        reason: None,
    };
    match rates(outcome, 0) {
        Ok(rates) => {
            let copy_ns: Vec<_> = rates.copy_ns.iter().map(|ns| ns / f64::from(LATENCY_COPIES)).collect();
            cell.latency_us = median(&copy_ns).map(|ns| ns / 1e3);
            cell.samples = count(&copy_ns);
            cell.spread_percent = spread_percent(&copy_ns);
        }
        Err(why) => (cell.status, cell.reason) = why,
    }
    cell
}

fn count(samples: &[f64]) -> u32 {
    u32::try_from(samples.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::MIB;

    #[test]
    fn the_fixed_cost_is_found_and_taken_out() {
        // 400 GB/s and 6 µs for every copy.
        let time = |bytes: u64| bytes as f64 / 400.0 + 6000.0;
        let bytes = Bytes(64 * MIB);
        let fixed = fixed_cost_ns(bytes, &[time(bytes.0); 3], &[time(MIB); 3]).unwrap();
        assert!((fixed - 6000.0).abs() < 1e-6, "{fixed}");
        assert!((GbPerSecond::of(bytes.0, time(bytes.0) - fixed).0 - 400.0).abs() < 1e-9);
    }

    #[test]
    fn a_line_that_makes_no_sense_takes_nothing_out() {
        let bytes = Bytes(64 * MIB);
        assert_eq!(fixed_cost_ns(bytes, &[100.0], &[]), None);
        assert_eq!(fixed_cost_ns(bytes, &[100.0], &[200.0]), None);
        assert_eq!(fixed_cost_ns(bytes, &[6400.0], &[50.0]), None);
        assert_eq!(fixed_cost_ns(Bytes(MIB), &[100.0], &[90.0]), None);
    }

    /// Copies that follow each other, from these times.
    fn row(times: [f64; 4]) -> Vec<Span> {
        times.windows(2).map(|ends| Span { start_ns: ends[0], end_ns: ends[1] }).collect()
    }

    #[test]
    fn directions_at_the_same_time_count_as_they_are() {
        assert_eq!(while_both(&row([0.0, 10.0, 20.0, 30.0]), &row([0.5, 10.5, 20.5, 30.5])), [10.0; 3]);
    }

    #[test]
    fn a_direction_that_starts_a_copy_later_is_not_slower() {
        assert_eq!(while_both(&row([0.0, 10.0, 20.0, 30.0]), &row([10.0, 20.0, 30.0, 40.0])), [10.0; 2]);
        assert_eq!(while_both(&row([10.0, 20.0, 30.0, 40.0]), &row([0.0, 10.0, 20.0, 30.0])), [10.0; 2]);
    }

    #[test]
    fn directions_that_take_turns_have_half_each() {
        assert_eq!(while_both(&row([0.0, 10.0, 20.0, 30.0]), &row([50.0, 60.0, 70.0, 80.0])), [20.0; 3]);
        assert_eq!(while_both(&row([50.0, 60.0, 70.0, 80.0]), &row([0.0, 10.0, 20.0, 30.0])), [20.0; 3]);
    }
}
