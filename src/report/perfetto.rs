//! The timeline of a run for trace viewers.

use std::collections::BTreeMap;

use super::digest::Digest;
use super::format::{Format, Of, Style};
use super::json;
use trace::About;

pub(super) const FORMAT: Format = Format {
    of: Of::Traced,
    ..Format::new(
        "trace",
        &["trace"],
        "Timeline of one pair for <https://ui.perfetto.dev>: what ran when on which stream",
        render,
    )
};

fn render(digest: &Digest<'_>, _style: &Style) -> String {
    let report = digest.report;
    let known =
        report.snapshot.gpus.iter().filter_map(|gpu| Some((gpu.index, gpu.name.known()?.clone())));
    let names: BTreeMap<u32, String> = known.collect();
    let about = About {
        tool: &report.tool,
        machine: &report.machine,
        is_simulated: report.is_simulated(),
        started_at: &report.started_at,
        names: &names,
    };
    json::tidy(&trace::draw(digest.timelines, &about))
}
