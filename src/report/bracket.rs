//! What the time of a job added, in words and as a table.

use super::figures::count;
use super::matrix::{Align, Cell, Table};
use super::page::{Page, Paint};
use model::bracket::{Bracket, GpuBracket};
use model::measurement::{LinkUnderLoad, NvLinkErrorsAdded};
use model::report::Report;
use model::rounding::short;
use model::units::Bytes;

/// Column at which texts start.
const HANG: usize = 14;

/// Returns the time of a job in words: `the 12.3 s of job 4711`.
pub(super) fn time(bracket: &Bracket) -> String {
    format!("the {} s of {}", short(bracket.seconds), bracket.name())
}

/// Returns what was looked at, for the headline.
pub(super) fn looked_at(bracket: &Bracket) -> String {
    format!(
        "the counters of {} before and after {}",
        count(bracket.gpus.len(), "GPU"),
        bracket.name()
    )
}

/// Writes the job, and what each GPU moved and counted meanwhile.
pub(super) fn write(page: &mut Page, report: &Report, bracket: &Bracket) {
    page.heading("The time of the job");
    let mut item = |label: &str, text: &str| page.item(2, HANG, label, Paint::Faint, text);
    if let Some(command) = &bracket.command {
        item("command", &command.join(" "));
    }
    let ended = match (bracket.exit_code, bracket.signal) {
        (Some(code), _) => format!(", exit code {code}"),
        (None, Some(signal)) => format!(", ended by signal {signal}"),
        (None, None) => String::new(),
    };
    let job = bracket.job.as_ref().map(|job| format!("job {job}, "));
    item(
        "ran",
        &format!(
            "{}from {} for {} s{ended}",
            job.unwrap_or_default(),
            report.started_at,
            short(bracket.seconds)
        ),
    );
    let [before, after] = bracket.reading_seconds.map(short);
    item("readings", &format!("{before} s before and {after} s after it, without CUDA"));
    for why in &bracket.not_read {
        item("not read", why);
    }
    if !bracket.gpus.is_empty() {
        page.blank();
        page.table(table(bracket));
        if bracket.gpus.iter().any(|gpu| gpu.pcie_is_least) {
            page.note(
                Paint::Faint,
                "PCIe: the least; the counter of these GPUs wraps every 4 GiB.",
            );
        }
    }
}

fn table(bracket: &Bracket) -> Table {
    let mut align = vec![Align::Left];
    align.extend([Align::Right; 7]);
    let mut table = Table::new(1, align);
    table.captions(["", "NVLink", "", "PCIe", "", "NVLink", "PCIe", ""]);
    table.captions(["", "sent", "received", "sent", "received", "errors", "errors", "temperature"]);
    for gpu in &bracket.gpus {
        let link = bracket.links.iter().find(|link| link.index == gpu.index);
        table.row(row(gpu, link).map(Cell::from));
    }
    table
}

fn row(gpu: &GpuBracket, link: Option<&LinkUnderLoad>) -> [String; 8] {
    let bytes = |bytes: Option<Bytes>, least: bool| match bytes {
        Some(bytes) if least && bytes.0 > 0 => format!(">= {bytes}"),
        Some(bytes) => bytes.to_string(),
        None => "-".to_owned(),
    };
    let number =
        |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let nvlink = link.and_then(|link| link.nvlink_errors.as_ref());
    let nvlink = nvlink.map(|links| links.iter().map(NvLinkErrorsAdded::all).sum());
    let pcie = link.and_then(|link| {
        let errors = link.pcie_errors_after.zip(link.pcie_errors_before);
        let errors = errors.map(|(after, before)| {
            let all = |errors: model::snapshot::PcieErrors| {
                errors.correctable + errors.non_fatal + errors.fatal
            };
            all(after).saturating_sub(all(before))
        });
        match (errors, link.replays_added) {
            (None, None) => None,
            (errors, replays) => Some(errors.unwrap_or(0) + replays.unwrap_or(0)),
        }
    });
    let celsius = match gpu.temperature_c {
        [Some(before), Some(after)] => format!("{before} to {after} °C"),
        _ => "-".to_owned(),
    };
    [
        format!("GPU {}", gpu.index),
        bytes(gpu.nvlink_sent_bytes, false),
        bytes(gpu.nvlink_received_bytes, false),
        bytes(gpu.pcie_sent_bytes, gpu.pcie_is_least),
        bytes(gpu.pcie_received_bytes, gpu.pcie_is_least),
        number(nvlink),
        number(pcie),
        celsius,
    ]
}
