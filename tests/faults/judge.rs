//! What a run with a fault must come to.

use std::collections::BTreeSet;
use std::time::Duration;

use fake_machine::plan::Action;
use serde_json::Value;

use crate::beds::Bed;
use crate::cases::Case;
use crate::common::{Ran, finish, list};

/// A run without hangs: it takes a tenth of a second by itself, and shares two processors.
const LIMIT: Duration = Duration::from_secs(20);
/// A run with one: until NVML is given up, and again.
const HANG_LIMIT: Duration = Duration::from_secs(50);

/// How much a fault may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cost {
    /// No measurement.
    Nothing,
    /// One ordered pair.
    Pair,
    /// The pairs of one GPU.
    Gpu,
    /// All.
    Everything,
}

/// Runs a case and looks at what came.
pub fn judge(bed: &Bed, case: &Case) -> Result<(), String> {
    let state = tempfile::tempdir().unwrap();
    let libraries = case
        .action
        .is_none()
        .then(|| bed.libraries_without(case.function));
    let ran = finish(&mut bed.command(
        state.path(),
        &case.plan(),
        libraries.as_ref().map(tempfile::TempDir::path),
        case.sleeps(),
    ));
    let shown = state.path().join("fault-0.shown").exists();
    look(bed, case, &ran, shown)
}

fn look(bed: &Bed, case: &Case, ran: &Ran, shown: bool) -> Result<(), String> {
    let limit = if case.sleeps() { HANG_LIMIT } else { LIMIT };
    if ran.took > limit {
        return Err(format!("it took {:?}", ran.took));
    }
    let code = ran
        .code
        .ok_or_else(|| format!("it was ended by a signal; stderr: {}", ran.stderr))?;
    let report: Value = serde_json::from_str(&ran.stdout).map_err(|error| {
        format!(
            "exit code {code}, no report ({error}); stderr: {}",
            ran.stderr
        )
    })?;
    if report["schema"] != "peerscope.report/1"
        || report["verdict"]["exit_code"].as_i64() != Some(code.into())
    {
        return Err(format!("exit code {code}, verdict {}", report["verdict"]));
    }
    if !shown && case.action.is_some() {
        // What comes at the end of a run may come sooner or later than in the run that was counted.
        return if !case.is_cuda() && case.call > 1 {
            Ok(())
        } else {
            Err("the fault was not reached".into())
        };
    }
    what_went_wrong_in_company_is_a_finding(&report)?;
    let expected = expected_code(&report);
    if code != expected {
        return Err(format!(
            "exit code {code} where its cells ask for {expected}"
        ));
    }
    let lost = lost(bed, &report);
    let cost = cost_of(&lost);
    // A loop of launches is lost with the GPU that it waits for.
    let most = if bed.name == "one-gpu" {
        most(case).max(Cost::Gpu)
    } else {
        most(case)
    };
    if cost > most {
        return Err(format!(
            "it cost {cost:?} where {most:?} was to be expected: {lost:?}; {}",
            reasons(&report)
        ));
    }
    one_cause_is_one_finding(bed, case, &report)?;
    let named = is_named(case, code, &ran.stdout);
    let same = code == bed.code.unwrap_or(-1) && same_figures(&report, &bed.report);
    // Every answer a "no" is a driver that grants nothing, and then the copies through host memory
    // are what there is to test.
    let refused = case.function == "cuDeviceCanAccessPeer"
        && case.lasting
        && case.action == Some(Action::Skip);
    if refused && report.to_string().contains("No peer access") {
        return Ok(());
    }
    if code == 0 && !same {
        return Err(format!(
            "exit code 0, and not all was measured as without the fault; {}",
            reasons(&report)
        ));
    }
    let tolerable = named || (same && may_go_unnamed(case));
    if !tolerable {
        let why = if same {
            "the report is as without it"
        } else {
            "figures are missing or others"
        };
        return Err(format!(
            "exit code {code}, and the fault is not named; {why}; {}",
            reasons(&report)
        ));
    }
    Ok(())
}

