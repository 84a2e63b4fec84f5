//! Figures over some pairs or GPUs. Only sound cells count.

use std::collections::HashSet;

use super::figures::Spread;
use model::cell::{Figure, Measurement};
use model::measurement::Measurements;
use model::placement::{Pair, Path};

/// Figures over some measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    /// The main figure: for copies GB/s.
    pub(super) rates: Option<Spread>,
    /// Achieved as per cent of what a healthy machine reaches.
    pub(super) percents: Option<Spread>,
}

impl Figures {
    /// Computes the figures of the sound cells.
    pub(super) fn of<'a, M: Measurement + ?Sized + 'a>(
        cells: impl IntoIterator<Item = &'a M>,
    ) -> Self {
        let sound: Vec<Vec<Figure>> =
            cells.into_iter().filter(|cell| cell.is_sound()).map(|cell| cell.figures()).collect();
        Self {
            rates: Spread::of(sound.iter().filter_map(|figures| figures.first()?.value)),
            percents: Spread::of(sound.iter().filter_map(|figures| healthy_percent(figures))),
        }
    }
}

/// Returns the figure that compares with a healthy machine, per cent.
pub(super) fn healthy_percent(figures: &[Figure]) -> Option<f64> {
    let is_meant = |figure: &&Figure| figure.key == "healthy_percent" && figure.flow.is_none();
    figures.iter().find(is_meant)?.value
}

/// Returns pairs whose bytes did not arrive on this path: other measurements of such copies mean nothing.
pub(super) fn wrong_pairs(measurements: &Measurements, path: Path) -> HashSet<Pair> {
    let wrong =
        measurements.peer.iter().filter(|cell| cell.setup.path == path && cell.verified.is_wrong());
    wrong.map(|cell| cell.pair).collect()
}
