//! Hours under load: the figures so far in a line, and all of them in tables.

use std::collections::BTreeMap;

use super::figures::{Spread, count};
use super::matrix::{Cell, Table, or_dash};
use super::page::{Page, Paint};
use model::load::Pattern;
use model::measurement::{Measurements, NvLinkCorrected};
use model::rounding::rate;
use model::soak::{EventKind, MinuteOfGpu, STEADY_MINUTES, Soak, SoakEnd, SoakEvent, mean};

/// Minutes at both ends whose means are compared.
const AT_ENDS: usize = 5;
/// Most events that the text lists.
const MOST_EVENTS: usize = 12;

/// Returns a length of time, such as `1 h 58 min`, `3 min 20 s` or `42 s`.
pub fn duration(seconds: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "seconds of some days; the conversion saturates"
    )]
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, 0) => format!("{m} min"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, 0, _) => format!("{h} h"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Returns the figures so far in a line: the last event, the lowest rate, the hottest GPU. A narrow terminal cuts its end.
pub fn line(soak: &Soak) -> String {
    let rates = soak.minutes.iter().flat_map(|minute| &minute.paths);
    let lowest = rates
        .filter(|path| is_between_gpus(soak, path.path))
        .min_by(|one, other| one.lowest_gbps.total_cmp(&other.lowest_gbps));
    let lowest = lowest.and_then(|lowest| {
        let path = soak.paths.get(lowest.path as usize)?;
        Some(format!("lowest {} GB/s {}", rate(lowest.lowest_gbps), path.name()))
    });
    let last = soak.minutes.last();
    let hottest = last.and_then(|minute| {
        let known = |gpu: &MinuteOfGpu| Some((gpu.temperature_max_c?, gpu.gpu));
        minute.gpus.iter().filter_map(known).max()
    });
    let hottest = hottest.map(|(celsius, gpu)| format!("hottest GPU {gpu} {celsius} °C"));
    let event = soak
        .events
        .last()
        .map(|event| format!("last event {}", at(event)))
        .or_else(|| Some("no event".into()));
    let parts = [event, lowest, hottest];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Returns `after 40 min: PCIe link of GPU 3: ...`.
fn at(event: &SoakEvent) -> String {
    format!("after {}: {}", duration(event.at_s), event.what)
}

/// Returns true for a flow between GPUs, whose rates are of most interest.
fn is_between_gpus(soak: &Soak, path: u32) -> bool {
    soak.paths.get(path as usize).is_some_and(|path| path.flow().pair().is_some())
}

/// Returns the bound of the bit error rate at 95%: no error in n bits means less than 3/n.
pub(super) fn bound(soak: &Soak) -> Option<f64> {
    let over_links = |path: &&model::soak::MinuteOfPath| {
        let path = soak.paths.get(path.path as usize);
        path.is_some_and(|path| path.flow().within().is_none())
    };
    let paths = soak.minutes.iter().flat_map(|minute| &minute.paths);
    let bits: f64 = paths.filter(over_links).map(|path| 8.0 * bytes_of(path.bytes)).sum();
    (bits > 0.0).then(|| 3.0 / bits)
}

#[allow(clippy::cast_precision_loss, reason = "a rate needs few digits")]
pub(super) const fn bytes_of(bytes: u64) -> f64 {
    bytes as f64
}

/// Writes everything about hours under load.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    let Some(soak) = &measurements.soak else {
        return;
    };
    page.heading("Hours under load");
    for sentence in summary(soak) {
        page.note(Paint::Plain, &sentence);
    }
    if soak.minutes.is_empty() {
        return;
    }
    rates(page, soak);
    gpus(page, soak);
    events(page, soak);
}

