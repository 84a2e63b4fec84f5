//! The subcommands, one thin file each: they connect the stages and do nothing else.

mod check;
mod collected;
mod compare;
mod devices;
mod diagnose;
mod expect;
mod explain;
mod files;
mod fleet;
mod follower;
mod history;
mod installed;
mod keep;
mod machine_lock;
mod machines;
mod output;
mod pick;
mod progress;
mod recover;
mod refuse;
mod release;
mod select;
mod topo;
mod watch;

pub use refuse::parse;

use std::cell::OnceCell;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use self::history::History;
use crate::cli::{Cli, Command, ReportArgs};
use ::diagnose::expectations::Expectations;
use ::diagnose::{Ending, Evidence, Settings, Terms, config};
use hardware::{DRIVER_START_LIMIT, Machine, limits};
use live::Live;
use model::finding::Severity;
use model::measurement::Measurements;
use model::pasted::Pasted;
use model::report::{Report, SCHEMA, Timing, Tool, Verdict};
use model::request::Request;
use model::snapshot::Snapshot;
use model::topology::Topology;
use model::watched::Watched;
use report::escape::{acts, clean};
use report::files::{at_most, unzipped};
use report::read;
use report::wrap::wrap;
use run::recording::Recorded;
use run::worker::child;
use sim::Simulated;

/// Default time limit of discovery. NVML answers within a second on healthy machines and can block for minutes on sick
/// ones.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(15);

/// Runs a command and returns the exit code.
///
/// # Errors
///
/// A sentence for stderr; the exit code is then that of [`diagnose::Ending::Usage`].
pub fn run(cli: &Cli) -> Result<u8, Failure> {
    limits::raise();
    live::ignore_file_size_signal();
    match carry_out(cli) {
        // Work prevented by a limit of the process is not wrong usage.
        Err(failure) if limits::was_in_the_way() && !matches!(cli.command, Command::Worker(_)) => {
            complain(&failure);
            Ok(cli.exit_contract.code(Ending::Incomplete))
        }
        result => result,
    }
}

fn carry_out(cli: &Cli) -> Result<u8, Failure> {
    refuse::without_effect(cli)?;
    let machine = match &cli.command {
        Command::Worker(args) if args.described => described(&child::description()?)?,
        _ => machine(&cli.machine)?,
    };
    match &cli.command {
        Command::Topo(args) => topo::run(cli, &machine, args),
        Command::Check(args) => check::run(cli, &machine, args),
        Command::Soak(args) => check::soak(cli, &machine, args),
        Command::Watch(args) => watch::run(cli, &machine, args),
        Command::Diagnose(args) => diagnose::run(cli, args),
        Command::Recover(args) => recover::run(cli, args),
        Command::Compare(args) => compare::run(cli, args),
        Command::Fleet(args) => fleet::run(cli, args),
        Command::Expect(args) => expect::run(cli, args),
        Command::Pick(args) => pick::run(cli, args),
        Command::Explain(args) => Ok(explain::run(cli, args)?),
        Command::Machines(args) => Ok(machines::run(args)?),
        Command::Completions(args) => Ok(installed::completions(args)?),
        Command::Manual(args) => Ok(installed::manual(args)?),
        Command::Worker(args) => {
            let limit = cli.driver_deadline.unwrap_or(DRIVER_START_LIMIT);
            child::serve(machine.as_ref(), limit, args.parent, args.partner)?;
            Ok(0)
        }
    }
}

/// Returns the machine that `--machine` names.
///
/// # Errors
///
/// A sentence that names the machine and lists those that exist, or that names the file, line and key that are wrong.
fn machine(name: &str) -> Result<Arc<dyn Machine>, String> {
    if name == live::NAME {
        return Ok(Arc::new(Live));
    }
    Ok(Arc::new(Simulated::find(name)?))
}

/// Returns the machine that the parent of a worker describes.
fn described(line: &str) -> Result<Arc<dyn Machine>, String> {
    let machine = Simulated::described(line.as_bytes())
        .map_err(|error| format!("the machine is not readable: {error}"))?;
    Ok(Arc::new(machine))
}

/// The reason why a command reached no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    sentence: String,
    /// Lines printed below the sentence, such as the place in a file.
    lines: Vec<String>,
}

impl<T: ToString> From<T> for Failure {
    fn from(why: T) -> Self {
        Self { sentence: why.to_string(), lines: Vec::new() }
    }
}

impl Failure {
    /// Returns a sentence with its reason, which may have several lines.
    fn because(what: &str, why: &str) -> Self {
        match why.contains('\n') {
            false => format!("{what}: {why}").into(),
            true => Self {
                sentence: format!("{what}:"),
                lines: why.lines().map(|line| format!("  {line}").trim_end().to_owned()).collect(),
            },
        }
    }
}

