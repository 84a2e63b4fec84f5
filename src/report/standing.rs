//! Compares figures with what is expected of them, in a word; and does so for everything that is judged.

use super::figures::Spread;
use super::load::PatternFigures;
use super::pair_figures::Figures;
use model::cell::Measurement;
use model::flow::Setup;
use model::measurement::{Measurements, PeerBandwidth};
use model::placement::{Direction, Engine, Path, Placement, Side};
use model::rounding::percent;

/// Difference, in per cent, below which figures count as alike: repeats spread by as much (cuda-samples issue 449).
pub(super) const ALIKE_PERCENT: f64 = 5.0;

/// Share of the lowest expected rate above which a figure still counts as expected: figures are rounded.
const JUST_BELOW: f64 = 0.99;

/// The same where only one rate of healthy machines is known: repeats spread by 5 to 10% (cuda-samples issue 449).
const JUST_BELOW_ONE: f64 = 0.95;

/// Figures relative to what is expected of them, which is the lowest rate that healthy machines are known to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Standing {
    /// Smallest figure, as a share of its lowest expected rate.
    low: f64,
    /// Number of figures below expectation.
    pub(super) number_below: usize,
}

impl Standing {
    /// Compares rates, each with its lowest and highest expected rate. Returns `None` if there are no rates.
    pub(super) fn of(rates: impl IntoIterator<Item = (f64, [f64; 2])>) -> Option<Self> {
        let least = |[least, most]: [f64; 2]| match most <= least {
            true => least * JUST_BELOW_ONE / JUST_BELOW,
            false => least,
        };
        let shares: Vec<f64> =
            (rates.into_iter()).map(|(rate, expected)| rate / least(expected)).collect();
        Some(Self {
            number_below: shares.iter().filter(|share| **share < JUST_BELOW).count(),
            low: Spread::of(shares)?.min,
        })
    }

    /// Returns true if no figure is below expectation.
    pub(super) fn is_fine(self) -> bool {
        self.low >= JUST_BELOW
    }

    /// Returns how far the lowest figure is below expectation, as people read it: `6%`.
    pub(super) fn below(self) -> String {
        format!("{}%", percent(100.0 - 100.0 * self.low))
    }

    /// Returns the comparison in words.
    pub(super) fn words(self) -> String {
        match self.is_fine() {
            true => "as expected".to_owned(),
            false => format!("up to {} below expected", self.below()),
        }
    }
}

/// Returns `, as expected`, or an empty text if nothing is expected. Figures that a warning or an error is about are never
/// called so.
pub(super) fn after_comma(standing: Option<Standing>, doubted: bool) -> String {
    standing
        .filter(|standing| !(doubted && standing.is_fine()))
        .map(|standing| format!(", {}", standing.words()))
        .unwrap_or_default()
}

/// Returns the rate of a copy with the lowest and highest rate that healthy machines are known to reach.
fn expected(cell: &PeerBandwidth) -> Option<(f64, [f64; 2])> {
    Some((cell.achieved_gbps?.0, Figures::of([cell]).expected?))
}

/// Compares copies between GPUs with expectation.
pub(super) fn of_copies(cells: &[&PeerBandwidth]) -> Option<Standing> {
    Standing::of(cells.iter().filter(|cell| cell.is_sound()).filter_map(|cell| expected(cell)))
}

/// Compares copies between host and GPU with expectation.
pub(super) fn of_host(measurements: &Measurements) -> Option<Standing> {
    Standing::of(measurements.host.iter().filter_map(|copy| {
        let figures = Figures::of([copy]);
        Some((figures.rates?.min, figures.expected?))
    }))
}

/// Compares the sums of several flows at once with expectation.
pub(super) fn of_load(kinds: &[PatternFigures<'_>]) -> Option<Standing> {
    let shares = kinds.iter().flat_map(|kind| &kind.all).filter_map(|load| load.healthy_percent);
    Standing::of(shares.map(|share| (share, [100.0 - ALIKE_PERCENT, 100.0 + ALIKE_PERCENT])))
}

/// Groups the sound copies between GPUs by how they were made, over all placements and sizes.
pub(super) fn by_way(measurements: &Measurements) -> Vec<(Setup, Vec<&PeerBandwidth>)> {
    let mut groups: Vec<(Setup, Vec<&PeerBandwidth>)> = Vec::new();
    for setup in measurements.setups() {
        let name = setup.with_placement(Placement::REFERENCE);
        let cells = measurements.in_setup(setup).into_values().filter(|cell| cell.is_sound());
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.extend(cells),
            None => groups.push((name, cells.collect())),
        }
    }
    groups
}

