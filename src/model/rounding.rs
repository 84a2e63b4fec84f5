//! Rounding of figures, for every place where they are written. Only this file decides the number of places.

/// Rounds to four decimal places, the precision of a report: a tenth of a megabyte per second, a tenth of a
/// nanosecond.
pub fn four_places(value: f64) -> f64 {
    places(value, 1e4)
}

/// Rounds to one decimal place, for evidence on which repeated runs agree no further.
pub fn one_place(value: f64) -> f64 {
    places(value, 10.0)
}

fn places(value: f64, scale: f64) -> f64 {
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

/// Writes a figure in three significant digits or whole: `396`, `35.2`, `7.88`.
pub fn short(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.places$}")
}

/// Writes a rate: `396`, `35.2`, `7.9`. Repeated runs agree on one decimal place.
pub fn rate(value: f64) -> String {
    format!("{value:.*}", usize::from(value < 99.95))
}

/// Writes a rate for a crowded matrix: `396`, `35`, `7.9`. The percentages beside it carry the precision.
pub fn tight_rate(value: f64) -> String {
    format!("{value:.*}", usize::from(value < 9.95))
}

/// Writes whole per cent without the sign: `88`.
pub fn percent(value: f64) -> String {
    format!("{value:.0}")
}

/// Writes two figures with a word between, or one of them if both read the same: `86 to 91`, `88`.
pub fn range(min: f64, max: f64, text: fn(f64) -> String, to: &str) -> String {
    let (min, max) = (text(min), text(max));
    if min == max { max } else { format!("{min}{to}{max}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_places_that_mean_something() {
        assert_eq!(
            [396.3, 99.96, 35.24, 7.88, 0.0].map(rate),
            ["396", "100", "35.2", "7.9", "0.0"]
        );
        assert_eq!([396.3, 35.24, 9.96, 7.88].map(tight_rate), ["396", "35", "10", "7.9"]);
        assert_eq!([2.345, 14.26, 480.2].map(short), ["2.35", "14.3", "480"]);
        assert_eq!([0.1 + 0.2, 1.0 / 3.0, f64::MAX].map(four_places), [0.3, 0.3333, f64::MAX]);
        assert_eq!(one_place(7.88), 7.9);
        assert_eq!(range(87.6, 88.4, percent, " to "), "88");
        assert_eq!(range(86.0, 91.0, percent, "-"), "86-91");
    }
}