/// Returns the summary, a sentence each.
pub(super) fn summary(soak: &Soak) -> Vec<String> {
    let asked = duration(soak.requested_seconds);
    let ended = match soak.ended {
        SoakEnd::TimeOver => String::new(),
        SoakEnd::FirstFault => format!(" of {asked}: the first fault ended it, as requested"),
        SoakEnd::Interrupted => format!(" of {asked}: it was interrupted"),
        SoakEnd::NothingRuns => format!(" of {asked}: no round ran to its end any more"),
        SoakEnd::CutOff => format!(" of {asked}: the program was killed"),
    };
    let lost = match soak.rounds_lost {
        0 => String::new(),
        lost => format!(", {lost} more did not run to their end"),
    };
    let mut sentences = vec![format!(
        "{}{ended}; {}{lost}; {} copied, {} compared after each burst",
        duration(soak.seconds),
        count(usize::try_from(soak.rounds).unwrap_or(usize::MAX), "round"),
        amount(bytes_of(soak.bytes())),
        amount(bytes_of(soak.verified_bytes())),
    )];
    let wrong: u32 =
        soak.minutes.iter().flat_map(|minute| &minute.paths).map(|path| path.wrong).sum();
    let is_error = |event: &&SoakEvent| {
        matches!(event.kind, EventKind::NvlinkErrors | EventKind::PcieErrors | EventKind::Replays)
    };
    let errors = soak.events.iter().any(|event| is_error(&event));
    if let Some(bound) = bound(soak).filter(|_| wrong == 0 && !errors) {
        sentences.push(format!(
            "No link counted an error: fewer than {bound:.1e} errors per bit, at 95% confidence"
        ));
    }
    sentences.extend(corrected(soak));
    sentences.extend(xids(soak));
    sentences.extend(thermal(soak));
    sentences
}

/// Returns a sentence about what forward error correction of the NVLinks corrected; none if nothing counts it.
fn corrected(soak: &Soak) -> Option<String> {
    let minutes = soak.minutes.iter().flat_map(|minute| &minute.gpus);
    let mut known =
        minutes.filter_map(|own| Some((own.gpu, own.nvlink_corrected.as_ref()?))).peekable();
    known.peek()?;
    let mut links: BTreeMap<(u32, u8), NvLinkCorrected> = BTreeMap::new();
    for (gpu, minute) in known {
        for link in minute {
            links.entry((gpu, link.link)).or_default().add(link);
        }
    }
    let deep = NvLinkCorrected::DEEP;
    let key = |own: &NvLinkCorrected| (own.most(), own.from(deep));
    let worst = links.iter().max_by_key(|(_, own)| key(own));
    Some(match worst {
        None => format!("No NVLink corrected more than {} symbols of a codeword", deep - 1),
        Some(((gpu, link), own)) => format!(
            "NVLinks corrected up to {} symbols of a codeword (NVLink {link} of GPU {gpu}: {} with {deep} or more)",
            own.most(),
            count(usize::try_from(own.from(deep)).unwrap_or(usize::MAX), "codeword"),
        ),
    })
}

/// Returns a sentence if the driver reported no Xid error, or cannot.
fn xids(soak: &Soak) -> Option<String> {
    let mut readings = soak.minutes.iter().flat_map(|minute| &minute.gpus);
    readings.clone().next()?;
    if readings.clone().any(|own| own.xids.is_none()) {
        return Some("Xid errors are unknown: the driver does not report them to NVML".to_owned());
    }
    readings
        .all(|own| own.xids.as_ref().is_some_and(Vec::is_empty))
        .then(|| "The driver reported no Xid error".to_owned())
}

/// Returns a sentence about thermal equilibrium.
fn thermal(soak: &Soak) -> Option<String> {
    let all = &soak.thermal;
    let known: Vec<(u32, f64, f64)> =
        all.iter().filter_map(|own| Some((own.gpu, own.steady_from_s?, own.steady_c?))).collect();
    if all.is_empty() {
        return None;
    }
    if soak.minutes.len() < STEADY_MINUTES {
        return Some("Too short to see thermal equilibrium, which takes ten minutes".to_owned());
    }
    let temperatures = Spread::of(known.iter().map(|(.., celsius)| *celsius));
    let latest = known.iter().map(|(_, from, _)| *from).reduce(f64::max);
    let (Some(temperatures), Some(latest)) = (temperatures, latest) else {
        return Some("No GPU was in thermal equilibrium".to_owned());
    };
    let range = model::rounding::range(temperatures.min, temperatures.max, degrees, " to ");
    let missing: Vec<String> = all
        .iter()
        .filter(|own| own.steady_from_s.is_none())
        .map(|own| format!("GPU {}", own.gpu))
        .collect();
    let but = match missing.is_empty() {
        true => String::new(),
        false => format!("; not {}", missing.join(", ")),
    };
    Some(format!("Thermal equilibrium after {}: {range} °C{but}", duration(latest)))
}

