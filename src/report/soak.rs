//! Hours under load: the figures so far in a line, and all of them in tables.

use std::collections::BTreeMap;

use super::figures::{Spread, by_key, count};
use super::matrix::{Cell, Table, or_dash};
use super::page::{Page, Paint};
use model::measurement::{Measurements, NvLinkCorrected};
use model::rounding::{percent as whole, range, rate};
use model::soak::{
    EventKind, MinuteOfGpu, MinuteOfPath, STEADY_MINUTES, Soak, SoakEnd, SoakEvent, SoakPath, mean,
};

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
    let event = soak.events.last().map(at);
    let mut parts =
        vec![event.map_or_else(|| "no event".into(), |event| format!("last event {event}"))];
    // Rates between GPUs are of most interest.
    let rates = minutes_of_paths(soak).filter_map(|own| {
        let path = soak.paths.get(own.path as usize)?;
        path.flow().pair().map(|_| (own.lowest_gbps, path.name()))
    });
    let lowest = rates.min_by(|(one, _), (other, _)| one.total_cmp(other));
    parts.extend(lowest.map(|(gbps, name)| format!("lowest {} GB/s {name}", rate(gbps))));
    let last = soak.minutes.iter().next_back().into_iter().flat_map(|minute| &minute.gpus);
    let hottest = last.filter_map(|own| Some((own.temperature_max_c?, own.gpu))).max();
    parts.extend(hottest.map(|(celsius, gpu)| format!("hottest GPU {gpu} {celsius} °C")));
    parts.join("; ")
}

/// Returns `after 40 min: PCIe link of GPU 3: ...`.
pub(super) fn at(event: &SoakEvent) -> String {
    format!("after {}: {}", duration(event.at_s), event.what)
}

fn minutes_of_paths(soak: &Soak) -> impl Iterator<Item = &MinuteOfPath> {
    soak.minutes.iter().flat_map(|minute| &minute.paths)
}

fn minutes_of_gpus(soak: &Soak) -> impl Iterator<Item = &MinuteOfGpu> + Clone {
    soak.minutes.iter().flat_map(|minute| &minute.gpus)
}

/// Bits without an error that leave room for one with 5%: the "rule of three", -ln(0.05).
const BITS_PER_ERROR: f64 = 3.0;
/// Share of its power limit that a GPU should draw under this load. Chosen: H100 and H200 draw 97%.
const ENOUGH_POWER: f64 = 0.6;

