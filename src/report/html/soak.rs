//! Hours under load as charts over time: rates of each flow, temperatures and clocks of each GPU, and what happened when.
//! All have one axis of time.

use std::collections::HashSet;

use maud::{Markup, html};

use super::blocks::NEW_LINE;
use crate::digest::Digest;
use crate::escape::clean;
use crate::highlight;
use crate::soak::{alike, at, duration, summary, words};
use model::finding::Severity;
use model::soak::{MinuteOfGpu, Soak, SoakEvent, SoakPath, mean};

/// Width of a chart, its left edge, and its height, in its own units: about pixels.
const WIDTH: f64 = 640.0;
const LEFT: f64 = 52.0;
const HEIGHT: f64 = 120.0;
/// Line of times below a chart, and room above it.
const TIMES: f64 = 18.0;
const ABOVE: f64 = 8.0;
/// Height of a line of text.
const LETTERS: f64 = 13.0;
/// Most points of a line: a page must stay small. A longer soak has means of several minutes.
const MOST_POINTS: usize = 240;
/// Most points of all lines of a chart together.
const MOST_OF_ALL: usize = 4000;
/// Most events that are marked and listed.
const MOST_EVENTS: usize = 200;
/// Share by which a line lies apart from the median line, so that it is drawn and labelled by itself. Chosen: more than
/// siblings scatter.
const APART: f64 = 0.02;

/// A line of a chart.
struct Line {
    name: String,
    /// The GPUs that it is about.
    gpus: Vec<u32>,
    /// Seconds and values.
    points: Vec<(f64, f64)>,
}

/// Renders the charts, or nothing without hours under load.
pub(super) fn write(digest: &Digest<'_>, soak: Option<&Soak>) -> Markup {
    let soak = soak.filter(|soak| !soak.minutes.is_empty());
    html! {
        @if let Some(soak) = soak {
            @let chart = Chart::of(digest, soak);
            section .soak {
                h2 { "Hours under load" }
                @for sentence in summary(soak) { p { (clean(&sentence)) } }
                div .cards {
                (chart.draw("Rate of each flow, per cent of its highest minute", f64::min, rates(soak)))
                (chart.draw("Temperature of each GPU, °C", f64::max, of_gpus(soak, |own| own.temperature_c)))
                (chart.draw("Power of each GPU, W", f64::min, of_gpus(soak, |own| own.power_w)))
                (chart.draw("Clock of the multiprocessors of each GPU, MHz", f64::min, of_gpus(soak, |own| own.sm_clock_mhz)))
                (chart.events())
                }
            }
        }
    }
}

/// Returns a line for each flow: flows of all arrangements are on one scale.
fn rates(soak: &Soak) -> Vec<Line> {
    let line = |(number, path): (u32, &SoakPath)| {
        let all = || soak.of_path(number).map(|(at, own)| (at, own.gbps));
        let most = all().map(|(_, gbps)| gbps).fold(0.0, f64::max);
        (most > 0.0).then(|| Line {
            name: path.name(),
            gpus: path.flow().gpus().collect(),
            points: all().map(|(at, gbps)| (at, 100.0 * gbps / most)).collect(),
        })
    };
    soak.numbered().filter_map(line).collect()
}

fn of_gpus(soak: &Soak, figure: fn(&MinuteOfGpu) -> Option<f64>) -> Vec<Line> {
    let lines = soak.gpus().into_iter().map(|gpu| Line {
        name: format!("GPU {gpu}"),
        gpus: vec![gpu],
        points: soak.of_gpu(gpu).filter_map(|(until, own)| Some((until, figure(own)?))).collect(),
    });
    lines.collect()
}

/// What all charts share: the axis of time, the events, the GPUs that findings are about.
struct Chart<'a> {
    /// Seconds at the end of the axis.
    end: f64,
    events: Vec<Vec<&'a SoakEvent>>,
    events_left_out: u64,
    found: HashSet<u32>,
}

impl<'a> Chart<'a> {
    fn of(digest: &Digest<'_>, soak: &'a Soak) -> Self {
        let findings = digest.findings.iter().filter(|finding| finding.severity > Severity::Info);
        let found = findings.flat_map(|finding| highlight::gpus(finding)).collect();
        let mut events = alike(soak);
        let rest = events.split_off(MOST_EVENTS.min(events.len())).len() as u64;
        Self {
            end: soak.seconds.max(1.0),
            events,
            events_left_out: rest + soak.events_left_out,
            found,
        }
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + (WIDTH - LEFT - 8.0) * (at / self.end).clamp(0.0, 1.0)
    }