fn degrees(celsius: f64) -> String {
    format!("{celsius:.0}")
}

/// The minutes of several paths of one arrangement.
struct Kind {
    pattern: Option<Pattern>,
    of: String,
    paths: Vec<u32>,
}

fn kinds(soak: &Soak) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for (number, path) in soak.numbered() {
        let same = |kind: &&mut Kind| kind.pattern == path.pattern && kind.of == path.of;
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.paths.push(number),
            None => {
                kinds.push(Kind { pattern: path.pattern, of: path.of.clone(), paths: vec![number] })
            }
        }
    }
    kinds
}

/// Writes a row for each arrangement of flows.
fn rates(page: &mut Page, soak: &Soak) {
    let mut table = Table::of_figures(6);
    table.captions(["", "GB/s", "", "first", "last", ""]);
    table.captions(["each flow of", "min", "median", "min.", "min.", "bytes"]);
    for kind in kinds(soak) {
        let all = |of: fn(&model::soak::MinuteOfPath) -> f64| {
            let each = kind.paths.iter().flat_map(|path| soak.of_path(*path));
            each.map(move |(_, minute)| of(minute)).collect::<Vec<f64>>()
        };
        let (lowest, medians) = (all(|path| path.lowest_gbps), all(|path| path.gbps));
        let ends = kind.paths.iter().filter_map(|path| {
            let own: Vec<f64> = soak.of_path(*path).map(|(_, own)| own.gbps).collect();
            let some = AT_ENDS.min(own.len().div_ceil(2));
            let first = mean(own.iter().copied().take(some))?;
            let last = mean(own.iter().rev().copied().take(some))?;
            Some((first, last))
        });
        // The flow that lost most.
        let end = ends.min_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
        let bytes: f64 = all(|path| bytes_of(path.bytes)).iter().sum();
        let name = match (kind.pattern, kind.of.as_str()) {
            (None, _) => "within a GPU, by kernel".to_owned(),
            (Some(pattern), "") => pattern.to_string(),
            (Some(pattern), of) => format!("{pattern} {of}"),
        };
        table.row(vec![
            Cell::from(name),
            or_dash(Spread::of(lowest).map(|of| rate(of.min))),
            or_dash(Spread::of(medians).map(|of| rate(of.median))),
            or_dash(end.map(|(first, _)| rate(first))),
            or_dash(end.map(|(_, last)| rate(last))),
            Cell::from(amount(bytes)),
        ]);
    }
    page.table(table);
}

/// Returns an amount of data in decimal units, as rates are: `1.93 PB`.
fn amount(bytes: f64) -> String {
    // The sum of nothing is -0.
    let bytes = bytes.abs();
    let units = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1e6, "MB"));
    format!("{} {name}", rate(bytes / unit))
}

