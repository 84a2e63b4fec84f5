//! The file between `bracket begin` and `bracket end`.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Reading;
use measure::bracket::Taken;
use model::report::Tool;
use model::snapshot::Snapshot;

/// Schema of the file.
const SCHEMA: &str = "peerscope.bracket/1";

/// A reading that waits for the end of its job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    schema: String,
    tool: Tool,
    machine: String,
    pub(super) job: Option<String>,
    /// RFC 3339, UTC.
    read_at: String,
    /// Time since the system started.
    clock: Duration,
    reading_seconds: f64,
    taken: Taken,
}

/// The reason why a file is of no use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// There is no reading of this job, so there is no verdict on it.
    NoVerdict(String),
    /// The file is something else.
    Wrong(String),
}

impl State {
    pub(super) fn new(machine: &str, job: Option<String>, reading: Reading) -> Self {
        Self {
            schema: SCHEMA.into(),
            tool: Tool::this(),
            machine: machine.to_owned(),
            job,
            read_at: reading.at,
            clock: reading.clock,
            reading_seconds: reading.seconds,
            taken: reading.taken,
        }
    }

    /// Returns the text of the file.
    pub(super) fn text(&self) -> String {
        // Plain data without maps of other keys than text cannot fail; an empty file is refused by `load`.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    pub(super) fn reading(self) -> Reading {
        Reading {
            at: self.read_at,
            clock: self.clock,
            seconds: self.reading_seconds,
            taken: self.taken,
        }
    }

    /// Returns how it is known that the reading is of another machine, worded to follow the file's name.
    pub(super) fn is_of_another_machine(&self, now: &Snapshot) -> Option<String> {
        let uuids = |snapshot: &Snapshot| -> Vec<String> {
            let gpus = snapshot.gpus.iter();
            gpus.filter_map(|gpu| gpu.uuid.known().cloned()).collect()
        };
        let (then, now) = (uuids(&self.taken.snapshot), uuids(now));
        let strangers =
            !then.is_empty() && !now.is_empty() && then.iter().all(|uuid| !now.contains(uuid));
        let host = self.taken.snapshot.host.hostname.known();
        strangers.then(|| {
            let host = host.map_or_else(String::new, |host| format!(" ({host})"));
            format!("is the reading of another machine{host}: none of its GPUs is here; run 'bracket begin' here")
        })
    }
}

/// Reads the file of a job on this machine.
pub(super) fn load(path: &Path, machine: &str, job: Option<&str>) -> Result<State, Unusable> {
    let name = path.display();
    let bytes = recording::file(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Unusable::NoVerdict(format!(
            "there is no reading before the job in {name}: 'peerscope bracket begin --state {name}' did not run, or 'end' ran \
             already"
        )),
        _ => Unusable::Wrong(format!("cannot read {name}: {error}")),
    })?;
    let state: State = match serde_json::from_slice(&bytes) {
        Ok(state) => state,
        Err(why) if bytes.is_empty() || (why.is_eof() && claims(&bytes)) => {
            return Err(Unusable::NoVerdict(format!(
                "{name} was cut off, so the reading before the job is lost"
            )));
        }
        Err(_) if claims(&bytes) => {
            return Err(Unusable::NoVerdict(format!(
                "{name} is damaged or of another version, so the reading before the job is lost"
            )));
        }
        Err(_) => {
            return Err(Unusable::Wrong(format!(
                "{name} is not a file of 'peerscope bracket begin'"
            )));
        }
    };
    if state.schema != SCHEMA {
        return Err(Unusable::NoVerdict(format!(
            "{name} has the schema '{}', this version reads {SCHEMA}",
            state.schema
        )));
    }
    if state.machine != machine {
        return Err(Unusable::NoVerdict(format!(
            "{name} is a reading of the machine {}, not of {machine}",
            state.machine
        )));
    }
    match (&state.job, job) {
        (was, Some(job)) if was.as_deref() != Some(job) => {
            let was = was
                .as_ref()
                .map_or_else(|| "a job without a name".to_owned(), |was| format!("job {was}"));
            Err(Unusable::NoVerdict(format!(
                "{name} is the reading before {was}, not before job {job}"
            )))
        }
        _ => Ok(state),
    }
}

/// Returns true if these bytes were meant to be such a file.
fn claims(bytes: &[u8]) -> bool {
    let start = format!("{{\"schema\":\"{SCHEMA}\"");
    bytes.starts_with(start.as_bytes()) || start.as_bytes().starts_with(bytes)
}
