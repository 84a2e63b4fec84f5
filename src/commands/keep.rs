//! Keeps the measurements of a run whose report could not be written to its place.

use std::path::{Path, PathBuf};

use super::output;
use model::report::Report;
use model::shell;
use report::files;
use run::recording::{self, Journal};

/// Keeps the measurements in the journal or, if the journal lacks some, in another file. Returns a sentence that names
/// the place, without its full stop.
///
/// `whole` is a file that contains the whole report anyway. `is_drawn` is true if no timeline is missing.
pub(super) fn keep(
    report: &Report,
    whole: Option<PathBuf>,
    is_drawn: bool,
    journal: &Journal,
) -> String {
    let recover = |path: &Path| {
        let path = shell::word(&path.display().to_string());
        format!("peerscope recover {path}")
    };
    if let Some(path) = journal.path().filter(|_| journal.is_whole()) {
        return format!(
            "The measurements are kept; to make the report from them: {}",
            recover(path)
        );
    }
    let measured =
        report.measurements.as_ref().map_or(0, |measured| diagnose::outcomes(measured).0);
    let held = journal.path().map_or(0, held);
    let took = match (journal.path(), held) {
        (None, _) => "There is no journal file".to_owned(),
        (_, 0) => format!("The journal took none of the {measured} measurements"),
        (_, held) => format!("The journal took {held} of {measured} measurements"),
    };
    match whole.map_or_else(|| elsewhere(report), Ok) {
        Ok(place) => {
            // A report contains no timeline.
            if is_drawn {
                journal.remove();
            }
            format!("{took}; the whole report is in {}", place.display())
        }
        Err(why) => {
            let rest = match journal.path().filter(|_| held > 0) {
                Some(path) => format!("; to make a report from these: {}", recover(path)),
                None => ": nothing else of this run is kept".to_owned(),
            };
            format!("{took}, and no other place took the report ({why}){rest}")
        }
    }
}

/// Returns the number of measurements that `recover` would find in a journal.
fn held(path: &Path) -> usize {
    let found = files::file(path).ok().and_then(|bytes| recording::read(&bytes).ok());
    found.map_or(0, |(_, recording)| diagnose::outcomes(&recording.conclude().measurements).0)
}

/// Writes the whole report to a folder where programs may write. It tries the one for temporary files, and two that are
/// often on other disks, the second of them in memory.
///
/// # Errors
///
/// The reason why no folder accepted it.
fn elsewhere(report: &Report) -> Result<PathBuf, String> {
    let mut folders = vec![std::env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
    folders.dedup();
    let mut reasons = Vec::new();
    for folder in folders {
        match output::write_anew(report, &folder) {
            Ok(path) => return Ok(path),
            Err(error) => reasons.push(format!("{}: {}", folder.display(), error.kind())),
        }
    }
    Err(reasons.join(", "))
}