/// Prints what makes a shell that evaluates the output fail, so that its script does not go on with all GPUs.
pub fn fail_evaluation() {
    let _ = std::io::stdout().write_all(b"false\n");
}

/// Prints a failure, as `peerscope: sentence`. Control characters in names, of files or from files, are cleaned: the
/// terminal must not obey them.
pub fn complain(failure: &Failure) {
    remark(&failure.sentence);
    for line in &failure.lines {
        let _ = writeln!(std::io::stderr(), "{}", clean(line));
    }
}

/// Prints a remark in the same way, without effect on the exit code.
fn remark(sentence: &str) {
    say(&format!("peerscope: {}", clean(sentence)));
}

/// Prints a line on stderr. A terminal gets it in lines of its width, a file as it is.
fn say(line: &str) {
    let mut stderr = std::io::stderr();
    let lines = match terminal_size::terminal_size_of(&stderr) {
        Some((width, _)) => wrap(line, width.0.into(), 0, 2).join("\n"),
        None => line.to_owned(),
    };
    // eprintln! would panic if stderr cannot be written, and a panic hides the exit code.
    let _ = writeln!(stderr, "{lines}");
}

/// Prints clap's text, help or a complaint, and returns the exit code.
pub fn usage(error: &clap::Error) -> u8 {
    let hostile = std::env::args_os().any(|argument| argument.to_string_lossy().contains(acts));
    let text = error.render().to_string();
    let width = terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| width.0.into());
    let is_long = width.is_some_and(|width| text.lines().any(|line| line.chars().count() > width));
    if error.use_stderr() && (hostile || is_long) {
        // The text repeats the arguments unchanged; without colours only they need cleaning.
        text.lines().for_each(|line| say(&clean(line)));
    } else {
        // If the text cannot be written, the exit code still reports the result.
        let _ = error.print();
    }
    if error.use_stderr() {
        if crate::cli::is_evaluated_in(std::env::args_os()) {
            fail_evaluation();
        }
        crate::cli::contract_in(std::env::args_os()).code(Ending::Usage)
    } else {
        0
    }
}

/// The observations of a run, before it is judged.
struct Observed {
    started: Instant,
    started_at: String,
    machine: String,
    request: Request,
    /// The input, if the observations were read from the output of other tools.
    read_from: Option<Pasted>,
    snapshot: Snapshot,
    topology: Topology,
    measurements: Option<Measurements>,
    /// The readings of a running job; `watch` alone has them.
    watched: Option<Watched>,
    timing: Timing,
}

impl Observed {
    /// Takes the content of a recording.
    fn recorded(started: Instant, started_at: String, machine: String, recorded: Recorded) -> Self {
        let Recorded { request, snapshot, topology, measurements, timing, .. } = recorded;
        Self {
            started,
            started_at,
            machine,
            request,
            read_from: None,
            snapshot,
            topology,
            measurements: Some(measurements),
            watched: None,
            timing,
        }
    }

    /// Builds the report: the observations, the findings of the rules, and the verdict.
    fn conclude(self, judging: &Judging) -> Report {
        let Self {
            started,
            started_at,
            machine,
            request,
            read_from,
            snapshot,
            topology,
            measurements,
            watched,
            timing,
        } = self;
        let mut report = Report {
            schema: SCHEMA.into(),
            tool: Tool::this(),
            started_at,
            machine,
            request,
            read_from,
            snapshot,
            topology,
            measurements,
            watched,
            findings: Vec::new(),
            changes: None,
            advice: Vec::new(),
            verdict: Verdict::default(),
            timing,
        };
        judging.judge(&mut report);
        report.timing.total = started.elapsed().as_secs_f64();
        report
    }
}

/// The terms, settings and comparisons by which reports are judged.
struct Judging {
    terms: Terms,
    settings: Settings,
    /// The file that contains the settings.
    config: Option<String>,
    expectations: Option<Expectations>,
    /// Known once the GPUs are, if it is the last report of this machine.
    baseline: OnceCell<Report>,
    history: Option<History>,
}

impl From<Terms> for Judging {
    /// Returns default settings, without expectations and baseline.
    fn from(terms: Terms) -> Self {
        Self {
            terms,
            settings: Settings::default(),
            config: None,
            expectations: None,
            baseline: OnceCell::new(),
            history: None,
        }
    }
}

impl Judging {
    /// Reads the settings that the command line names.
    ///
    /// # Errors
    ///
    /// A sentence that names the file and the mistake in it.
    fn of(cli: &Cli, fail_on: Severity) -> Result<Self, Failure> {
        let settings = match &cli.config {
            None => Settings::default(),
            Some(path) => {
                let name = path.display();
                let text = written_text(path)?;
                config::parse(&text).map_err(|why| {
                    Failure::because(&format!("the configuration {name} is not usable"), &why)
                })?
            }
        };
        let config = cli.config.as_ref().map(|path| path.display().to_string());
        Ok(Self { settings, config, ..Self::from(cli.terms(fail_on)) })
    }

