//! Compares pairs that are copied at once with one of them alone, now and then.

use crate::bench::row::each;
use crate::peers::run::APART_PERCENT;
use crate::statistics::median;
use crate::{Outcome, Row};
use model::flow::Setup;
use model::measurement::AtOnce;
use model::placement::Pair;
use model::units::GbPerSecond;

impl Row {
    /// Returns the nanoseconds of a copy at the same time as others and alone, if both were measured.
    fn compared(&self) -> Option<(f64, f64)> {
        let together = if self.together.is_empty() { &self.rows } else { &self.together };
        Some((median(&each(together, self.copies))?, median(&each(&self.alone, self.copies))?))
    }

    /// Returns true if copies of other pairs at the same time make a difference.
    pub(crate) fn differs_alone(&self) -> bool {
        self.compared()
            .is_some_and(|(together, alone)| (together / alone - 1.0).abs() * 100.0 > APART_PERCENT)
    }
}

/// Returns the comparison of a round, if it had one.
pub(crate) fn compared(pair: Pair, setup: Setup, outcome: &Outcome) -> Option<AtOnce> {
    let Outcome::Rows { rows } = outcome else {
        return None;
    };
    let [row] = rows.as_slice() else { return None };
    let (together, alone) = row.compared()?;
    let rate = |ns| GbPerSecond::of(setup.bytes.0, ns);
    Some(AtOnce {
        pair,
        setup,
        at_once_gbps: rate(together),
        alone_gbps: rate(alone),
        difference_percent: 100.0 * (alone / together - 1.0),
        apart: row.differs_alone(),
    })
}
