//! Judges the result of a run with a fault.

use std::collections::BTreeSet;

use fake_machine::plan::Action;
use model::measurement::Measurements;
use serde_json::Value;

use crate::beds::{Bed, Calls};
use crate::cases::Case;
use crate::common::{Ran, finish, list};
use crate::shared;

/// Most that a fault may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cost {
    /// No measurement.
    Nothing,
    /// One ordered pair.
    Pair,
    /// The pairs of one GPU.
    Gpu,
    /// All measurements.
    Everything,
}

/// Runs a case and judges the result.
pub(crate) fn judge(bed: &Bed, case: &Case) -> Result<(), String> {
    let state = tempfile::tempdir().unwrap();
    let libraries = case.action.is_none().then(|| bed.libraries_without(case.function));
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
    let code =
        ran.code.ok_or_else(|| format!("it was ended by a signal; stderr: {}", ran.stderr))?;
    let report: Value = serde_json::from_str(&ran.stdout).map_err(|error| {
        format!("exit code {code}, no report ({error}); stderr: {}", ran.stderr)
    })?;
    if report["schema"] != "peerscope.report/1"
        || report["verdict"]["exit_code"].as_i64() != Some(code.into())
    {
        return Err(format!("exit code {code}, verdict {}", report["verdict"]));
    }
    if !shown && case.action.is_some() {
        // Calls at the end of a run may be earlier or later than in the run that was counted.
        return if !case.is_cuda() && case.call > 1 {
            Ok(())
        } else {
            Err("the fault was not reached".into())
        };
    }
    what_went_wrong_in_company_is_a_finding(&report)?;
    if bed.name == shared::BED {
        let named = is_named(case, code, &ran.stdout);
        return shared::judge(case, (&bed.report, bed.code), (&report, code), named);
    }
    let expected = expected_code(&report);
    if code != expected {
        return Err(format!("exit code {code} where its cells ask for {expected}"));
    }
    let lost = lost(bed, &report);
    let cost = cost_of(&lost);
    // A loop of launches is lost with the GPU that it waits for.
    // Two GPUs that talk are one pair and one group: after a hang neither is tried in another way.
    let most = match bed.name {
        "one-gpu" => most(case).max(Cost::Gpu),
        "live" if case.action == Some(Action::Hang) => Cost::Everything,
        _ => most(case),
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
    // If every answer is "no", the driver grants no access, and copies through host memory are what remains to test.
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
        let why =
            if same { "the report is as without it" } else { "figures are missing or others" };
        return Err(format!(
            "exit code {code}, and the fault is not named; {why}; {}",
            reasons(&report)
        ));
    }
    Ok(())
}

/// Checks faults that happen once on the beds of one GPU and the host. Such a fault costs one round and those that it
/// took with it. It is one finding, the exit code follows from it, and earlier measurements stay.
fn one_cause_is_one_finding(bed: &Bed, case: &Case, report: &Value) -> Result<(), String> {
    // A lie may have several consequences.
    let lie = case.action == Some(Action::Skip);
    if bed.calls != Calls::OfOneGpu || case.lasting || lie || !case.while_measuring() {
        return Ok(());
    }
    let serious = |report: &Value| -> Vec<String> {
        let all = list(&report["findings"]).iter();
        let serious = all.filter(|finding| finding["severity"] != "info");
        serious.map(|finding| format!("{} {}", finding["code"], finding["subject"])).collect()
    };
    let before = serious(&bed.report);
    let new: Vec<_> =
        serious(report).into_iter().filter(|finding| !before.contains(finding)).collect();
    if new.len() > 1 {
        return Err(format!("{} findings of one cause: {new:?}; {}", new.len(), reasons(report)));
    }
    Ok(())
}