/// On the beds of one GPU and the host: a fault that happens once costs one round and those that it took with it, is one
/// finding that the exit code follows, and what was measured before it stays.
fn one_cause_is_one_finding(bed: &Bed, case: &Case, report: &Value) -> Result<(), String> {
    // What follows of a lie may be several things.
    let lie = case.action == Some(Action::Skip);
    if !crate::cases::ONE_GPU.contains(&bed.name) || case.lasting || lie || !case.while_measuring()
    {
        return Ok(());
    }
    let serious = |report: &Value| -> Vec<String> {
        let all = list(&report["findings"]).iter();
        let serious = all.filter(|finding| finding["severity"] != "info");
        serious
            .map(|finding| format!("{} {}", finding["code"], finding["subject"]))
            .collect()
    };
    let before = serious(&bed.report);
    let new: Vec<_> = serious(report)
        .into_iter()
        .filter(|finding| !before.contains(finding))
        .collect();
    if new.len() > 1 {
        return Err(format!(
            "{} findings of one cause: {new:?}; {}",
            new.len(),
            reasons(report)
        ));
    }
    Ok(())
}

/// What broke off and worked when it was tried again has a figure in every cell. It must be a finding all the same, and
/// the list must have what `problems` says of rounds at once and of workers that ended by themselves.
fn what_went_wrong_in_company_is_a_finding(report: &Value) -> Result<(), String> {
    let broken = report["measurements"]["broken_off"]
        .as_array()
        .map_or(0, Vec::len);
    let codes: BTreeSet<&str> = list(&report["findings"])
        .iter()
        .filter_map(|finding| finding["code"].as_str())
        .collect();
    let serious = [
        "copy-failed-once",
        "load-copy-failed",
        "peer-copy-failed",
        "peer-copy-hung",
        "host-copy-failed",
    ];
    if broken > 0 && !serious.iter().any(|code| codes.contains(code)) {
        return Err(format!(
            "{broken} rounds broke off, and no finding says so: {codes:?}; {}",
            reasons(report)
        ));
    }
    let problems = list(&report["measurements"]["problems"])
        .iter()
        .filter_map(Value::as_str);
    let of_its_own = |problem: &str| {
        let explained = [
            "out of memory",
            "OUT_OF_MEMORY",
            "801)",
            "711)",
            "ulimit",
            "exited with code 0",
        ];
        let ended =
            problem.contains(" at once: ") || problem.contains("tried again with another worker");
        ended
            && !problem.contains("once more")
            && !explained.iter().any(|words| problem.contains(words))
    };
    let told = problems.filter(|problem| of_its_own(problem)).count();
    if told > broken {
        return Err(format!(
            "{told} rounds broke off, and broken_off has {broken}; {}",
            reasons(report)
        ));
    }
    Ok(())
}

/// The exit code that the cells of a report ask for.
fn expected_code(report: &Value) -> i32 {
    let error = list(&report["findings"])
        .iter()
        .any(|finding| finding["severity"] == "error");
    let measured = cells(report)
        .filter(|cell| cell["status"] == "measured" || is_wrong(cell))
        .count();
    let whole = cells(report).all(|cell| {
        cell["status"] == "measured" && (cell["verified"] == "ok" || cell["verified"].is_null())
    });
    let usable = list(&report["measurements"]["driver"]["devices"])
        .iter()
        .all(|device| device["failure"].is_null());
    let failed = cells(report).any(|cell| {
        ["failed", "hung"].contains(&cell["status"].as_str().unwrap()) || is_wrong(cell)
    });
    // Figures that cannot be, where NVML hides the links that they came over.
    let possible = list(&report["findings"])
        .iter()
        .all(|finding| finding["code"] != "bandwidth-impossible");
    let failed =
        failed || statuses(report, "pinning").any(|status| ["failed", "hung"].contains(&status));
    let whole = whole && is_pinning_whole(report);
    // It proves nothing, and a sound machine does not do it.
    let possible = possible
        && list(&report["findings"])
            .iter()
            .all(|finding| finding["code"] != "copy-failed-once");
    match (error || failed, measured > 0 && whole && usable && possible) {
        (true, _) => 1,
        (false, true) => 0,
        (false, false) => 3,
    }
}

