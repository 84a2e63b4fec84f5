//! Helpers that run the binary and read its output.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use model::measurement::Measurements;
use serde_json::Value;

/// Most time of a run. Normal runs take less than a tenth of it; a hung one must not block the suite.
/// A guard against tests that hang; it says nothing of how fast the program is.
const LIMIT: Duration = Duration::from_secs(120);

/// A report from 8 x H200, identifiers blanked.
pub(crate) const HARDWARE_REPORT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/h200x8-standard.json");

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Parses all of stdout as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is not JSON: {error}: {self:?}"))
    }

    /// Returns stdout with every run of white space as one blank, so that a line break hides no sentence.
    pub(crate) fn flowing(&self) -> String {
        flowing(&self.stdout)
    }
}

/// Replaces every run of white space with one blank.
pub(crate) fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Variable that names another build of the program. Tests run for minutes without optimisation.
pub(crate) const PROGRAM: &str = "PEERSCOPE_TEST_PROGRAM";

/// Returns the program under test: the named one, which must be built from this source, or cargo's build of these tests.
/// `tests/faults` always has cargo's, because the debug build checks every pointer of the calls that fail.
pub(crate) fn program() -> PathBuf {
    static CHECKED: OnceLock<PathBuf> = OnceLock::new();
    let find = || {
        let named = std::env::var_os(PROGRAM).filter(|_| env!("CARGO_CRATE_NAME") != "faults");
        let Some(named) = named.map(PathBuf::from) else {
            return env!("CARGO_BIN_EXE_peerscope").into();
        };
        assert_is_of_this_source(&named);
        named
    };
    CHECKED.get_or_init(find).clone()
}

/// Returns the path of the program under test as text, for scripts.
pub(crate) fn program_text() -> String {
    text_of(&program())
}

/// Checks that a named program is built from this very source: none of its source files is younger. Files of tests may
/// be.
fn assert_is_of_this_source(program: &Path) {
    let time = |file: &Path| std::fs::metadata(file).and_then(|known| known.modified());
    let built = time(program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let listed = std::fs::read_to_string(program.with_extension("d"))
        .expect("cargo's list of what it was made from");
    let (_, files) = listed.trim().split_once(": ").unwrap();
    // A blank within a name has a backslash before it.
    for file in files.replace("\\ ", "\0").split(' ').map(|file| file.replace('\0', " ")) {
        assert!(
            time(Path::new(&file)).unwrap() <= built,
            "{} is older than {file}",
            program.display()
        );
    }
}

/// Returns a command for the binary without any environment of the caller that changes its output.
pub(crate) fn peerscope<S: AsRef<str>>(args: &[S]) -> Command {
    let mut command = Command::new(program());
    command.args(args.iter().map(AsRef::as_ref)).stdin(Stdio::null());
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM", "RUST_BACKTRACE"] {
        command.env_remove(variable);
    }
    command.env("COLUMNS", "100");
    // Each run gets its own journals: the next run would announce one left behind.
    let state = fresh_state();
    command.env("XDG_STATE_HOME", &state);
    // Its own lock keeps a test from waiting for another that checks this machine.
    command.env("PEERSCOPE_LOCK", state.strip_prefix(env!("CARGO_TARGET_TMPDIR")).unwrap());
    command
}

/// Returns a folder for the state of one run, which is created only if the run needs it.
pub(crate) fn fresh_state() -> PathBuf {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static ALL: LazyLock<PathBuf> = LazyLock::new(|| {
        let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("state");
        // Remove what earlier test processes left.
        for old in std::fs::read_dir(&all).into_iter().flatten().flatten() {
            if !Path::new("/proc").join(old.file_name()).exists() {
                let _ = std::fs::remove_dir_all(old.path());
            }
        }
        all.join(std::process::id().to_string())
    });
    ALL.join(RUNS.fetch_add(1, Ordering::Relaxed).to_string())
}

/// Runs the binary with these arguments.
pub(crate) fn run<S: AsRef<str>>(args: &[S]) -> Ran {
    finish(&mut peerscope(args))
}

/// Runs a command to its end. The command must never panic.
pub(crate) fn finish(command: &mut Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = wait_with_output(child);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ran = Ran {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    };
    assert!(!ran.stderr.contains("panicked"), "{command:?}: {ran:?}");
    ran
}

/// Returns a child's output, as far as it goes to pipes. Kills a child that takes too long.
pub(crate) fn wait_with_output(child: Child) -> Output {
    let pid = child.id();
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match ended.recv_timeout(LIMIT) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            signal("KILL", pid);
            panic!("process {pid} did not end within {LIMIT:?}");
        }
    }
}

/// Waits for a child whose output goes elsewhere.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let until = Instant::now() + LIMIT;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("process {} did not end within {LIMIT:?}", child.id());
}

/// Sends a signal to one process.
pub(crate) fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .stderr(Stdio::null())
        .status();
    assert!(sent.is_ok(), "there is no kill(1)");
}

/// Returns the arguments of `check` for a machine and a profile; the machine that hangs gets a deadline of one second.
pub(crate) fn check(machine: &str, profile: &str) -> Vec<String> {
    let mut args = vec!["check", "--machine", machine, "--profile", profile];
    if machine == "pair-hangs" {
        args.extend(["--deadline", "1"]);
    }
    args.into_iter().map(String::from).collect()
}

