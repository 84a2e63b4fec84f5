//! Shared evaluation of the outcomes of every probe: the times of one flow, or the reason why there are none.

use crate::bench::check::Check;
use crate::statistics::{median, settled, slow};
use crate::{Outcome, Row, Span};
use hardware::ErrorKind;
use model::status::{Ending, Status};

/// Returns the ending of a round whose answer has no figures.
pub(crate) fn no_samples() -> Ending {
    Ending::without(Status::Failed, Some("the worker gave no samples".into()))
}

/// Returns the ending of an outcome without figures.
pub(crate) fn without_figures(outcome: &Outcome) -> Ending {
    let (status, reason) = match outcome {
        // An action that the driver does not support, or that this process was prevented from, is no fault of the path.
        Outcome::Failed { error } if error.kind.is_lack() || error.kind == ErrorKind::Hindered => {
            (Status::Skipped, error.message.as_str())
        }
        Outcome::Failed { error } => (Status::Failed, error.message.as_str()),
        Outcome::Lost { status, reason } => (*status, reason.as_str()),
        _ => (Status::Failed, "the worker gave an answer to another question"),
    };
    Ending {
        not_supported: matches!(outcome, Outcome::Failed { error } if error.kind == ErrorKind::Impossible),
        ..Ending::without(status, Some(reason.to_owned()))
    }
}

/// Times of one flow's copies.
#[derive(Default)]
pub(crate) struct Rates {
    pub(crate) copy_ns: Vec<f64>,
    pub(crate) small_ns: Vec<f64>,
    pub(crate) host_ns: Vec<f64>,
    pub(crate) at_once: u32,
    /// Rows that took far longer than others, with those that ran before the figure had settled.
    pub(crate) slow_rows: u32,
    pub(crate) check: Option<Check>,
}

/// Returns the times of the flow at this place of a round, or the reason why there are none.
pub(crate) fn rates(outcome: &Outcome, at: usize) -> Result<Rates, Ending> {
    let Outcome::Rows { rows } = outcome else {
        return Err(without_figures(outcome));
    };
    let Some(row) = rows.get(at) else {
        return Err(no_samples());
    };
    let reverse = rows.iter().enumerate().find(|(other, _)| *other != at).map(|(_, row)| row);
    let copy_ns = match reverse {
        Some(reverse) if !at_the_same_time(row, reverse) => both_ways(&row.marked, &reverse.marked),
        _ => settled(&row.copy_ns()).to_vec(),
    };
    let (small_ns, host_ns) = (row.small_ns(), row.host_ns.clone());
    Ok(Rates {
        copy_ns,
        small_ns,
        host_ns,
        at_once: row.at_once,
        slow_rows: count(&slow(&row.copy_ns())),
        check: row.check.clone(),
    })
}

/// Largest distance between the rows of two directions at either end, as a share of their length. A direction that runs
/// alone for so long changes its rate by hundredths of a per cent.
const APART_SHARE: f64 = 0.03;

/// Returns true if the two directions of a round were busy at the same time, in every row.
pub(crate) fn at_the_same_time(one: &Row, other: &Row) -> bool {
    let together = |(one, other): (&Span, &Span)| {
        let slack = APART_SHARE * one.length_ns().min(other.length_ns());
        (one.start_ns - other.start_ns).abs() <= slack && (one.end_ns - other.end_ns).abs() <= slack
    };
    one.rows.len() == other.rows.len() && one.rows.iter().zip(&other.rows).all(together)
}

/// Returns the nanoseconds per copy of a direction while the other one was busy, from the copies of one row of each.
fn both_ways(row: &[Span], reverse: &[Span]) -> Vec<f64> {
    if let Some(ns) = slowed(row, reverse) {
        return vec![ns];
    }
    let counted = |row: &[Span]| row.get(1..).unwrap_or_default().to_vec();
    // The other direction was busy as long as this one ran, and longer.
    if slowed(reverse, row).is_some() {
        return counted(row).iter().map(|span| span.length_ns()).collect();
    }
    while_both(&counted(row), &counted(reverse))
}

/// Largest part of a copy outside the time of both directions, as a share of its length.
const SLACK_SHARE: f64 = 0.1;

