//! Each GPU alone and with host memory: a line for each kind of measurement.

use super::super::digest::Digest;
use super::super::figures::Spread;
use super::super::highlight::Highlights;
use super::super::host::{self, Ways};
use super::super::live;
use super::super::page::{Page, Paint};
use super::super::pair_figures::{local_rates, over};
use super::super::shared;
use super::super::standing::{after_comma, of_host};
use super::super::streams;
use super::HANG;
use model::asynchrony::{Call, Hazard, HostCall, LaunchLoop};
use model::finding::Severity;
use model::flow::HostMemory;
use model::host::{Allocation, HostWay, Pinning};
use model::measurement::Measurements;
use model::pipeline::Engines;
use model::placement::{Engine, HostMode};
use model::rounding::{percent, range, rate, short};

/// Writes everything about single GPUs.
pub(super) fn write(page: &mut Page, digest: &Digest<'_>, measurements: &Measurements) {
    let below = of_host(measurements).is_some_and(|standing| !standing.is_fine());
    // Without a warning or error, a few words suffice.
    let table = below && digest.count_of(Severity::Error) + digest.count_of(Severity::Warning) > 0;
    if table {
        host::copies(page, measurements);
    }
    let copies = if table { Lines::new() } else { copies(digest, measurements) };
    let all = [
        copies,
        local(measurements),
        pinning(&measurements.pinning),
        pipelines(measurements, &measurements.engines),
        calls(&measurements.calls, &measurements.launch_loop),
        hazards(&measurements.hazard),
        between_processes(measurements),
    ];
    if all.iter().any(|lines| !lines.is_empty()) {
        page.heading("Each GPU, and the memory of the host");
    }
    for (label, text) in all.iter().flatten() {
        page.item(2, HANG, label, Paint::Faint, text);
    }
    host::apart(page, measurements);
}

type Lines = Vec<(&'static str, String)>;

/// Returns memory handed to another process.
fn between_processes(measurements: &Measurements) -> Lines {
    let sharing = shared::sharing_line(measurements).map(|text| ("sharing", text));
    sharing.into_iter().collect()
}

/// Returns pinned memory alone, other memory, and all GPUs at once.
fn copies(digest: &Digest<'_>, measurements: &Measurements) -> Lines {
    let ways: Vec<Ways> = Ways::of(measurements);
    let alone = |is_pinned: bool| {
        let alone = ways.iter().filter(|way| way.at_once == 1);
        let pinned = (HostMemory::Pinned, Allocation::Reused, Engine::Copy);
        let kind = |way: &HostWay| (way.memory, way.allocation, way.engine);
        alone.filter(move |way| (kind(&way.way) == pinned) == is_pinned)
    };
    let reached = |way: &Ways| Some(range(way.rates?.min, way.rates?.max, rate, " to "));
    let pinned: Vec<String> = alone(true)
        .filter_map(|way| Some(format!("{} {}", reached(way)?, way.way.direction)))
        .collect();
    let mut other: Vec<(String, Vec<String>)> = Vec::new();
    for way in alone(false) {
        let Some(rates) = reached(way) else { continue };
        let reached = format!("{rates} {}", way.way.direction);
        let anew = if way.way.allocation == Allocation::Anew { " anew" } else { "" };
        let kernel = if way.way.engine == Engine::Kernel { " by kernel" } else { "" };
        let name = format!("{}{anew}{kernel}", way.way.memory);
        match other.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => all.push(reached),
            None => other.push((name, vec![reached])),
        }
    }
    let mut lines = Lines::new();
    if !pinned.is_empty() {
        let found = Highlights::of(&digest.report.findings);
        let standing = after_comma(of_host(measurements), found.doubts_host());
        lines.push(("pinned", format!("{} GB/s{standing}", pinned.join(", "))));
    }
    if !other.is_empty() {
        let other: Vec<String> =
            other.iter().map(|(name, all)| format!("{name} {}", all.join(" and "))).collect();
        lines.push(("other", format!("{} GB/s", other.join(", "))));
    }
    lines.extend(at_once(&ways).map(|text| ("all at once", text)));
    lines
}

/// Returns `149 to device (34% of alone), 86.9 to host (20% of alone) GB/s`.
fn at_once(ways: &[Ways]) -> Option<String> {
    let text = |way: &Ways| {
        let sum = way.sum?;
        let of =
            way.alone(ways).map(|alone| format!(" ({}% of alone)", percent(100.0 * sum / alone)));
        Some(format!("{} {}{}", rate(sum), way.way.direction, of.unwrap_or_default()))
    };
    let parts: Vec<String> = ways.iter().filter(|way| way.at_once > 1).filter_map(text).collect();
    (!parts.is_empty()).then(|| format!("{} GB/s", parts.join(", ")))
}

