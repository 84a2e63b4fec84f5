//! Tests of workers that hang, crash or are killed, and of users who interrupt a run.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{
    Ran, cells, check, codes, every_cell, finish, list, pair, peerscope, place, read_json, run,
    signal, text_of, wait, wait_with_output, with, write,
};
use crate::fake::Fake;

/// A process as /proc shows it.
#[derive(Debug)]
struct Process {
    parent: u32,
    /// True unless it is a zombie, which has ended even if nobody asks for its exit code.
    running: bool,
    /// True if it waits, and does not merely wait for its turn on a processor.
    asleep: bool,
    /// Processor time used, in ticks of 10 ms.
    ticks: u64,
}

fn process(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, even brackets.
    let fields: Vec<_> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        parent: u32::try_from(number(1)?).ok()?,
        running: !["Z", "X"].contains(fields.first()?),
        asleep: *fields.first()? == "S",
        ticks: number(11)? + number(12)?,
    })
}

pub(crate) fn is_running(pid: u32) -> bool {
    process(pid).is_some_and(|process| process.running)
}

pub(crate) fn child_of(parent: u32) -> Option<u32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|&pid| {
        process(pid).is_some_and(|process| process.parent == parent && process.running)
    })
}

/// Waits until `look` returns a value.
pub(crate) fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a process has a handler for SIGINT and SIGTERM: before that they would end it as they end any program.
pub(crate) fn until_it_handles_signals(pid: u32) {
    const INT_AND_TERM: u64 = 1 << (2 - 1) | 1 << (15 - 1);
    until("handlers of signals", PATIENCE, || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
        (caught & INT_AND_TERM == INT_AND_TERM).then_some(())
    });
}

/// A guard against tests that hang; it says nothing of how fast the program is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the worker of a run, once it has used so much processor time that it must be measuring.
pub(crate) fn busy_worker(run: &Child) -> u32 {
    until("a worker that measures", PATIENCE, || {
        let worker = child_of(run.id())?;
        (process(worker)?.ticks >= 20).then_some(worker)
    })
}

