//! Figures over some pairs or GPUs. Only sound cells count.

use std::collections::HashSet;

use super::figures::Spread;
use model::cell::{Figure, Measurement};
use model::flow::Flow;
use model::measurement::Measurements;
use model::placement::{Pair, Path};

/// Figures over some measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    /// Number of measurements in the plan.
    pub(super) planned: usize,
    /// The main figure: for copies GB/s.
    pub(super) rates: Option<Spread>,
    /// Achieved as per cent of what the healthy machine reaches; of theoretical, if that is not known.
    pub(super) percents: Option<Spread>,
    /// The lowest and the highest rate that healthy machines are known to have reached, GB/s.
    pub(super) expected: Option<[f64; 2]>,
    /// The flow with the lowest main figure, and that figure, if it lies so far below the median that the median hides
    /// it.
    pub(super) lowest: Option<(Flow, f64)>,
}

/// Share of the median below which a median hides the lowest figure. Chosen: more than healthy machines scatter.
pub(super) const HIDDEN: f64 = 0.85;

impl Figures {
    /// Computes the figures of the sound cells.
    pub(super) fn of<'a, M: Measurement + ?Sized + 'a>(
        cells: impl IntoIterator<Item = &'a M>,
    ) -> Self {
        let mut planned = 0;
        let cells = cells.into_iter().inspect(|_| planned += 1);
        let sound: Vec<(Flow, Vec<Figure>)> = cells
            .filter(|cell| cell.is_sound())
            .map(|cell| (cell.cell().flow, cell.figures()))
            .collect();
        let main = |figures: &[Figure]| figures.first()?.value;
        let rates = Spread::of(sound.iter().filter_map(|(_, figures)| main(figures)));
        let lowest = sound
            .iter()
            .filter_map(|(flow, figures)| Some((*flow, main(figures)?)))
            .min_by(|(_, one), (_, other)| one.total_cmp(other))
            .filter(|(_, value)| rates.is_some_and(|rates| *value < HIDDEN * rates.median));
        let of = |figures: &[Figure], key| {
            let figure = figures.iter().find(|figure| figure.key == key)?;
            figure.value
        };
        let percent = |figures: &[Figure]| of(figures, "healthy_percent");
        let expected = sound.iter().filter_map(|(_, figures)| {
            let low = of(figures, "expected_low_gbps")?;
            Some([low, of(figures, "expected_high_gbps")?])
        });
        Self {
            rates,
            lowest,
            percents: Spread::of(sound.iter().filter_map(|(_, figures)| percent(figures))),
            expected: expected.reduce(|one, other| [one[0].min(other[0]), one[1].max(other[1])]),
            planned,
        }
    }
}

/// Returns pairs whose bytes did not arrive on this path: other measurements of such copies mean nothing.
pub(super) fn wrong_pairs(measurements: &Measurements, path: Path) -> HashSet<Pair> {
    let wrong =
        measurements.peer.iter().filter(|cell| cell.setup.path == path && cell.verified.is_wrong());
    wrong.map(|cell| cell.pair).collect()
}
