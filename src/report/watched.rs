//! The readings of `watch`: a line for each GPU, and a strip of the NVLinks of each GPU whose links differ.

use super::format::Style;
use super::matrix::{Align, Cell, Table};
use super::page::{Page, Paint};
use model::report::Report;
use model::rounding::{percent, rate, short};
use model::units::GbPerSecond;
use model::watched::{LinkTraffic, WatchedGpu};

/// Marks of what a link carries, from nothing to the most of all links.
const BARS: [&str; 9] = ["·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const BARS_ASCII: [&str; 9] = [".", "1", "2", "3", "4", "5", "6", "7", "8"];
/// Share of the busiest link below which the links of a GPU differ.
const ALIKE: f64 = 0.8;
/// Most characters of the names of programs.
const PROGRAMS: usize = 24;

/// Columns from which on the table also has what holds clocks back, and the programs.
const WIDE: usize = 100;

/// Writes the readings, if a job was watched.
pub(super) fn write(page: &mut Page, report: &Report, style: &Style) {
    if let Some(watched) = &report.watched {
        page.heading(&format!("Seen in {} s, GB/s", short(watched.seconds)));
        table(page, report, style);
    }
}

/// Writes the table of GPUs, and the NVLinks that differ.
pub(super) fn table(page: &mut Page, report: &Report, style: &Style) {
    let Some(watched) = &report.watched else { return };
    let has = |value: fn(&WatchedGpu) -> bool| watched.gpus.iter().any(value);
    let nvlink = has(|gpu| gpu.nvlink_sent_gbps.is_some());
    let mut captions = vec!["", "busy", "MHz", "W", "°C"];
    if nvlink {
        captions.extend(["NVLink out", "in", "of"]);
    }
    captions.extend(["PCIe out", "in", "link"]);
    let words = captions.len() - 1..;
    if style.width >= WIDE {
        captions.extend(["held by", "program"]);
    }
    let mut table = Table::of_figures(captions.len());
    table.align[words].fill(Align::Left);
    table.captions(captions);
    for gpu in &watched.gpus {
        table.row(row(report, gpu, nvlink));
    }
    page.table(table);
    links(page, report, style.ascii);
    for gpu in &watched.gpus {
        if let Some(why) = &gpu.reason {
            page.note(Paint::Warning, &format!("GPU {}: {why}", gpu.gpu));
        }
    }
}

fn row(report: &Report, gpu: &WatchedGpu, nvlink: bool) -> Vec<Cell> {
    let number = |value: Option<f64>, form: fn(f64) -> String| -> Cell {
        value.map_or_else(|| Cell::new("?", Paint::Faint), |value| form(value).into())
    };
    let whole = |value: f64| format!("{value:.0}");
    let flow = |rate_of: Option<GbPerSecond>, of: Option<f64>| {
        let share = rate_of.zip(of).map(|(rate, of)| 100.0 * rate.0 / of);
        number(rate_of.map(|rate| rate.0), rate).with_share(share)
    };
    let link = report.watched.as_ref();
    let link = link.and_then(|all| all.links.iter().find(|link| link.index == gpu.gpu));
    let state = link.and_then(|link| link.states.last());
    let slot = report.topology.pcie_link_of(gpu.gpu);
    let carries = slot.and_then(|slot| topology::pcie::rate(slot.possible));
    let possible = report.topology.nvlink_gbps(gpu.gpu).map(|rate| rate.0);
    let mut cells = vec![
        format!("GPU {}", gpu.gpu).into(),
        number(gpu.busy_percent, |busy| format!("{busy:.0}%")),
        number(gpu.sm_clock_mhz.map(f64::from), whole),
        number(gpu.power_w, whole),
        number(gpu.temperature_c.map(f64::from), whole),
    ];
    if nvlink {
        cells.push(flow(gpu.nvlink_sent_gbps, possible));
        cells.push(flow(gpu.nvlink_received_gbps, possible));
        cells.push(possible.map_or_else(Cell::default, |rate_of| rate(rate_of).into()));
    }
    cells.push(flow(gpu.pcie_sent_gbps, carries));
    cells.push(flow(gpu.pcie_received_gbps, carries));
    let fell = link.is_some_and(|link| link.width.is_some_and(|[fewest, most]| fewest < most));
    let paint = if fell { Paint::Warning } else { Paint::Plain };
    let state = state.map(|state| format!("Gen{} x{}", state.generation, state.width));
    cells.push(Cell::new(state.unwrap_or_default(), paint));
    let held = gpu.held.iter().filter(|held| held.percent >= 1.0);
    let held = held.map(|held| format!("{} {}%", held.reason, percent(held.percent)));
    cells.push(held.collect::<Vec<_>>().join(" ").into());
    let names = gpu.programs.iter().map(|program| match &program.name {
        Some(name) => format!("{} {name}", program.pid),
        None => program.pid.to_string(),
    });
    cells.push(Cell::cut(&names.collect::<Vec<_>>().join(", "), PROGRAMS));
    cells
}

/// Writes the NVLinks of each GPU of which one carries less than the others.
fn links(page: &mut Page, report: &Report, ascii: bool) {
    let gpus = report.watched.iter().flat_map(|watched| &watched.gpus);
    let both = |link: &LinkTraffic| link.sent_gbps.0 + link.received_gbps.0;
    for gpu in gpus {
        let most = gpu.nvlinks.iter().map(both).fold(0.0, f64::max);
        let least = gpu.nvlinks.iter().map(both).fold(f64::INFINITY, f64::min);
        if most < model::watched::Watched::LEAST_GBPS || least > ALIKE * most {
            continue;
        }
        let bars = if ascii { BARS_ASCII } else { BARS };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8")]
        let bar =
            |link: &LinkTraffic| bars[(8.0 * both(link) / most).ceil().clamp(0.0, 8.0) as usize];
        let strip: String = gpu.nvlinks.iter().map(bar).collect();
        let low = gpu.nvlinks.iter().filter(|link| both(link) < ALIKE * most);
        let low: Vec<String> = low
            .map(|link| format!("{} {}%", link.link, percent(100.0 * both(link) / most)))
            .collect();
        let text = format!("NVLinks {strip}  of the busiest: link {}", low.join(", "));
        page.item(2, 10, &format!("GPU {}", gpu.gpu), Paint::Warning, &text);
    }
}