    /// Reads the settings, and the expectations and the baseline if the command line names them.
    ///
    /// # Errors
    ///
    /// A sentence that names the file and the mistake in it.
    fn with(cli: &Cli, args: &ReportArgs, history: Option<History>) -> Result<Self, Failure> {
        let mut judging = Self { history, ..Self::of(cli, args.fail_on)? };
        if let Some(path) = &args.expect {
            let name = path.display();
            let text = written_text(path)?;
            if text.trim_start().starts_with(['{', '<']) {
                return Err(format!(
                    "{name} is a report: 'peerscope expect {name}' makes expectations of it, and --baseline compares with it"
                )
                .into());
            }
            let expectations = Expectations::parse(&text).map_err(|why| {
                Failure::because(&format!("the expectations {name} are not usable"), &why)
            })?;
            judging.expectations = Some(expectations);
        }
        judging.against(args.baseline.as_deref())?;
        Ok(judging)
    }

    /// Reads the baseline, unless it is the last report of this machine.
    fn against(&mut self, baseline: Option<&Path>) -> Result<(), String> {
        let is_last = self.history.as_ref().is_some_and(|history| history.is_baseline);
        if let Some(path) = baseline.filter(|_| !is_last) {
            self.baseline = OnceCell::from(read::load(path)?);
        }
        Ok(())
    }

    /// Finds the last report of the machine with these GPUs, if the baseline is that one.
    ///
    /// # Errors
    ///
    /// A sentence if there is none.
    fn find_last(&self, snapshot: &Snapshot) -> Result<(), String> {
        if let Some(history) = self.history.as_ref().filter(|history| history.is_baseline) {
            let _ = self.baseline.set(history.last(snapshot)?);
        }
        Ok(())
    }

    /// Keeps a report for the next run, unless this command keeps none.
    fn keep(&self, report: &mut Report) {
        if let Some(history) = &self.history {
            history.keep(report);
        }
    }

    /// Completes the figures, applies the rules, and concludes.
    fn judge(&self, report: &mut Report) {
        let began = Instant::now();
        (report.request.config, report.request.silenced) =
            (self.config.clone(), ::diagnose::silenced(&self.settings));
        ::diagnose::complete(report, &self.settings);
        let measurements = report.measurements.as_ref();
        let (expectations, baseline) = (self.expectations.as_ref(), self.baseline.get());
        let evidence = Evidence { expectations, baseline, ..Evidence::of(report, &self.settings) };
        let findings = ::diagnose::judge(&evidence);
        report.verdict = ::diagnose::verdict(&findings, measurements, self.terms);
        report.findings = findings;
        let measurements = report.measurements.as_ref();
        report.advice = measurements.map(::diagnose::advise).unwrap_or_default();
        if let Some(history) = &self.history {
            report.changes = history.changes(report, (&self.settings, expectations));
        }
        report.timing.diagnose = began.elapsed().as_secs_f64();
    }
}

/// Most bytes of a file that a person writes: settings, expectations, a list of nodes. Chosen: a million names of 60 letters.
const MOST_WRITTEN: u64 = 64 << 20;

/// Returns the text of a file that a person writes.
///
/// # Errors
///
/// A sentence that names the file and why it is of no use.
fn written_text(path: &Path) -> Result<String, String> {
    let name = path.display();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    bounded_text(file, &name.to_string())
}

/// Returns the text that `from`, called `name`, has, if it ends within [`MOST_WRITTEN`].
fn bounded_text(from: impl Read, name: &str) -> Result<String, String> {
    let bytes = at_most(from, MOST_WRITTEN)
        .map_err(|error| format!("cannot read {name}: {error}"))?
        .ok_or_else(|| {
            format!("{name} is longer than {} MiB, so it is no such file", MOST_WRITTEN >> 20)
        })?;
    let bytes = unzipped(&bytes, MOST_WRITTEN).map_err(|why| format!("{name} {why}"))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{name} is no text"))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text).to_owned())
}

/// Lets Ctrl-C, SIGTERM and SIGHUP set this flag. The second signal ends the program with this code, after `last`.
///
/// # Errors
///
/// The system refuses a handler.
fn interrupted_by_signals(stop: &Arc<AtomicBool>, code: u8, last: fn()) -> Result<(), String> {
    let flag = Arc::clone(stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            last();
            std::process::exit(i32::from(code));
        }
    })
    .map_err(|error| match error {
        ctrlc::Error::System(why) => {
            limits::not_started(format!("cannot listen for Ctrl-C: {why}"), &why).message
        }
        error => format!("cannot listen for Ctrl-C: {error}"),
    })
}

/// Returns the current time in RFC 3339, UTC.
fn timestamp() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}
