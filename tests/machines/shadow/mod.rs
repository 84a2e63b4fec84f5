//! The explanation beside the rules, in shadow: for how many labelled cases and recorded reports it accuses exactly the
//! places that findings name, accuses another, or misses one. Prints a table and every difference.
//!
//! `cargo test --test machines shadow::explanation` runs it by itself; a plain `cargo test` leaves it out.

mod explained;
mod score;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use explain::BUDGET;
use libtest_mimic::Trial;
use model::report::Report;

use self::explained::explained;
use self::score::{FIGURES, Score};
use crate::cases::{Shadowed, shadowed};
use crate::common::{Ran, peerscope, say, text_of};
use crate::{common, trial};

/// Least number of reports of each kind that are explained exactly. It may only rise.
const FLOORS: [(Kind, usize); 4] = [
    (Kind::HostAndLoad, 16),
    (Kind::Peers, 42),
    (Kind::NoFigure, 383),
    (Kind::Recorded, 13),
];

/// Most time of one explanation in a build with optimisation, by the number of GPUs.
const TIMES: [(usize, Duration); 3] = [
    (8, Duration::from_millis(20)),
    (16, Duration::from_millis(100)),
    (72, Duration::from_secs(1)),
];

/// Reports by the findings that they must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    HostAndLoad,
    Peers,
    NoFigure,
    Recorded,
}

