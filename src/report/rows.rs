//! The measurements of single GPUs, in a line for each kind.

use super::figures::Spread;
use super::host::Ways;
use super::load::{self, PatternFigures};
use super::pair_figures::local_rates;
use super::streams;
use model::measurement::Measurements;
use model::rounding::{range, rate, short};

/// Returns each kind of measurement, and its range over the GPUs.
pub(super) fn measured(measurements: &Measurements) -> Vec<(String, String)> {
    let between =
        |Spread { min, max, .. }: Spread| format!("{} GB/s", range(min, max, rate, " to "));
    let local =
        local_rates(measurements).map(|rates| ("copies within a GPU".to_owned(), between(rates)));
    let host = Ways::of(measurements).into_iter().filter_map(|way| {
        let sum = way.sum.filter(|_| way.at_once > 1).map(|sum| format!(", {} in all", rate(sum)));
        Some((
            format!("host copies: {}", way.label()),
            between(way.rates?) + &sum.unwrap_or_default(),
        ))
    });
    let pipelines =
        streams::speed_ups(measurements).into_iter().map(|(name, Spread { min, max, .. })| {
            (
                format!("pipeline: {name}"),
                format!("{} times as fast as in one stream", range(min, max, short, " to ")),
            )
        });
    let patterns = PatternFigures::of(measurements)
        .into_iter()
        .filter_map(|kind| Some((format!("load: {}", kind.pattern), kind.text()?)));
    let counted =
        load::summary(&measurements.counted).into_iter().map(|text| ("counters".to_owned(), text));
    local.into_iter().chain(host).chain(pipelines).chain(patterns).chain(counted).collect()
}