fn is_wrong(cell: &Value) -> bool {
    cell["verified"]
        .as_str()
        .is_some_and(|verified| ["dropped", "corrupt"].contains(&verified))
}

/// The tables of probes on one GPU, which verify no bytes.
const ON_ONE_GPU: [&str; 5] = ["pipeline", "engines", "calls", "launch_loop", "hazard"];

fn cells(report: &Value) -> impl Iterator<Item = &Value> {
    let tables = ["peer", "host", "load"].into_iter().chain(ON_ONE_GPU);
    tables.flat_map(|table| list_of(report, table))
}

fn list_of<'a>(report: &'a Value, table: &str) -> impl Iterator<Item = &'a Value> {
    report["measurements"][table]
        .as_array()
        .into_iter()
        .flatten()
}

/// Where the numbers begin that stand for load patterns among GPUs.
const PATTERNS: u64 = 1000;

/// The pair of a cell; a GPU and its host are the GPU twice, and a pattern of several flows is a place of its own.
fn pair(cell: &Value) -> (u64, u64) {
    if let Some(pattern) = cell["pattern"].as_str() {
        let name = [pattern, cell["of"].as_str().unwrap()].concat();
        let number = name.bytes().fold(7_u64, |hash, byte| {
            hash.wrapping_mul(131).wrapping_add(byte.into())
        });
        return [PATTERNS + number % 1_000_000_007; 2].into();
    }
    // A loop is of the GPU that it waits for too.
    if let Some(other) = cell["synchronized"].as_u64() {
        return (cell["gpu"].as_u64().unwrap(), other);
    }
    if cell["gpu"].is_null() {
        crate::common::pair(cell)
    } else {
        [cell["gpu"].as_u64().unwrap(); 2].into()
    }
}

fn statuses<'a>(report: &'a Value, table: &str) -> impl Iterator<Item = &'a str> {
    report["measurements"][table]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|cell| cell["status"].as_str())
}

/// Whether page-locking was timed wherever that was asked for.
fn is_pinning_whole(report: &Value) -> bool {
    statuses(report, "pinning").all(|status| status == "measured")
}

/// Whether a pattern was left out because another one failed of which it copies all and more.
fn is_lost_with_another(report: &Value, cell: &Value) -> bool {
    let copies = |failed: &Value| {
        let mut flows = list(&failed["flows"]).iter();
        let ends = |flow: &Value| (flow["from"].clone(), flow["to"].clone());
        flows.all(|flow| {
            list(&cell["flows"])
                .iter()
                .any(|own| ends(own) == ends(flow))
        })
    };
    let failed = |other: &&Value| {
        other["pattern"].is_string() && ["failed", "hung"].iter().any(|is| other["status"] == *is)
    };
    cell["status"] == "skipped"
        && cell["pattern"].is_string()
        && cells(report).filter(failed).any(copies)
}

/// Ordered pairs that lack a figure which they have without the fault, and load patterns likewise.
fn lost(bed: &Bed, report: &Value) -> BTreeSet<(u64, u64)> {
    let measured = |report: &Value| -> Vec<(u64, u64)> {
        let is_meant =
            |cell: &&Value| cell["status"] == "measured" || is_lost_with_another(report, cell);
        cells(report).filter(is_meant).map(pair).collect()
    };
    let now = measured(report);
    let count = |all: &[(u64, u64)], wanted| all.iter().filter(|pair| **pair == wanted).count();
    let before = measured(&bed.report);
    before
        .iter()
        .copied()
        .filter(|pair| count(&now, *pair) < count(&before, *pair))
        .collect()
}

fn cost_of(lost: &BTreeSet<(u64, u64)>) -> Cost {
    match lost.len() {
        0 => Cost::Nothing,
        1 => Cost::Pair,
        _ if (0..16).any(|gpu| lost.iter().all(|pair| pair.0 == gpu || pair.1 == gpu)) => Cost::Gpu,
        _ => Cost::Everything,
    }
}

