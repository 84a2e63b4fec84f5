//! From rounds and their outcomes to measurements, with theory and verification beside each figure.

use std::collections::HashMap;

use super::Outcome;
use super::statistics::{median, spread_percent};
use crate::hardware::ErrorKind;
use crate::model::measurement::{Latency, Overlap, PeerBandwidth, Status, Verified};
use crate::model::placement::{Direction, Engine, Pair, Path, Side};
use crate::model::topology::Topology;
use crate::model::units::{Bytes, GbPerSecond};
use crate::plan::{FIXED_COST_BYTES, LATENCY_BYTES, Round, Task};

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

/// A verification by what it stands for.
type Guard = (Pair, Engine, Side, Path);

/// Measurements of all rounds; a round without outcome was not reached.
pub fn assemble(rounds: &[Round], outcomes: &HashMap<u32, Outcome>, topology: &Topology) -> Assembled {
    let mut assembled = Assembled::default();
    let mut guards: HashMap<Guard, Verification> = HashMap::new();
    let not_reached = Outcome::Lost { status: Status::Skipped, reason: "not reached".into() };
    for round in rounds {
        let outcome = outcomes.get(&round.id).unwrap_or(&not_reached);
        match &round.task {
            Task::Verify { engine, issuer, path, .. } => {
                guards.insert((round.pair, *engine, *issuer, *path), verification(outcome));
            }
            Task::Bandwidth { .. } => assembled.peer.extend(peer(round, outcome, &guards, topology)),
            Task::Overlap { .. } => assembled.overlap.extend(overlap(round, outcome)),
            Task::Latency { .. } => assembled.latency.extend(latency(round, outcome)),
        }
    }
    assembled
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
        Outcome::Times { .. } | Outcome::Overlap { .. } | Outcome::Verified { .. } => {
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

fn peer(
    round: &Round,
    outcome: &Outcome,
    guards: &HashMap<Guard, Verification>,
    topology: &Topology,
) -> Option<PeerBandwidth> {
    let Task::Bandwidth { placement, issuer, engine, direction, path, bytes, .. } = round.task.clone() else {
        return None;
    };
    // A copy engine moves the bytes alike whoever enqueues; a kernel pushes or pulls.
    let guard = guards
        .get(&(round.pair, engine, issuer, path))
        .or_else(|| guards.get(&(round.pair, engine, Side::Source, path)));
    let route = topology.route(round.pair);
    let theoretical = route.and_then(|route| match path {
        Path::Direct => route.theoretical_gbps,
        Path::Staged => route.staged_theoretical_gbps,
    });
    let (mut status, mut reason) = (Status::Measured, None);
    let (mut rates, mut host_ns, mut fixed) = (Vec::new(), Vec::new(), None);
    if let Outcome::Times { copy_ns, small_ns, host_ns: host } = outcome {
        fixed = fixed_cost_ns(bytes, copy_ns, small_ns);
        rates = copy_ns.iter().map(|&ns| GbPerSecond::of(bytes.0, ns - fixed.unwrap_or(0.0)).0).collect();
        host_ns.clone_from(host);
    } else {
        (status, reason) = without_figures(outcome);
        // When the verification is what hung or crashed, the path itself did, not this cell alone.
        if let (Status::Skipped, Some(Verification { lost: Some((lost, why)), .. })) = (status, guard) {
            (status, reason) = (*lost, Some(why.clone()));
        }
    }
    let achieved = median(&rates).map(GbPerSecond);
    if status == Status::Measured && achieved.is_none() {
        (status, reason) = (Status::Failed, Some("the worker gave no samples".into()));
    }
    Some(PeerBandwidth {
        pair: round.pair,
        placement,
        issuer,
        engine,
        direction,
        path,
        bytes,
        achieved_gbps: achieved,
        theoretical_gbps: theoretical,
        percent: achieved.zip(theoretical).map(|(achieved, theoretical)| achieved.percent_of(theoretical)),
        expected_gbps: None,
        expected_percent: None,
        samples: count(&rates),
        spread_percent: spread_percent(&rates),
        fixed_cost_us: fixed.map(|ns| ns / 1e3),
        host_blocked_us: median(&host_ns).map(|ns| ns / 1e3),
        verified: guard.map_or(Verified::Skipped, |guard| guard.verified),
        verification_detail: guard.and_then(|guard| guard.detail.clone()),
        status,
        reason,
    })
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

fn overlap(round: &Round, outcome: &Outcome) -> Option<Overlap> {
    let Task::Overlap { placement, compute_on, bytes, .. } = round.task.clone() else { return None };
    let mut cell = Overlap {
        pair: round.pair,
        placement,
        compute_on,
        bytes,
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
        cell.overlap_percent = over(&|sample| 100.0 * sample.both_ns / sample.kernel_ns);
        cell.host_blocked_us = over(&|sample| sample.host_ns / 1e3);
        cell.copy_us = over(&|sample| sample.copy_ns / 1e3);
        cell.kernel_us = over(&|sample| sample.kernel_ns / 1e3);
        cell.samples = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    } else {
        (cell.status, cell.reason) = without_figures(outcome);
    }
    Some(cell)
}

fn latency(round: &Round, outcome: &Outcome) -> Option<Latency> {
    let Task::Latency { path, .. } = round.task.clone() else { return None };
    let mut cell = Latency {
        pair: round.pair,
        path,
        bytes: Bytes(LATENCY_BYTES),
        latency_us: None,
        samples: 0,
        spread_percent: None,
        status: Status::Measured,
        reason: None,
    };
    if let Outcome::Times { copy_ns, .. } = outcome {
        cell.latency_us = median(copy_ns).map(|ns| ns / 1e3);
        cell.samples = count(copy_ns);
        cell.spread_percent = spread_percent(copy_ns);
    } else {
        (cell.status, cell.reason) = without_figures(outcome);
    }
    Some(cell)
}

fn count(samples: &[f64]) -> u32 {
    u32::try_from(samples.len()).unwrap_or(u32::MAX)
}

/// What a round measures, for people: progress and reasons.
pub fn describe(task: &Task) -> String {
    match task {
        Task::Verify { engine, path, .. } => format!("verification of the {path} path ({engine})"),
        Task::Bandwidth { placement, issuer, engine, direction, path, .. } => {
            let mut text = format!("{placement}");
            if *issuer == Side::Destination {
                text.push_str(", issued by destination");
            }
            if *engine == Engine::Kernel {
                text.push_str(", kernel");
            }
            if *direction == Direction::BothWays {
                text.push_str(", both ways");
            }
            if *path == Path::Staged {
                text.push_str(", staged");
            }
            text
        }
        Task::Overlap { placement, compute_on, .. } => format!("overlap {placement}, kernel on {compute_on}"),
        Task::Latency { path, .. } => format!("latency, {path}"),
    }
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
}
