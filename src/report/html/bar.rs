//! One bar of a chart.

use maud::{Markup, html};

/// Draws a bar of this share of its whole, in per cent, with the expected range.
pub(super) fn bar(share: f64, expected: Option<[f64; 2]>, low: bool) -> Markup {
    let of = |share: f64| {
        if share.is_finite() { share.clamp(0.0, 100.0) } else { 0.0 }
    };
    let band = expected.map(|[low, high]| {
        format!("left:{:.1}%;width:{:.1}%", of(low), (of(high) - of(low)).max(0.6))
    });
    html! {
        span .bar aria-hidden="true" {
            span .fill.low[low] style=(format!("width:{:.1}%", of(share))) {}
            @if let Some(band) = band { span .band style=(band) {} }
        }
    }
}