/// A kind of path.
type Kind = (&'static str, fn(&SoakPath) -> bool);

/// Returns sentences about the bits that were compared: over links to GPUs, of which all are where that costs little, and what
/// follows if all were right; then those of which few are.
fn compared(soak: &Soak) -> Vec<String> {
    let sums = |is_of: fn(&SoakPath) -> bool| {
        let own = |own: &&MinuteOfPath| soak.paths.get(own.path as usize).is_some_and(is_of);
        let of = || minutes_of_paths(soak).filter(own);
        let bits =
            |bytes: fn(&MinuteOfPath) -> u64| of().map(|own| 8.0 * bytes_of(bytes(own))).sum();
        let (all, compared): (f64, f64) = (bits(|own| own.bytes), bits(|own| own.verified_bytes));
        (all, compared, of().map(|own| own.wrong).sum::<u64>())
    };
    let share = |all: f64, compared: f64| match 100.0 * compared / all {
        share if share >= 100.0 => "all".to_owned(),
        share if share > 99.0 => format!("{:.1}%", (10.0 * share).floor() / 10.0),
        share if share < 1.0 => "less than 1%".to_owned(),
        share => format!("{}%", whole(share.floor())),
    };
    let found = |compared: f64, wrong| match wrong {
        0 => format!(
            "none wrong: at most 1 wrong bit in {}, at 95% confidence",
            scientific(compared / BITS_PER_ERROR)
        ),
        wrong => format!("wrong bytes in {wrong} of the copies"),
    };
    let kinds: [Kind; 3] = [
        ("to GPUs over links", |path| path.flow().within().is_none() && path.to.gpu().is_some()),
        ("to the host", |path| path.to.gpu().is_none()),
        ("within GPUs", |path| path.flow().within().is_some()),
    ];
    let said = kinds.into_iter().filter_map(|(name, is_of)| {
        let (all, compared, wrong) = sums(is_of);
        let found = found(compared, wrong);
        (compared > 0.0).then(|| {
            format!("{} bits {name}, {} compared, {found}", scientific(all), share(all, compared))
        })
    });
    said.collect()
}

/// Returns a number such as `2.1·10^15`.
fn scientific(number: f64) -> String {
    let written = format!("{number:.1e}");
    written.replace('e', "·10^")
}

/// Returns a sentence about the power of the GPUs.
fn power(soak: &Soak) -> Option<String> {
    let mean_of = |gpu: &u32| {
        let watts = mean(soak.of_gpu(*gpu).filter_map(|(_, own)| own.power_w))?;
        let limit = soak.of_gpu(*gpu).filter_map(|(_, own)| own.power_limit_w).last();
        Some((*gpu, watts, limit))
    };
    let known: Vec<_> = soak.gpus().iter().filter_map(mean_of).collect();
    let watts = Spread::of(known.iter().map(|(_, watts, _)| *watts))?;
    let mut limits: Vec<f64> = known.iter().filter_map(|(.., limit)| *limit).collect();
    limits.dedup();
    let of = match limits[..] {
        [limit] => format!(" of {}", whole(limit)),
        _ => String::new(),
    };
    let is_low = |own: &&(u32, f64, Option<f64>)| own.2.is_some_and(|of| own.1 < ENOUGH_POWER * of);
    let low = known.iter().filter(is_low);
    let low: Vec<String> =
        low.map(|(gpu, watts, _)| format!("GPU {gpu} ({})", whole(*watts))).collect();
    let but = match low.is_empty() {
        true => String::new(),
        false => format!("; below 60% of the limit, so not at full heat: {}", low.join(", ")),
    };
    Some(format!("GPUs drew {} W{of}{but}", range(watts.min, watts.max, whole, " to ")))
}

#[allow(clippy::cast_precision_loss, reason = "a rate needs few digits")]
pub(super) const fn bytes_of(bytes: u64) -> f64 {
    bytes as f64
}

/// Writes everything about hours under load.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    let Some(soak) = &measurements.soak else { return };
    page.heading("Hours under load");
    for sentence in summary(soak) {
        page.note(Paint::Plain, &sentence);
    }
    if !soak.minutes.is_empty() {
        rates(page, soak);
        gpus(page, soak);
        events(page, soak);
    }
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
        "{}{ended}; {}{lost}; {} copied, {} compared",
        duration(soak.seconds),
        count(soak.rounds, "round"),
        amount(bytes_of(soak.bytes())),
        amount(bytes_of(soak.verified_bytes())),
    )];
    use EventKind::{NvlinkErrors, PcieErrors, Replays};
    let mut kinds = soak.events.iter().map(|event| event.kind);
    let has_errors = kinds.any(|kind| matches!(kind, NvlinkErrors | PcieErrors | Replays));
    let no_error = (!has_errors && soak.bytes() > 0).then(|| "No link counted an error".to_owned());
    sentences.extend(compared(soak));
    let all = [no_error, corrected(soak), xids(soak), power(soak), thermal(soak)];
    sentences.extend(all.into_iter().flatten());
    sentences
}

/// Returns a sentence about what forward error correction of the NVLinks corrected; none if nothing counts it.
fn corrected(soak: &Soak) -> Option<String> {
    let known =
        minutes_of_gpus(soak).filter_map(|own| Some((own.gpu, own.nvlink_corrected.as_ref()?)));
    known.clone().next()?;
    let mut links: BTreeMap<(u32, u8), NvLinkCorrected> = BTreeMap::new();
    for (gpu, link) in known.flat_map(|(gpu, links)| links.iter().map(move |link| (gpu, link))) {
        links.entry((gpu, link.link)).or_default().add(link);
    }
    let deep = NvLinkCorrected::DEEP;
    let worst = links.iter().max_by_key(|(_, own)| (own.most(), own.from(deep)));
    Some(match worst {
        None => format!("No NVLink corrected more than {} symbols of a codeword", deep - 1),
        Some(((gpu, link), own)) => format!(
            "NVLinks corrected up to {} symbols of a codeword (NVLink {link} of GPU {gpu}: {} with {deep} or more)",
            own.most(),
            count(own.from(deep), "codeword"),
        ),
    })
}

/// Returns a sentence if the driver reported no Xid error, or cannot.
fn xids(soak: &Soak) -> Option<String> {
    let readings: Option<Vec<_>> = minutes_of_gpus(soak).map(|own| own.xids.as_ref()).collect();
    let said = match readings {
        None => "Xid errors are unknown: the driver does not report them to NVML",
        Some(all) if !all.is_empty() && all.iter().all(|xids| xids.is_empty()) => {
            "The driver reported no Xid error"
        }
        Some(_) => return None,
    };
    Some(said.to_owned())
}

