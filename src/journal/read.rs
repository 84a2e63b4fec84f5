//! Reading a journal back, whatever state it was left in.

use std::collections::HashMap;

use super::{Entry, Header, SCHEMA};
use crate::measure::Outcome;
use crate::model::measurement::DriverFacts;
use crate::model::snapshot::Snapshot;
use crate::plan::Round;

/// What a journal holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Which run it was.
    pub header: Header,
    /// The facts, where the run came so far.
    pub snapshot: Option<Snapshot>,
    /// What the driver said, where the run came so far.
    pub driver: Option<DriverFacts>,
    /// What was to be measured; empty where the run did not come so far.
    pub rounds: Vec<Round>,
    /// How rounds ended, by their number.
    pub outcomes: HashMap<u32, Outcome>,
    /// What went wrong beside single rounds.
    pub problems: Vec<String>,
    /// Lines that could not be read, beside a last one that was not finished.
    pub unreadable: usize,
    /// Where the time went.
    pub times: Times,
}

/// Seconds after the run's beginning at which something was there; 0 where it never was.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Times {
    /// The facts.
    pub facts: f64,
    /// The driver.
    pub driver: f64,
    /// The driver's own start alone, as long as it took.
    pub driver_floor: f64,
    /// The first round's beginning.
    pub plan: f64,
    /// The last line with a time.
    pub last: f64,
}

/// Reads a journal. A line that makes no sense is counted and left out; the last one may be torn.
///
/// # Errors
///
/// A sentence that does not name the file: it is empty, or not a journal, or of another version.
pub fn read(bytes: &[u8]) -> Result<Found, String> {
    // Every line ends with a line feed: what follows the last one was cut off.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
    let mut lines = whole.split(|byte| *byte == b'\n');
    let first = lines.next().filter(|line| !line.is_empty()).ok_or(match bytes {
        [] => "it is empty: the run was cut off before it had begun",
        _ => "it is not a journal of peerscope, or was cut off in its first line",
    })?;
    let mut found = Found {
        header: header(first)?,
        snapshot: None,
        driver: None,
        rounds: Vec::new(),
        outcomes: HashMap::new(),
        problems: Vec::new(),
        unreadable: 0,
        times: Times::default(),
    };
    for line in lines {
        match serde_json::from_slice(line) {
            Ok(entry) => found.take(entry),
            Err(_) => found.unreadable += 1,
        }
    }
    Ok(found)
}

fn header(line: &[u8]) -> Result<Header, String> {
    let value: serde_json::Value = serde_json::from_slice(line).map_err(|_| "it is not a journal of peerscope")?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => serde_json::from_value(value).map_err(|why| format!("its first line is not complete: {why}")),
        Some(other) => Err(format!(
            "it has the schema '{other}', this version reads {SCHEMA}: use the version of peerscope that wrote it"
        )),
        None => Err("it is not a journal of peerscope".into()),
    }
}

impl Found {
    fn take(&mut self, entry: Entry<'_>) {
        let at = match entry {
            Entry::Facts { at, snapshot } => {
                self.snapshot = Some(snapshot.into_owned());
                self.times.facts = at;
                at
            }
            Entry::Driver { at, floor_seconds, facts } => {
                self.driver = Some(facts.into_owned());
                (self.times.driver, self.times.driver_floor) = (at, floor_seconds);
                at
            }
            Entry::Plan { at, rounds } => {
                self.rounds = rounds.into_owned();
                self.times.plan = at;
                at
            }
            Entry::Outcome { at, id, outcome } => {
                self.outcomes.insert(id, outcome.into_owned());
                at
            }
            Entry::Problem { problem } => {
                self.problems.push(problem.into_owned());
                return;
            }
        };
        self.times.last = self.times.last.max(at);
    }
}