/// Returns the nanoseconds per copy of one direction while the other was busy too.
///
/// If the directions run at the same time, the copies within the time of both count unchanged: one direction may start
/// a copy later than the other. Otherwise they take turns, as placements on default streams do. Then every copy takes
/// as long as its own turn and the other's.
fn while_both(one: &[Span], other: &[Span]) -> Vec<f64> {
    let all: Vec<f64> = one.iter().map(|span| span.length_ns()).collect();
    let whole = |spans: &[Span]| {
        Some(Span { start_ns: spans.first()?.start_ns, end_ns: spans.last()?.end_ns })
    };
    let (Some(own), Some(others)) = (whole(one), whole(other)) else {
        return all;
    };
    // Two devices' clocks agree to some microseconds, and the directions never start at exactly the same time.
    let slack = SLACK_SHARE * median(&all).unwrap_or(0.0);
    let (from, to) =
        (own.start_ns.max(others.start_ns) - slack, own.end_ns.min(others.end_ns) + slack);
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

/// Least share of a copy that must be done while the other direction is busy, for its rate to be known. Chosen: less
/// would multiply the uncertainty of the part done alone.
const LEAST_DONE: f64 = 0.1;

/// Returns the nanoseconds of a slow direction's copy with the other direction busy. The other direction has ended
/// before most of the slow one's counted copies, which then ran alone. Returns none if the direction is not so slow, or
/// if the directions took turns. Both rows include the copy that is not counted.
///
/// The value comes from the copy that ran longest beside the other direction; the part it did alone is subtracted at
/// the rate of the fastest copy. The uncounted copy also carries the cost of starting a row. It decides only if no
/// counted copy did enough of its work beside the other direction.
fn slowed(one: &[Span], other: &[Span]) -> Option<f64> {
    let counted: Vec<f64> = one.get(1..)?.iter().map(|span| span.length_ns()).collect();
    let (from, to) = (other.first()?.start_ns, other.last()?.end_ns);
    let slack = SLACK_SHARE * median(&counted)?;
    let in_time = one.iter().skip(1).filter(|span| span.end_ns <= to + slack).count();
    if 2 * in_time >= counted.len() {
        return None;
    }
    let fastest = counted.into_iter().reduce(f64::min)?;
    let beside = |span: &Span| span.end_ns.min(to) - span.start_ns.max(from);
    let pace = |span: &Span| {
        let done = 1.0 - (span.length_ns() - beside(span)) / fastest;
        (beside(span) > 0.0 && done >= LEAST_DONE).then_some(beside(span) / done)
    };
    let counted = one.iter().skip(1).filter(|span| pace(span).is_some());
    pace(
        counted
            .max_by(|one, other| beside(one).total_cmp(&beside(other)))
            .or_else(|| one.first())?,
    )
}

/// Returns the number of samples.
pub(crate) fn count(samples: &[f64]) -> u32 {
    u32::try_from(samples.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns successive copies between these times.
    fn row(times: [f64; 4]) -> Vec<Span> {
        times.windows(2).map(|ends| Span { start_ns: ends[0], end_ns: ends[1] }).collect()
    }

    #[test]
    fn directions_at_the_same_time_count_as_they_are() {
        assert_eq!(
            while_both(&row([0.0, 10.0, 20.0, 30.0]), &row([0.5, 10.5, 20.5, 30.5])),
            [10.0; 3]
        );
    }

    #[test]
    fn a_direction_that_starts_a_copy_later_is_not_slower() {
        assert_eq!(
            while_both(&row([0.0, 10.0, 20.0, 30.0]), &row([10.0, 20.0, 30.0, 40.0])),
            [10.0; 2]
        );
        assert_eq!(
            while_both(&row([10.0, 20.0, 30.0, 40.0]), &row([0.0, 10.0, 20.0, 30.0])),
            [10.0; 2]
        );
    }

    #[test]
    fn what_a_slow_direction_copies_alone_does_not_count() {
        let marks = |ends: [f64; 5]| -> Vec<Span> {
            ends.windows(2).map(|ends| Span { start_ns: ends[0], end_ns: ends[1] }).collect()
        };
        let fast = marks([0.0, 10.0, 20.0, 30.0, 40.0]);
        // The slow direction runs at 50, 40 and 20% of the other's rate while both are busy, and alone as fast.
        for (ends, takes) in [
            ([0.0, 20.0, 40.0, 50.0, 60.0], 20.0),
            ([0.0, 25.0, 44.0, 54.0, 64.0], 25.0),
            ([0.0, 42.0, 52.0, 62.0, 72.0], 50.0),
        ] {
            let ns = slowed(&marks(ends), &fast).unwrap();
            assert!((ns - takes).abs() < 1e-9, "{takes}: {ns}");
            assert_eq!(slowed(&fast, &marks(ends)), None, "the other one was never alone");
        }
        // If a counted copy ran beside the other direction, the start of the row does not decide.
        assert_eq!(slowed(&marks([0.0, 30.0, 40.0, 50.0, 60.0]), &fast), Some(10.0));
        // A direction that started a copy later, or took turns, is not slower.
        assert_eq!(slowed(&marks([10.0, 20.0, 30.0, 40.0, 50.0]), &fast), None);
        assert_eq!(slowed(&marks([40.0, 50.0, 60.0, 70.0, 80.0]), &fast), None);
        assert_eq!(slowed(&marks([0.0, 50.0, 60.0, 70.0, 80.0]), &fast), None);
    }

    #[test]
    fn directions_that_take_turns_have_half_each() {
        assert_eq!(
            while_both(&row([0.0, 10.0, 20.0, 30.0]), &row([50.0, 60.0, 70.0, 80.0])),
            [20.0; 3]
        );
        assert_eq!(
            while_both(&row([50.0, 60.0, 70.0, 80.0]), &row([0.0, 10.0, 20.0, 30.0])),
            [20.0; 3]
        );
    }
}
