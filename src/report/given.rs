//! The user's own pattern (`--flows`): each of its flows beside what is expected of it.

use super::matrix::{Cell, Table};
use super::page::Page;
use super::tables::or_dash;
use model::cell::Measurement;
use model::load::{LoadFlow, LoadPattern, Pattern};
use model::measurement::Measurements;
use model::rounding::{percent, rate};

pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    let is_given = |load: &&LoadPattern| load.pattern == Pattern::Given && load.is_sound();
    for load in measurements.load.iter().filter(is_given) {
        page.heading("The flows as given, all at once");
        let mut table = Table::of_figures(4);
        table.captions(["", "GB/s", "expected", "% of that"]);
        for flow in &load.flows {
            let (achieved, expected) = figures(flow);
            table.row([
                Cell::from(flow.flow().to_string()),
                or_dash(achieved.map(rate)),
                or_dash(expected.map(rate)),
                or_dash(
                    achieved
                        .zip(expected)
                        .map(|(achieved, expected)| percent(100.0 * achieved / expected)),
                ),
            ]);
        }
        page.table(table);
    }
}

fn figures(flow: &LoadFlow) -> (Option<f64>, Option<f64>) {
    let expected = flow.expected_gbps.map(|expected| expected.0);
    (flow.achieved_gbps.map(|achieved| achieved.0), expected.filter(|expected| *expected > 0.0))
}