/// Describes a kind of copy between GPUs in a few words; empty for that of the reference setup.
pub(super) fn way(setup: Setup) -> String {
    let mover = match (setup.engine, setup.issuer) {
        (Engine::Copy, Side::Source) => None,
        (Engine::Copy, Side::Destination) => Some("issued by destination"),
        (Engine::Kernel, Side::Source) => Some("kernel writes"),
        (Engine::Kernel, Side::Destination) => Some("kernel reads"),
    };
    let both = (setup.direction == Direction::BothWays).then_some("both ways");
    let staged = (setup.path == Path::Staged).then_some("staged");
    [mover, both, staged].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// A measurement with an expectation.
pub(super) struct Judged {
    /// The test that it belongs to.
    pub(super) test: &'static str,
    /// The part of the test, if it has several.
    what: Option<String>,
    pub(super) standing: Standing,
    /// Distance of the lowest figure below expectation, in the form of the rest of the page.
    below: String,
}

impl Judged {
    /// Returns `copies between GPUs by up to 6%`.
    pub(super) fn below(&self) -> String {
        format!("{} by up to {}", self.what.as_deref().unwrap_or(self.test), self.below)
    }
}

/// Returns every measurement with an expectation, in the order of the page.
pub(super) fn all(measurements: &Measurements) -> Vec<Judged> {
    let copies = by_way(measurements).into_iter().filter_map(|(setup, cells)| {
        let what = Some(way(setup)).filter(|way| !way.is_empty());
        let standing = of_copies(&cells)?;
        Some(Judged { test: "copies between GPUs", what, standing, below: standing.below() })
    });
    let load = of_load(&PatternFigures::of(measurements)).map(|standing| {
        // The table next to it shows the share of what is expected, without a margin.
        let least = Spread::of(measurements.load.iter().filter_map(|load| load.healthy_percent));
        let below =
            least.map(|share| format!("{}%", percent(100.0 - share.min))).unwrap_or_default();
        Judged { test: "several flows at once", what: None, standing, below }
    });
    let host = of_host(measurements);
    let host = host.map(|standing| Judged {
        test: "copies with the host",
        what: None,
        standing,
        below: standing.below(),
    });
    copies.chain(load).chain(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_a_finding_is_about_is_never_as_expected() {
        let of = |rate| Standing::of([(rate, [390.0, 397.0])]);
        assert_eq!(after_comma(of(395.0), false), ", as expected");
        assert_eq!(after_comma(of(395.0), true), "");
        assert!(after_comma(of(200.0), true).contains("below expected"));
    }

    #[test]
    fn the_worst_decides() {
        let words =
            |rates: &[(f64, [f64; 2])]| Standing::of(rates.iter().copied()).map(Standing::words);
        assert_eq!(words(&[]), None);
        assert_eq!(words(&[(395.0, [390.0, 397.0])]).unwrap(), "as expected");
        assert_eq!(
            words(&[(388.0, [390.0, 397.0]), (402.0, [390.0, 397.0])]).unwrap(),
            "as expected"
        );
        assert_eq!(
            words(&[(395.0, [390.0, 397.0]), (195.0, [390.0, 397.0])]).unwrap(),
            "up to 50% below expected"
        );
        // More than anyone is known to have reached is no reason to look twice.
        assert_eq!(words(&[(500.0, [390.0, 397.0])]).unwrap(), "as expected");
        // One known figure says less than a range does.
        assert_eq!(words(&[(265.0, [276.0, 276.0])]).unwrap(), "as expected");
        assert_eq!(words(&[(249.0, [276.0, 276.0])]).unwrap(), "up to 6% below expected");
    }

    #[test]
    fn figures_below_expectation_are_counted() {
        let rates = [(395.0, [390.0, 397.0]), (195.0, [390.0, 397.0])];
        assert_eq!(Standing::of(rates).unwrap().number_below, 1);
    }
}