/// Checks that a round that broke off is a finding, even if the retry worked and every cell has a figure. The list must
/// match what `problems` reports about rounds at once and workers that ended by themselves.
fn what_went_wrong_in_company_is_a_finding(report: &Value) -> Result<(), String> {
    let broken = report["measurements"]["broken_off"].as_array().map_or(0, Vec::len);
    let codes: BTreeSet<&str> =
        list(&report["findings"]).iter().filter_map(|finding| finding["code"].as_str()).collect();
    let serious = ["copy-failed-once", "copy-failed", "peer-copy-hung"];
    if broken > 0 && !serious.iter().any(|code| codes.contains(code)) {
        return Err(format!(
            "{broken} rounds broke off, and no finding says so: {codes:?}; {}",
            reasons(report)
        ));
    }
    let problems = list(&report["measurements"]["problems"]).iter().filter_map(Value::as_str);
    let of_its_own = |problem: &str| {
        let explained =
            ["out of memory", "OUT_OF_MEMORY", "801)", "711)", "ulimit", "exited with code 0"];
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

/// Returns the exit code that follows from the cells of a report.
fn expected_code(report: &Value) -> i32 {
    let error = list(&report["findings"]).iter().any(|finding| finding["severity"] == "error");
    let measured =
        cells(report).filter(|cell| cell["status"] == "measured" || is_wrong(cell)).count();
    let whole = cells(report).all(|cell| {
        cell["status"] == "measured" && (cell["verified"] == "ok" || cell["verified"].is_null())
    });
    let usable = list(&report["measurements"]["driver"]["devices"])
        .iter()
        .all(|device| device["failure"].is_null());
    let failed = cells(report).any(|cell| {
        ["failed", "hung"].contains(&cell["status"].as_str().unwrap()) || is_wrong(cell)
    });
    // Figures are impossible if NVML hides the links that they used.
    let possible =
        list(&report["findings"]).iter().all(|finding| finding["code"] != "figure-impossible");
    let failed =
        failed || statuses(report, "pinning").any(|status| ["failed", "hung"].contains(&status));
    let whole = whole && is_pinning_whole(report);
    // A copy that failed once proves nothing, and a sound machine does not do it.
    let possible = possible
        && list(&report["findings"]).iter().all(|finding| finding["code"] != "copy-failed-once");
    match (error || failed, measured > 0 && whole && usable && possible) {
        (true, _) => 1,
        (false, true) => 0,
        (false, false) => 3,
    }
}

fn is_wrong(cell: &Value) -> bool {
    cell["verified"].as_str().is_some_and(|verified| ["dropped", "corrupt"].contains(&verified))
}

/// Tables that are judged by themselves: page-locking by its status alone, handles between processes by `shared.rs`.
const APART: [&str; 2] = ["pinning", "sharing"];

fn cells(report: &Value) -> impl Iterator<Item = &Value> {
    let tables = Measurements::TABLES.iter();
    let tables = tables.filter(|table| !APART.contains(table));
    tables.flat_map(|table| list_of(report, table))
}

fn list_of<'a>(report: &'a Value, table: &str) -> impl Iterator<Item = &'a Value> {
    report["measurements"][table].as_array().into_iter().flatten()
}

/// First number that represents a load pattern among GPUs.
const PATTERNS: u64 = 1000;