/// The most that a case may cost.
fn most(case: &Case) -> Cost {
    if case.lasting {
        return Cost::Everything;
    }
    if !case.is_cuda() {
        return match case.function {
            // Without these there is no GPU to be measured.
            "nvmlInit_v2" | "nvmlDeviceGetCount_v2" => Cost::Everything,
            // nvml-wrapper's start asks for it.
            "nvmlSystemGetDriverVersion" if case.action == Some(Action::Hang) => Cost::Everything,
            // A call that hangs holds up all that is read after it, the GPU's name perhaps too.
            _ if case.action == Some(Action::Hang) => Cost::Gpu,
            "nvmlDeviceGetHandleByIndex_v2" => Cost::Gpu,
            _ => Cost::Nothing,
        };
    }
    if case.while_measuring() {
        // Access that is still there and said to be gone takes one of the few places for good.
        let lie = case.function == "cuCtxDisablePeerAccess"
            && matches!(case.action, Some(Action::Code(705) | Action::Skip));
        return if lie { Cost::Gpu } else { Cost::Pair };
    }
    // A broken context is one process's, and with it the start of every GPU.
    if let Some(Action::Code(214 | 700 | 719)) = case.action {
        return Cost::Everything;
    }
    match case.function {
        "cuInit" | "cuDeviceGetCount" | "cuDeviceGet" => Cost::Everything,
        // Called once for all, or for one device after the other: a hang is the driver's start's.
        "cuDeviceGetPCIBusId"
        | "cuDeviceGetUuid"
        | "cuDeviceGetUuid_v2"
        | "cuCtxSetCurrent"
        | "cuMemHostAlloc"
            if case.action == Some(Action::Hang) =>
        {
            Cost::Everything
        }
        _ => Cost::Gpu,
    }
}

/// Whether a fault may leave no trace where it has no consequence for anything measured.
fn may_go_unnamed(case: &Case) -> bool {
    match (case.function, case.action) {
        // Already so: that is what was asked for.
        ("cuCtxEnablePeerAccess", Some(Action::Code(704)))
        | ("cuCtxDisablePeerAccess", Some(Action::Code(705))) => true,
        // Too many peers: another is let go and this one tried again.
        ("cuCtxEnablePeerAccess", Some(Action::Code(711))) => !case.lasting,
        // A stream that cannot be held: one direction by itself is measured all the same.
        ("cuStreamWaitValue32_v2", Some(Action::Code(801))) => true,
        // Nobody knows then whether a device has come to its gate, and rows are as good as they were.
        ("cuStreamWriteValue32_v2", Some(Action::Code(801))) => true,
        // Asked only so that the driver submits what it has; what went wrong comes to light when that is waited for.
        ("cuStreamQuery", Some(Action::Code(_))) => true,
        // NVML's way to say that there is no such link.
        ("nvmlDeviceGetNvLinkState", Some(Action::Code(2))) => true,
        // Words for an error, or one of several ways to know a device by.
        (
            "cuGetErrorName"
            | "cuGetErrorString"
            | "cuDeviceGetUuid"
            | "cuDeviceGetUuid_v2"
            | "cuDeviceGetPCIBusId",
            _,
        ) => true,
        // Not needed where it is missing, or success with nothing done that was to be done.
        (_, None | Some(Action::Skip)) => true,
        // Newer functions that give way to older ones.
        (
            "nvmlDeviceGetFieldValues" | "nvmlDeviceGetGpuFabricInfoV",
            Some(Action::Code(3 | 13 | 25)),
        ) => true,
        // The watch reads these again and again, and one reading more or less is no fact; the first
        // readings are facts.
        (
            "nvmlDeviceGetHandleByIndex_v2"
            | "nvmlDeviceGetFieldValues"
            | "nvmlDeviceGetNvLinkErrorCounter"
            | "nvmlDeviceGetCurrPcieLinkGeneration"
            | "nvmlDeviceGetCurrPcieLinkWidth"
            | "nvmlDeviceGetPcieReplayCounter"
            | "nvmlDeviceGetTotalEccErrors"
            | "nvmlDeviceGetCurrentClocksEventReasons"
            | "nvmlDeviceGetCurrentClocksThrottleReasons"
            | "nvmlDeviceGetClockInfo"
            | "nvmlDeviceGetTemperature",
            _,
        ) => case.call > 1 && !case.lasting,
        // nvml-wrapper asks for it when it starts, to know the numbers of fields that are not used here.
        ("nvmlSystemGetDriverVersion", _) => case.call == 1,
        _ => false,
    }
}

