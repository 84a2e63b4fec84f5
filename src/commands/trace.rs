//! Writes the file of `check --trace` and `recover --trace`.

use std::collections::BTreeMap;

use super::files::{Files, NotWritten, Whole};
use super::remark;
use crate::cli::CheckArgs;
use model::report::Report;
use model::timeline::Timeline;
use trace::{self, About};

/// Checks that the file can be written, and that the run has rounds that a timeline shows.
///
/// # Errors
///
/// A sentence that names the option or the file.
pub(super) fn prepare(
    args: &CheckArgs,
    has_timeline: bool,
    files: &Files,
) -> Result<Option<Whole>, String> {
    let Some(path) = &args.trace else {
        return Ok(None);
    };
    if !has_timeline {
        let name = args.profile.as_str();
        return Err(format!(
            "--trace: profile {name} with these probe groups measures nothing that a timeline shows"
        ));
    }
    files.beside(path).map(Some)
}

/// Reason for no file if the run followed no round.
pub(super) const NOT_MEASURED: &str = "nothing that a timeline shows was measured";
/// Reason for no file if the journal contains no timeline.
pub(super) const NOT_RECORDED: &str =
    "the journal holds nothing that a timeline shows: its run had no --trace, or ended before";

/// Writes the timeline of a run. If no round was followed, prints `nothing` as the reason and writes no file.
///
/// # Errors
///
/// The file could not be written.
pub(super) fn write(
    file: Option<&Whole>,
    timelines: &[Timeline],
    report: &Report,
    nothing: &str,
) -> Result<(), NotWritten> {
    let Some(file) = file else { return Ok(()) };
    if trace::is_empty(timelines) {
        remark(&format!("--trace: {nothing}, so there is no file"));
        return Ok(());
    }
    let known =
        report.snapshot.gpus.iter().filter_map(|gpu| Some((gpu.index, gpu.name.known()?.clone())));
    let names: BTreeMap<u32, String> = known.collect();
    let about = About {
        tool: &report.tool,
        machine: &report.machine,
        is_simulated: report.is_simulated(),
        started_at: &report.started_at,
        names: &names,
    };
    file.write(&trace::draw(timelines, &about))
}