    /// Draws lines over time in grey, with the numbers of the events. The line with the worst value is drawn last and
    /// labelled, if it lies apart from the others.
    fn draw(&self, title: &str, worst: fn(f64, f64) -> f64, mut lines: Vec<Line>) -> Markup {
        for line in &mut lines {
            // The last entry of a soak may have no length.
            line.points.dedup_by(|later, earlier| later.0 <= earlier.0);
        }
        // A single minute is no line; the table has it.
        lines.retain(|line| line.points.len() > 1);
        let extreme = |line: &Line| {
            line.points.iter().map(|(_, value)| *value).reduce(worst).unwrap_or_default()
        };
        // The worst one comes last: the extreme of two is its own.
        lines.sort_by(|one, other| {
            let [one, other] = [one, other].map(extreme);
            (worst(one, other) == one).cmp(&(worst(one, other) == other))
        });
        let values = || lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
        let (Some(least), Some(most)) = (values().reduce(f64::min), values().reduce(f64::max))
        else {
            return html! {};
        };
        let middle = extreme(&lines[lines.len() / 2]);
        let is_apart = |line: &&Line| (extreme(line) - middle).abs() > APART * middle.abs();
        let odd = lines.last().filter(|line| lines.len() > 1 && is_apart(line));
        // Some room, so that a steady line is not drawn as noise.
        let room = ((most - least) * 0.1).max(most.abs() * 0.02).max(1e-6);
        let (low, high) = (least - room, most + room);
        let y = |value: f64| ABOVE + HEIGHT * (1.0 - (value - low) / (high - low));
        let bottom = ABOVE + HEIGHT;
        // Values that are close together have figures that differ, apart from each other.
        let differ = most - least >= 0.05;
        let digits = usize::from(differ && most - least < 2.0);
        let apart = ((LETTERS - (y(least) - y(most))) / 2.0).max(0.0);
        let labels = match differ {
            true => vec![(least, apart), (most, -apart)],
            false => vec![(least, 0.0)],
        };
        // The name stands above its line, or below if there is no room.
        let beside =
            |y: f64| if y < ABOVE + 2.0 * LETTERS { y + 1.3 * LETTERS } else { y - 0.8 * LETTERS };
        let view = format!("0 0 {WIDTH} {}", bottom + TIMES);
        let most = (MOST_OF_ALL / lines.len().max(1)).min(MOST_POINTS);
        let whole = |at: f64| if self.end > 600.0 { (at / 60.0).round() * 60.0 } else { at };
        html! {
            div .scroll tabindex="0" role="region" aria-label=(title) {
            h3 { (title) }
            svg .over-time viewBox=(view) role="img" aria-label=(title) {
                rect .track x=(LEFT) y=(ABOVE) width=(WIDTH - LEFT - 8.0) height=(HEIGHT) {}
                @for (value, moved) in labels {
                    line .grid x1=(LEFT) x2=(WIDTH - 8.0) y1=(place(y(value))) y2=(place(y(value))) {}
                    text .end x=(LEFT - 4.0) y=(place(y(value) + 4.0 + moved)) { (format!("{value:.digits$}")) }
                }
                @for part in 0..=4 {
                    @let at = self.end * f64::from(part) / 4.0;
                    text .(if part == 4 { "end" } else { "mid" }) x=(place(self.x(at))) y=(bottom + 14.0) { (duration(whole(at))) }
                }
                @for line in &lines {
                    @let is_odd = odd.is_some_and(|odd| std::ptr::eq(odd, line));
                    polyline .odd[is_odd] points=(self.points(&line.points, most, y)) { title { (clean(&line.name)) } }
                }
                (self.marks(bottom))
                @if let Some((line, (_, last))) = odd.and_then(|line| Some((line, line.points.last()?))) {
                    @let is_bad = line.gpus.iter().any(|gpu| self.found.contains(gpu));
                    text .end.name.error[is_bad] x=(WIDTH - 12.0) y=(place(beside(y(*last)))) { (clean(&line.name)) }
                }
            }
            }
        }
    }