/// Whether a report tells of the fault.
fn is_named(case: &Case, code: i32, report: &str) -> bool {
    let any = |words: &[&str]| words.iter().any(|word| report.contains(word));
    match case.action {
        None => any(&[
            &format!("has no function {}", case.function),
            case.function,
            "unsupported",
        ]),
        Some(Action::Hang) => any(&[
            "did not end within",
            "did not start within",
            "did not come up within",
            "were not loaded onto it within",
            "no answer within",
            "did not answer",
        ]),
        Some(Action::Abort) => any(&["signal 6"]),
        // A lie cannot be told from what follows of it; that something did is told by the exit code.
        Some(Action::Skip) => code != 0,
        // A lie as well: NVML's way to say that there is no such link, of one that is there.
        Some(Action::Code(2)) if case.function == "nvmlDeviceGetNvLinkState" => code != 0,
        Some(Action::Code(705)) if case.function == "cuCtxDisablePeerAccess" => code != 0,
        Some(Action::Code(code)) if case.is_cuda() => {
            any(&[&format!(" {code})"), &format!("({code})")])
        }
        Some(Action::Code(3 | 13 | 25)) => any(&["unsupported", "not supported"]),
        Some(Action::Code(4)) => any(&["needs root", "(4)"]),
        Some(Action::Code(code)) => any(&[&format!("({code})")]),
    }
}

/// What was measured of each pair.
struct Figure {
    cell: String,
    is_staged: bool,
    is_pattern: bool,
    bytes: u64,
    /// 0 where there is none.
    rate: f64,
}

impl Figure {
    /// Whether it is the same to three digits; of patterns of several flows, whose time that counts begins and ends with
    /// copies of all of them, and of copies of another size, on which the raw rate of a row depends,
    /// within 3%.
    fn is_like(&self, other: &Self) -> bool {
        let (one, another) = (self.rate, other.rate);
        let near = match self.bytes == other.bytes && !self.is_pattern {
            true => format!("{one:.0}") == format!("{another:.0}"),
            false => (one - another).abs() <= 0.03 * one.max(another),
        };
        self.cell == other.cell && near
    }
}

/// Whether a report has all cells that another has, with the same figures, and none beyond them. Where a fact is
/// missing, copies have another size, and staged ones that are thinned out by the rates of routes are measured in full.
fn same_figures(one: &Value, other: &Value) -> bool {
    let mut left = figures(one);
    let mut take = |figure: &Figure| {
        left.iter()
            .position(|candidate| candidate.is_like(figure))
            .map(|place| left.swap_remove(place))
            .is_some()
    };
    figures(other).iter().all(&mut take) && left.iter().all(|beyond| beyond.is_staged)
}

fn figures(report: &Value) -> Vec<Figure> {
    let figure = |cell: &Value| {
        let axes = [
            "placement",
            "issuer",
            "engine",
            "direction",
            "path",
            "status",
            "verified",
        ]
        .map(|key| &cell[key]);
        let of_host = ["memory", "allocation", "numa_node"].map(|key| &cell[key]);
        // Memory that is page-locked anew is timed by this machine's clock.
        let rate = cell["achieved_gbps"]
            .as_f64()
            .filter(|_| cell["allocation"] != "anew");
        Figure {
            cell: format!("{:?} {axes:?} {of_host:?}", pair(cell)),
            is_staged: cell["path"] == "staged",
            is_pattern: cell["pattern"].is_string(),
            bytes: cell["bytes"].as_u64().unwrap_or(0),
            rate: rate.unwrap_or(0.0),
        }
    };
    cells(report).map(figure).collect()
}

fn reasons(report: &Value) -> String {
    let messages: Vec<_> = list(&report["findings"])
        .iter()
        .map(|finding| finding["message"].to_string())
        .collect();
    let mut text = format!(
        "findings: {}; problems: {}",
        messages.join(" | "),
        report["measurements"]["problems"]
    );
    text.truncate(
        text.char_indices()
            .nth(700)
            .map_or(text.len(), |(at, _)| at),
    );
    text
}