/// Appends arguments.
pub(crate) fn with(mut args: Vec<String>, more: &[&str]) -> Vec<String> {
    args.extend(more.iter().copied().map(String::from));
    args
}

/// Report of `check --profile standard` for the machine that shows faults, run once.
pub(crate) static DEMO: LazyLock<Value> =
    LazyLock::new(|| run(&with(check("demo", "standard"), &["--format", "json"])).json());

/// Report of `check --profile standard` for the simulated H200 server, run once.
pub(crate) static H200X8: LazyLock<Value> =
    LazyLock::new(|| run(&with(check("h200x8", "standard"), &["--format", "json"])).json());

/// Compares a text with the file of this name in `snapshots`.
pub(crate) fn golden(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let compare = || settings.bind(|| insta::assert_snapshot!(name, text));
    // insta prints the difference, but its message names neither the file nor the next step.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(compare));
    assert!(
        result.is_ok(),
        "tests/e2e/snapshots/{name}.snap is another text; the difference is printed above. If it is intended, \
         scripts/goldens writes the file: look at every changed line"
    );
}

/// Removes what differs from run to run: the version, and times.
pub(crate) fn redact(text: &str) -> String {
    let mut lines = Vec::new();
    let mut in_time = false;
    for line in text.lines() {
        in_time = line.starts_with("Run ") || (in_time && line.starts_with(' '));
        if let Some(run) = line.strip_prefix("Run ") {
            let profile =
                run.split(", ").find(|part| part.starts_with("profile ")).unwrap_or("no profile");
            lines.push(format!("Run     [version], {profile}, [time]"));
        } else if !in_time {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n")
}

/// Reads a JSON file.
pub(crate) fn read_json(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Writes a JSON file into a folder.
pub(crate) fn write_json(folder: &Path, name: &str, value: &Value) -> String {
    write(folder, name, &value.to_string())
}

/// Changes the report as if NVML had not listed this GPU.
pub(crate) fn without_gpu(report: &mut Value, gpu: u32) {
    let is_of =
        |row: &Value| ["index", "gpu", "source", "destination"].iter().any(|key| row[*key] == gpu);
    let facts = [
        "snapshot/gpus",
        "snapshot/pairs",
        "topology/pairs",
        "driver/devices",
        "driver/peer_access",
    ];
    let figures = Measurements::TABLES.iter().copied();
    for table in facts.into_iter().chain(["links", "background"]).chain(figures) {
        for room in ["", "/measurements"] {
            if let Some(rows) =
                report.pointer_mut(&format!("{room}/{table}")).and_then(Value::as_array_mut)
            {
                rows.retain(|row| !is_of(row));
            }
        }
    }
    // The remaining cells were all measured.
    report["verdict"]["tested"] = every_cell(report).count().into();
}

/// Changes the report from hardware and writes it to a file. The folder is deleted with its guard.
pub(crate) fn changed_report(change: impl FnOnce(&mut Value)) -> (tempfile::TempDir, String) {
    let mut report = read_json(HARDWARE_REPORT);
    change(&mut report);
    let folder = place("").0;
    let path = write_json(folder.path(), "changed.json", &report);
    (folder, path)
}

/// Writes a file into a folder and returns its path.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    text_of(&path)
}

pub(crate) fn text_of(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Returns a folder that is deleted with its guard, and a file name in it.
pub(crate) fn place(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}"))
}

/// Returns the cells of the tables with one cell for every pair.
pub(crate) fn cells(report: &Value) -> impl Iterator<Item = &Value> {
    ["peer", "overlap", "latency"]
        .into_iter()
        .flat_map(|table| list(&report["measurements"][table]))
}

/// Returns every cell that was to be measured.
pub(crate) fn every_cell(report: &Value) -> impl Iterator<Item = &Value> {
    let of_table = |table: &&str| list_or_empty(&report["measurements"][table]).iter();
    let rows = Measurements::TABLES.iter().flat_map(of_table);
    // Each flow of several at once is a measurement.
    rows.flat_map(|row| vec![row; row["flows"].as_array().map_or(1, Vec::len)])
}

/// Returns the entries of a list that may be missing.
fn list_or_empty(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns source and destination of a cell.
pub(crate) fn pair(cell: &Value) -> (u64, u64) {
    (cell["source"].as_u64().unwrap(), cell["destination"].as_u64().unwrap())
}

/// Returns the codes of the findings.
pub(crate) fn codes(report: &Value) -> Vec<&str> {
    list(&report["findings"]).iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

/// Skips a test because a tool is missing; fails it if all tools were promised, as in .ci/run.
pub(crate) fn skipped_for_want_of(tool: &str) {
    let promised = std::env::var_os("PEERSCOPE_ALL_TOOLS").is_some_and(|value| !value.is_empty());
    assert!(!promised, "PEERSCOPE_ALL_TOOLS is set, and there is no {tool}");
    skipped(&format!("there is no {tool}"));
}

/// Returns true if a program can be started.
pub(crate) fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// Reports a skipped test visibly.
pub(crate) fn skipped(why: &str) {
    say(&format!("\n*** SKIPPED: {why} ***\n"));
}

/// Prints a remark about a passing test: cargo test captures the print macros, but not this.
#[allow(clippy::explicit_write, reason = "eprintln! is held back")]
pub(crate) fn say(what: &str) {
    writeln!(std::io::stderr(), "{what}").unwrap();
}