/// Returns copies within each GPU, and what its kernels take: in one line, since both are of its memory.
fn local(measurements: &Measurements) -> Lines {
    let copied = local_rates(measurements).map(|rates| {
        let rates = range(rates.min, rates.max, rate, " to ");
        format!("{rates} GB/s copied within each GPU")
    });
    let parts: Vec<String> = copied.into_iter().chain(live::on_each_gpu(measurements)).collect();
    let line = (!parts.is_empty()).then(|| ("its memory", parts.join("; ")));
    line.into_iter().collect()
}

fn pinning(nodes: &[Pinning]) -> Lines {
    let times = |figure: fn(&Pinning) -> Option<f64>| Spread::of(nodes.iter().filter_map(figure));
    let parts = [
        (times(|node| node.allocate_ms_per_gib), "to allocate"),
        (times(|node| node.free_ms_per_gib), "to free"),
        (times(|node| node.register_ms_per_gib), "to register"),
    ];
    let part = |(spread, what): (Option<Spread>, &str)| {
        let Spread { min, max, .. } = spread?;
        Some(format!("{} {what}", range(min, max, short, " to ")))
    };
    let parts: Vec<String> = parts.into_iter().filter_map(part).collect();
    if parts.is_empty() {
        Lines::new()
    } else {
        vec![("pinning", format!("{} ms per GiB", parts.join(", ")))]
    }
}

/// Returns the gain of several streams, and the copy engines observed at work.
fn pipelines(measurements: &Measurements, all: &[Engines]) -> Lines {
    let speed = Spread::of(
        streams::speed_ups(measurements).iter().flat_map(|(_, speed)| [speed.min, speed.max]),
    );
    let speed = speed
        .map(|of| format!("{} times as fast as one stream", range(of.min, of.max, short, " to ")));
    let engines = over(all, |cell| cell.observed.map(f64::from)).map(|seen| {
        let of = over(all, |cell| cell.reported.map(f64::from));
        let of = of
            .map(|of| format!(" of {}", range(of.min, of.max, percent, " to ")))
            .unwrap_or_default();
        format!("{}{of} copy engines at work", range(seen.min, seen.max, percent, " to "))
    });
    let parts: Vec<String> = speed.into_iter().chain(engines).collect();
    if parts.is_empty() { Lines::new() } else { vec![("pipelines", parts.join("; "))] }
}

/// Returns how long asynchronous calls block the host.
fn calls(all: &[HostCall], loops: &[LaunchLoop]) -> Lines {
    let of = |call: Call, memory: Option<HostMemory>| {
        let is_meant = |cell: &HostCall| {
            (cell.call, cell.memory, cell.host) == (call, memory, HostMode::NonBlocking)
        };
        over(all, |cell| cell.host_blocked_us.filter(|_| is_meant(cell)))
    };
    let parts = [
        (of(Call::Launch, None), "launch"),
        (of(Call::Copy, Some(HostMemory::Pinned)), "pinned copy"),
        (of(Call::Copy, Some(HostMemory::Pageable)), "pageable"),
    ];
    let turns = over(loops, |cell| cell.turn_us.filter(|_| cell.gpu == cell.synchronized));
    let part = |(spread, what): (Option<Spread>, &str)| {
        let Spread { min, max, .. } = spread?;
        Some(format!("{what} {}", range(min, max, short, " to ")))
    };
    let parts: Vec<String> = parts.into_iter().chain([(turns, "wait")]).filter_map(part).collect();
    if parts.is_empty() {
        Lines::new()
    } else {
        vec![("calls take", format!("{} us", parts.join(", ")))]
    }
}

fn hazards(all: &[Hazard]) -> Lines {
    let stale = over(all, |cell| cell.stale_percent);
    let Some(stale) = stale.filter(|stale| stale.max > 0.0) else {
        return Lines::new();
    };
    let after = over(all, |cell| cell.stale_after_wait_percent);
    let after =
        after.map(|after| format!(", after a wait {}%", percent(after.max))).unwrap_or_default();
    let text = format!(
        "read before the copy has ended, up to {}% of the bytes are old{after}",
        percent(stale.max)
    );
    vec![("too early", text)]
}