/// Returns a sentence about thermal equilibrium.
fn thermal(soak: &Soak) -> Option<String> {
    let all = soak.thermal.iter();
    all.clone().next()?;
    if soak.minutes.len() < STEADY_MINUTES {
        return Some("Too short to see thermal equilibrium, which takes ten minutes".to_owned());
    }
    let known: Vec<(f64, f64)> =
        all.clone().filter_map(|own| Some((own.steady_from_s?, own.steady_c?))).collect();
    let latest = known.iter().map(|(from, _)| *from).reduce(f64::max);
    let temperatures = Spread::of(known.iter().map(|(_, celsius)| *celsius));
    let Some((all_from, celsius)) = latest.zip(temperatures) else {
        return Some("No GPU was in thermal equilibrium".to_owned());
    };
    let range = range(celsius.min, celsius.max, whole, " to ");
    let missing = all.filter(|own| own.steady_from_s.is_none());
    let missing: Vec<String> = missing.map(|own| format!("GPU {}", own.gpu)).collect();
    let but = match missing.is_empty() {
        true => String::new(),
        false => format!("; not {}", missing.join(", ")),
    };
    Some(format!("Thermal equilibrium after {}: {range} °C{but}", duration(all_from)))
}

/// Writes a row for each arrangement of flows.
fn rates(page: &mut Page, soak: &Soak) {
    let mut table = Table::of_figures(6);
    table.captions(["", "GB/s", "", "first", "last", ""]);
    table.captions(["each flow of", "min", "median", "min.", "min.", "bytes"]);
    let paths = soak.numbered().map(|(number, path)| ((path.pattern, &path.of), number));
    for ((pattern, of), paths) in by_key(paths) {
        let own = |path: &u32| soak.of_path(*path).map(|(_, minute)| minute);
        let all = || paths.iter().flat_map(own);
        let ends = paths.iter().filter_map(|path| {
            let own: Vec<f64> = own(path).map(|own| own.gbps).collect();
            let some = AT_ENDS.min(own.len().div_ceil(2));
            let first = mean(own.iter().copied().take(some))?;
            let last = mean(own.iter().rev().copied().take(some))?;
            Some((first, last))
        });
        // The flow that lost most.
        let end = ends.min_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
        let lowest = Spread::of(all().map(|own| own.lowest_gbps)).map(|of| of.min);
        let median = Spread::of(all().map(|own| own.gbps)).map(|of| of.median);
        let name = match pattern {
            None => "within a GPU, by kernel".to_owned(),
            Some(pattern) => format!("{pattern} {of}").trim_end().to_owned(),
        };
        let rates = [lowest, median, end.map(|(first, _)| first), end.map(|(_, last)| last)];
        let rates = rates.map(|gbps| or_dash(gbps.map(rate)));
        let bytes = amount(all().map(|own| bytes_of(own.bytes)).sum());
        table.row([Cell::from(name)].into_iter().chain(rates).chain([bytes.into()]));
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
    let mut table = Table::of_figures(10);
    table.captions(["", "°C", "", "", "memory", "mean", "MHz", "", "", "link"]);
    table.captions(["GPU", "first", "last", "max", "°C", "W", "first", "last", "held", "errors"]);
    for gpu in soak.gpus() {
        let own: Vec<&MinuteOfGpu> = soak.of_gpu(gpu).map(|(_, own)| own).collect();
        let ends = |of: fn(&&MinuteOfGpu) -> Option<f64>| {
            let mut known = own.iter().filter_map(of).map(whole);
            let first = known.next();
            [first.clone(), known.next_back().or(first)]
        };
        let last = |of: fn(&&MinuteOfGpu) -> Option<f64>| own.iter().rev().find_map(of).map(whole);
        let [cold, warm] = ends(|own| own.temperature_c);
        let [fast, late] = ends(|own| own.sm_clock_mhz);
        let hottest = own.iter().filter_map(|own| own.temperature_max_c).max();
        let held = Some(own.iter().filter(|own| is_held(own)).count()).filter(|held| *held > 0);
        let errors = own.iter().filter_map(link_errors).reduce(u64::saturating_add);
        let figures = [
            cold,
            warm,
            hottest.map(|celsius| celsius.to_string()),
            last(|own| own.memory_temperature_c),
            last(|own| own.power_w),
            fast,
            late,
            held.map(|minutes| format!("{minutes} min")),
            errors.map(|errors| errors.to_string()),
        ];
        table.row([gpu.to_string().into()].into_iter().chain(figures.map(or_dash)));
    }
    page.table(table);
}

fn is_held(minute: &MinuteOfGpu) -> bool {
    minute.throttle_reasons.iter().any(|reason| {
        reason.contains("thermal") || reason == "hw-slowdown" || reason == "hw-power-brake"
    })
}

/// Returns the errors that the NVLinks and the PCIe link of a GPU counted; none if nothing counts them.
fn link_errors(minute: &&MinuteOfGpu) -> Option<u64> {
    let nvlinks = minute.nvlink_errors.as_ref();
    let nvlinks = nvlinks.map(|links| links.iter().map(|link| link.all()).sum::<u64>());
    nvlinks.into_iter().chain(minute.replays_added).reduce(|one, other| one + other)
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
        let paint = if alike[0].is_fault() { Paint::Warning } else { Paint::Plain };
        page.item(2, 16, &duration(alike[0].at_s), paint, &words(alike));
    }
    let more = all.len().saturating_sub(most) as u64 + soak.events_left_out;
    if more > 0 {
        page.note(Paint::Faint, &format!("and {more} more"));
    }
}

