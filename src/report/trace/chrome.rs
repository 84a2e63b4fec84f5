//! Writes the Trace Event Format of Chrome, which Perfetto and other viewers read. The host and each GPU are a process,
//! and each stream is a track. An arrow connects each call with the work it launched.
//!
//! Source: "Trace Event Format", Google,
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>: events M (names), X (slices), s
//! and f (arrows), times in microseconds.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::clock::micros;
use super::placed::{Placed, PlacedPart, PlacedWork, place, stream_names};
use crate::digest::Digest;
use crate::format::{Format, Of, Style};
use crate::json;
use model::report::Report;
use model::timeline::Timeline;

pub(crate) const FORMAT: Format = Format {
    of: Of::Traced,
    ..Format::new(
        "trace",
        &["trace"],
        "Timeline of one pair for <https://ui.perfetto.dev>: what ran when on which stream",
        render,
    )
};

/// The host's process; GPU n is process n + 2. Viewers treat 0 as the idle task.
const HOST: u64 = 1;
/// Distance between the track numbers of two processes: those of process p begin at p * TRACKS + 1.
const TRACKS: u64 = 1000;
/// The host's tracks: parts of a timeline, and calls.
const PARTS: u64 = HOST * TRACKS + 1;
const CALLS: u64 = HOST * TRACKS + 2;
/// Microseconds by which rounding can make slices overlap: two of the steps of half a microsecond in which drivers
/// report times.
const ROUNDED_US: f64 = 1.0;
/// Explanation of the times, written into the file.
const TIMES: &str = "microseconds since the first event, on the host's monotonic clock; times of a GPU are converted to it \
                     (see clocks): an arrow may seem to point back by as much as their uncertainty";

/// An event of the format.
#[derive(Debug, Serialize)]
#[serde(tag = "ph")]
enum Event {
    #[serde(rename = "M")]
    Name {
        name: &'static str,
        pid: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        tid: Option<u64>,
        args: Value,
    },
    #[serde(rename = "X")]
    Slice { name: String, cat: String, pid: u64, tid: u64, ts: f64, dur: f64, args: Value },
    #[serde(rename = "s")]
    Leaves { name: &'static str, cat: &'static str, id: u64, pid: u64, tid: u64, ts: f64 },
    #[serde(rename = "f")]
    Arrives {
        name: &'static str,
        cat: &'static str,
        id: u64,
        bp: &'static str,
        pid: u64,
        tid: u64,
        ts: f64,
    },
}

/// An activity on a track, with its start and end on the host's clock in nanoseconds.
struct Slice {
    track: (u64, u64),
    name: String,
    category: String,
    start_ns: f64,
    end_ns: f64,
    args: Value,
    /// Number of the arrow that touches this slice; true if the arrow leaves here, false if it arrives.
    arrow: Option<(u64, bool)>,
}

fn render(digest: &Digest<'_>, _style: &Style) -> String {
    json::tidy(&draw(digest.report, digest.timelines))
}

pub(super) fn draw(report: &Report, timelines: &[Timeline]) -> Value {
    let placed = place(timelines);
    let mut drawing = Drawing::default();
    placed.parts.iter().for_each(|part| drawing.part(part));
    json!({
        "traceEvents": drawing.events(&placed, report),
        "displayTimeUnit": "ns",
        "otherData": {
            "tool": format!("{} {}", report.tool.name, report.tool.version),
            "machine": report.machine,
            "simulated": report.is_simulated(),
            "started_at": report.started_at,
            "times": TIMES,
            "clocks": placed.clocks,
            "missing": placed.missing,
        },
    })
}

#[derive(Default)]
struct Drawing {
    slices: Vec<Slice>,
    arrows: u64,
    /// Streams by GPU.
    streams: BTreeMap<u32, BTreeSet<u32>>,
}

impl Drawing {
    /// Adds the calls of a part, the work they launched, and the part as a whole.
    fn part(&mut self, part: &PlacedPart<'_>) {
        let first = self.slices.len();
        for call in part.calls {
            let args = json!({ "probe": part.probe, "part": part.name });
            self.push((HOST, CALLS), &call.name, "host", [call.start_ns, call.end_ns], args);
        }
        part.work.iter().for_each(|placed| self.work(part, placed, first));
        if let Some(whole) = part.span_ns() {
            let (name, args) = (format!("{} {}", part.probe, part.name), json!({}));
            self.push((HOST, PARTS), &name, "part", whole, args);
        }
    }

    /// Adds work of a GPU, and the arrow from the call that launched it; `first` is the index of its part's first slice.
    fn work(&mut self, part: &PlacedPart<'_>, placed: &PlacedWork<'_>, first: usize) {
        let PlacedWork { work, start_ns, end_ns, off_ns } = *placed;
        self.streams.entry(work.gpu).or_default().insert(work.stream);
        let process = process_of(work.gpu);
        let track = process * TRACKS + u64::from(work.stream) + 1;
        let args = json!({
            "probe": part.probe, "part": part.name, "kind": work.kind, "gpu": work.gpu, "uncertainty_us": micros(off_ns),
        });
        self.push((process, track), &work.name, &work.kind.to_string(), [start_ns, end_ns], args);
        let call = work.call.filter(|call| *call < part.calls.len());
        if let (Some(call), Some(last)) = (call, self.slices.len().checked_sub(1)) {
            self.arrows += 1;
            self.slices[first + call].arrow = Some((self.arrows, true));
            self.slices[last].arrow = Some((self.arrows, false));
        }
    }

