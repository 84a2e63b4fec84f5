//! The rounds that a `.trace` file follows, in time: a small chart for each test, related charts side by side on one scale.
//! A track for the host's calls and one for each stream.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::blocks::NEW_LINE;
use crate::escape::clean;
use crate::figures::{by_key, count};
use crate::picture::{fit, int, text_width};
use crate::trace::{PlacedPart, place, stream_names};
use model::rounding::{percent, short};
use model::timeline::{Timeline, WorkKind};

/// Most fields of all charts together: a page must stay small. A `.trace` file contains everything.
const MOST_FIELDS: usize = 2000;

/// Width of a chart, and left edge of its tracks, in its own units: about pixels.
const WIDTH: i32 = 312;
const LEFT: i32 = 98;
const PLOT: i32 = WIDTH - LEFT - 4;
/// Height of a track, of a field on it, and of the line of times below all tracks.
const TRACK: i32 = 22;
const FIELD: i32 = 16;
const TIMES: i32 = 16;
const TEXT: i32 = 11;
/// Least width of a field with a word; longer words are cut to fit.
const LEAST_WORD: i32 = 70;
/// Least width of a field: a narrower one would be invisible.
const NARROWEST: f64 = 1.2;

/// A track: a stream of a GPU, or none for the host's calls.
type Track = Option<(u32, u32)>;

/// A call or an operation, drawn on a track.
struct Field<'a> {
    track: Track,
    class: &'static str,
    /// Text inside the field, if it fits.
    word: &'a str,
    name: &'a str,
    /// Start and end, nanoseconds of the host's clock.
    at: [f64; 2],
}

/// Renders all charts, or nothing if no round was followed.
pub(super) fn write(timelines: &[Timeline]) -> Markup {
    let placed = place(timelines);
    let (mut room, mut left_out) = (MOST_FIELDS, 0);
    let fits = |(part, _): &(&PlacedPart<'_>, _)| {
        let fields = part.calls.len() + part.work.len();
        let fits = fields <= room;
        room -= if fits { fields } else { 0 };
        left_out += usize::from(!fits);
        fits
    };
    let parts = placed.parts.iter().filter_map(|part| Some((part, span(part)?))).filter(fits);
    let groups = by_key(parts.map(|(part, span)| (part.probe, (part, span))));
    // How well the times of GPUs are known on the host's clock.
    let worst = placed.clocks.iter().map(|clock| clock.uncertainty_us).fold(0.0, f64::max);
    html! {
        @if !groups.is_empty() || !placed.missing.is_empty() {
            (NEW_LINE) details .timeline {
                summary { "Timeline: what ran when" }
                p .faint {
                    "One run of each, for the eye: the figures above are of runs that nobody watched. "
                    @if worst > 0.0 { "Times of a GPU beside those of the host are within " (short(worst)) " us." }
                }
                p .legend {
                    span .key.call { "call of the host" } " "
                    span .key.copy { "copy" } " "
                    span .key.kernel { "kernel" } " "
                    span { "point at a field for its name and times" }
                }
                @for (probe, parts) in &groups { (group(probe, parts)) }
                @if left_out > 0 { p { (count(left_out, "more chart")) " would make this page too large: a .trace file has everything" } }
                @for why in &placed.missing { p { "Not drawn: " (clean(why)) } }
            }
        }
    }
}

/// Returns the first moment and the length, nanoseconds. Returns `None` if they make no chart.
fn span(part: &PlacedPart<'_>) -> Option<[f64; 2]> {
    let [start, end] = part.span_ns()?;
    [start, end, end - start].iter().all(|ns| ns.is_finite()).then_some([start, end - start])
}

fn title(probe: &str) -> &str {
    match probe {
        "overlap" => {
            "A copy beside a kernel on either GPU: streams of source/destination, and whether the host waits"
        }
        "pipeline" => "Pipelines: batches copied in, worked on and copied out",
        "calls" => "How long calls hold the host",
        "loop" => "Loops of launches with a wait in each turn",
        other => other,
    }
}

