//! Builds the cell of one flow: its rates, with theory and verification beside them.

use crate::figures::{Rates, count, no_samples};
use crate::peers::plan::FIXED_COST_BYTES;
use crate::peers::verify::{Verifications, both};
use crate::statistics::{median, spread_percent};
use model::flow::Setup;
use model::measurement::{PeerBandwidth, Status};
use model::placement::Pair;
use model::status::Ending;
use model::topology::Topology;
use model::units::{Bytes, GbPerSecond};

/// Returns the cell of one flow.
pub(crate) fn cell(
    pair: Pair,
    setup: Setup,
    rates: Result<Rates, Ending>,
    verified: &Verifications,
    topology: &Topology,
) -> PeerBandwidth {
    let guard = verified.of(pair.into(), setup);
    let theoretical = topology.route(pair).and_then(|route| route.theoretical(setup.path));
    let mut ending = Ending::MEASURED;
    let (mut gbps, mut host_ns, mut line, mut checked, mut at_once) =
        (Vec::new(), Vec::new(), None, None, 1);
    let mut slow_rows = None;
    match rates {
        Ok(rates) => {
            line = Line::through(setup.bytes, &rates);
            gbps = rates.copy_ns.iter().map(|ns| GbPerSecond::of(setup.bytes.0, *ns).0).collect();
            (host_ns, checked, at_once) = (rates.host_ns, rates.check, rates.at_once);
            slow_rows = Some(rates.slow_rows);
        }
        Err(why) => {
            ending = why;
            if let (Status::Skipped, Some((lost, why))) =
                (ending.status, guard.and_then(|guard| guard.lost.as_ref()))
            {
                ending = Ending::without(*lost, Some(why.clone()));
            }
        }
    }
    let achieved = median(&gbps).map(GbPerSecond);
    if ending.status == Status::Measured && achieved.is_none() {
        ending = no_samples();
    }
    let check = both(guard.map(|guard| &guard.check), checked.as_ref());
    PeerBandwidth {
        achieved_gbps: achieved,
        theoretical_gbps: theoretical,
        percent: achieved
            .zip(theoretical)
            .map(|(achieved, theoretical)| achieved.percent_of(theoretical)),
        samples: count(&gbps),
        spread_percent: spread_percent(&gbps),
        slow_rows,
        fixed_cost_us: line.as_ref().map(|line| line.fixed_ns / 1e3),
        asymptotic_gbps: line.map(|line| line.rate),
        host_blocked_us: median(&host_ns).map(|ns| ns / 1e3),
        at_once,
        verified: check.verified,
        verification_detail: check.detail,
        ending,
        ..PeerBandwidth::blank(pair, setup)
    }
}

/// The time of a copy as a linear function of its bytes, from two sizes.
struct Line {
    /// The time for zero bytes, nanoseconds.
    fixed_ns: f64,
    /// The rate of an endless copy.
    rate: GbPerSecond,
}

impl Line {
    /// Returns the line; none if there are no small copies, or if the line is implausible.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    fn through(bytes: Bytes, rates: &Rates) -> Option<Self> {
        let (large, small) = (median(&rates.copy_ns)?, median(&rates.small_ns)?);
        if bytes.0 <= FIXED_COST_BYTES || small >= large {
            return None;
        }
        let per_byte = (large - small) / (bytes.0 - FIXED_COST_BYTES) as f64;
        let fixed_ns = small - per_byte * FIXED_COST_BYTES as f64;
        (0.0..large)
            .contains(&fixed_ns)
            .then_some(Self { fixed_ns, rate: GbPerSecond(1.0 / per_byte) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::MIB;

    fn line(bytes: u64, copy_ns: &[f64], small_ns: &[f64]) -> Option<Line> {
        let rates =
            Rates { copy_ns: copy_ns.to_vec(), small_ns: small_ns.to_vec(), ..Rates::default() };
        Line::through(Bytes(bytes), &rates)
    }

    #[test]
    fn fixed_cost_and_asymptotic_rate_are_found() {
        // Every copy costs 6 µs, at 400 GB/s.
        let time = |bytes: u64| bytes as f64 / 400.0 + 6000.0;
        let line = line(64 * MIB, &[time(64 * MIB); 3], &[time(MIB)]).unwrap();
        assert!((line.fixed_ns - 6000.0).abs() < 1e-6, "{}", line.fixed_ns);
        assert!((line.rate.0 - 400.0).abs() < 1e-9, "{}", line.rate.0);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_none() {
        assert!(line(64 * MIB, &[100.0], &[]).is_none());
        assert!(line(64 * MIB, &[100.0], &[200.0]).is_none());
        assert!(line(64 * MIB, &[6400.0], &[50.0]).is_none());
        assert!(line(MIB, &[100.0], &[90.0]).is_none());
    }
}