    fn push(
        &mut self,
        track: (u64, u64),
        name: &str,
        category: &str,
        [start_ns, end_ns]: [f64; 2],
        args: Value,
    ) {
        let (name, category) = (name.to_owned(), category.to_owned());
        self.slices.push(Slice { track, name, category, start_ns, end_ns, args, arrow: None });
    }

    /// Returns all events. Times count from the first one.
    fn events(&self, placed: &Placed<'_>, report: &Report) -> Vec<Event> {
        let zero = self.slices.iter().map(|slice| slice.start_ns).reduce(f64::min).unwrap_or(0.0);
        let mut order: Vec<&Slice> = self.slices.iter().collect();
        order.sort_by(|one, other| {
            one.track.cmp(&other.track).then(one.start_ns.total_cmp(&other.start_ns))
        });
        let mut events = self.names(placed, report);
        let (mut last, mut left) = (((0, 0), 0.0_f64), BTreeMap::new());
        for slice in order {
            // A slice must not begin before the last one on its track has ended, or a viewer would nest it. Only the
            // rounding of times is corrected: a larger overlap means wrong clocks, and a corrected picture would hide
            // that.
            let begins = micros(slice.start_ns - zero);
            let free = if last.0 == slice.track && last.1 - begins <= ROUNDED_US {
                last.1
            } else {
                begins
            };
            let start = begins.max(free);
            let end = micros(slice.end_ns - zero).max(start);
            last = (slice.track, end);
            slice.write([start, end], &mut left, &mut events);
        }
        events
    }

    /// Returns the names of processes and tracks, and their order.
    fn names(&self, placed: &Placed<'_>, report: &Report) -> Vec<Event> {
        let mut events = process(HOST, "host", 0);
        events.extend(track(HOST, PARTS, "what is tried", 0));
        events.extend(track(HOST, CALLS, "calls", 1));
        for (&gpu, streams) in &self.streams {
            let pid = process_of(gpu);
            let known = report.snapshot.gpus.iter().find(|known| known.index == gpu);
            let name = known.and_then(|known| known.name.known());
            let model = name.map(|name| format!(", {}", plain(name))).unwrap_or_default();
            events.extend(process(pid, &format!("GPU {gpu}{model}"), u64::from(gpu) + 1));
            let within = format!("clock within {} us", placed.uncertainty_us(gpu));
            events.push(Event::Name {
                name: "process_labels",
                pid,
                tid: None,
                args: json!({ "labels": within }),
            });
            for ((place, stream), name) in (0..).zip(streams).zip(stream_names(streams)) {
                events.extend(track(pid, pid * TRACKS + u64::from(*stream) + 1, &name, place));
            }
        }
        events
    }
}

impl Slice {
    /// Writes the slice, and the start or end of its arrow; `left` contains the times at which arrows left. The host's
    /// slices are written first, so these times are known. The uncertainty of clocks can make an arrow arrive before it
    /// left, and viewers ignore such an arrow. Its arrival is therefore moved to a later time within its slice.
    fn write(&self, [ts, end]: [f64; 2], left: &mut BTreeMap<u64, f64>, events: &mut Vec<Event>) {
        let ((pid, tid), name, cat) = (self.track, self.name.clone(), self.category.clone());
        let dur = micros((end - ts) * 1e3);
        events.push(Event::Slice { name, cat, pid, tid, ts, dur, args: self.args.clone() });
        match self.arrow {
            Some((id, true)) => {
                left.insert(id, ts);
                events.push(Event::Leaves { name: "launch", cat: "launch", id, pid, tid, ts });
            }
            Some((id, false)) => {
                let ts =
                    left.get(&id).map_or(ts, |left| ts.max(micros((left + 1e-3) * 1e3).min(end)));
                events.push(Event::Arrives {
                    name: "launch",
                    cat: "launch",
                    id,
                    bp: "e",
                    pid,
                    tid,
                    ts,
                });
            }
            None => {}
        }
    }
}

fn process_of(gpu: u32) -> u64 {
    u64::from(gpu) + 2
}

fn process(pid: u64, name: &str, place: u64) -> Vec<Event> {
    vec![
        Event::Name { name: "process_name", pid, tid: None, args: json!({ "name": name }) },
        Event::Name {
            name: "process_sort_index",
            pid,
            tid: None,
            args: json!({ "sort_index": place }),
        },
    ]
}

fn track(pid: u64, tid: u64, name: &str, place: u64) -> Vec<Event> {
    vec![
        Event::Name { name: "thread_name", pid, tid: Some(tid), args: json!({ "name": name }) },
        Event::Name {
            name: "thread_sort_index",
            pid,
            tid: Some(tid),
            args: json!({ "sort_index": place }),
        },
    ]
}

/// Returns a name that came from a machine, without characters that control a terminal.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).collect()
}