/// Returns the first one of some events, with the number and the time of the others.
pub(super) fn words(alike: &[&SoakEvent]) -> String {
    let what = &alike[0].what;
    let last = duration(alike[alike.len() - 1].at_s);
    match alike.len() {
        1 => what.clone(),
        2 => format!("{what}; again after {last}"),
        many => format!("{what}; {} times more, last after {last}", many - 1),
    }
}

/// Returns the events, together those of one kind about one part of the machine, in the order of their first ones.
pub(super) fn alike(soak: &Soak) -> Vec<Vec<&SoakEvent>> {
    use EventKind::{Problem, ProgramBegan, ProgramEnded};
    let key = |(number, event): (usize, &SoakEvent)| {
        let is_single = matches!(event.kind, ProgramBegan | ProgramEnded | Problem);
        let part = (event.gpu, event.path, event.function, event.xid);
        (event.kind, part, is_single.then_some(number))
    };
    let all = soak.events.iter().enumerate().map(|(number, event)| (key((number, event)), event));
    by_key(all).into_iter().map(|(_, alike)| alike).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::flow::Flow;
    use model::placement::Pair;
    use model::soak::{Minute, SoakPath};

    #[test]
    fn nothing_has_no_sign() {
        let nothing: f64 = [].iter().sum();
        assert_eq!((amount(nothing), amount(1.93e15)), ("0.0 MB".into(), "1.9 PB".into()));
    }

    /// Returns a minute of a petabit over a link, of which this many bytes were compared, and of GPUs that draw this power.
    fn soak(verified_bytes: u64, wrong: u64, watts: [f64; 2]) -> Soak {
        let flow = Flow::from(Pair { source: 0, destination: 1 });
        let path = SoakPath { pattern: None, of: String::new(), from: flow.from, to: flow.to };
        let copies = MinuteOfPath {
            bytes: 125_000_000_000_000,
            verified_bytes,
            wrong,
            ..MinuteOfPath::default()
        };
        let gpu = |(gpu, watts): (u32, f64)| MinuteOfGpu {
            gpu,
            power_w: Some(watts),
            power_limit_w: Some(700.0),
            ..MinuteOfGpu::default()
        };
        let gpus = (0..).zip(watts).map(gpu).collect();
        let minutes = vec![Minute { until_s: 60.0, gpus, paths: vec![copies] }];
        Soak { paths: vec![path], minutes, ..Soak::default() }
    }

    #[test]
    fn bits_that_were_compared_bound_the_errors() {
        let all = soak(125_000_000_000_000, 0, [690.0, 688.0]);
        assert_eq!(
            compared(&all),
            [
                "1.0·10^15 bits to GPUs over links, all compared, none wrong: at most 1 wrong bit in 3.3·10^14, at 95% confidence"
            ]
        );
        let some = compared(&soak(12_500_000_000_000, 3, [690.0; 2]));
        assert_eq!(
            some,
            ["1.0·10^15 bits to GPUs over links, 10% compared, wrong bytes in 3 of the copies"]
        );
        let nearly = compared(&soak(124_900_000_000_000, 0, [690.0; 2]));
        assert!(nearly[0].contains("99.9% compared"), "{nearly:?}");
        assert!(compared(&soak(0, 0, [690.0; 2])).is_empty());
        // Those within a GPU say nothing of links.
        let mut within = soak(12_500_000, 1, [690.0; 2]);
        within.paths[0].to = within.paths[0].from;
        assert_eq!(
            compared(&within),
            ["1.0·10^15 bits within GPUs, less than 1% compared, wrong bytes in 1 of the copies"]
        );
    }

    #[test]
    fn a_gpu_far_below_its_power_limit_is_named() {
        assert_eq!(power(&soak(0, 0, [690.0, 688.0])).unwrap(), "GPUs drew 688 to 690 W of 700");
        let said = power(&soak(0, 0, [690.0, 310.0])).unwrap();
        assert_eq!(
            said,
            "GPUs drew 310 to 690 W of 700; below 60% of the limit, so not at full heat: GPU 1 (310)"
        );
    }
}