/// Starts a run that takes seconds and reports to a file.
fn long_run(report: &str) -> Child {
    let args = with(check("pcie16", "standard"), &["-o", report]);
    peerscope(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn with_status<'a>(report: &'a Value, status: &'a str) -> impl Iterator<Item = &'a Value> {
    every_cell(report).filter(move |cell| cell["status"] == status)
}

/// Returns the pairs without a figure.
fn lost_pairs(report: &Value) -> BTreeSet<(u64, u64)> {
    cells(report).filter(|cell| cell["status"] != "measured").map(pair).collect()
}

/// Checks that one ordered pair lost figures, and the opposite one at most those with both directions busy.
fn assert_one_pair_lost(report: &Value) {
    let failed: BTreeSet<_> = with_status(report, "failed").map(pair).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let &(source, destination) = failed.first().unwrap();
    for cell in cells(report)
        .filter(|cell| cell["status"] != "measured" && pair(cell) != (source, destination))
    {
        assert_eq!(pair(cell), (destination, source), "{cell}");
        assert_eq!(cell["direction"], "both-ways", "{cell}");
    }
}

fn quick_json(machine: &str) -> (Ran, Value) {
    let ran = run(&with(check(machine, "quick"), &["--format", "json"]));
    let report = ran.json();
    (ran, report)
}

#[test]
fn a_copy_that_hangs_costs_its_pair_and_one_deadline() {
    let (ran, report) = quick_json("pair-hangs");
    assert_eq!(ran.code, Some(1));
    assert_eq!(lost_pairs(&report), BTreeSet::from([(1, 2)]));
    let hung: Vec<_> = with_status(&report, "hung").collect();
    assert!(!hung.is_empty());
    for cell in hung {
        let reason = cell["reason"].as_str().unwrap();
        assert!(reason.contains("did not end within 1.0 s"), "{reason}");
    }
    // 12 pairs in 8 placements, and 4 GPUs.
    assert_eq!(with_status(&report, "measured").count(), 11 * 8 + 4);
    assert_eq!(codes(&report), ["peer-copy-hung"]);
    assert_eq!(pair(&report["findings"][0]["subject"]), (1, 2));
    let problems = list(&report["measurements"]["problems"]);
    assert!(
        problems.len() == 1 && problems[0].as_str().unwrap().contains("GPU 1 → GPU 2"),
        "{problems:?}"
    );
}

#[test]
fn a_hang_in_a_longer_profile_costs_no_other_pair() {
    let report = run(&with(check("pair-hangs", "standard"), &["--format", "json"])).json();
    let lost = lost_pairs(&report);
    // With both directions at once, the copy that hangs also runs for the opposite pair.
    assert!(
        lost.contains(&(1, 2)) && lost.is_subset(&BTreeSet::from([(1, 2), (2, 1)])),
        "{lost:?}"
    );
}

#[test]
fn a_pair_that_hung_is_not_tried_again_by_what_comes_last() {
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/bases/h100x8-switch-each.toml");
    let text = format!(
        "base = \"{base}\"\nsummary = \"kernels hang between two GPUs\"\n\
         faults = {{ pairs = [{{ pairs = {{ ordered = [2, 3] }}, engine = \"kernel\", fault = \"hangs\" }}] }}\n"
    );
    let (folder, _) = place("x");
    let machine = write(folder.path(), "kernel-hangs.toml", &text);
    // With 1 s a busy host lets other rounds of the simulation pass for hung.
    let more = ["--deadline", "6", "--format", "json"];
    let report = run(&with(check(&machine, "full"), &more)).json();
    let errors = list(&report["findings"]).iter();
    let errors: Vec<_> = errors
        .filter(|finding| finding["severity"] == "error")
        .map(|finding| (&finding["code"], pair(&finding["subject"])))
        .collect();
    assert_eq!(errors, [(&json!("peer-copy-hung"), (2, 3))]);
    // Together with others, and by itself.
    let problems = list(&report["measurements"]["problems"]);
    assert_eq!(problems.len(), 2, "{problems:?}");
    // Talk and patterns with this pair come last.
    let load = list(&report["measurements"]["load"]).iter();
    let ring = load.filter(|load| load["pattern"] == "ring-by-kernels");
    let why: Vec<_> = ring.map(|load| load["reason"].as_str().unwrap()).collect();
    assert!(matches!(why[..], [why] if why.contains("GPU 2 → GPU 3 went wrong")), "{why:?}");
}

#[test]
fn a_worker_that_is_killed_once_costs_nothing() {
    let undisturbed = run(&with(check("pcie16", "standard"), &["--format", "json"])).json();
    for name in ["KILL", "TERM"] {
        let (_folder, report) = place("report.json");
        let run = long_run(&text_of(&report));
        let first = busy_worker(&run);
        signal(name, first);
        let parent = run.id();
        let second = until("another worker", PATIENCE, || {
            child_of(parent).filter(|&worker| worker != first)
        });
        let output = wait_with_output(run);
        assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
        assert!(!is_running(second), "the second worker is still there");
        let report = read_json(report);
        assert_eq!(cells(&report).filter(|cell| cell["status"] != "measured").count(), 0, "{name}");
        assert_eq!(codes(&report), codes(&undisturbed), "{name}");
        assert!(
            list(&report["findings"]).iter().all(|finding| finding["severity"] == "info"),
            "{name}: {report}"
        );
        let problems = list(&report["measurements"]["problems"]);
        let said = problems[0].as_str().unwrap();
        assert!(problems.len() == 1 && said.contains(&format!("(SIG{name})")), "{problems:?}");
        assert!(said.contains("it was tried again"), "{said}");
    }
}

/// Returns the next worker of a run, which hangs in the same round.
fn next_hanging_worker(parent: u32, before: u32) -> u32 {
    let worker =
        until("another worker", PATIENCE, || child_of(parent).filter(|&worker| worker != before));
    until_it_hangs(parent, worker);
    worker
}

#[test]
fn a_worker_that_is_killed_again_and_again_accuses_nothing() {
    let (_folder, report) = place("report.json");
    let (mut run, first) = hanging_run(&text_of(&report));
    signal("KILL", first);
    let second = next_hanging_worker(run.id(), first);
    signal("KILL", second);
    assert_eq!(wait(&mut run).code(), Some(3));
    let report = read_json(report);
    assert_eq!(codes(&report), ["not-tested"]);
    assert_eq!(lost_pairs(&report), BTreeSet::from([(1, 2)]));
    for cell in cells(&report).filter(|cell| cell["status"] != "measured") {
        assert_eq!(cell["status"], "skipped", "{cell}");
        assert!(
            cell["reason"].as_str().unwrap().contains("it was killed by signal 9 (SIGKILL)"),
            "{cell}"
        );
    }
    let message = report["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("signal 9 (SIGKILL), for the second time"), "{message}");
}

/// Starts a fake machine whose driver hangs. Returns the run and its worker.
fn hanging_fake(fake: &Fake, faults: &str, args: &[&str]) -> (Child, u32) {
    let mut command = fake.command(args);
    command.env(fake_machine::FAULTS, faults).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    let worker = until("a worker", PATIENCE, || child_of(run.id()));
    until_it_hangs(run.id(), worker);
    (run, worker)
}

const LONG: [&str; 9] = [
    "check",
    "--profile",
    "quick",
    "--format",
    "json",
    "--deadline",
    "3600",
    "--driver-deadline",
    "3600",
];

#[test]
fn a_worker_that_is_killed_while_the_driver_starts_is_started_again() {
    // Before any GPU, and at one GPU.
    for place in ["cuInit@1", "cuMemAlloc_v2@4"] {
        let fake = Fake::new("h200x2");
        let (run, worker) = hanging_fake(&fake, &format!("{place}=hang"), &LONG);
        signal("KILL", worker);
        let output = wait_with_output(run);
        assert_eq!(output.status.code(), Some(0), "{place}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let problems = list(&report["measurements"]["problems"]);
        assert!(
            problems.len() == 1 && problems[0].as_str().unwrap().contains("(SIGKILL)"),
            "{place}: {problems:?}"
        );

        let fake = Fake::new("h200x2");
        let (run, first) = hanging_fake(&fake, &format!("{place}+=hang"), &LONG);
        signal("KILL", first);
        let second = next_hanging_worker(run.id(), first);
        signal("KILL", second);
        let output = wait_with_output(run);
        assert_eq!(output.status.code(), Some(3), "{place}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(codes(&report), ["nothing-measured"], "{place}");
        let message = report["findings"][0]["message"].as_str().unwrap();
        assert!(message.contains("(SIGKILL), for the second time"), "{place}: {message}");
    }
}

/// The kernel's own counters show that memory ran out.
#[test]
fn a_worker_that_the_kernel_ended_for_want_of_memory_has_that_reason() {
    // One pair hangs until its deadline.
    let fake = Fake::new("pair-hangs");
    let events = |kills: u32| {
        let group = fake.root().join("sys/fs/cgroup/job");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(
            group.join("memory.events"),
            format!("max 3\noom {kills}\noom_kill {kills}\n"),
        )
        .unwrap();
    };
    std::fs::create_dir_all(fake.root().join("proc/self")).unwrap();
    std::fs::write(fake.root().join("proc/self/cgroup"), "0::/job\n").unwrap();
    events(0);
    let (run, first) = hanging_fake(&fake, "", &LONG);
    events(1);
    signal("KILL", first);
    let second = next_hanging_worker(run.id(), first);
    events(2);
    signal("KILL", second);
    let output = wait_with_output(run);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let why = "(SIGKILL): the kernel ended a process of its control group, which ran out of memory";
    let problems = list(&report["measurements"]["problems"]);
    assert!(problems.iter().all(|problem| problem.as_str().unwrap().contains(why)), "{problems:?}");
    assert!(
        list(&report["findings"]).iter().all(|finding| finding["severity"] != "error"),
        "{}",
        report["findings"]
    );
    assert_eq!(output.status.code(), Some(3), "{}", report["findings"]);
}

/// A copy that failed may have left another in progress, which would write into the next pair's check.
#[test]
fn a_worker_that_cannot_wait_for_what_an_error_left_is_replaced() {
    let fake = Fake::new("h200x2");
    let ran = finish(
        fake.command(&LONG)
            .env(fake_machine::FAULTS, "cuMemcpyPeerAsync@20=code:400;cuCtxSynchronize@1=code:719"),
    );
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report = ran.json();
    assert_eq!(codes(&report), ["copy-failed"]);
    assert_one_pair_lost(&report);
    let problems = list(&report["measurements"]["problems"]);
    let said = problems[0].as_str().unwrap();
    assert!(problems.len() == 1 && said.contains("400)") && said.contains("719)"), "{problems:?}");
    assert!(said.contains("the worker was replaced"), "{said}");
}

/// A crash that occurs twice by itself accuses a pair; a single crash leaves the verdict open.
#[test]
fn a_driver_that_crashes_twice_in_the_same_round_is_reported() {
    let fake = Fake::new("h200x2");
    let run = |faults: &str| finish(fake.command(&LONG).env(fake_machine::FAULTS, faults));
    let once = run("cuMemcpyPeerAsync@20=abort");
    assert_eq!((once.code, codes(&once.json())), (Some(3), vec!["copy-failed-once"]), "{once:?}");
    assert!(once.stdout.contains("signal 6"), "{once:?}");
    let (ran, report) = quick_json("crash");
    assert_eq!((ran.code, codes(&report)), (Some(1), vec!["copy-failed"]));
    assert_one_pair_lost(&report);
    assert_eq!(
        list(&report["measurements"]["problems"]).len(),
        2,
        "{}",
        report["measurements"]["problems"]
    );
}

#[test]
fn an_interrupted_run_keeps_what_it_has() {
    for name in ["INT", "TERM"] {
        let (_folder, report) = place("report.json");
        let run = long_run(&text_of(&report));
        let worker = busy_worker(&run);
        signal(name, run.id());
        let output = wait_with_output(run);
        assert_eq!(output.status.code(), Some(130), "{name}: {output:?}");
        assert!(!is_running(worker), "{name}: the worker is still there");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("nterrupted"), "{name}: {text}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");

        let report = read_json(report);
        assert_eq!(report["measurements"]["interrupted"], true, "{name}");
        assert_eq!(report["verdict"]["exit_code"], 130, "{name}");
        assert_eq!(
            report["verdict"]["verdict"], "inconclusive",
            "{name}: what was measured is fine"
        );
        assert!(with_status(&report, "measured").count() > 0, "{name}: nothing was kept");
        let skipped: Vec<_> = with_status(&report, "skipped").collect();
        assert!(!skipped.is_empty(), "{name}: it had ended already");
        assert!(
            skipped.iter().all(|cell| cell["reason"].as_str().unwrap().contains("interrupted")),
            "{name}"
        );
        assert_eq!(
            with_status(&report, "hung").count() + with_status(&report, "failed").count(),
            0,
            "{name}"
        );
        // A kept part can be judged again, and is still a part.
        assert_eq!(report["verdict"]["untested"].as_u64(), Some(skipped.len() as u64), "{name}");
    }
}

/// Starts `check` on the machine that hangs, with a deadline of an hour. Returns the run and its worker.
pub(crate) fn hanging_run(report: &str) -> (Child, u32) {
    let args = [
        "check",
        "--machine",
        "pair-hangs",
        "--profile",
        "quick",
        "--deadline",
        "3600",
        "-o",
        report,
    ];
    let run = peerscope(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let worker = until("a worker", PATIENCE, || child_of(run.id()));
    until_it_hangs(run.id(), worker);
    (run, worker)
}

/// Waits until a worker hangs: it uses no more processor time, and neither it nor its parent wants any. Those of a busy
/// machine that wait for their turn do not count.
pub(crate) fn until_it_hangs(run: u32, worker: u32) {
    const LOOKS: u32 = 100;
    let (mut ticks, mut alike) = (0, 0);
    until("a worker that hangs", PATIENCE, || {
        let now = process(worker)?;
        let waits = now.asleep && process(run)?.asleep && now.ticks == ticks;
        (ticks, alike) = (now.ticks, if waits { alike + 1 } else { 0 });
        (alike >= LOOKS).then_some(())
    });
}

#[test]
fn a_run_that_hangs_can_be_interrupted() {
    let (_folder, report) = place("report.json");
    let (mut run, worker) = hanging_run(&text_of(&report));
    signal("INT", run.id());
    // The hang would last an hour.
    assert_eq!(wait(&mut run).code(), Some(130));
    assert!(!is_running(worker), "the worker is still there");
    let report = read_json(report);
    assert_eq!(report["measurements"]["interrupted"], true);
    assert!(with_status(&report, "measured").count() > 0, "nothing was kept");
}

#[test]
fn no_worker_outlives_its_parent() {
    let (_folder, report) = place("report.json");
    let (mut run, hanging) = hanging_run(&text_of(&report));
    run.kill().unwrap();
    run.wait().unwrap();
    until("the end of a worker that hangs", PATIENCE, || (!is_running(hanging)).then_some(()));

    let mut run = long_run(&text_of(&report));
    let busy = busy_worker(&run);
    run.kill().unwrap();
    run.wait().unwrap();
    until("the end of a worker that measures", PATIENCE, || (!is_running(busy)).then_some(()));
    assert!(!report.exists(), "a killed run wrote a report");
    let left: Vec<_> = std::fs::read_dir(report.parent().unwrap()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