/// Returns the pair of a cell. A GPU and its host are the GPU twice; a pattern of several flows gets a number of its
/// own.
fn pair(cell: &Value) -> (u64, u64) {
    if let Some(pattern) = cell["pattern"].as_str() {
        let name = [pattern, cell["of"].as_str().unwrap()].concat();
        let number =
            name.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(131).wrapping_add(byte.into()));
        return [PATTERNS + number % 1_000_000_007; 2].into();
    }
    // A loop also belongs to the GPU that it waits for.
    if let Some(other) = cell["synchronized"].as_u64() {
        return (cell["gpu"].as_u64().unwrap(), other);
    }
    // Loads from the memory of another GPU are of that pair.
    if let (Some(of), Some(gpu)) = (cell["of_gpu"].as_u64(), cell["gpu"].as_u64()) {
        return (of, gpu);
    }
    // A kernel beside a copy with the host.
    if let (Some(gpu), true) =
        (cell["of_gpu"].as_u64(), cell["source"].is_null() || cell["destination"].is_null())
    {
        return (gpu, gpu);
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

/// Returns true if page-locking was timed wherever that was requested.
fn is_pinning_whole(report: &Value) -> bool {
    statuses(report, "pinning").all(|status| status == "measured")
}

/// Returns true if a pattern was left out because it contains all copies of another pattern that failed.
fn is_lost_with_another(report: &Value, cell: &Value) -> bool {
    let copies = |failed: &Value| {
        let mut flows = list(&failed["flows"]).iter();
        let ends = |flow: &Value| (flow["from"].clone(), flow["to"].clone());
        flows.all(|flow| list(&cell["flows"]).iter().any(|own| ends(own) == ends(flow)))
    };
    let failed = |other: &&Value| {
        other["pattern"].is_string() && ["failed", "hung"].iter().any(|is| other["status"] == *is)
    };
    cell["status"] == "skipped"
        && cell["pattern"].is_string()
        && cells(report).filter(failed).any(copies)
}

/// Returns ordered pairs, and load patterns, that lack a figure which they have without the fault.
fn lost(bed: &Bed, report: &Value) -> BTreeSet<(u64, u64)> {
    let measured = |report: &Value| -> Vec<(u64, u64)> {
        let is_meant =
            |cell: &&Value| cell["status"] == "measured" || is_lost_with_another(report, cell);
        cells(report).filter(is_meant).map(pair).collect()
    };
    let now = measured(report);
    let count = |all: &[(u64, u64)], wanted| all.iter().filter(|pair| **pair == wanted).count();
    let before = measured(&bed.report);
    before.iter().copied().filter(|pair| count(&now, *pair) < count(&before, *pair)).collect()
}

fn cost_of(lost: &BTreeSet<(u64, u64)>) -> Cost {
    match lost.len() {
        0 => Cost::Nothing,
        1 => Cost::Pair,
        _ if (0..16).any(|gpu| lost.iter().all(|pair| pair.0 == gpu || pair.1 == gpu)) => Cost::Gpu,
        _ => Cost::Everything,
    }
}

/// Returns the most that a case may cost.
fn most(case: &Case) -> Cost {
    if case.lasting {
        return Cost::Everything;
    }
    if !case.is_cuda() {
        return match case.function {
            // Without these functions there is no GPU to measure.
            "nvmlInit_v2" | "nvmlDeviceGetCount_v2" => Cost::Everything,
            // nvml-wrapper calls it at its start.
            "nvmlSystemGetDriverVersion" if case.action == Some(Action::Hang) => Cost::Everything,
            // A call that hangs blocks all later readings, perhaps the GPU's name too.
            _ if case.action == Some(Action::Hang) => Cost::Gpu,
            "nvmlDeviceGetHandleByIndex_v2" => Cost::Gpu,
            _ => Cost::Nothing,
        };
    }
    if case.while_measuring() {
        // Access that still exists but is reported as gone occupies one of the few places for good.
        let lie = case.function == "cuCtxDisablePeerAccess"
            && matches!(case.action, Some(Action::Code(705) | Action::Skip));
        return if lie { Cost::Gpu } else { Cost::Pair };
    }
    // A broken context affects one process, and with it the start of every GPU.
    if let Some(Action::Code(214 | 700 | 719)) = case.action {
        return Cost::Everything;
    }
    match case.function {
        "cuInit" | "cuDeviceGetCount" | "cuDeviceGet" => Cost::Everything,
        // These are called once for all devices, or for one device after the other. A hang counts as a hang of the
        // driver's start.
        "cuDeviceGetPCIBusId"
        | "cuDeviceGetUuid"
        | "cuDeviceGetUuid_v2"
        | "cuDeviceGetAttribute"
        | "cuDriverGetVersion"
        | "cuCtxSetCurrent"
        | "cuMemHostAlloc"
            if case.action == Some(Action::Hang) =>
        {
            Cost::Everything
        }
        _ => Cost::Gpu,
    }
}

/// Returns true if a fault may leave no trace because it affects no measurement.
fn may_go_unnamed(case: &Case) -> bool {
    match (case.function, case.action) {
        // The access is already in the requested state.
        ("cuCtxEnablePeerAccess", Some(Action::Code(704)))
        | ("cuCtxDisablePeerAccess", Some(Action::Code(705))) => true,
        // Too many peers: another peer's access is released and this one is tried again.
        ("cuCtxEnablePeerAccess", Some(Action::Code(711))) => !case.lasting,
        // The stream cannot be held: one direction alone is still measured.
        ("cuStreamWaitValue32_v2", Some(Action::Code(801))) => true,
        // It is then unknown if a device has reached its gate, and rows are as good as they were.
        ("cuStreamWriteValue32_v2", Some(Action::Code(801))) => true,
        // Without a version, or where native code does not fit, the driver is given PTX.
        ("cuDriverGetVersion", Some(Action::Code(_))) => true,
        ("cuModuleLoadData", Some(Action::Code(209))) => !case.lasting,
        // The call only makes the driver submit its work; the later wait shows the error.
        ("cuStreamQuery", Some(Action::Code(_))) => true,
        // NVML reports in this way that there is no such link.
        ("nvmlDeviceGetNvLinkState", Some(Action::Code(2))) => true,
        // And in this way, a timeout, that there is no event.
        ("nvmlEventSetWait_v2", Some(Action::Code(10))) => true,
        // Atomics are then not promised, and the report says so by null.
        ("cuDeviceGetP2PAttribute", Some(Action::Code(_))) => true,
        // These give words for an error, or one of several identifiers of a device.
        (
            "cuGetErrorName"
            | "cuGetErrorString"
            | "cuDeviceGetUuid"
            | "cuDeviceGetUuid_v2"
            | "cuDeviceGetPCIBusId",
            _,
        ) => true,
        // The function is not needed, or it succeeds without doing its work.
        (_, None | Some(Action::Skip)) => true,
        // Newer functions: the older ones that they replaced are called instead.
        (
            "nvmlDeviceGetFieldValues" | "nvmlDeviceGetGpuFabricInfoV",
            Some(Action::Code(3 | 13 | 25)),
        ) => true,
        // The watch reads these repeatedly, and one reading more or less does not matter; only the first readings are
        // facts.
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
        // nvml-wrapper calls it at its start, for the numbers of fields that are not used here.
        ("nvmlSystemGetDriverVersion", _) => case.call == 1,
        _ => false,
    }
}

/// Returns true if a report names the fault.
fn is_named(case: &Case, code: i32, report: &str) -> bool {
    let any = |words: &[&str]| words.iter().any(|word| report.contains(word));
    match case.action {
        None => any(&[&format!("has no function {}", case.function), case.function, "unsupported"]),
        Some(Action::Hang) => any(&[
            "did not end within",
            "did not start within",
            "did not come up within",
            "were not loaded onto it within",
            "no answer within",
            "did not answer",
        ]),
        Some(Action::Abort) => any(&["signal 6"]),
        // A lie cannot be distinguished from its consequences; the exit code shows that there are some.
        Some(Action::Skip) => code != 0,
        // This is also a lie: NVML reports in this way that there is no such link, but the link exists.
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

/// A measurement of a pair.
struct Compared {
    cell: String,
    is_staged: bool,
    is_pattern: bool,
    bytes: u64,
    /// GB/s; 0 if there is none.
    rate: f64,
}

impl Compared {
    /// Returns true if the rates are equal to three digits. Two kinds need only agree within 3%. One is patterns of
    /// several flows, whose counted time begins and ends with copies of all of them. The other is copies of another
    /// size, which changes the raw rate of a row.
    fn is_like(&self, other: &Self) -> bool {
        let (one, another) = (self.rate, other.rate);
        let near = match self.bytes == other.bytes && !self.is_pattern {
            true => format!("{one:.0}") == format!("{another:.0}"),
            false => (one - another).abs() <= 0.03 * one.max(another),
        };
        self.cell == other.cell && near
    }
}

/// Returns true if a report has all cells of another with the same figures, and only staged ones beyond them. If a fact
/// is missing, copies have another size. Staged copies are then measured in full instead of being thinned out by the
/// rates of routes.
fn same_figures(one: &Value, other: &Value) -> bool {
    let mut left = figures(one);
    let mut take = |figure: &Compared| {
        left.iter()
            .position(|candidate| candidate.is_like(figure))
            .map(|place| left.swap_remove(place))
            .is_some()
    };
    figures(other).iter().all(&mut take) && left.iter().all(|beyond| beyond.is_staged)
}

fn figures(report: &Value) -> Vec<Compared> {
    let figure = |cell: &Value| {
        let axes =
            ["placement", "issuer", "engine", "direction", "path", "way", "status", "verified"]
                .map(|key| &cell[key]);
        let of_host = ["memory", "allocation", "numa_node"].map(|key| &cell[key]);
        // This machine's clock times memory that is page-locked or filled for each copy.
        let is_timed_here = cell["allocation"].as_str().is_some_and(|of| of != "reused");
        let rate = cell["achieved_gbps"].as_f64().filter(|_| !is_timed_here);
        Compared {
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
    let messages: Vec<_> =
        list(&report["findings"]).iter().map(|finding| finding["message"].to_string()).collect();
    let mut text = format!(
        "findings: {}; problems: {}",
        messages.join(" | "),
        report["measurements"]["problems"]
    );
    text.truncate(text.char_indices().nth(700).map_or(text.len(), |(at, _)| at));
    text
}
