//! `watch`: follows the traffic of a job that runs, without CUDA.

mod screen;

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use self::screen::{End, Screen};
use super::devices::Facts;
use super::files::Files;
use super::{Failure, Judging, Observed, keep, output, select, timestamp};
use crate::cli::{Cli, WatchArgs, WatchFormat};
use ::diagnose::Ending;
use hardware::Machine;
use model::finding::{Finding, Severity};
use model::report::{Report, Timing};
use model::request::Request;
use model::snapshot::{SlowFact, Snapshot};
use model::watched::{Watched, WatchedGpu};
use probes::watch::traffic::{INTERVAL, Traffic};
use report::{Level, json};
use run::recording::Journal;

/// Slow facts that are read before: those that the counters are compared with.
const SLOW: &[SlowFact] = &[SlowFact::PeerAccess, SlowFact::NvLinkErrors];
/// Readings by which the screen judges: one that is odd for a second may be chance.
const JUDGED: usize = 6;
/// Time between two looks for a key, or for the end.
const POLL: Duration = Duration::from_millis(100);

/// The schema of a line of JSON.
const SCHEMA: &str = "peerscope.watch/1";

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    machine: &'a str,
    at: String,
    seconds: f64,
    gpus: &'a [WatchedGpu],
    findings: Vec<&'a Finding>,
}

/// Runs `watch`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn run(cli: &Cli, machine: &Arc<dyn Machine>, args: &WatchArgs) -> Result<u8, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let files = Files::prepare(&args.output, report::Of::Topology)?.until(&stop);
    let terminals = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let can_draw = std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb");
    let on_screen = args.format == WatchFormat::Text && terminals && can_draw;
    if args.length.is_none() && args.format == WatchFormat::Text && !on_screen {
        return Err(
            "watch has no terminal to draw on here: say how long to watch (--for 30s), or ask for \
                    a line a second (--format json)"
                .into(),
        );
    }
    let judging = Judging::of(cli, args.fail_on)?;
    let interrupted = cli.exit_contract.code(Ending::Interrupted);
    super::interrupted_by_signals(&stop, interrupted, screen::restore)?;
    let facts = Facts::open(machine, cli.driver_deadline);
    let (started, started_at) = (Instant::now(), timestamp());
    let (snapshot, request) = select::select(facts.read(SLOW), &cli.gpus)?;
    let seen = Seen { started, started_at, machine: machine.name(), request, judging: &judging };
    let style = output::style(cli.color, Level::Short);
    let traffic = facts.telemetry().filter(|_| !snapshot.gpus.is_empty());
    let mut not_shown = None;
    let (snapshot, watched) = match traffic {
        None => (snapshot, Watched::default()),
        Some(telemetry) => {
            let traffic = Traffic::start(telemetry, &snapshot);
            let mut screen = if on_screen { Some(Screen::enter()?) } else { None };
            let mut next = started;
            let is_over = || args.length.is_some_and(|length| started.elapsed() > length);
            while !stop.load(Ordering::Relaxed) && !is_over() {
                match screen.as_mut().and_then(|screen| screen.ended(POLL)) {
                    Some(End::Interrupted | End::Gone) => stop.store(true, Ordering::Relaxed),
                    Some(End::Asked) => break,
                    None => {}
                }
                if screen.is_none() {
                    std::thread::sleep(POLL);
                }
                let resized = screen.as_mut().is_some_and(Screen::was_resized);
                if traffic.readings() > 1 && (resized || next <= Instant::now()) {
                    next = Instant::now() + INTERVAL;
                    match seen.show(&traffic, screen.as_mut(), args.format) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(why) => {
                            not_shown = Some(why);
                            break;
                        }
                    }
                }
            }
            drop(screen);
            traffic.finish()
        }
    };
    let report = seen.report(snapshot, watched);
    let published = match args.format {
        WatchFormat::Text => {
            let text = report::named("text").unwrap_or(report::FORMATS[0]);
            output::publish_seen(&report, &[], text, &style, &files)
        }
        WatchFormat::Json => {
            // Nothing was shown: the reason is in the findings.
            if traffic.is_none() {
                not_shown = seen.print(&report).err();
            }
            output::write_files(&report, &style, &files, not_shown)
        }
    };
    let whole = published.whole.clone();
    let code = published.code().map_err(|failure| {
        let kept = keep::keep(&report, whole, true, &Journal::none());
        format!("{}. {kept}", failure.sentence)
    })?;
    let cut_short = args.length.is_some() && stop.load(Ordering::Relaxed);
    Ok(if cut_short { interrupted } else { code })
}

/// The run, and by what it is judged.
struct Seen<'a> {
    started: Instant,
    started_at: String,
    machine: &'a str,
    request: Request,
    judging: &'a Judging,
}

impl Seen<'_> {
    /// Returns the report of these readings.
    fn report(&self, snapshot: Snapshot, watched: Watched) -> Report {
        let discover = self.started.elapsed().as_secs_f64() - watched.seconds;
        let observed = Observed {
            started: self.started,
            started_at: self.started_at.clone(),
            machine: self.machine.to_owned(),
            request: self.request.clone(),
            read_from: None,
            topology: topology::build(&snapshot),
            snapshot,
            measurements: None,
            watched: Some(watched),
            timing: Timing { discover: discover.max(0.0), ..Timing::default() },
        };
        observed.conclude(self.judging)
    }

    /// Shows the last second, and what the last readings say. Returns false if nobody reads it any more.
    fn show(
        &self,
        traffic: &Traffic,
        screen: Option<&mut Screen>,
        format: WatchFormat,
    ) -> Result<bool, String> {
        if screen.is_none() && format == WatchFormat::Text {
            return Ok(true);
        }
        let mut report = self.report(traffic.facts(), traffic.last(JUDGED));
        // A job that rests for some seconds is none of the machine's faults.
        report.findings.retain(|finding| {
            finding.severity > Severity::Info && !::diagnose::is_gap(&finding.code)
        });
        report.watched = Some(traffic.last(2));
        match screen {
            Some(screen) => screen.draw(&report, self.started.elapsed()).map(|()| true),
            None => self.print(&report),
        }
    }

    /// Prints a report as a line of JSON. Returns false if nobody reads it any more.
    fn print(&self, report: &Report) -> Result<bool, String> {
        let watched = report.watched.as_ref();
        let line = Line {
            schema: SCHEMA,
            machine: self.machine,
            at: timestamp(),
            seconds: watched.map_or(0.0, |watched| watched.seconds),
            gpus: watched.map_or(&[], |watched| &watched.gpus),
            findings: report.findings.iter().collect(),
        };
        let line = json::in_a_line(&line).map_err(|error| error.to_string())?;
        let mut out = std::io::stdout().lock();
        match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(format!("cannot write to stdout: {error}")),
            Ok(()) => Ok(true),
        }
    }
}