impl Kind {
    /// Returns the kind of a case by the codes of its labels.
    fn of(must: &[String]) -> Self {
        let codes = || must.iter().filter_map(|must| must.split('@').next());
        let place = codes().filter_map(|code| FIGURES.iter().position(|known| *known == code));
        match place.min() {
            Some(0..6) => Self::HostAndLoad,
            Some(_) => Self::Peers,
            None => Self::NoFigure,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::HostAndLoad => "cases: host copies and loads",
            Self::Peers => "cases: copies between GPUs",
            Self::NoFigure => "cases: facts alone, or healthy",
            Self::Recorded => "recorded reports",
        }
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let explanation = trial("shadow::explanation".into(), explanation);
    let times = trial("shadow::times".into(), times);
    vec![
        explanation.with_ignored_flag(true),
        times.with_ignored_flag(true),
    ]
}

/// A report to be explained: its kind, its name and the command that writes it.
struct Job {
    kind: Kind,
    name: String,
    args: Vec<String>,
    visible: Option<String>,
}

/// One line of the table.
#[derive(Debug, Default, Clone, Copy)]
struct Line {
    reports: usize,
    exact: usize,
    innocent: usize,
    missed: usize,
    gave_up: usize,
    by_rules: usize,
}

/// The result of one job.
struct Done {
    kind: Kind,
    name: String,
    score: Score,
    rules_exact: bool,
    gave_up: bool,
}

fn explanation() {
    let jobs = Mutex::new(VecDeque::from(jobs()));
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some((job, must)) = jobs.lock().unwrap().pop_front() else {
                        break;
                    };
                    let result = run(job, &must);
                    done.lock().unwrap().extend(result);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    let table = table(&done);
    for (kind, least) in FLOORS {
        let exact = table.get(&kind).map_or(0, |line| line.exact);
        assert!(
            exact >= least,
            "{}: {exact} explained exactly, {least} before",
            kind.words()
        );
        if exact > least {
            say(&format!(
                "{}: the floor may rise from {least} to {exact} (tests/machines/shadow/mod.rs)",
                kind.words()
            ));
        }
    }
}

/// Returns all reports with the labels of their cases; a recorded report has none.
fn jobs() -> Vec<(Job, Option<Vec<String>>)> {
    let of_case = |case: Shadowed| {
        let job = Job {
            kind: Kind::of(&case.must),
            name: case.name,
            args: case.args,
            visible: case.visible,
        };
        (job, Some(case.must))
    };
    let of_cases = shadowed().into_iter().map(of_case);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let recorded = files.filter(|file| file.extension().is_some_and(|is| is == "json"));
    let recorded = recorded.map(|file| {
        let args = ["diagnose", &text_of(&file), "--format", "json"].map(String::from);
        let job = Job {
            kind: Kind::Recorded,
            name: file.file_stem().unwrap().to_str().unwrap().to_owned(),
            args: args.into(),
            visible: None,
        };
        (job, None)
    });
    of_cases.chain(recorded).collect()
}

fn run(job: Job, must: &Option<Vec<String>>) -> Option<Done> {
    let mut command = peerscope(&job.args);
    command.env_remove("CUDA_VISIBLE_DEVICES");
    if let Some(visible) = &job.visible {
        command.env("CUDA_VISIBLE_DEVICES", visible);
    }
    let report = parsed(&common::finish(&mut command));
    let explanation = explained(&report, BUDGET)?;
    let score = Score::of(&report, &explanation);
    Some(Done {
        kind: job.kind,
        name: job.name,
        rules_exact: must
            .as_ref()
            .is_none_or(|must| rules_are_exact(&report, must)),
        score,
        gave_up: explanation.gave_up,
    })
}

fn parsed(ran: &Ran) -> Report {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// Returns true if the rules found every label and nothing else at warning or above.
fn rules_are_exact(report: &Report, must: &[String]) -> bool {
    let mut wanted: Vec<&str> = must
        .iter()
        .filter_map(|must| must.split('@').next())
        .collect();
    let raised = report
        .findings
        .iter()
        .filter(|finding| finding.severity > model::finding::Severity::Info);
    let mut found: Vec<&str> = raised.map(|finding| &*finding.code).collect();
    wanted.sort_unstable();
    found.sort_unstable();
    wanted == found
}

/// Prints every difference and the table.
fn table(done: &[Done]) -> BTreeMap<Kind, Line> {
    let mut table: BTreeMap<Kind, Line> = BTreeMap::new();
    for one in done {
        let Score {
            innocent, missed, ..
        } = &one.score;
        let line = table.entry(one.kind).or_default();
        line.reports += 1;
        line.exact += usize::from(innocent.is_empty() && missed.is_empty());
        line.innocent += usize::from(!innocent.is_empty());
        line.missed += usize::from(!missed.is_empty());
        line.gave_up += usize::from(one.gave_up);
        line.by_rules += usize::from(one.rules_exact);
        for place in innocent {
            say(&format!("{}: accuses {place}", one.name));
        }
        for finding in missed {
            say(&format!("{}: does not accuse {finding}", one.name));
        }
    }
    say(&format!(
        "{:<32} {:>7} {:>6} {:>9} {:>7} {:>8} {:>6}",
        "explanation in shadow", "reports", "exact", "innocent", "misses", "gave up", "rules"
    ));
    for (kind, line) in &table {
        let Line {
            reports,
            exact,
            innocent,
            missed,
            gave_up,
            by_rules,
        } = line;
        say(&format!(
            "{:<32} {reports:>7} {exact:>6} {innocent:>9} {missed:>7} {gave_up:>8} {by_rules:>6}",
            kind.words()
        ));
    }
    table
}

/// Prints how long explanations take, of healthy machines and of such with several faults. The limits hold for a build
/// with optimisation: `cargo test --release --test machines shadow::times`.
fn times() {
    let folder = tempfile::tempdir().unwrap();
    for (base, gpus) in [("h200x8", 8), ("pcie16", 16), ("nvl72", 72)] {
        let faulty = folder.path().join(format!("{base}.toml"));
        std::fs::write(&faulty, several_faults(base, gpus)).unwrap();
        for machine in [base.to_owned(), text_of(&faulty)] {
            let args = [
                "check",
                "--machine",
                &machine,
                "--profile",
                "standard",
                "--no-journal",
                "--format",
                "json",
            ];
            let report = parsed(&common::run(&args));
            let started = Instant::now();
            let explanation = explained(&report, BUDGET).unwrap();
            let took = started.elapsed();
            let words = format!(
                "{gpus} GPUs, {} causes of {} figures: {took:.1?}, {} predictions",
                explanation.causes.len(),
                explanation.figures,
                explanation.predictions
            );
            say(&words);
            assert!(!explanation.gave_up, "{words}");
            let limit = TIMES.into_iter().find(|(most, _)| gpus <= *most);
            let limit = limit.map_or(Duration::MAX, |(_, limit)| limit);
            assert!(cfg!(debug_assertions) || took <= limit, "{words}");
        }
    }
}

/// Returns a machine whose GPU 5 is slow with all others, and into whose GPU 1 and between two others copies are slow.
fn several_faults(base: &str, gpus: usize) -> String {
    let slow = |pairs: String, share: f64| {
        format!("{{ pairs = {{ {pairs} }}, fault = {{ slow = {{ share = {share} }} }} }}")
    };
    let mut faults = vec![slow("both = [6, 7]".into(), 0.6)];
    for other in (0..gpus).filter(|other| *other != 5) {
        let (least, most) = (other.min(5), other.max(5));
        faults.push(slow(format!("both = [{least}, {most}]"), 0.7));
    }
    for other in (0..gpus).filter(|other| *other != 1) {
        faults.push(slow(format!("ordered = [{other}, 1]"), 0.8));
    }
    format!(
        "base = \"{base}\"\nsummary = \"several faults\"\nfaults = {{ pairs = [{}] }}\nnoise = {{ percent = 1.0, seed = 1 }}\n",
        faults.join(", ")
    )
}
