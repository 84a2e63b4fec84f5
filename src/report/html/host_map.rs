//! The heat map of copies between the host and each GPU.

use maud::{Markup, html};

use super::super::escape::clean;
use super::super::marks;
use super::super::paint::Paint;
use super::map_cells::{HeatCell, MapContext, dress, head};
use model::host::{HostCopy, HostWay};
use model::measurement::Measurements;
use model::rounding::{percent, rate, tight_rate};

/// Renders a row for each GPU and a column for each kind of copy. Returns `None` if nothing was measured.
pub(super) fn table(measurements: &Measurements, context: &MapContext) -> Option<Markup> {
    let mut ways: Vec<HostWay> = Vec::new();
    for way in measurements.host.iter().filter(|copy| copy.at_once == 1).map(HostCopy::way) {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let columns: Vec<(HostWay, Vec<&HostCopy>)> =
        ways.into_iter().map(|way| (way, measurements.host_alone(way))).collect();
    let cell = |gpu: u32, copies: &[&HostCopy]| {
        let of_gpu = copies.iter().filter(|copy| copy.gpu == gpu);
        let best = of_gpu.max_by(|one, other| gbps(one).total_cmp(&gbps(other)));
        best.copied().map(heat)
    };
    (!columns.is_empty()).then(|| {
        html! {
            div .scroll tabindex="0" role="region" aria-label="host" {
                table .heat {
                    thead { tr { td {} @for (way, _) in &columns { th scope="col" .way { (way.to_string()) } } } }
                    tbody {
                        @for &gpu in context.gpus() {
                            tr {
                                (head(context, gpu, "row", false, false))
                                @for (_, copies) in &columns {
                                    @let heat = cell(gpu, copies);
                                    @let (sign, class) = dress(heat.as_ref(), Paint::Plain);
                                    td class=(class) title=[heat.as_ref().map(|heat| heat.tip.as_str())] {
                                        @if !sign.is_empty() { span .sign { (sign) } }
                                        (heat.as_ref().map_or("-", |heat| heat.text.as_str()))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    })
}

/// Returns the rate for comparisons. A copy without a rate comes last.
fn gbps(copy: &HostCopy) -> f64 {
    copy.rate().map_or(-1.0, |rate| rate.0)
}

fn heat(copy: &HostCopy) -> HeatCell {
    let share = copy.expected_percent.filter(|_| copy.rate().is_some());
    let text = match copy.rate() {
        Some(rate) => tight_rate(rate.0),
        None => marks::word(copy.ending.status).to_owned(),
    };
    let mut tip = format!("{}: {text}", copy.flow());
    if let (Some(share), Some(expected)) = (share, copy.expected_gbps) {
        tip += &format!(" GB/s, {}% of {} expected", percent(share), rate(expected.0));
    } else if let Some(reason) = &copy.ending.reason {
        tip += &format!(", {reason}");
    }
    HeatCell { text, share, tip: clean(&tip).into_owned() }
}