/// Renders charts of one kind side by side, with the same tracks and scale.
fn group(probe: &str, parts: &[(&PlacedPart<'_>, [f64; 2])]) -> Markup {
    let fields = parts.iter().flat_map(|(part, _)| fields(part));
    let tracks: BTreeSet<Track> = fields.map(|field| field.track).collect();
    let whole = parts.iter().map(|(_, [_, length])| *length).fold(0.0, f64::max);
    html! {
        (NEW_LINE) h3 { (clean(title(probe))) }
        div .lanes {
            @for (part, span) in parts { (NEW_LINE) (chart(part, *span, &tracks, whole)) }
        }
    }
}

fn fields<'a>(part: &'a PlacedPart<'a>) -> impl Iterator<Item = Field<'a>> {
    let calls = part.calls.iter().map(|call| Field {
        track: None,
        class: "call",
        word: &call.name,
        name: &call.name,
        at: [call.start_ns, call.end_ns],
    });
    let work = part.work.iter().map(|placed| {
        let class = match placed.work.kind {
            WorkKind::Copy => "copy",
            WorkKind::Kernel => "kernel",
        };
        Field {
            track: Some((placed.work.gpu, placed.work.stream)),
            class,
            word: class,
            name: &placed.work.name,
            at: [placed.start_ns, placed.end_ns],
        }
    });
    calls.chain(work)
}

fn chart(
    part: &PlacedPart<'_>,
    [start, length]: [f64; 2],
    tracks: &BTreeSet<Track>,
    whole: f64,
) -> Markup {
    let place = |at: f64| f64::from(LEFT) + f64::from(PLOT) * share(at - start, whole);
    let top = |track: Track| TRACK * int(tracks.range(..track).count());
    let bottom = TRACK * int(tracks.len());
    let view = format!("0 0 {WIDTH} {}", bottom + TIMES);
    let said = said(part, length);
    html! {
        figure {
            figcaption { strong { (clean(part.name)) } span .faint { (said) } }
            svg .lane viewBox=(view) role="img" aria-label=(clean(&format!("{}: {said}", part.name))) {
                @for (track, name) in tracks.iter().zip(names(tracks)) {
                    @let y = top(*track);
                    text .detail.end x=(LEFT - 6) y=(y + 15) { (fit(&name, TEXT, LEFT - 4)) }
                    rect .track x=(LEFT) y=(y + 2) width=(PLOT) height=(TRACK - 4) {}
                }
                @for field in fields(part) { (drawn(&field, top(field.track), field.at.map(place), start)) }
                @for (x, class, at) in [(0, "", 0.0), (PLOT / 2, " middle", whole / 2.0), (PLOT, " end", whole)] {
                    text class=(format!("detail{class}")) x=(LEFT + x) y=(bottom + 12) { @if x == 0 { "0" } @else { (time(at)) } }
                }
            }
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    let share = if whole > 0.0 { part / whole } else { 0.0 };
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

fn names(tracks: &BTreeSet<Track>) -> impl Iterator<Item = String> {
    let mut streams: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (gpu, stream) in tracks.iter().flatten() {
        streams.entry(*gpu).or_default().insert(*stream);
    }
    let of_gpu = |(gpu, streams): (u32, BTreeSet<u32>)| {
        let names = stream_names(&streams).into_iter();
        names.map(move |name| format!("GPU {gpu} {}", name.replace(" stream", "")))
    };
    let host = tracks.contains(&None).then(|| "host".to_owned());
    host.into_iter().chain(streams.into_iter().flat_map(of_gpu))
}

fn drawn(field: &Field<'_>, top: i32, [from, to]: [f64; 2], zero: f64) -> Markup {
    let width = (to - from).max(NARROWEST);
    let y = top + (TRACK - FIELD) / 2;
    let [start, end] = field.at.map(|at| time(at - zero));
    let tip = format!("{}: {start} to {end}", field.name);
    #[allow(clippy::cast_possible_truncation, reason = "within a chart")]
    let room = width as i32 - 4;
    html! {
        g .(field.class) {
            title { (clean(&tip)) }
            rect x=(format!("{from:.1}")) y=(y) width=(format!("{width:.1}")) height=(FIELD) rx=(if field.class == "kernel" { 5 } else { 1 }) {}
            @if room >= text_width(field.word, TEXT).min(LEAST_WORD) {
                text x=(format!("{:.1}", from + width / 2.0)) y=(y + 12) { (fit(&clean(field.word), TEXT, room)) }
            }
        }
    }
}

/// Formats nanoseconds for people.
fn time(ns: f64) -> String {
    match ns.abs() {
        size if size >= 1e6 => format!("{} ms", short(ns / 1e6)),
        _ => format!("{} us", short(ns / 1e3)),
    }
}

/// Describes a chart in words: how long everything took, and how much of each kernel ran beside the copy, if any.
fn said(part: &PlacedPart<'_>, length: f64) -> String {
    let of = |kind: WorkKind| part.work.iter().filter(move |placed| placed.work.kind == kind);
    let (mut copies, all) = (of(WorkKind::Copy), time(length));
    let (Some(copy), None) = (copies.next(), copies.next()) else { return all };
    let beside = of(WorkKind::Kernel).map(|kernel| {
        let both = kernel.end_ns.min(copy.end_ns) - kernel.start_ns.max(copy.start_ns);
        let share = 100.0 * share(both, kernel.end_ns - kernel.start_ns);
        format!("{}% on GPU {}", percent(share), kernel.work.gpu)
    });
    match beside.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => all,
        beside => format!("{all}; kernels beside the copy: {beside}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::timeline::{Attempt, Call, ClockReading, Work};

    fn work(kind: WorkKind, gpu: u32, stream: u32, [start_us, end_us]: [f64; 2]) -> Work {
        let (start_ns, end_ns) = (start_us * 1e3, end_us * 1e3);
        Work { name: format!("{kind} of a test"), kind, gpu, stream, start_ns, end_ns, call: None }
    }

    /// Returns placements whose kernel on GPU 0 runs beside the copy, and after it.
    fn timeline() -> Timeline {
        let reading = |gpu| ClockReading {
            gpu,
            zero_ns: 1e6,
            gpu_ns: 0.0,
            not_before_ns: 1e6 - 2e3,
            not_after_ns: 1e6 + 2e3,
        };
        let part = |name: &str, kernel: [f64; 2]| Attempt {
            probe: "overlap".into(),
            name: name.into(),
            calls: vec![Call { name: "copy <64 MiB>".into(), start_ns: 1e6, end_ns: 1e6 + 4e3 }],
            work: vec![
                work(WorkKind::Copy, 0, 2, [10.0, 110.0]),
                work(WorkKind::Kernel, 0, 0, kernel),
            ],
            gates: Vec::new(),
        };
        let parts = vec![
            part("side/side/non-blocking", [20.0, 70.0]),
            part("default/default/blocking", [110.0, 160.0]),
        ];
        Timeline { clocks: vec![reading(0), reading(1)], parts, problem: None }
    }

    fn drawn(timelines: &[Timeline]) -> scraper::Html {
        scraper::Html::parse_fragment(&write(timelines).into_string())
    }

    fn texts(page: &scraper::Html, query: &str) -> Vec<String> {
        let selector = scraper::Selector::parse(query).unwrap();
        page.select(&selector).map(|element| element.text().collect()).collect()
    }

    fn numbers(page: &scraper::Html, query: &str, attribute: &str) -> Vec<f64> {
        let selector = scraper::Selector::parse(query).unwrap();
        page.select(&selector)
            .map(|element| element.attr(attribute).unwrap().parse().unwrap())
            .collect()
    }

    #[test]
    fn charts_of_a_kind_have_the_same_tracks_and_one_scale() {
        let page = drawn(&[timeline()]);
        assert_eq!(
            texts(&page, "figcaption strong"),
            ["side/side/non-blocking", "default/default/blocking"]
        );
        assert_eq!(
            texts(&page, "figcaption span"),
            [
                "110 us; kernels beside the copy: 100% on GPU 0",
                "160 us; kernels beside the copy: 0% on GPU 0"
            ]
        );
        let tracks = texts(&page, "svg > text.end");
        assert_eq!(tracks, ["host", "GPU 0 default", "GPU 0 side", "160 us"].repeat(2));
        let copies = numbers(&page, ".copy rect", "width");
        assert!((copies[0] - copies[1]).abs() < 1e-9 && copies[0] > 100.0, "{copies:?}");
        let (starts, ends) =
            (numbers(&page, ".kernel rect", "x"), numbers(&page, ".kernel rect", "width"));
        let copy = numbers(&page, ".copy rect", "x")[0];
        assert!(
            starts[0] < copy + copies[0] && (starts[1] - copy - copies[0]).abs() < 0.11,
            "{starts:?}"
        );
        assert!(
            (starts[1] + ends[1] - f64::from(LEFT + PLOT)).abs() < 0.2,
            "the longest fills its chart"
        );
    }

    #[test]
    fn fields_lie_within_their_chart_and_say_what_they_are() {
        let page = drawn(&[timeline()]);
        let titles = texts(&page, "svg title");
        assert!(titles.contains(&"copy <64 MiB>: 0.00 us to 4.00 us".to_owned()), "{titles:?}");
        assert!(titles.contains(&"kernel of a test: 20.0 us to 70.0 us".to_owned()), "{titles:?}");
        let (starts, widths) = (numbers(&page, "g rect", "x"), numbers(&page, "g rect", "width"));
        assert_eq!(starts.len(), 6);
        for (start, width) in starts.into_iter().zip(widths) {
            assert!(
                start >= f64::from(LEFT) && start + width <= f64::from(WIDTH),
                "{start} {width}"
            );
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_said_and_hostile_times_make_no_chart() {
        assert_eq!(write(&[]).into_string(), "");
        let mut lost =
            Timeline { clocks: Vec::new(), problem: Some("it <failed>".into()), ..timeline() };
        lost.parts[0].calls[0].end_ns = f64::INFINITY;
        let page = drawn(&[lost]);
        assert_eq!(texts(&page, "figure").len(), 1);
        let said = texts(&page, "details > p").concat();
        assert!(
            said.contains("it <failed>") && said.contains("whose clock was not read"),
            "{said}"
        );
    }

    #[test]
    fn a_page_stays_small_whatever_was_followed() {
        let mut long = timeline();
        let calls = vec![long.parts[0].calls[0].clone(); MOST_FIELDS - 3];
        long.parts[1].calls = calls;
        let page = drawn(&[long]);
        assert_eq!(texts(&page, "figure").len(), 1);
        assert!(
            texts(&page, "details > p")
                .concat()
                .contains("1 more chart would make this page too large")
        );
    }
}