/// Writes a row for each GPU.
fn gpus(page: &mut Page, soak: &Soak) {
    page.blank();
    let mut table = Table::of_figures(8);
    table.captions(["", "°C", "", "", "MHz", "", "", "link"]);
    table.captions(["GPU", "first", "last", "max", "first", "last", "held", "errors"]);
    for gpu in soak.gpus() {
        let own: Vec<&MinuteOfGpu> = soak.of_gpu(gpu).map(|(_, own)| own).collect();
        let ends = |of: fn(&MinuteOfGpu) -> Option<f64>| {
            let known: Vec<f64> = own.iter().filter_map(|own| of(own)).collect();
            [known.first().copied(), known.last().copied()].map(|end| end.map(degrees))
        };
        let [cold, warm] = ends(|own| own.temperature_c);
        let [fast, late] = ends(|own| own.sm_clock_mhz);
        let hottest = own.iter().filter_map(|own| own.temperature_max_c).max();
        let held = own.iter().filter(|own| is_held(own)).count();
        table.row(vec![
            Cell::from(gpu.to_string()),
            or_dash(cold),
            or_dash(warm),
            or_dash(hottest.map(|celsius| celsius.to_string())),
            or_dash(fast),
            or_dash(late),
            Cell::from(match held {
                0 => "-".to_owned(),
                minutes => format!("{minutes} min"),
            }),
            or_dash(link_errors(&own).map(|errors| errors.to_string())),
        ]);
    }
    page.table(table);
}

fn is_held(minute: &MinuteOfGpu) -> bool {
    let mut reasons = minute.throttle_reasons.iter();
    reasons.any(|reason| {
        reason.contains("thermal") || reason == "hw-slowdown" || reason == "hw-power-brake"
    })
}

/// Returns the errors that the NVLinks and the PCIe link of a GPU counted; none if nothing counts them.
fn link_errors(minutes: &[&MinuteOfGpu]) -> Option<u64> {
    let of = |minute: &&MinuteOfGpu| {
        let nvlinks = minute.nvlink_errors.as_ref();
        let nvlinks = nvlinks.map(|links| links.iter().map(|link| link.all()).sum::<u64>());
        match (nvlinks, minute.replays_added) {
            (None, None) => None,
            (nvlinks, replays) => Some(nvlinks.unwrap_or(0) + replays.unwrap_or(0)),
        }
    };
    minutes.iter().filter_map(of).reduce(u64::saturating_add)
}

/// Writes the events, the first ones of many.
fn events(page: &mut Page, soak: &Soak) {
    if soak.events.is_empty() {
        return;
    }
    page.blank();
    let all = alike(soak);
    let most = if page.verbose() { all.len() } else { MOST_EVENTS };
    for alike in all.iter().take(most) {
        let paint = if alike.first.is_fault() { Paint::Warning } else { Paint::Plain };
        page.item(2, 16, &duration(alike.first.at_s), paint, &alike.words());
    }
    let more = all.len().saturating_sub(most) as u64 + soak.events_left_out;
    if more > 0 {
        page.note(Paint::Faint, &format!("and {more} more"));
    }
}

/// Events of one kind about one part of the machine.
pub(super) struct Alike<'a> {
    pub first: &'a SoakEvent,
    last: &'a SoakEvent,
    count: usize,
}

impl Alike<'_> {
    /// Returns the first one, with the number and the time of the others.
    pub(super) fn words(&self) -> String {
        let what = &self.first.what;
        match self.count {
            1 => what.clone(),
            2 => format!("{what}; again after {}", duration(self.last.at_s)),
            many => {
                format!("{what}; {} times more, last after {}", many - 1, duration(self.last.at_s))
            }
        }
    }
}

/// Returns the events, those that repeat once, in the order of their first ones.
pub(super) fn alike(soak: &Soak) -> Vec<Alike<'_>> {
    let key = |event: &SoakEvent| (event.kind, event.gpu, event.path, event.function, event.xid);
    let repeats = |event: &SoakEvent| {
        !matches!(
            event.kind,
            EventKind::ProgramBegan | EventKind::ProgramEnded | EventKind::Problem
        )
    };
    let mut all: Vec<Alike<'_>> = Vec::new();
    for event in &soak.events {
        let known = |known: &&mut Alike<'_>| key(known.first) == key(event);
        match all.iter_mut().find(known).filter(|_| repeats(event)) {
            Some(known) => {
                known.count += 1;
                known.last = event;
            }
            None => all.push(Alike { first: event, last: event, count: 1 }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::amount;

    #[test]
    fn nothing_has_no_sign() {
        let nothing: f64 = [].iter().sum();
        assert_eq!((amount(nothing), amount(1.93e15)), ("0.0 MB".into(), "1.9 PB".into()));
    }
}