    /// Draws the events, with their numbers where there is room.
    fn marks(&self, bottom: f64) -> Markup {
        let mut free = 0.0;
        let mut is_free = |at: f64| {
            let is_free = at >= free;
            free = if is_free { at + 2.0 * LETTERS } else { free };
            is_free
        };
        html! {
            @for (number, alike) in (1..).zip(&self.events) {
                @let x = self.x(alike[0].at_s);
                line .mark.bad[alike[0].is_fault()] x1=(place(x)) x2=(place(x)) y1=(ABOVE) y2=(bottom) { title { (clean(&at(alike[0]))) } }
                @if is_free(x) { text x=(place(x + 3.0)) y=(bottom - 4.0) { (number) } }
            }
        }
    }

    /// Lists the events by their numbers.
    fn events(&self) -> Markup {
        html! {
            div {
            h3 { "Events" }
            @if self.events.is_empty() { p .faint { "None." } }
            @else {
                dl {
                    @for (number, alike) in (1..).zip(&self.events) {
                        (NEW_LINE) dt .warning[alike[0].is_fault()] { (number) ": " (duration(alike[0].at_s)) } dd { (clean(&words(alike))) }
                    }
                }
                @if self.events_left_out > 0 { p .faint { "and " (self.events_left_out) " more" } }
            }
            }
        }
    }

    /// Returns the points of a line, as means of several minutes if there are many.
    fn points(&self, all: &[(f64, f64)], most: usize, y: impl Fn(f64) -> f64) -> String {
        let each = all.len().div_ceil(most.max(1)).max(1);
        let point = |some: &[(f64, f64)]| {
            let [at, value] =
                [mean(some.iter().map(|of| of.0))?, mean(some.iter().map(|of| of.1))?];
            Some(format!("{},{}", place(self.x(at)), place(y(value))))
        };
        all.chunks(each).filter_map(point).collect::<Vec<_>>().join(" ")
    }
}

/// Returns a place with one decimal.
fn place(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::soak::{EventKind, Minute, MinuteOfPath};

    #[test]
    fn a_day_is_drawn_with_few_points_and_events_are_escaped() {
        let minute = |number: u32| Minute {
            until_s: 60.0 * f64::from(number),
            gpus: vec![MinuteOfGpu {
                gpu: 0,
                temperature_c: Some(60.0 + f64::from(number % 3)),
                ..MinuteOfGpu::default()
            }],
            paths: vec![MinuteOfPath {
                gbps: 390.0,
                lowest_gbps: 389.0,
                ..MinuteOfPath::default()
            }],
        };
        let flow = model::flow::Flow::inside(0);
        let mut soak = Soak {
            seconds: 86400.0,
            paths: vec![SoakPath {
                pattern: None,
                of: String::new(),
                from: flow.from,
                to: flow.to,
            }],
            minutes: (1..=1440).map(minute).collect(),
            events: vec![SoakEvent {
                at_s: 5.0,
                kind: EventKind::Hung,
                gpu: None,
                path: None,
                function: None,
                xid: None,
                what: "<script>\u{1b}[2J".into(),
            }],
            ..Soak::default()
        };
        let report = sample::healthy(2);
        let digest = Digest::of(&report);
        let page = write(&digest, Some(&soak)).into_string();
        assert!(!page.contains("<script>") && !page.contains('\u{1b}'), "{page}");
        let longest = page
            .split("points=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().split(' ').count());
        assert!(longest.max().unwrap() <= MOST_POINTS);
        assert!(page.len() < 30_000, "{}", page.len());
        assert_eq!(write(&digest, None).into_string(), "");
        assert!(!page.contains("odd"), "one GPU has no siblings");

        let other = |gpu, clock: f64| MinuteOfGpu {
            gpu,
            sm_clock_mhz: Some(clock),
            ..MinuteOfGpu::default()
        };
        for minute in &mut soak.minutes {
            minute.gpus.extend([other(1, 1980.0), other(2, 1980.0), other(3, 1410.0)]);
        }
        let page = write(&digest, Some(&soak)).into_string();
        assert_eq!(page.matches("class=\"odd\"").count(), 1, "{page}");
        assert!(page.contains(">GPU 3</text>"), "{page}");
    }
}
